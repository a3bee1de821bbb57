"""What is settled is exported before it is deleted, in a thread of its own: a first export may take minutes, and
windows must close meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path

from rankloop.core.errors import RankloopError
from rankloop.service.storage import admin, log
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.process import Process

EVERY = 3600.0  # seconds between exports: every one makes a file of each ranker that was used
LOOK = 10.0  # seconds between looks whether it is time
AGAIN = 300.0  # seconds after which one that failed is tried again
SLACK = 3600.0  # seconds that the clocks of machines which rank may be behind
logger = logging.getLogger("rankloop")


class Archive:
    """The folder of setting `archive`, and how much of the log is safely in it."""

    def __init__(self, process: Process) -> None:
        self.process, self.folder = process, Path(process.settings.archive).expanduser()
        self.complete = float("-inf")  # all lists made before that moment are exported, unless they had no outcome
        self._due = float("-inf")
        self.thread = Repeating("archive", LOOK, self._look, process.database, process.thread_failed)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def stop(self) -> None:
        """End after the export under way, if that is soon; else it ends with the process, and the next goes on."""
        self.thread.stop()

    def _look(self) -> None:
        now = self.process.clock()
        if now < self._due <= now + EVERY:  # farther ahead: the clock was set back
            return
        self._due = now + AGAIN
        try:
            self.export()
        except (RankloopError, OSError) as error:
            logger.error("archive: %s. Nothing is deleted by age until it succeeds", error)
            return
        self._due = now + EVERY

    def export(self) -> None:
        """Export what is settled, of all rankers."""
        from rankloop.service.maintenance.archive.exporting import export_log

        database = self.process.database
        # Before the export looks how far the log goes: a list that is open now, or comes later, may not be in it.
        first = database.read(log.oldest_open)
        safe = min(self.process.clock() - SLACK, float("inf") if first is None else first)
        # A ranker that was deleted and made again, or a store that was restored from a copy, must not end it for ever.
        export_log(database, self.folder, [one.name for one in database.read(admin.rankers)], aside=True)
        self.complete = max(self.complete, safe)
