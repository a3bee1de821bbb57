"""Windows that end: lists that waited long enough for their feedback become outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankloop.service.store import log
from rankloop.service.store.database import Connection

if TYPE_CHECKING:
    from rankloop.service.engine import Engine


def close_windows(engine: Engine) -> None:
    """Turn impressions whose time is up into outcomes, of rankers that are learned here."""
    now = engine.clock()
    for name in engine.database.read(lambda c: log.due(c, now)):
        live = engine.rankers.get(name)
        if live is None or not live.held:
            continue

        def close(c: Connection, ranker: str = name) -> list[log.Closing]:
            # Asked again where lists are written: had the clock gone back since, new ones would seem an hour old.
            return log.close_windows(c, ranker, min(now, engine.clock()), engine.writer.kinds)

        while closings := engine.writer.do(close):
            engine.closed(closings)
