"""Who is in a learner's code now, and since when: what hangs there is noticed from outside.

A learner that does not come back from `learn`, `load` or `state` holds its thread for ever, and Python cannot take it
back. So the heartbeat looks here. In a process of its own the learner is ended with it: the outcome at which it hung is
marked as not to be learned, so that it is passed over from now on and in any replay, and the process is started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rankloop.service.learning.slate import Slate
from rankloop.service.process import Process
from rankloop.service.store import troubles
from rankloop.service.store.admin import Ranker

MOST = 3  # outcomes of a ranker that may hang before it is not learned any more
TELL = 2.0  # seconds that the store has to take it down
logger = logging.getLogger("rankloop")


class Entry(NamedTuple):
    """Someone in a learner."""

    row: Ranker
    what: str  # learn, load or state
    seq: int
    since: float  # monotonic
    holder: str = ""  # the process that was, or is, in it


class Watch:
    """One for each process that learns."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._in: dict[int, Entry] = {}  # by thread
        self.slate: Slate | None = None  # for those who look from outside the process

    @contextmanager
    def of(self, row: Ranker, what: str, seq: int) -> Iterator[None]:
        """While this thread is in the code of a ranker's learner."""
        thread = threading.get_ident()
        self._in[thread] = Entry(row, what, seq, time.monotonic(), self._process.worker)
        slate = self.slate if what == "learn" else None
        if slate is not None:
            slate.write(row.name, what, seq)
        try:
            yield
        finally:
            del self._in[thread]
            if slate is not None:
                slate.wipe()

    def silent(self) -> set[str]:
        """The rankers of those: whoever hangs in one does not learn it."""
        return {entry.row.name for entry in self.hanging()}

    def hanging(self) -> list[Entry]:
        """Those that have been in there for longer than the setting `learn_seconds`."""
        long_ago = time.monotonic() - self._process.settings.learn_seconds
        return [entry for entry in list(self._in.values()) if entry.since < long_ago]

    def take_down(self, entry: Entry) -> None:
        """Let the store know, so that the status says it and nobody falls into the same hole again."""
        name, seconds = entry.row.name, self._process.settings.learn_seconds
        text = f"{entry.what} of outcome {entry.seq} did not come back within {seconds:g} s"
        logger.error("ranker %s: %s", name, text)
        self._process.metrics.count("learn_errors_total", ranker=name)
        now = self._process.clock()
        try:
            self._process.writer.do(
                lambda c: troubles.note(c, entry.row, entry.what, entry.seq, text, now, MOST, entry.holder), TELL
            )
        except Exception as error:  # it will hang there once more, and be taken down then
            logger.error("ranker %s: this could not be stored: %s", name, error)
