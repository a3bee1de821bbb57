"""Who changed what, and when: rows that are only ever added, and deleted when they are old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankloop.service.store.database import Connection, marks
from rankloop.service.store.log import new_id

COMMAND = "(command line)"  # who, where someone changed the store itself
ITSELF = "(rankloop)"  # who, where nobody did
_COLUMNS = "id, created, who, action, ranker, text, request_id"


class Entry(NamedTuple):
    """Something that was changed."""

    created: float
    who: str  # the name of a key, never the key; empty where none is asked for
    action: str
    ranker: str | None
    text: str
    request_id: str = ""


def add(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add to the list."""
    connection.insert("audit", _COLUMNS, [(new_id(one.created), *one) for one in entries])


def listed(connection: Connection, limit: int, rankers: Iterable[str] | None = None) -> list[Entry]:
    """The newest first; only of `rankers`, if they are given."""
    where, names = "", sorted(rankers or ())
    if rankers is not None:
        where = f"WHERE ranker IN ({marks(names)}) " if names else "WHERE 1 = 0 "
    sql = f"SELECT {_COLUMNS} FROM audit {where}ORDER BY id DESC LIMIT ?"
    return [Entry(*row[1:]) for row in connection.rows(sql, *names, limit)]


def sweep(connection: Connection, before: float) -> int:
    """Delete what was done `before` that time; how much it was."""
    return connection.run("DELETE FROM audit WHERE created < ?", before)
