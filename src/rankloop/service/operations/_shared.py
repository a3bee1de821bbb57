"""What operations share: finding a ranker, and changing one that others may change at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rankloop.service.engine import Engine
from rankloop.service.errors import Conflict, UnknownRanker
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import admin
from rankloop.service.store.database import Connection

P = TypeVar("P")
T = TypeVar("T")
TRIES = 5  # that a change is made anew because someone else was quicker


def changed(
    engine: Engine,
    name: str,
    look: Callable[[admin.Ranker | None], P],
    change: Callable[[Connection, P], T | None],
) -> T:
    """What `change` gives, for the ranker that `look` has seen.

    `look` runs outside of any transaction: it refuses what cannot be, and may take its time with a learner, which in a
    transaction would stop everyone's writes. `change` writes, and only if the ranker is still the one that was looked
    at; if not, or if it gives None, both are done again.
    """
    for _ in range(TRIES):
        row = engine.database.read(lambda connection: admin.ranker(connection, name))
        seen = look(row)

        def write(connection: Connection, row: admin.Ranker | None = row, seen: P = seen) -> T | None:
            now = admin.ranker(connection, name, lock=True)
            if (now and (now.created, now.revision)) != (row and (row.created, row.revision)):
                return None
            return change(connection, seen)

        found = engine.writer.do(write)
        if found is not None:
            return found
    raise Conflict(f"ranker {name!r} was changed by others {TRIES} times in a row, nothing was done; try again")


def required(engine: Engine, row: admin.Ranker | None, name: str) -> admin.Ranker:
    """The row, or an error that says which rankers there are."""
    if row is None:
        raise unknown(engine, name)
    return row


def loaded(engine: Engine, name: str) -> LiveRanker:
    """The ranker as the store has it now."""
    live = engine.load(name)
    if live is None:
        raise unknown(engine, name)
    return live


def unknown(engine: Engine, name: str) -> UnknownRanker:
    """The error for a ranker that is not there."""
    error = UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    assert isinstance(error, UnknownRanker)
    return error
