"""What learning leaves for others beside snapshots: large states by parts, and what it costs. Inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rankloop.service.storage.database import Connection


class Part(NamedTuple):
    """What has changed in a large state from one outcome to another."""

    generation: int
    seq: int  # outcomes that whoever takes it knows
    base: int  # and must have known, or more
    state: bytes


def add_part(connection: Connection, name: str, new: Part, holder: str) -> bool:
    """Add a part for those who rank elsewhere, if `holder` has the ranker's lease."""
    lease = connection.row(f"SELECT holder FROM leases WHERE ranker = ?{connection.lock_rows}", name)
    if lease is None or lease[0] != holder:
        return False
    columns = "ranker, generation, seq, base, state"
    connection.insert("published_parts", columns, [(name, *new)], "ON CONFLICT DO NOTHING")
    return True


def parts_from(connection: Connection, name: str, generation: int, learned: int) -> list[Part]:
    """Those that lead on from so many outcomes, in order."""
    sql = "SELECT generation, seq, base, state FROM published_parts WHERE ranker = ? AND generation = ? AND seq > ?"
    rows = connection.rows(f"{sql} ORDER BY seq", name, generation, learned)
    return [Part(int(g), int(seq), int(base), bytes(state)) for g, seq, base, state in rows]


def newest_parts(connection: Connection) -> dict[str, tuple[int, int]]:
    """(generation, seq) of the newest part of each ranker that has some."""
    rows = connection.rows("SELECT ranker, generation, MAX(seq) FROM published_parts GROUP BY ranker, generation")
    return {name: (int(generation), int(seq)) for name, generation, seq in sorted(rows)}


def drop_covered(connection: Connection, name: str, generation: int, seq: int) -> None:
    """Delete the parts of up to so many outcomes, and of generations before this one."""
    sql = "DELETE FROM published_parts WHERE ranker = ? AND (generation < ? OR (generation = ? AND seq <= ?))"
    connection.run(sql, name, generation, generation, seq)


def note_loads(connection: Connection, loads: Mapping[str, float]) -> None:
    """What it takes to learn some rankers, of a core."""
    if loads:
        tail = "ON CONFLICT (ranker) DO UPDATE SET load = excluded.load"
        connection.insert("loads", "ranker, load", list(loads.items()), tail)


def loads(connection: Connection) -> dict[str, float]:
    """The same of all rankers of which it was noted."""
    return {name: float(load) for name, load in connection.rows("SELECT ranker, load FROM loads")}
