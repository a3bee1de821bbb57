"""The counters of features that count feedback: their input, their saved states, and users to erase from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.service.storage.ids import new_id
from rankloop.service.storage.impressions import impressions_by_id
from rankloop.service.storage.outcomes import next_outcomes

KEPT = 86400.0  # seconds for which an erased user is reported to the counting processes, at least


class CounterInput(NamedTuple):
    """An outcome as counters read it, without features, which are most of its bytes."""

    seq: int
    created: float
    values: list[float]
    viewed: int | None  # positions that came into view; None: not reported
    notes: bytes | None  # None: made before the ranker counted, or its user is erased


class SavedCounters(NamedTuple):
    """Counters as they are stored."""

    seq: int  # outcomes before it are in them
    state: bytes
    erased: frozenset[str]  # ids of the erasures that are in them


def counter_inputs(connection: Connection, ranker: str, seq: int, limit: int) -> list[CounterInput]:
    """Return the next outcomes of a ranker, in order, with gaps where impressions were deleted."""
    rows = next_outcomes(connection, "created, feedback, viewed", ranker, seq, limit)
    impressions = impressions_by_id(connection, "notes", [row[1] for row in rows])
    found = []
    for number, own, created, values, viewed in rows:
        (notes,) = impressions.get(own, (None,))
        stored = None if notes is None else bytes(notes)
        found.append(CounterInput(int(number), created, msgspec.json.decode(values), viewed, stored))
    return found


def saved(connection: Connection, ranker: str) -> SavedCounters | None:
    """Return the counters that were saved last."""
    row = connection.row("SELECT seq, state, erased FROM counters WHERE ranker = ?", ranker)
    return None if row is None else SavedCounters(int(row[0]), bytes(row[1]), frozenset(msgspec.json.decode(row[2])))


def saved_seq(connection: Connection, ranker: str) -> int:
    """Return the outcomes in the saved counters; -1 if there are none."""
    row = connection.row("SELECT seq FROM counters WHERE ranker = ?", ranker)
    return -1 if row is None else int(row[0])


def save(connection: Connection, ranker: str, one: SavedCounters, now: float, replace: bool = False) -> None:
    """Save counters, unless the saved ones have as many outcomes; with `replace` in any case.

    This needs no lease: a fold over the same log gives the same bits in every process.
    """
    if connection.row("SELECT name FROM rankers WHERE name = ?", ranker) is None:
        return
    newer = "" if replace else " WHERE counters.seq < excluded.seq"
    row = (ranker, one.seq, one.state, msgspec.json.encode(sorted(one.erased)), now)
    connection.insert(
        "counters",
        "ranker, seq, state, erased, created",
        [row],
        "ON CONFLICT (ranker) DO UPDATE SET seq = excluded.seq, state = excluded.state, "
        f"erased = excluded.erased, created = excluded.created{newer}",
    )


def all_saved(connection: Connection) -> list[tuple[str, int, bytes]]:
    """Return (ranker, seq, state) of all saved counters."""
    rows = connection.rows("SELECT ranker, seq, state FROM counters ORDER BY ranker")
    return [(ranker, int(seq), bytes(state)) for ranker, seq, state in rows]


def replace_saved(connection: Connection, ranker: str, seq: int, state: bytes, erased: bytes) -> bool:
    """Replace saved counters, unless others were saved meanwhile."""
    sql = "UPDATE counters SET state = ?, erased = ? WHERE ranker = ? AND seq = ?"
    return connection.run(sql, state, erased, ranker, seq) == 1


def add_erasure(connection: Connection, code: str, now: float) -> str:
    """Let all counting processes remove a user, whom they know by a code; return the id of the erasure."""
    made = new_id(now)
    connection.insert("erased_users", "id, code, created", [(made, code, now)])
    return made


def erasures(connection: Connection) -> list[tuple[str, str]]:
    """Return (id, code) of the users to remove, of about the last day."""
    return [(row[0], row[1]) for row in connection.rows("SELECT id, code FROM erased_users ORDER BY id")]


def delete_old_erasures(connection: Connection, now: float) -> None:
    """Delete old erasures that all saved counters contain."""
    old = connection.rows("SELECT id FROM erased_users WHERE created < ?", now - KEPT)
    known: list[Iterable[str]] = [msgspec.json.decode(row[0]) for row in connection.rows("SELECT erased FROM counters")]
    for (one,) in old:
        if all(one in ids for ids in known):
            connection.run("DELETE FROM erased_users WHERE id = ?", one)
