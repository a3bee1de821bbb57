"""Operator actions: the audit list, and the results of actions by idempotency key.

Functions of a connection, to be called in the transaction that makes the change: the change, its audit entry and its
idempotency key are committed together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankloop.service.storage.database import Connection, Contended, marks
from rankloop.service.storage.log import new_id

COMMAND = "(command line)"  # `who` of an action that did not come by HTTP
ITSELF = "(rankloop)"  # `who` of an action that nobody asked for
_COLUMNS = "id, created, who, action, ranker, text, request_id"


class Entry(NamedTuple):
    """Something that was changed."""

    created: float
    who: str  # the name of a key, never the key; empty where none is asked for
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
    """Append an entry with the id `own`, or replace its text: of an action that takes several transactions."""
    tail = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"
    connection.insert("audit", _COLUMNS, [(own, *entry)], tail)


def result(connection: Connection, who: str, key: str) -> Result | None:
    """The result of the action with this idempotency key; None if no such action was committed."""
    row = connection.row("SELECT request, result FROM actions WHERE who = ? AND key = ?", who, key)
    return None if row is None else Result(bytes(row[0]), bytes(row[1]))


def add_result(connection: Connection, who: str, key: str, new: Result, now: float) -> None:
    """Store the result of an action. `Contended` if another transaction has just stored one with the same key."""
    columns = "who, key, request, result, created"
    if not connection.insert("actions", columns, [(who, key, *new, now)], "ON CONFLICT DO NOTHING RETURNING who"):
        raise Contended(f"another request with the idempotency key {key!r} was quicker")


def listed(connection: Connection, limit: int, rankers: Iterable[str] | None = None) -> list[Entry]:
    """The newest first; only of `rankers`, if they are given."""
    where, names = "", sorted(rankers or ())
    if rankers is not None:
        where = f"WHERE ranker IN ({marks(names)}) " if names else "WHERE 1 = 0 "
    sql = f"SELECT {_COLUMNS} FROM audit {where}ORDER BY id DESC LIMIT ?"
    return [Entry(*row[1:]) for row in connection.rows(sql, *names, limit)]


def sweep(connection: Connection, before: float) -> int:
    """Delete entries and results older than `before`; how many entries."""
    connection.run("DELETE FROM actions WHERE created < ?", before)
    return connection.run("DELETE FROM audit WHERE created < ?", before)
