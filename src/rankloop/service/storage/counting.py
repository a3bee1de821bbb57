"""What counters need of the store: the notes of closed lists in order, their snapshots, and who is to be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.service.storage.log import by_id, new_id, next_outcomes

KEPT = 86400.0  # seconds that a code to be forgotten is told to those who count, at least


class Noted(NamedTuple):
    """A closed list as counters read it. Its features are not read: they are most of a list's bytes."""

    seq: int
    created: float
    values: list[float]
    viewed: int | None  # positions that came into view; null: not reported
    notes: bytes | None  # null: it was made before the ranker counted, or its user is forgotten


class Saved(NamedTuple):
    """Counters as they were stored."""

    seq: int  # outcomes before it are in them
    state: bytes
    forgotten: frozenset[str]  # ids of what had been forgotten by then


def noted_from(connection: Connection, ranker: str, seq: int, limit: int) -> list[Noted]:
    """The next outcomes of a ranker, in order. Numbers that are missing were deleted with their lists."""
    rows = next_outcomes(connection, "created, feedback, viewed", ranker, seq, limit)
    lists = by_id(connection, "notes", [row[1] for row in rows])
    found = []
    for number, own, created, values, viewed in rows:
        (notes,) = lists.get(own, (None,))
        told = None if notes is None else bytes(notes)
        found.append(Noted(int(number), created, msgspec.json.decode(values), viewed, told))
    return found


def head(connection: Connection, ranker: str) -> int:
    """How many outcomes a ranker has."""
    row = connection.row("SELECT next_seq FROM heads WHERE ranker = ?", ranker)
    return 0 if row is None else int(row[0])


def saved(connection: Connection, ranker: str) -> Saved | None:
    """The counters that were stored last."""
    row = connection.row("SELECT seq, state, forgotten FROM counters WHERE ranker = ?", ranker)
    return None if row is None else Saved(int(row[0]), bytes(row[1]), frozenset(msgspec.json.decode(row[2])))


def saved_seq(connection: Connection, ranker: str) -> int:
    """How far the counters that were stored last have come; -1: none were."""
    row = connection.row("SELECT seq FROM counters WHERE ranker = ?", ranker)
    return -1 if row is None else int(row[0])


def save(connection: Connection, ranker: str, one: Saved, now: float, anew: bool = False) -> None:
    """Store counters, unless some are there that have come further, or as far and the same; `anew` whatever is there.

    Nobody needs a lease for it: a fold over the same log gives the same bits, whoever folds.
    """
    if connection.row("SELECT name FROM rankers WHERE name = ?", ranker) is None:
        return
    further = "" if anew else " WHERE counters.seq < excluded.seq"
    row = (ranker, one.seq, one.state, msgspec.json.encode(sorted(one.forgotten)), now)
    connection.insert(
        "counters",
        "ranker, seq, state, forgotten, created",
        [row],
        "ON CONFLICT (ranker) DO UPDATE SET seq = excluded.seq, state = excluded.state, "
        f"forgotten = excluded.forgotten, created = excluded.created{further}",
    )


def forget(connection: Connection, code: str, now: float) -> str:
    """Let all processes that count remove a user, known to them by a code; the id of this."""
    made = new_id(now)
    connection.insert("forgotten", "id, code, created", [(made, code, now)])
    return made


def forgotten(connection: Connection) -> list[tuple[str, str]]:
    """(id, code) of those who are to be forgotten; few, since they are told for a day or so."""
    return [(row[0], row[1]) for row in connection.rows("SELECT id, code FROM forgotten ORDER BY id")]


def sweep(connection: Connection, now: float) -> None:
    """Delete what everybody has been told, as soon as all counters that are stored know it."""
    old = connection.rows("SELECT id FROM forgotten WHERE created < ?", now - KEPT)
    known: list[Iterable[str]] = [
        msgspec.json.decode(row[0]) for row in connection.rows("SELECT forgotten FROM counters")
    ]
    for (one,) in old:
        if all(one in ids for ids in known):
            connection.run("DELETE FROM forgotten WHERE id = ?", one)
