"""Where folds began. What a ranker has learned is a fold over its outcomes, from a state at some point of the log on: a
fresh learner, or a version that was rolled back to. Replay rebuilds any version from there."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.store.database import Connection


class Origin(NamedTuple):
    """Where a generation began: `state`, into which the outcomes of `epoch` from `seq` on are learned."""

    generation: int
    epoch: int
    seq: int
    state: bytes


class Kept(NamedTuple):
    """A version with what replay needs of it; `generation` is None if an earlier release kept it."""

    version: int
    seq: int
    generation: int | None
    state: bytes


def begin(connection: Connection, name: str, origin: Origin, now: float) -> None:
    """Write down where a generation begins."""
    connection.insert("origins", "ranker, generation, epoch, seq, state, created", [(name, *origin, now)])


def origins(connection: Connection, name: str) -> list[Origin]:
    """Where each generation of a ranker began, the oldest first."""
    sql = "SELECT generation, epoch, seq, state FROM origins WHERE ranker = ? ORDER BY generation"
    return [Origin(int(g), int(e), int(seq), bytes(state)) for g, e, seq, state in connection.rows(sql, name)]


def kept(connection: Connection, name: str) -> list[Kept]:
    """All versions with their states, the oldest first."""
    sql = "SELECT version, seq, generation, state FROM versions WHERE ranker = ? ORDER BY version"
    rows = connection.rows(sql, name)
    return [Kept(int(v), int(seq), None if g is None else int(g), bytes(state)) for v, seq, g, state in rows]


def logged(connection: Connection, name: str, first: int, end: int) -> int:
    """How many of the outcomes first … end-1 are still in the log."""
    sql = "SELECT COUNT(*) FROM outcomes WHERE ranker = ? AND seq >= ? AND seq < ?"
    ((count,),) = connection.rows(sql, name, first, end)
    return int(count)
