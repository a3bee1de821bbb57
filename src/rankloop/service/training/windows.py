"""Attribution windows that end: impressions that waited long enough for their feedback become outcomes.

This does not depend on any learner. Every process that learns closes the windows of all rankers, also of those that
nobody can learn now. If no process that learns has a heartbeat, the first of the others takes over within
`lease_seconds`. It also counts the experiments of rankers that nobody learns, so that guardrails go on working.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rankloop.service.storage import admin, log
from rankloop.service.storage.batches import in_batches
from rankloop.service.storage.database import Connection
from rankloop.service.training import count_evidence
from rankloop.service.training.leases import Leases
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.process import Process

TICK = 0.2  # seconds between looks
logger = logging.getLogger("rankloop")


class Windows:
    """The thread that closes them.

    Parameters
    ----------
    process
        The store, the settings, the counts.
    leases
        Knows which processes live. None: this process does not learn, and looks by itself.
    closed
        Called with the rankers that have new outcomes.
    changed
        Called with a ranker whose guardrail has put it into shadow.
    """

    def __init__(
        self,
        process: Process,
        leases: Leases | None,
        closed: Callable[[set[str]], None],
        changed: Callable[[str], None],
    ) -> None:
        self._process, self._closed, self._changed = process, closed, changed
        self._learns, self._leases = leases is not None, leases or Leases(process)
        self._looked = float("-inf")
        self.thread = Repeating("windows", TICK, self._tick, process.database, process.thread_failed)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def stop(self) -> None:
        """End after the batch under way."""
        self.thread.stop()

    def _tick(self) -> None:
        now = time.monotonic()
        beat = now - self._looked >= self._process.settings.beat_seconds
        if beat:
            self._looked = now
            if not self._learns:
                self._leases.look_around(self._process.database.read(admin.workers))
        if self._learns or self._leases.in_charge:
            self.close()
        if beat and self._leases.in_charge:
            self._count()

    def close(self) -> None:
        """Close all windows whose time is up, the one that ended first first, in batches with pauses between them."""
        process = self._process

        def some(connection: Connection, limit: int) -> list[log.Closing]:
            # Asked for where lists are written: had the clock gone back since, new ones would seem an hour old.
            return log.close_windows(connection, process.clock(), process.writer.kinds, limit)

        if not process.database.read(lambda c: log.due(c, process.clock())):
            return
        for closings in in_batches(process.writer, some, lambda: self.thread.stopping):
            process.count_closed(closings)
            self._closed({closing.ranker for closing in closings})

    def _count(self) -> None:
        """Count the experiments of rankers that no living process learns."""
        for name in count_evidence.count_unlearned(self._process, self._leases.learned()):
            self._changed(name)
