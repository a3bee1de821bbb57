"""What is old is deleted, as far as snapshots cover it."""

from __future__ import annotations

from collections.abc import Callable

from rankloop.service.process import Process
from rankloop.service.store import admin, series


def sweep(process: Process, stopping: Callable[[], bool] = lambda: False) -> None:
    """Delete what is past retention or to be erased, as far as snapshots cover it."""
    days = process.settings.retention_days
    before = process.clock() - days * 86400 if days else None
    while process.writer.do(lambda c: admin.sweep(c, before)) and not stopping():
        pass
    process.writer.do(lambda c: series.sweep(c, process.clock()))
