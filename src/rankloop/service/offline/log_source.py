"""Where the log is read from: a store, or a folder that `rankloop export-log` has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rankloop.core.errors import RankloopError, UnknownName
from rankloop.service.maintenance.archive.columns import Chunk
from rankloop.service.storage import lineage, rankers, snapshots
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.outcomes import Outcome
from rankloop.service.storage.rewards import current_scale
from rankloop.service.storage.snapshots import StoredState

T = TypeVar("T")
BATCH = 1000  # outcomes read at a time: some ten MB


class RankerView(Protocol):
    """All that is known of a ranker at one moment, beside its lists."""

    def head(self) -> int:
        """How many outcomes it has."""

    def stored(self) -> list[StoredState]:
        """Its states: where each of its folds began, its versions, the oldest first, and the last snapshot."""

    def state(self, one: StoredState) -> bytes:
        """The bytes of one."""

    def changes(self) -> list[RecordedChange]:
        """The changes of its spec that states depend on, the oldest first."""

    def logged(self, first: int, end: int) -> int:
        """How many of the outcomes first … end-1 are there."""

    def reward_scale(self) -> float | None:
        """The scale of its rewards; None: it declares no reward, or none has come."""


class LogSource(Protocol):
    """The log of some rankers."""

    def ranker(self, name: str) -> rankers.Ranker:
        """A ranker's row; refuses a name that is not there."""

    def look(self, name: str, work: Callable[[RankerView], T]) -> T:
        """What `work` finds out; all it sees is of one moment."""

    def outcomes(self, name: str, first: int, end: int) -> Iterator[Outcome]:
        """The outcomes first … end-1 as far as they are in the log, in order, read in portions."""

    def chunks(self, name: str, first: int, end: int) -> Iterator[Chunk]:
        """The same in columns."""


def open_log_source(source: Database | Path) -> LogSource:
    """A store, or a folder that an export wrote to."""
    if isinstance(source, Database):
        return StoreLog(source)
    try:
        from rankloop.service.offline.exported_log import ExportedLog
    except ModuleNotFoundError as error:
        raise RankloopError(f"reading {source} needs {error.name}; pip install 'rankloop[archive]'") from None
    return ExportedLog(source)


def find_ranker(database: Database, name: str) -> rankers.Ranker:
    """A ranker of the store."""
    found = database.read(lambda connection: rankers.get_ranker(connection, name))
    if found is None:
        names = [one.name for one in database.read(rankers.list_rankers)]
        raise UnknownName.among("ranker", name, names or ["none in this store"])
    return found


class StoreLog:
    """The past as a store has it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ranker(self, name: str) -> rankers.Ranker:
        return find_ranker(self._database, name)

    def look(self, name: str, work: Callable[[RankerView], T]) -> T:
        return self._database.read(lambda connection: work(_StoreRanker(connection, name)))

    def outcomes(self, name: str, first: int, end: int) -> Iterator[Outcome]:
        while first < end:
            some = self._read(stored_outcomes.outcomes_from, name, first, min(BATCH, end - first))
            some = [outcome for outcome in some if outcome.seq < end]
            if not some:
                return
            yield from some
            first = some[-1].seq + 1

    def chunks(self, name: str, first: int, end: int) -> Iterator[Chunk]:
        from rankloop.service.maintenance.archive.columns import chunks

        return chunks(self._database, name, first, end)

    def _read(self, query: Callable[..., T], *arguments: Any) -> T:
        return self._database.read(lambda connection: query(connection, *arguments))


class _StoreRanker:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    def head(self) -> int:
        return stored_outcomes.log_offsets(self._connection).get(self._name, 0)

    def stored(self) -> list[StoredState]:
        return snapshots.stored_states(self._connection, self._name)

    def state(self, one: StoredState) -> bytes:
        found = snapshots.load_state(self._connection, self._name, one)
        assert found is not None  # a view is of one moment
        return found

    def reward_scale(self) -> float | None:
        row = rankers.get_ranker(self._connection, self._name)
        return current_scale(row and row.spec.reward, stored_outcomes.reward_sketches(self._connection).get(self._name))

    def changes(self) -> list[RecordedChange]:
        return lineage.spec_changes(self._connection, self._name)

    def logged(self, first: int, end: int) -> int:
        return stored_outcomes.count_outcomes(self._connection, self._name, first, end)
