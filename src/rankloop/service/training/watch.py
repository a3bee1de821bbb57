"""Which thread is in the code of a learner, and since when: the watch notices a call that does not return.

Python cannot end a thread that does not return from `learn`, `load` or `state`. A learning process of its own therefore
ends itself; it starts again without the outcome, or without the ranker, that it hung in. In a process that also ranks,
another thread takes over the work of the one that hangs.

Time in which the whole process stood still (SIGSTOP, a paused machine) is not the learner's: the thread that watches
stood still as well, and that time is not counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rankloop.service.storage import quarantine
from rankloop.service.storage.admin import Ranker
from rankloop.service.training.crash_breadcrumb import Slate
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.process import Process

MOST = 3  # outcomes of a ranker that may hang before it is quarantined
TELL = 2.0  # seconds that the store has to take it down
logger = logging.getLogger("rankloop")


class Entry(NamedTuple):
    """A thread in the code of a learner."""

    row: Ranker
    what: str  # learn, load, state or explain
    seq: int
    since: float  # on the clock of the watch
    holder: str = ""  # the process that was, or is, in it
    thread: int = 0
    aside: bool = False  # nobody waits for this thread, so only its own ranker is affected


class Watch:
    """One for each process that learns.

    Parameters
    ----------
    process
        The store, the settings, the counts.
    clock
        Seconds that pass.
    """

    def __init__(self, process: Process, clock: Callable[[], float] = time.monotonic) -> None:
        self._process, self._clock = process, clock
        self._in: dict[int, Entry] = {}  # by thread
        self.slate: Slate | None = None  # for those who look from outside the process
        self.on_hanging: Callable[[Entry], None] = self.take_down
        self._told: set[tuple[int, float]] = set()  # thread and time of those that were reported
        self._looked, self._paused = clock(), 0.0
        self._every = process.settings.beat_seconds
        self.thread = Repeating("watch", self._every, self.look, process.database, process.thread_failed)

    @contextmanager
    def of(self, row: Ranker, what: str, seq: int, aside: bool = False) -> Iterator[None]:
        """While this thread is in the code of a ranker's learner."""
        thread = threading.get_ident()
        self._in[thread] = Entry(row, what, seq, self._now(), self._process.worker, thread, aside)
        slate = self.slate if what == "learn" else None
        if slate is not None:
            slate.write(row.name, what, seq)
        try:
            yield
        finally:
            del self._in[thread]
            if slate is not None:
                slate.wipe()

    def _now(self) -> float:
        """Seconds in which this process ran. It is late by two looks at most where the watch could not look."""
        return min(self._clock(), self._looked + 2 * self._every) - self._paused

    def look(self) -> None:
        """Report each call that does not return, once. The watch calls it every `beat_seconds`."""
        now = self._clock()
        self._paused += max(0.0, now - self._looked - 2 * self._every)
        self._looked = now
        hanging = {(one.thread, one.since): one for one in self.hanging() if not one.aside}
        self._told.intersection_update(hanging)
        for key, entry in hanging.items():
            if key not in self._told:
                self._told.add(key)
                self.on_hanging(entry)

    def hanging(self) -> list[Entry]:
        """Calls that have taken longer than the setting `learn_seconds`."""
        long_ago = self._now() - self._process.settings.learn_seconds
        return [entry for entry in list(self._in.values()) if entry.since < long_ago]

    def silent(self) -> set[str]:
        """Rankers with a call that does not return: this process does not learn them until it does."""
        return {entry.row.name for entry in self.hanging()}

    def take_down(self, entry: Entry) -> None:
        """Store what happened: the outcome is skipped, or the ranker is quarantined, and its status says so."""
        name, seconds = entry.row.name, self._process.settings.learn_seconds
        text = f"{entry.what} of outcome {entry.seq} did not return within {seconds:g} s"
        logger.error("ranker %s: %s", name, text)
        self._process.metrics.count("learn_errors_total", ranker=name)
        now = self._process.clock()
        try:
            self._process.writer.do(
                lambda c: quarantine.note(c, entry.row, entry.what, entry.seq, text, now, MOST, entry.holder), TELL
            )
        except Exception as error:  # it will hang there once more, and be taken down then
            logger.error("ranker %s: this could not be stored: %s", name, error)
