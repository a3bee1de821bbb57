"""Ids of lists begin with the time, so a list is found by its id in the partition of that time."""

from __future__ import annotations

from collections.abc import Sequence

from rankloop.service.storage.database import Connection

DAY = 86400.0  # seconds for which what was here before is looked for in all partitions
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread
_LETTERS = frozenset(ALPHABET)


def edge(seconds: float) -> str:
    """What the ids that are made from a moment on begin with, or come after: milliseconds in ten letters.

    >>> edge(0.0), edge(1.0) < edge(1.01)
    ('0000000000', True)
    """
    milliseconds = int(max(0.0, seconds) * 1000) & (2**48 - 1)
    return "".join(ALPHABET[milliseconds >> shift & 31] for shift in range(45, -1, -5))


def lately(connection: Connection, now: float) -> str:
    """The edge from which on lists are recent. It is the same for an hour and stands in the statement itself: so a
    plan is made once an hour, for the partitions that come after it, and the others are not even locked."""
    return edge(now // 3600 * 3600 - DAY) if connection.by_time and not connection.doubtful else ""


def where_id(connection: Connection, ids: Sequence[str], now: float) -> tuple[str, Sequence[str]]:
    """What `rows_in` is asked for to find lists in the partitions where they are, with its parameters: in those of the
    last day, or between the first and the last of them."""
    start = lately(connection, now)
    if not start or not ids or not _LETTERS.issuperset("".join(ids)):  # others it may sort otherwise
        return "id", ()
    first, last = min(ids), max(ids)
    return (f"id >= '{start}' AND id", ()) if first >= start else ("id >= ? AND id <= ? AND id", (first, last))
