"""What is old is deleted, as far as snapshots cover it, and so is what deleted rankers have left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rankloop.service.store import forgetting, graves, series
from rankloop.service.store.batches import in_batches

if TYPE_CHECKING:
    from rankloop.service.engine import Engine


def sweep(engine: Engine, stopping: Callable[[], bool] = lambda: False) -> None:
    """Delete what is past retention or to be erased, as far as snapshots cover it, and what nobody owns any more."""
    days = engine.settings.retention_days
    before = engine.clock() - days * 86400 if days else None
    for work in (lambda c, limit: forgetting.sweep(c, before, limit), graves.clear, forgetting.sweep_strays):
        sum(in_batches(engine.writer, work, stopping))
    engine.writer.do(lambda c: series.sweep(c, engine.clock()))
