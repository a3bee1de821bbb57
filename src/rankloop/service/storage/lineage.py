"""Where folds began. What a ranker has learned is a fold over its outcomes, from a state at some point of the log on: a
fresh learner, or a version that was rolled back to. Replay rebuilds any version from there."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.wire.rankers import How


class Origin(NamedTuple):
    """Where a generation began: `state`, into which the outcomes of `epoch` from `seq` on are learned. Empty, it is
    that of the version that was gone back to."""

    generation: int
    epoch: int
    seq: int
    state: bytes


class Change(msgspec.Struct, frozen=True):
    """A change of the part of a spec that learned states depend on, which began a generation and an epoch."""

    before: dict[str, Any]
    after: dict[str, Any]
    renamed: dict[str, str]  # features: old name to new
    generation: int = 0
    epoch: int = 0


class Came(NamedTuple):
    """How a generation came about."""

    how: How
    version: int | None = None  # that was gone back to
    kept: int | None = None  # the version that holds what was known until then
    base: int | None = 0  # outcomes in the state that it begins with
    change: Change | None = None  # of the spec


class Beginning(NamedTuple):
    """A generation for people: when and how it began, without its state."""

    generation: int
    seq: int
    created: float
    how: How
    version: int | None
    kept: int | None
    base: int | None

    def knows(self, seq: int) -> int | None:
        """Outcomes in a state of it: those it began with, and its own up to `seq`. None if the first are not known."""
        return None if self.base is None else self.base + max(0, seq - self.seq)


def begin(connection: Connection, name: str, origin: Origin, now: float, came: Came) -> None:
    """Write down where a generation begins, and how it came about."""
    connection.insert("origins", "ranker, generation, epoch, seq, state, created", [(name, *origin, now)])
    columns = "ranker, generation, epoch, seq, created, how, version, kept, base"
    row: tuple[Any, ...] = (name, origin.generation, origin.epoch, origin.seq, now, *came[:-1])
    if came.change is not None:
        columns, row = f"{columns}, change", (*row, msgspec.json.encode(came.change))
    connection.insert("generations", columns, [row])


def changes(connection: Connection, name: str) -> list[Change]:
    """The recorded changes of a ranker's features and whatever else its states depend on, the oldest first."""
    sql = (
        "SELECT change, generation, epoch FROM generations WHERE ranker = ? AND change IS NOT NULL ORDER BY generation"
    )
    found = []
    for text, generation, epoch in connection.rows(sql, name):
        change = msgspec.json.decode(bytes(text), type=Change)
        found.append(msgspec.structs.replace(change, generation=int(generation), epoch=int(epoch)))
    return found


def beginnings(connection: Connection, name: str) -> list[Beginning]:
    """The generations of a ranker, the oldest first."""
    return _beginnings(connection, "WHERE ranker = ?", name).get(name, [])


def latest(connection: Connection) -> dict[str, tuple[int, Beginning]]:
    """The generation that each ranker is in, and which it is, from 1 on."""
    return {name: (len(found), found[-1]) for name, found in _beginnings(connection).items()}


def _beginnings(connection: Connection, where: str = "", *parameters: str) -> dict[str, list[Beginning]]:
    """Where an earlier release did not write down how a generation came about, it is told from what it did: a reset
    counts the epoch on, a rollback does not."""
    columns = "ranker, generation, epoch, seq, created, how, version, kept, base"
    found: dict[str, list[Beginning]] = {}
    epochs: dict[str, int] = {}
    sql = f"SELECT {columns} FROM generations {where} ORDER BY ranker, generation"
    for name, generation, epoch, seq, created, how, version, kept, base in connection.rows(sql, *parameters):
        same_epoch = epochs.get(name, epoch) == epoch
        told: How = how or ("made" if name not in found and seq == 0 else "rollback" if same_epoch else "reset")
        base = 0 if how is None and told != "rollback" else base
        found.setdefault(name, []).append(Beginning(int(generation), int(seq), created, told, version, kept, base))
        epochs[name] = epoch
    return found


def logged(connection: Connection, name: str, first: int, end: int) -> int:
    """How many of the outcomes first … end-1 are still in the log."""
    sql = "SELECT COUNT(*) FROM outcomes WHERE ranker = ? AND seq >= ? AND seq < ?"
    ((count,),) = connection.rows(sql, name, first, end)
    return int(count)
