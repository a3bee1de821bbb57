"""What is old is deleted, as far as snapshots cover it, and so is what deleted rankers have left."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rankloop.service.maintenance.archiving import Archive
from rankloop.service.storage import audit, catalog, counting, forgetting, partitions, series, tombstones
from rankloop.service.storage.batches import in_batches
from rankloop.service.worker.process import Process


def sweep(process: Process, stopping: Callable[[], bool] = lambda: False, archive: Archive | None = None) -> None:
    """Delete what is past retention or to be erased, as far as snapshots cover it, and what nobody owns any more. With
    an archive, nothing goes by its age that is not exported."""
    days = process.settings.retention_days
    until = inf if archive is None else archive.complete
    before = min(process.clock() - days * 86400, until) if days else None
    for work in (
        lambda c, limit: forgetting.sweep(c, before, limit),
        tombstones.clear,
        lambda c, limit: catalog.sweep(c, process.clock(), limit),
        catalog.recount,
    ):
        sum(in_batches(process.writer, work, stopping))
    process.writer.do(lambda c: series.sweep(c, process.clock()))
    process.writer.do(lambda c: counting.sweep(c, process.clock()))
    if process.settings.audit_days:
        process.writer.do(lambda c: audit.sweep(c, process.clock() - process.settings.audit_days * 86400))
    # Last: who may not make tables still deletes rows.
    partitions.tend(process.database, process.clock(), days, until)
