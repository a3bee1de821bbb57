"""The maintenance threads of a process."""

from __future__ import annotations

from collections.abc import Callable

from rankloop.service.maintenance.attribution_windows import AttributionWindows
from rankloop.service.maintenance.housekeeping import Archive, Reports, Retention
from rankloop.service.maintenance.webhook_outbox import WebhookOutbox
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process


class Maintenance:
    """All of them in a process that learns; in another one, only the closing of windows while no process learns.

    Parameters
    ----------
    process
        The store, the settings, the metrics.
    learning
        Of a process that learns.
    closed
        Called with the rankers that have new outcomes.
    changed
        Called with a ranker that its guardrail has changed.
    """

    def __init__(
        self,
        process: Process,
        learning: Learning | None,
        closed: Callable[[set[str]], None],
        changed: Callable[[str], None],
    ) -> None:
        self.windows = AttributionWindows(process, learning, closed, changed)
        self.threads, self.learns = [self.windows.thread], learning is not None
        if learning is not None:
            archive = Archive(process) if process.settings.archive else None
            self.reports, self.retention = Reports(learning), Retention(process, archive)
            self.outbox = WebhookOutbox(process, learning)
            learning.replaceable.append(self.reports.thread)
            self.threads += [self.reports.thread, self.retention.thread, self.outbox.thread]
            self.threads += [] if archive is None else [archive.thread]

    def start(self) -> None:
        """Begin."""
        if self.learns:
            self.reports.count_store()  # the first scrape needs the gauges
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End after the work under way."""
        for thread in self.threads:
            thread.stop(2.0 if thread.name == "webhook" else 10.0)  # a webhook that hangs is not waited for

    def dead_threads(self) -> list[str]:
        """Names of the threads that have ended without having been stopped."""
        return [one.name for one in self.threads if one.dead]
