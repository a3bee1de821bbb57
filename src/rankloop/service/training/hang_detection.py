"""Notices calls of a learner that do not return, and keeps for the supervisor where a killed process was.

Python cannot end such a thread. A learning process of its own ends itself and starts again without the outcome, or
without the ranker. In a process that also ranks, another thread takes over.
"""

from __future__ import annotations

import logging
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from rankloop.service.storage import quarantine
from rankloop.service.storage.rankers import Ranker
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import RepeatingThread

MAX_SKIPPED = 3  # outcomes of a ranker that may hang before it is quarantined
STORE_TIMEOUT = 2.0  # seconds that the store has to record a hang
_KILLED, _LENGTH, _TEXT, _SIZE = 0, 1, 5, 4096
logger = logging.getLogger("rankloop")


class LearnerCall(NamedTuple):
    """A thread in the code of a learner."""

    row: Ranker
    what: str  # learn, load, state or explain
    seq: int
    since: float  # on the detector's clock
    worker: str = ""  # the process that was, or is, in it
    thread: int = 0
    aside: bool = False  # nobody waits for this thread, so only its own ranker is affected


class Crumb(NamedTuple):
    """The call that a killed process was in."""

    ranker: str
    what: str
    seq: int
    worker: str


class CrashBreadcrumb:
    """The outcome that is being learned, in memory shared with the supervisor, which outlives this process.

    Machine code that never ends keeps the interpreter, so only the supervisor can notice. It kills the process, and
    the next one reads here which outcome of which ranker it was.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self.worker = ""  # each process has its own copy of this

    def write(self, ranker: str, what: str, seq: int) -> None:
        """A call begins."""
        text = msgspec.msgpack.encode((ranker, what, seq, self.worker))
        self._memory[_TEXT : _TEXT + len(text)] = text
        self._memory[_LENGTH:_TEXT] = len(text).to_bytes(4, "little")

    def clear(self) -> None:
        """The call has returned."""
        self._memory[_LENGTH:_TEXT] = bytes(4)

    def mark_killed(self) -> None:
        """The process is about to be killed because it hangs."""
        self._memory[_KILLED] = 1

    def read(self) -> Crumb | None:
        """The call that the previous process was killed in; None if it was not, or if this was read before."""
        length = int.from_bytes(self._memory[_LENGTH:_TEXT], "little")
        killed, self._memory[_KILLED] = self._memory[_KILLED], 0
        self.clear()
        if not killed or not 0 < length <= _SIZE - _TEXT:
            return None
        return Crumb(*msgspec.msgpack.decode(self._memory[_TEXT : _TEXT + length], type=tuple[str, str, int, str]))


class HangDetector:
    """Knows which threads are in learners and since when. One for each learning process.

    Time in which the whole process was stopped (SIGSTOP, a paused machine) does not count: the detector's own thread
    was stopped as well.

    Parameters
    ----------
    process
        The store, the settings, the metrics.
    clock
        Seconds that pass.
    """

    def __init__(self, process: Process, clock: Callable[[], float] = time.monotonic) -> None:
        self._process, self._clock = process, clock
        self._calls: dict[int, LearnerCall] = {}  # by thread
        self.breadcrumb: CrashBreadcrumb | None = None
        self.on_hang: Callable[[LearnerCall], None] = self.record
        self._reported: set[tuple[int, float]] = set()  # (thread, since)
        self._looked, self._paused = clock(), 0.0
        self._every = process.settings.beat_seconds
        self.thread = RepeatingThread("hang-detection", self._every, self.look, process.database, process.thread_failed)

    @contextmanager
    def call(self, row: Ranker, what: str, seq: int, aside: bool = False) -> Iterator[None]:
        """While this thread is in the code of a ranker's learner."""
        thread = threading.get_ident()
        self._calls[thread] = LearnerCall(row, what, seq, self._now(), self._process.worker, thread, aside)
        breadcrumb = self.breadcrumb if what == "learn" else None
        if breadcrumb is not None:
            breadcrumb.write(row.name, what, seq)
        try:
            yield
        finally:
            del self._calls[thread]
            if breadcrumb is not None:
                breadcrumb.clear()

    def _now(self) -> float:
        """Seconds in which this process ran; at most two looks late."""
        return min(self._clock(), self._looked + 2 * self._every) - self._paused

    def look(self) -> None:
        """Report each hanging call, once. Called every `beat_seconds`."""
        now = self._clock()
        self._paused += max(0.0, now - self._looked - 2 * self._every)
        self._looked = now
        hanging = {(one.thread, one.since): one for one in self.hanging() if not one.aside}
        self._reported.intersection_update(hanging)
        for key, call in hanging.items():
            if key not in self._reported:
                self._reported.add(key)
                self.on_hang(call)

    def hanging(self) -> list[LearnerCall]:
        """Calls that have taken longer than the setting `learn_seconds`."""
        long_ago = self._now() - self._process.settings.learn_seconds
        return [call for call in list(self._calls.values()) if call.since < long_ago]

    def hanging_rankers(self) -> set[str]:
        """Rankers with a hanging call: this process does not learn them until it returns."""
        return {call.row.name for call in self.hanging()}

    def record(self, call: LearnerCall) -> None:
        """Store a hang: the outcome is skipped, or the ranker is quarantined; its status shows it."""
        name, seconds = call.row.name, self._process.settings.learn_seconds
        text = f"{call.what} of outcome {call.seq} did not return within {seconds:g} s"
        logger.error("ranker %s: %s", name, text)
        self._process.metrics.count("learn_errors_total", ranker=name)
        now = self._process.clock()
        try:
            self._process.writer.do(
                lambda c: quarantine.add_failure(c, call.row, call.what, call.seq, text, now, MAX_SKIPPED, call.worker),
                STORE_TIMEOUT,
            )
        except Exception as error:  # it will hang there once more, and be recorded then
            logger.error("ranker %s: this could not be stored: %s", name, error)
