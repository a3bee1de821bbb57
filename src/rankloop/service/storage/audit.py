"""The audit log of operator actions, and their results by idempotency key.

Functions of a connection, called in the transaction of the change, so that all are committed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankloop.service.storage.database import Connection, Contended, marks
from rankloop.service.storage.ids import new_id

COMMAND = "(command line)"  # `who` of an action by command line
ITSELF = "(rankloop)"  # `who` of an automatic action
_COLUMNS = "id, created, who, action, ranker, text, request_id"


class Entry(NamedTuple):
    """A change."""

    created: float
    who: str  # the name of a key, never the key; empty where none is required
    action: str
    ranker: str | None
    text: str
    request_id: str = ""


class Result(NamedTuple):
    """The stored result of an action."""

    request: bytes
    result: bytes


def add(connection: Connection, entries: Sequence[Entry]) -> None:
    """Append entries."""
    connection.insert("audit", _COLUMNS, [(new_id(one.created), *one) for one in entries])


def update(connection: Connection, own: str, entry: Entry) -> None:
    """Append an entry with the id `own`, or replace its text, for an action of several transactions."""
    tail = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"
    connection.insert("audit", _COLUMNS, [(own, *entry)], tail)


def result(connection: Connection, who: str, key: str) -> Result | None:
    """Return the result of the action with this idempotency key; None if no such action was committed."""
    row = connection.row("SELECT request, result FROM action_results WHERE who = ? AND key = ?", who, key)
    return None if row is None else Result(bytes(row[0]), bytes(row[1]))


def add_result(connection: Connection, who: str, key: str, new: Result, now: float) -> None:
    """Store the result of an action. `Contended` if another transaction has just stored one with the same key."""
    columns = "who, key, request, result, created"
    if not connection.insert(
        "action_results", columns, [(who, key, *new, now)], "ON CONFLICT DO NOTHING RETURNING who"
    ):
        raise Contended(f"another request with the idempotency key {key!r} was faster")


def entries(connection: Connection, limit: int, rankers: Iterable[str] | None = None) -> list[Entry]:
    """Return the newest entries first; only of `rankers`, if they are given."""
    where, names = "", sorted(rankers or ())
    if rankers is not None:
        where = f"WHERE ranker IN ({marks(names)}) " if names else "WHERE 1 = 0 "
    sql = f"SELECT {_COLUMNS} FROM audit {where}ORDER BY id DESC LIMIT ?"
    return [Entry(*row[1:]) for row in connection.rows(sql, *names, limit)]


def delete_old(connection: Connection, before: float) -> int:
    """Delete entries and results older than `before`; return how many entries."""
    connection.run("DELETE FROM action_results WHERE created < ?", before)
    return connection.run("DELETE FROM audit WHERE created < ?", before)
