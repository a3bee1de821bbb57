"""API keys in the store: digests only. That there has been one is remembered: a store that had keys stays closed."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.store.database import Connection

_COLUMNS = "digest, name, scopes, created, rankers, expires"


class StoredKey(NamedTuple):
    """What is kept of a key."""

    digest: str
    name: str
    scopes: str
    created: float
    rankers: frozenset[str] | None = None  # those it is for; None: all
    expires: float | None = None


class Known(NamedTuple):
    """The keys there are, and whether there has ever been one."""

    keys: list[StoredKey]
    keyed: bool


def known(connection: Connection) -> Known:
    """Every key, by name."""
    rows = connection.rows(f"SELECT {_COLUMNS} FROM keys ORDER BY name")
    keyed = connection.row("SELECT 1 FROM facts WHERE name = 'keyed'") is not None
    keys = [StoredKey(d, n, scopes, made, _names(rankers), end) for d, n, scopes, made, rankers, end in rows]
    return Known(keys, keyed or bool(keys))


def add(connection: Connection, key: StoredKey) -> bool:
    """Add a key; False if the name is taken."""
    remember(connection, key.created)
    rankers = None if key.rankers is None else "".join(f"{one}," for one in sorted(key.rankers))
    row = (*key[:4], rankers, key.expires)
    return bool(connection.insert("keys", _COLUMNS, [row], "ON CONFLICT DO NOTHING RETURNING name"))


def drop(connection: Connection, name: str) -> bool:
    """Revoke a key. That there was one stays known: revoking the last must not open the doors."""
    return connection.run("DELETE FROM keys WHERE name = ?", name) > 0


def _names(stored: str | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(filter(None, stored.split(",")))


def remember(connection: Connection, now: float) -> None:
    """From now on this store is served with keys only."""
    connection.insert("facts", "name, since", [("keyed", now)], "ON CONFLICT DO NOTHING")
