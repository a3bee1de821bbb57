"""The thread that says that this process lives, and does nothing else that could take long."""

from __future__ import annotations

from collections.abc import Callable

from rankloop.service.learning.watch import Entry, Watch
from rankloop.service.process import Process
from rankloop.service.repeating import Repeating
from rankloop.service.store import admin


class Heartbeat:
    """Beats for the process and for the leases it holds, and looks whether someone hangs in a learner."""

    def __init__(self, process: Process, watch: Watch) -> None:
        self._process, self._watch = process, watch
        self.on_hanging: Callable[[Entry], None] = watch.take_down  # a process of its own ends itself, too
        self._told: set[float] = set()
        self._thread = Repeating("heartbeat", process.settings.beat_seconds, self.beat, process.database)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Fall silent."""
        self._thread.stop()

    def dead_threads(self) -> list[str]:
        """The name of its thread, if that has ended without being told to."""
        return self._thread.dead_threads()

    def beat(self) -> None:
        """One beat. Who hangs in a learner does not beat for its ranker: another process may take it."""
        process = self._process
        hanging = [entry for entry in self._watch.hanging() if entry.since not in self._told]
        for entry in hanging:
            self._told.add(entry.since)
            self.on_hanging(entry)
        silent = self._watch.silent()
        report = process.report()
        process.writer.do(
            lambda c: admin.beat(c, process.worker, process.machine, process.settings.learn, report, silent)
        )
