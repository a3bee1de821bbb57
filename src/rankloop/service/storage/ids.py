"""Impression ids. They begin with the time, so an id tells which partition its impression is in."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rankloop.service.storage.database import Connection

DAY = 86400.0  # seconds; repeated requests and events are looked up in the partitions of the last day
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u, which are easily misread
_LETTERS = frozenset(ALPHABET)
RANDOM_BYTES = 10  # per id
BATCH = 256  # ids; one system call for each would release the interpreter lock each time
_random: list[bytes] = []  # random bytes that no id has used yet; `pop` is atomic
os.register_at_fork(after_in_child=_random.clear)


def new_id(now: float | None = None) -> str:
    """Return a new impression id of 26 letters and digits: 48 bits of milliseconds and 80 random bits.

    Inserts go to the end of an index, and users cannot guess the ids of others.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    milliseconds = int((time.time() if now is None else now) * 1000) & (2**48 - 1)
    value = milliseconds << 80 | int.from_bytes(_random_bytes(), "big")
    return "".join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def _random_bytes() -> bytes:
    try:
        return _random.pop()
    except IndexError:
        drawn = os.urandom(RANDOM_BYTES * BATCH)
        _random.extend(drawn[at : at + RANDOM_BYTES] for at in range(RANDOM_BYTES, len(drawn), RANDOM_BYTES))
        return drawn[:RANDOM_BYTES]


def time_prefix(seconds: float) -> str:
    """Return the first ten letters of the ids of a moment; ids made later sort after it.

    >>> time_prefix(0.0), time_prefix(1.0) < time_prefix(1.01)
    ('0000000000', True)
    """
    milliseconds = int(max(0.0, seconds) * 1000) & (2**48 - 1)
    return "".join(ALPHABET[milliseconds >> shift & 31] for shift in range(45, -1, -5))


def prefix_time(prefix: str) -> float:
    """Return the time of a prefix.

    >>> prefix_time(time_prefix(7200.0))
    7200.0
    """
    value = 0
    for letter in prefix:
        value = value * len(ALPHABET) + ALPHABET.index(letter)
    return value / 1000


def recent_prefix(connection: Connection, now: float) -> str:
    """Return the prefix from which on ids are recent; empty if the log is not partitioned.

    It is the same for an hour and part of the SQL text, so the server plans once per hour, and only for the partitions
    that come after it.
    """
    searched = connection.partitioned and not connection.search_all
    return time_prefix(now // 3600 * 3600 - DAY) if searched else ""


def id_condition(connection: Connection, ids: Sequence[str], now: float) -> tuple[str, Sequence[str]]:
    """Return the SQL to put before `IN (ids)`, with its parameters, so that only the partitions of the ids are read."""
    start = recent_prefix(connection, now)
    if not start or not ids or not _LETTERS.issuperset("".join(ids)):  # other letters may sort differently
        return "id", ()
    first, last = min(ids), max(ids)
    return (f"id >= '{start}' AND id", ()) if first >= start else ("id >= ? AND id <= ? AND id", (first, last))
