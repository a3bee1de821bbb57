"""API keys in the store: digests only. That there has been one is remembered: a store that had keys stays closed.

And the secrets that tokens of lists are signed with (`service.tokens`): whoever can read the store can sign.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from rankloop.service.storage.database import Connection

SECRET = 32  # bytes, as many as the digest of SHA-256 has
LONGEST = 31 * 86400.0  # seconds that a token may be good for: the longest window that a ranker can have, and a day
_COLUMNS = "digest, name, scopes, created, rankers, expires, rate, concurrency, catalogs"


class StoredKey(NamedTuple):
    """What is kept of a key."""

    digest: str
    name: str
    scopes: str
    created: float
    rankers: frozenset[str] | None = None  # those it is for; None: all
    expires: float | None = None
    rate: float | None = None  # requests a second; None: any number
    concurrency: int | None = None  # requests at a time
    catalogs: frozenset[str] = frozenset()  # those a key for some rankers may use; a key for all may use all


class Secret(NamedTuple):
    """What tokens are signed with."""

    id: int
    secret: bytes
    created: float


class Known(NamedTuple):
    """The keys there are, whether there has ever been one, and the secrets."""

    keys: list[StoredKey]
    keyed: bool
    secrets: tuple[Secret, ...] = ()


def known(connection: Connection) -> Known:
    """Every key, by name, and every secret."""
    rows = connection.rows(f"SELECT {_COLUMNS} FROM keys ORDER BY name")
    keyed = connection.row("SELECT 1 FROM facts WHERE name = 'keyed'") is not None
    keys = [StoredKey(*row)._replace(rankers=_names(row[4]), catalogs=_names(row[8]) or frozenset()) for row in rows]
    return Known(keys, keyed or bool(keys), tuple(secrets(connection)))


def add(connection: Connection, key: StoredKey) -> bool:
    """Add a key; False if the name is taken."""
    remember(connection, key.created)
    rankers = None if key.rankers is None else _joined(key.rankers)
    row = (*key[:4], rankers, *key[5:8], _joined(key.catalogs) or None)
    return bool(connection.insert("keys", _COLUMNS, [row], "ON CONFLICT DO NOTHING RETURNING name"))


def drop(connection: Connection, name: str) -> bool:
    """Revoke a key. That there was one stays known: revoking the last must not open the doors."""
    return connection.run("DELETE FROM keys WHERE name = ?", name) > 0


def secrets(connection: Connection) -> list[Secret]:
    """Every secret."""
    rows = connection.rows("SELECT id, secret, created FROM secrets")
    return [Secret(int(number), bytes(secret), created) for number, secret, created in rows]


def ensure_secret(connection: Connection, now: float) -> None:
    """Make the first secret, if there is none: all who start at the same time get the same one."""
    row = (1, os.urandom(SECRET), now)
    if connection.row("SELECT 1 FROM secrets LIMIT 1") is None:
        connection.insert("secrets", "id, secret, created", [row], "ON CONFLICT DO NOTHING")


def rotate_secret(connection: Connection, now: float, at_once: bool) -> int:
    """Make a new secret; how many old ones are still good. An old one is, until the last token it signed has ended;
    with `at_once` none is."""
    before = sorted(secrets(connection), key=lambda one: one.id)
    number = before[-1].id + 1 if before else 1
    connection.insert("secrets", "id, secret, created", [(number, os.urandom(SECRET), now)])
    gone = 0
    replaced = [*(one.created for one in before[1:]), now]  # each by the next
    for old, since in zip(before, replaced, strict=False):
        if at_once or since < now - LONGEST:
            gone += connection.run("DELETE FROM secrets WHERE id = ?", old.id)
    return len(before) - gone


def _joined(names: frozenset[str]) -> str:
    return "".join(f"{one}," for one in sorted(names))


def _names(stored: str | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(filter(None, stored.split(",")))


def remember(connection: Connection, now: float) -> None:
    """From now on this store is served with keys only."""
    connection.insert("facts", "name, since", [("keyed", now)], "ON CONFLICT DO NOTHING")
