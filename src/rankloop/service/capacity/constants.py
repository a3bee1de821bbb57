"""The measured numbers that a plan is made of, in a file that says which machine they are of.

`rankloop plan measure FILE` writes one for your machine; the one beside this module is written by
`python -m benchmarks.capacity` (a part of `make bench`). Nobody types them in.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankloop.core.errors import InvalidInput, UnknownName
from rankloop.service.capacity.curves import Curve

SHIPPED = Path(__file__).with_name("constants.json")
FORMAT = 1


@dataclass(frozen=True)
class StoreConstants:
    """What lists and events take of a service on one kind of store; times in seconds, sizes in bytes.

    Parameters
    ----------
    hold_list, hold_event
        How long a process that ranks is taken up by one, when it has all it can do and cores to spare: its highest
        rate is one over this. Without the learner's `rank`.
    ranking_list, ranking_event, database_list, database_event
        Processor time of the processes that rank and of the database, when all cores are busy; without `rank`.
    fold_event
        Processor time of the process that learns, without the learner's `learn`.
    sender_list, sender_event
        Processor time of the process that sends and clicks, for plans of machines that have it on them.
    wal_list, wal_event, stored_list, stored_event, rows_list, rows_event
        Bytes of write-ahead log, bytes the store grows by, rows written.
    request, answer, event
        Bytes of a request to rank (features as lists of numbers of four digits), of its answer, of an event with its.
    commits
        Commits a list or event, when a process has all it can do.
    usable
        Share of the cores that is put to use when every process has all it can do.
    list_trip, event_trip
        Seconds for which a commit of lists, and one of events, which waits for the disk, keeps a caller waiting who is
        alone, beside what the process takes.
    spread
        Quantiles of what one caller waited for lists, as multiples of their mean: how times vary.
    memory_ranking, memory_learning
        Of one process, beside what rankers hold.
    """

    hold_list: Curve
    hold_event: Curve
    ranking_list: Curve
    ranking_event: Curve
    database_list: Curve
    database_event: Curve
    fold_event: Curve
    sender_list: Curve
    sender_event: Curve
    wal_list: Curve
    wal_event: Curve
    stored_list: Curve
    stored_event: Curve
    rows_list: Curve
    rows_event: Curve
    request: Curve
    answer: Curve
    event: Curve
    commits: float
    usable: float
    list_trip: float
    event_trip: float
    spread: tuple[float, ...]
    memory_ranking: float
    memory_learning: float


@dataclass(frozen=True)
class LearnerConstants:
    """Seconds of a `rank` and of a `learn` by themselves, once it has learned from some lists; bytes of its state."""

    rank: Curve
    learn: Curve
    state: Curve


@dataclass(frozen=True)
class Constants:
    """Everything that was measured on one machine."""

    machine: str
    cores: int
    measured: str
    rankloop: str
    stores: Mapping[str, StoreConstants] = field(default_factory=dict)
    learners: Mapping[str, LearnerConstants] = field(default_factory=dict)

    def store(self, name: str) -> StoreConstants:
        """Of one kind of store."""
        if name not in self.stores:
            raise UnknownName(
                f"the constants of {self.machine} have no store {name!r}, only {', '.join(self.stores) or 'none'}; "
                "`rankloop plan measure FILE --store …` measures one"
            )
        return self.stores[name]

    def learner(self, name: str) -> LearnerConstants:
        """Of one learner."""
        if name not in self.learners:
            raise UnknownName(
                f"the constants of {self.machine} have no learner {name!r}, only {', '.join(self.learners) or 'none'}; "
                f"`rankloop plan measure FILE --learners {name}` measures it"
            )
        return self.learners[name]

    def save(self, path: Path) -> None:
        """Write them, all or nothing."""
        beside = path.with_name(path.name + ".part")
        beside.write_text(json.dumps({"format": FORMAT, **_plain(self)}, indent=1) + "\n", "utf-8")
        beside.replace(path)


def load(path: Path = SHIPPED) -> Constants:
    """Read a file of constants; says what is wrong with one that is damaged or of something else."""
    try:
        told = json.loads(path.read_text("utf-8"))
        if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        stores = {name: _made(StoreConstants, parts) for name, parts in told.pop("stores").items()}
        learners = {name: _made(LearnerConstants, parts) for name, parts in told.pop("learners").items()}
        return Constants(**told, stores=stores, learners=learners)
    except (ValueError, TypeError, KeyError, AttributeError, InvalidInput) as error:
        raise InvalidInput(
            f"{path} is no file of constants ({error}); `rankloop plan measure {path}` writes one"
        ) from None


def _made(kind: type[Any], parts: Mapping[str, Any]) -> Any:
    wanted = {entry.name for entry in dataclasses.fields(kind)}
    if set(parts) != wanted:
        raise ValueError(f"it lacks or does not know {', '.join(sorted(wanted ^ set(parts)))}")
    made: dict[str, Any] = {}
    for name, value in parts.items():
        if isinstance(value, dict):
            made[name] = Curve(**value)
        elif isinstance(value, list) and value and all(map(_is_number, value)):
            made[name] = tuple(value)
        elif _is_number(value):
            made[name] = value
        else:
            raise ValueError(f"{name} is {value!r}")
    return kind(**made)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
