"""The generations of rankers. A state is a fold over outcomes from an origin: a fresh learner, or a version."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.wire.rankers import How

_COLUMNS = "ranker, generation, epoch, seq, created, how, version, kept, base"


class Origin(NamedTuple):
    """The start of a generation: outcomes of `epoch` from `seq` on are learned into `state`, or, if that is empty, into
    the state of the version that was rolled back to."""

    generation: int
    epoch: int
    seq: int
    state: bytes


class RecordedChange(msgspec.Struct, frozen=True):
    """A change of the fields of a spec that states depend on; it began a generation and an epoch."""

    before: dict[str, Any]
    after: dict[str, Any]
    renamed: dict[str, str]  # features: old name to new
    generation: int = 0
    epoch: int = 0


class Cause(NamedTuple):
    """Why a generation began."""

    how: How
    version: int | None = None  # that was rolled back to
    kept: int | None = None  # the version that holds the state before
    base: int | None = 0  # outcomes in the state that it begins with
    change: RecordedChange | None = None


class Generation(NamedTuple):
    """When and how a generation began, without its state."""

    generation: int
    seq: int
    created: float
    how: How
    version: int | None
    kept: int | None
    base: int | None

    def outcomes(self, seq: int) -> int | None:
        """Return the outcomes in its state at `seq`, with those of its origin; None if these are not known."""
        return None if self.base is None else self.base + max(0, seq - self.seq)


def begin_generation(connection: Connection, name: str, origin: Origin, now: float, cause: Cause) -> None:
    """Store the origin and the cause of a generation."""
    connection.insert("origins", "ranker, generation, epoch, seq, state, created", [(name, *origin, now)])
    change = None if cause.change is None else msgspec.json.encode(cause.change)
    row = (name, origin.generation, origin.epoch, origin.seq, now, *cause[:-1], change)
    connection.insert("generations", f"{_COLUMNS}, change", [row])


def spec_changes(connection: Connection, name: str) -> list[RecordedChange]:
    """Return the changes of a ranker's spec that its states depend on, the oldest first."""
    sql = (
        "SELECT change, generation, epoch FROM generations WHERE ranker = ? AND change IS NOT NULL ORDER BY generation"
    )
    found = []
    for text, generation, epoch in connection.rows(sql, name):
        change = msgspec.json.decode(bytes(text), type=RecordedChange)
        found.append(msgspec.structs.replace(change, generation=int(generation), epoch=int(epoch)))
    return found


def generations(connection: Connection, name: str) -> list[Generation]:
    """Return the generations of a ranker, the oldest first."""
    return _load(connection, "WHERE ranker = ?", name).get(name, [])


def latest_generations(connection: Connection) -> dict[str, tuple[int, Generation]]:
    """Return the current generation of each ranker with its ordinal, from 1 on."""
    return {name: (len(found), found[-1]) for name, found in _load(connection).items()}


def _load(connection: Connection, where: str = "", *parameters: str) -> dict[str, list[Generation]]:
    found: dict[str, list[Generation]] = {}
    sql = f"SELECT ranker, generation, seq, created, how, version, kept, base FROM generations {where}"
    for name, generation, seq, *rest in connection.rows(f"{sql} ORDER BY ranker, generation", *parameters):
        found.setdefault(name, []).append(Generation(int(generation), int(seq), *rest))
    return found
