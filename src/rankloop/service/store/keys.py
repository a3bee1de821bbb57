"""API keys in the store: digests only. That there has been one is remembered: a store that had keys stays closed."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.store.database import Connection


class StoredKey(NamedTuple):
    """What is kept of a key."""

    digest: str
    name: str
    scopes: str
    created: float


class Known(NamedTuple):
    """The keys there are, and whether there has ever been one."""

    keys: list[StoredKey]
    keyed: bool


def known(connection: Connection) -> Known:
    """Every key, by name."""
    rows = connection.rows("SELECT digest, name, scopes, created FROM keys ORDER BY name")
    keyed = connection.row("SELECT 1 FROM facts WHERE name = 'keyed'") is not None
    return Known([StoredKey(*row) for row in rows], keyed or bool(rows))


def add(connection: Connection, digest: str, name: str, scopes: str, now: float) -> bool:
    """Add a key; False if the name is taken."""
    remember(connection, now)
    row = (digest, name, scopes, now)
    return bool(
        connection.insert("keys", "digest, name, scopes, created", [row], "ON CONFLICT DO NOTHING RETURNING name")
    )


def drop(connection: Connection, name: str) -> bool:
    """Revoke a key. That there was one stays known: revoking the last must not open the doors."""
    return connection.run("DELETE FROM keys WHERE name = ?", name) > 0


def remember(connection: Connection, now: float) -> None:
    """From now on this store is served with keys only."""
    connection.insert("facts", "name, since", [("keyed", now)], "ON CONFLICT DO NOTHING")
