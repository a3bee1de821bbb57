"""The thread that reports that this process lives, and does nothing else that could take long."""

from __future__ import annotations

from rankloop.service.storage import admin
from rankloop.service.training.watch import Watch
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.process import Process


class Heartbeat:
    """Beats for the process and for the leases it holds."""

    def __init__(self, process: Process, watch: Watch) -> None:
        self._process, self._watch = process, watch
        self.thread = Repeating(
            "heartbeat", process.settings.beat_seconds, self.beat, process.database, process.thread_failed
        )

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def stop(self) -> None:
        """End after the beat under way."""
        self.thread.stop()

    def beat(self) -> None:
        """One beat. There is none for rankers that hang here: another process may take them."""
        process, silent = self._process, self._watch.silent()
        process.collect()
        process.writer.do(lambda c: admin.beat(c, process.worker, process.machine, process.settings.learn, silent))
