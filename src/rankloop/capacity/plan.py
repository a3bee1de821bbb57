"""From a load to processes, machines, a database and bytes: arithmetic on measured constants, each line with its own.

    plan = make_plan(Load(requests=10_000, candidates=100, features=136), constants.load())
    for line in plan.lines: ...

Every `Line` has a value, the formula it comes from and the numbers in the formula, so that nobody has to believe it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rankloop.capacity.constants import Constants
from rankloop.capacity.curves import Size
from rankloop.errors import InvalidParameter

DAY = 86_400.0
STORES = ("sqlite", "postgresql")
BOUNDS: dict[str, tuple[float, float]] = {
    "requests": (0.001, 1e7),
    "candidates": (1, 10_000),
    "features": (1, 4096),
    "shown": (1, 1000),
    "clicks_per_list": (0, 1000),
    "retention_days": (0.01, 3660),
    "average": (0.001, 1),
    "headroom": (0, 0.95),
    "cores": (1, 1024),
    "rankers": (1, 1_000_000),
    "hottest": (0, 1),
    "survive": (0, 1000),
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of a service.

    Parameters
    ----------
    requests
        Lists a second, at the busiest time.
    candidates
        Of a list.
    features
        Of a candidate.
    shown
        How many of a list are shown, and stored.
    learner
        A name that the constants know; those that come with rankloop know the usual ones.
    store
        sqlite or postgresql.
    clicks_per_list
        Events reported a list. A list with an event has an outcome, which is learned.
    retention_days
        How long lists and events are kept.
    average
        What a day's mean rate is of that of the busiest time.
    headroom
        Share of what it has that a process or a core leaves free at the busiest time.
    cores
        Of a machine that ranks, of one that learns, and of the database's.
    rankers
        How many there are.
    hottest
        Share of the requests that the busiest of them gets; 0: all get the same.
    survive
        Machines that may be lost while the rest still carries the load.
    """

    requests: float = 100.0
    candidates: int = 100
    features: int = 136
    shown: int = 10
    learner: str = "pairrank"
    store: str = "postgresql"
    clicks_per_list: float = 0.3
    retention_days: float = 30.0
    average: float = 1.0
    headroom: float = 0.3
    cores: int = 8
    rankers: int = 1
    hottest: float = 0.0
    survive: int = 1

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise InvalidParameter(f"{name} is {value}; give a number from {low:g} to {high:g}")
        if self.store not in STORES:
            raise InvalidParameter(f"store is {self.store!r}; give {' or '.join(STORES)}")
        if self.shown > self.candidates:
            raise InvalidParameter(
                f"shown is {self.shown}, more than the {self.candidates} candidates there are; give fewer"
            )
        if self.rankers == 1 and 0 < self.hottest < 1:
            raise InvalidParameter(
                f"hottest is {self.hottest}, but there is one ranker, which gets all; give --rankers"
            )
        if 0 < self.hottest < 1 / self.rankers:
            raise InvalidParameter(
                f"hottest is {self.hottest}, but the busiest of {self.rankers} rankers gets at least 1/{self.rankers}"
            )

    @property
    def size(self) -> Size:
        """Of a list."""
        return Size(self.candidates, self.features, self.shown)

    @property
    def share(self) -> float:
        """Of requests that the busiest ranker gets."""
        return self.hottest or 1 / self.rankers


@dataclass(frozen=True)
class Line:
    """One thing the plan says."""

    name: str
    value: float
    unit: str
    formula: str
    constants: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """What a load needs; `warnings` say what does not fit, and what to do about it."""

    load: Load
    machine: str
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]

    def value(self, name: str) -> float:
        """Of one line."""
        return next(line.value for line in self.lines if line.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Plain, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Costs:
    """Seconds that a list and an event take of each kind of process, for one load; bytes likewise."""

    hold: float  # of a process that ranks, a list with its share of events
    ranking: float  # processor time of it
    database: float
    outcome: float  # of the process that learns, one outcome
    sender: float
    list_hold: float
    event_hold: float


def costs(load: Load, constants: Constants) -> Costs:
    """Everything that is a sum of a measured part of the service and a measured part of the learner."""
    store, learner, size = constants.store(load.store), constants.learner(load.learner), load.size
    rank, events = learner.rank.at(size), load.clicks_per_list
    list_hold, event_hold = store.hold_list.at(size) + rank, store.hold_event.at(size)
    return Costs(
        hold=list_hold + events * event_hold,
        ranking=store.ranking_list.at(size) + rank + events * store.ranking_event.at(size),
        database=store.database_list.at(size) + events * store.database_event.at(size),
        outcome=store.fold_event.at(size) + learner.learn.at(size),
        sender=store.sender_list.at(size) + events * store.sender_event.at(size),
        list_hold=list_hold,
        event_hold=event_hold,
    )


def outcomes_per_list(load: Load) -> float:
    """Lists on which something was reported are learned from, each once."""
    return min(load.clicks_per_list, 1.0)


def make_plan(load: Load, constants: Constants) -> Plan:
    """Processes, machines, learning, database, memory and network."""
    store, learner, size = constants.store(load.store), constants.learner(load.learner), load.size
    cost, free = costs(load, constants), 1 - load.headroom
    per_second, events = load.requests, load.requests * load.clicks_per_list
    lines: list[Line] = []
    warnings: list[str] = []

    def line(name: str, value: float, unit: str, formula: str, **used: str) -> float:
        lines.append(Line(name, value, unit, formula, used))
        return value

    # Ranking
    most = line(
        "lists a second that one process can rank",
        1 / cost.hold,
        "/s",
        "1 / (hold_list + rank + clicks_per_list hold_event)",
        hold_list=f"{store.hold_list.text()} µs",
        hold_event=f"{store.hold_event.text()} µs",
        rank=f"{learner.rank.text()} µs ({load.learner})",
    )
    ranking = max(math.ceil(per_second / (most * free)), 1)
    line("ranking processes", ranking, "", "requests / (lists a second of one x (1 - headroom)), rounded up")
    cores = line(
        "cores that rank",
        per_second * cost.ranking / (store.usable * free),
        "cores",
        "requests (ranking_list + rank + clicks_per_list ranking_event) / (usable (1 - headroom))",
        ranking_list=f"{store.ranking_list.text()} µs",
        ranking_event=f"{store.ranking_event.text()} µs",
        usable=f"{store.usable:.2f}",
    )
    machines = max(math.ceil(max(cores, ranking) / load.cores), 1)
    if load.store == "sqlite":
        _only_one(load, machines, warnings)
    else:
        line(
            "machines that rank",
            machines + load.survive,
            f"of {load.cores} cores",
            f"max(cores, processes) / {load.cores} rounded up, and {load.survive} that may be lost",
        )
    line(
        "ranking processes a machine", math.ceil(ranking / machines), "(--workers)", "processes / machines, rounded up"
    )

    # Learning
    outcomes = per_second * outcomes_per_list(load)
    one = line(
        "outcomes a second that one ranker can learn",
        1 / cost.outcome,
        "/s",
        "1 / (fold_event + learn)",
        fold_event=f"{store.fold_event.text()} µs",
        learn=f"{learner.learn.text()} µs ({load.learner})",
    )
    busiest = line(
        "of a core that the busiest ranker's learning takes",
        outcomes * load.share * cost.outcome,
        "cores",
        f"requests x {outcomes_per_list(load):g} outcomes a list x {load.share:.3g} of them x (fold_event + learn)",
    )
    if busiest > free:
        warnings.append(
            f"the busiest ranker has {outcomes * load.share:,.0f} outcomes a second, and one core learns "
            f"{one * free:,.0f} with the headroom asked; over {one:,.0f} its lag grows without end. Learn in batches, "
            f"split it into {math.ceil(busiest / free)} rankers (by market, by device), report on "
            f"{min(free / busiest, 1):.0%} of its lists"
            + "".join(f", or take {name}" for name in _lighter(load, constants)[:1])
        )
    line(
        "learning processes",
        max(math.ceil(outcomes * cost.outcome / free), 1),
        "",
        "all outcomes x (fold_event + learn) / (1 - headroom), rounded up; rankers are spread over them",
    )

    # The database
    if load.store == "postgresql":
        database = line(
            "cores of the database",
            per_second * cost.database / free,
            "cores",
            "requests (database_list + clicks_per_list database_event) / (1 - headroom)",
            database_list=f"{store.database_list.text()} µs",
            database_event=f"{store.database_event.text()} µs",
        )
        if database > load.cores:
            warnings.append(
                f"the database needs {database:.1f} cores and its machine has {load.cores}: it breaks first. Give it a "
                f"larger machine, or split the rankers over {math.ceil(database / load.cores)} databases"
            )
        line(
            "commits a second",
            (per_second + events) * store.commits,
            "/s",
            "(requests + events) x commits each when processes are full",
            commits=f"{store.commits:.2f}",
        )
        line(
            "rows a second",
            per_second * store.rows_list.at(size) + events * store.rows_event.at(size),
            "/s",
            "requests rows_list + events rows_event, parts of large values included",
            rows_list=store.rows_list.text(1),
            rows_event=store.rows_event.text(1),
        )
        line(
            "write-ahead log",
            per_second * store.wal_list.at(size) + events * store.wal_event.at(size),
            "bytes/s",
            "requests wal_list + events wal_event",
            wal_list=f"{store.wal_list.text(1)} bytes",
            wal_event=f"{store.wal_event.text(1)} bytes",
        )
    growth = line(
        "the store grows by",
        DAY * load.average * (per_second * store.stored_list.at(size) + events * store.stored_event.at(size)),
        "bytes/day",
        f"86,400 x {load.average:g} of the rate x (requests stored_list + events stored_event)",
        stored_list=f"{store.stored_list.text(1)} bytes",
        stored_event=f"{store.stored_event.text(1)} bytes",
    )
    line("size of the store", growth * load.retention_days, "bytes", f"{load.retention_days:g} days of that")

    # Memory and network
    state = learner.state.at(size) * load.rankers
    line(
        "memory a machine that ranks",
        math.ceil(ranking / machines) * (store.memory_ranking + state) + store.memory_learning + 2 * state,
        "bytes",
        "processes (memory_ranking + rankers state) + memory_learning + 2 rankers state",
        memory_ranking=f"{store.memory_ranking / 1e6:.0f} MB",
        memory_learning=f"{store.memory_learning / 1e6:.0f} MB",
        state=f"{learner.state.text(1)} bytes",
    )
    line(
        "network to the machines that rank",
        per_second * (store.request.at(size) + store.answer.at(size)) + events * store.event.at(size),
        "bytes/s",
        "requests (request + answer) + events event; both ways, features as lists of numbers of four digits",
        request=f"{store.request.text(1)} bytes",
        answer=f"{store.answer.text(1)} bytes",
        event=f"{store.event.text(1)} bytes",
    )
    return Plan(load, constants.machine, tuple(lines), tuple(warnings))


def _lighter(load: Load, constants: Constants) -> list[str]:
    """Learners that would keep up, those of the same kind (`pairrank?batch=64`) first."""
    store, busiest = constants.store(load.store), load.requests * outcomes_per_list(load) * load.share
    enough = [
        name
        for name, one in constants.learners.items()
        if busiest * (store.fold_event.at(load.size) + one.learn.at(load.size)) <= 1 - load.headroom
    ]
    kind = load.learner.partition("?")[0]
    return sorted(enough, key=lambda name: name.partition("?")[0] != kind)


def _only_one(load: Load, machines: int, warnings: list[str]) -> None:
    if machines > 1:
        warnings.append(
            f"{machines} machines of {load.cores} cores would be needed, and a SQLite file is one machine's: take "
            "--store postgresql, or a machine with more cores"
        )
