"""Windows that end: lists that waited long enough for their feedback become outcomes."""

from __future__ import annotations

from collections.abc import Mapping

from rankloop.service.learning.fold import Fold
from rankloop.service.process import Process
from rankloop.service.store import log
from rankloop.service.store.database import Connection


def close_windows(process: Process, folds: Mapping[str, Fold]) -> bool:
    """Turn impressions whose time is up into outcomes, of rankers that are learned here; whether there were any."""
    now, some = process.clock(), False
    for name in process.database.read(lambda c: log.due(c, now)):
        fold = folds.get(name)
        if fold is None or not fold.held:
            continue

        def close(c: Connection, ranker: str = name) -> list[log.Closing]:
            # Asked again where lists are written: had the clock gone back since, new ones would seem an hour old.
            return log.close_windows(c, ranker, min(now, process.clock()), process.writer.kinds)

        while closings := process.writer.do(close):
            process.count_closed(closings)
            some = True
    return some
