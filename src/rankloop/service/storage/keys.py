"""API keys, as digests, and the secrets that sign impression tokens. A store that had a key always requires one."""

from __future__ import annotations

import os
from typing import NamedTuple

from rankloop.service.storage.database import Connection

SECRET_BYTES = 32  # as many as a SHA-256 digest has
LONGEST = 31 * 86400.0  # seconds that a token is valid at most: the longest attribution window, and a day
_COLUMNS = "digest, name, scopes, created, rankers, expires, rate, concurrency, catalogs"


class StoredKey(NamedTuple):
    """A key as it is stored."""

    digest: str
    name: str
    scopes: str
    created: float
    rankers: frozenset[str] | None = None  # None: all
    expires: float | None = None
    rate: float | None = None  # requests per second; None: unlimited
    concurrency: int | None = None  # simultaneous requests
    catalogs: frozenset[str] = frozenset()  # of a key for some rankers; a key for all rankers may use all


class Secret(NamedTuple):
    """A secret that signs tokens."""

    id: int
    secret: bytes
    created: float


class StoredKeys(NamedTuple):
    """All keys, whether there has ever been one, and all secrets."""

    keys: list[StoredKey]
    keyed: bool
    secrets: tuple[Secret, ...] = ()


def load_keys(connection: Connection) -> StoredKeys:
    """Return all keys, by name, and all secrets."""
    rows = connection.rows(f"SELECT {_COLUMNS} FROM keys ORDER BY name")
    keyed = connection.row("SELECT 1 FROM facts WHERE name = 'keyed'") is not None
    keys = [StoredKey(*row)._replace(rankers=_names(row[4]), catalogs=_names(row[8]) or frozenset()) for row in rows]
    return StoredKeys(keys, keyed or bool(keys), tuple(secrets(connection)))


def add(connection: Connection, key: StoredKey) -> bool:
    """Add a key; False if the name is taken."""
    require_keys(connection, key.created)
    rankers = None if key.rankers is None else _joined(key.rankers)
    row = (*key[:4], rankers, *key[5:8], _joined(key.catalogs) or None)
    return bool(connection.insert("keys", _COLUMNS, [row], "ON CONFLICT DO NOTHING RETURNING name"))


def delete(connection: Connection, name: str) -> bool:
    """Revoke a key. A store without its last key still requires keys."""
    return connection.run("DELETE FROM keys WHERE name = ?", name) > 0


def secrets(connection: Connection) -> list[Secret]:
    """Return all secrets."""
    rows = connection.rows("SELECT id, secret, created FROM secrets")
    return [Secret(int(number), bytes(secret), created) for number, secret, created in rows]


def ensure_secret(connection: Connection, now: float) -> None:
    """Create the first secret, if there is none."""
    row = (1, os.urandom(SECRET_BYTES), now)
    if connection.row("SELECT 1 FROM secrets LIMIT 1") is None:
        connection.insert("secrets", "id, secret, created", [row], "ON CONFLICT DO NOTHING")


def rotate_secret(connection: Connection, now: float, at_once: bool) -> int:
    """Create a new secret; return how many old ones stay valid: until their last token ends, with `at_once` none."""
    before = sorted(secrets(connection), key=lambda one: one.id)
    number = before[-1].id + 1 if before else 1
    connection.insert("secrets", "id, secret, created", [(number, os.urandom(SECRET_BYTES), now)])
    deleted = 0
    replaced = [*(one.created for one in before[1:]), now]  # each by the next
    for old, since in zip(before, replaced, strict=False):
        if at_once or since < now - LONGEST:
            deleted += connection.run("DELETE FROM secrets WHERE id = ?", old.id)
    return len(before) - deleted


def _joined(names: frozenset[str]) -> str:
    return "".join(f"{one}," for one in sorted(names))


def _names(stored: str | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(filter(None, stored.split(",")))


def require_keys(connection: Connection, now: float) -> None:
    """Require keys for this store from now on."""
    connection.insert("facts", "name, since", [("keyed", now)], "ON CONFLICT DO NOTHING")
