"""What whoever runs the service is to be told, until he has been: written in the transaction of what it is about, so
that neither is there without the other."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.storage.database import Connection


class Notice(NamedTuple):
    """One that waits to be delivered."""

    id: str
    ranker: str
    body: bytes
    created: float
    tries: int


def add(connection: Connection, key: str, ranker: str, body: bytes, now: float) -> None:
    """Add one, due at once."""
    connection.insert("notices", "id, ranker, body, created, tries, due", [(key, ranker, body, now, 0, now)])


def due(connection: Connection, now: float, limit: int = 20) -> list[Notice]:
    """Those whose time has come, the oldest first."""
    sql = f"SELECT id, ranker, body, created, tries FROM notices WHERE due <= ? ORDER BY created LIMIT {limit}"
    rows = connection.rows(sql, now)
    return [Notice(key, ranker, bytes(body), created, int(tries)) for key, ranker, body, created, tries in rows]


def waiting(connection: Connection) -> dict[str, int]:
    """How many wait, by ranker."""
    return {name: int(count) for name, count in connection.rows("SELECT ranker, COUNT(*) FROM notices GROUP BY ranker")}


def again(connection: Connection, key: str, at: float) -> None:
    """It could not be delivered: try again later."""
    connection.run("UPDATE notices SET tries = tries + 1, due = ? WHERE id = ?", at, key)


def drop(connection: Connection, key: str) -> None:
    """It has been delivered, or given up."""
    connection.run("DELETE FROM notices WHERE id = ?", key)
