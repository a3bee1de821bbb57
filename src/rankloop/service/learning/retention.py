"""What is old is deleted, as far as snapshots cover it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rankloop.service.store import admin, audit, series

if TYPE_CHECKING:
    from rankloop.service.engine import Engine


def sweep(engine: Engine, stopping: Callable[[], bool] = lambda: False) -> None:
    """Delete what is past retention or to be erased, as far as snapshots cover it."""
    days = engine.settings.retention_days
    before = engine.clock() - days * 86400 if days else None
    while engine.writer.do(lambda c: admin.sweep(c, before)) and not stopping():
        pass
    engine.writer.do(lambda c: series.sweep(c, engine.clock()))
    if engine.settings.audit_days:
        engine.writer.do(lambda c: audit.sweep(c, engine.clock() - engine.settings.audit_days * 86400))
