"""Capacity calculator: processes, machines, database and storage that a load needs, from measured costs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankloop.core.errors import InvalidInput, InvalidParameter, UnknownName

SHIPPED = Path(__file__).with_name("capacity.json")  # written by `python -m benchmarks capacity`
STORES = ("sqlite", "postgresql")
VALUE_BYTES = 7  # of a feature value of four digits with its comma, in JSON
DAY = 86_400.0
LONG_TURN = 0.05  # seconds that rankings may wait behind feedback before the plan warns
STORE_COSTS = (
    *("rank_busy", "event_busy", "rank_cpu", "event_cpu", "rank_database", "event_database", "fold"),
    *("rank_wal", "event_wal", "rank_stored", "event_stored"),
)
STORE_NUMBERS = ("commit_seconds", "commits", "memory_ranking", "memory_learning")
LEARNER_COSTS = ("rank", "learn", "state")

Cost = Mapping[str, float]  # of a size: terms such as "1", "n", "n d" -> seconds or bytes; n candidates, d features


@dataclass(frozen=True)
class Constants:
    """Costs measured on one machine, per store and per learner.

    Store: `*_busy` seconds that one ranking or event occupies a ranking process; `*_cpu` its processor time on a full
    machine; `*_database` the database's; `fold` the learning worker's per outcome; `*_wal`, `*_stored` bytes logged and
    stored; `commit_seconds` duration of one commit of events; `commits` per ranking or event; memory in bytes per
    process. Learner: seconds of `rank` and of `learn`, bytes of `state`.
    """

    machine: str
    cores: int
    measured: str
    rankloop: str
    stores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    learners: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, store in self.stores.items():
            _check_costs(name, store, STORE_COSTS, STORE_NUMBERS)
        for name, learner in self.learners.items():
            _check_costs(name, learner, LEARNER_COSTS)

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        temporary.replace(path)


def load_constants(path: Path = SHIPPED) -> Constants:
    """Read and check a file of constants."""
    try:
        return Constants(**json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidInput) as error:
        raise InvalidInput(
            f"{path} is not a file of capacity constants ({error}); `python -m benchmarks capacity` writes one"
        ) from None


def _check_costs(name: str, costs: Mapping[str, Any], wanted: tuple[str, ...], numbers: tuple[str, ...] = ()) -> None:
    if set(costs) != {*wanted, *numbers}:
        raise InvalidInput(f"{name}: missing or unknown: {', '.join(sorted({*wanted, *numbers} ^ set(costs)))}")
    for key in wanted:
        evaluate(costs[key], 1, 1, 1)
    for value in (*(costs[key] for key in numbers), *(value for key in wanted for value in costs[key].values())):
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise InvalidInput(f"{name}: {value!r} is not a finite number of at least 0")


def evaluate(cost: Cost, n: int, d: int, k: int) -> float:
    """The value of a cost for n candidates with d features of which k are shown.

    >>> evaluate({"1": 2.0, "n d": 0.5}, 10, 4, 1)
    22.0
    """
    sizes = {"1": 1, "n": n, "d": d, "k": k}
    return float(sum(value * math.prod(sizes[letter] for letter in term.split()) for term, value in cost.items()))


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of a service.

    Parameters
    ----------
    requests
        Rankings per second at the busiest time.
    candidates
        Candidates per request.
    features
        Features per candidate.
    shown
        Positions shown and stored.
    learner
        A learner with measured costs.
    store
        sqlite or postgresql.
    feedback
        Events per ranking. A ranking with an event is an outcome, which is learned.
    retention_days
        How long impressions and events are kept.
    average
        Mean rate of a day as a share of the busiest rate.
    headroom
        Share of a process or core that stays free at the busiest time.
    cores
        Cores of a machine: one that ranks, one that learns, the database's.
    rankers
        Number of rankers.
    busiest_share
        Share of requests that the busiest ranker gets; 0: all rankers get the same.
    separate_feedback
        Whether the load balancer sends /v1/feedback to processes of its own, so that rankings do not wait for events.
    spare_machines
        Machines that may fail while the others still carry the load.
    """

    requests: float = 100.0
    candidates: int = 100
    features: int = 136
    shown: int = 10
    learner: str = "pairrank"
    store: str = "postgresql"
    feedback: float = 0.3
    retention_days: float = 30.0
    average: float = 1.0
    headroom: float = 0.3
    cores: int = 8
    rankers: int = 1
    busiest_share: float = 0.0
    separate_feedback: bool = False
    spare_machines: int = 1

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "requests": (0.001, 1e7),
            "candidates": (1, 10_000),
            "features": (1, 4096),
            "shown": (1, self.candidates),
            "feedback": (0, 1000),
            "retention_days": (0.01, 3660),
            "average": (0.001, 1),
            "headroom": (0, 0.95),
            "cores": (1, 1024),
            "rankers": (1, 1_000_000),
            "spare_machines": (0, 1000),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise InvalidParameter(f"{name} is {value}; give a number from {low:g} to {high:g}")
        if self.store not in STORES:
            raise InvalidParameter(f"store is {self.store!r}; give {' or '.join(STORES)}")
        if self.busiest_share and not 1 / self.rankers <= self.busiest_share <= 1:
            raise InvalidParameter(
                f"busiest_share is {self.busiest_share}; for {self.rankers} rankers give 0 or {1 / self.rankers:g} to 1"
            )


@dataclass(frozen=True)
class Line:
    """One result and the formula it comes from."""

    name: str
    value: float
    unit: str
    formula: str


@dataclass(frozen=True)
class Plan:
    """What a load needs; `warnings` name what does not fit and what to do."""

    load: Load
    machine: str
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return next(line.value for line in self.lines if line.name == name)


def make_plan(load: Load, constants: Constants) -> Plan:
    """Compute processes, machines, database, storage and memory for a load."""
    for kind, name, known in (
        ("store", load.store, constants.stores),
        ("learner", load.learner, constants.learners),
    ):
        if name not in known:
            raise UnknownName(f"no costs were measured for {kind} {name!r}, only for {', '.join(known) or 'none'}")
    store, learner, size = constants.stores[load.store], constants.learners[load.learner], _size(load)
    cost = {key: evaluate(store[key], *size) for key in STORE_COSTS}
    rank, learn, state = (evaluate(learner[key], *size) for key in LEARNER_COSTS)
    free = 1 - load.headroom
    events = load.requests * load.feedback
    outcomes = load.requests * min(load.feedback, 1.0)
    lines: list[Line] = []
    warnings: list[str] = []

    def line(name: str, value: float, unit: str, formula: str) -> float:
        lines.append(Line(name, value, unit, formula))
        return value

    # Ranking
    busy = cost["rank_busy"] + rank + (0 if load.separate_feedback else load.feedback * cost["event_busy"])
    line("rankings per process", 1 / busy, "/s", "1 / (rank_busy + rank + feedback event_busy)")
    ranking = max(math.ceil(load.requests * busy / free), 1)
    line("ranking processes", ranking, "", "requests / (rankings per process (1 - headroom))")
    reporting = ranking
    if load.separate_feedback:
        reporting = max(math.ceil(events * cost["event_busy"] / free), 1)
        line("feedback processes", reporting, "", "events event_busy / (1 - headroom)")
    turn = line(
        "wait of an event for its commit",
        _turn(events, reporting, store["commit_seconds"]),
        "s",
        "feedback processes commit_seconds, because outcomes are numbered in one order until they are on the disk",
    )
    if turn > LONG_TURN and not load.separate_feedback:
        warnings.append(
            f"{ranking} processes take feedback and wait {1e3 * turn:.0f} ms for each other, with the rankings behind "
            "them; let the load balancer send /v1/feedback to processes of its own (--separate-feedback)"
        )
    cores = line(
        "cores for ranking",
        load.requests * (cost["rank_cpu"] + rank + load.feedback * cost["event_cpu"]) / free,
        "cores",
        "requests (rank_cpu + rank + feedback event_cpu) / (1 - headroom)",
    )
    machines = max(math.ceil(max(cores, ranking + reporting * load.separate_feedback) / load.cores), 1)
    if load.store == "postgresql":
        line(
            "ranking machines",
            machines + load.spare_machines,
            f"of {load.cores} cores",
            "max(cores, processes) / cores per machine + spare_machines",
        )
    elif machines > 1:
        warnings.append(
            f"{machines} machines of {load.cores} cores are needed, and a SQLite store works on one machine; use "
            "--store postgresql, or a machine with more cores"
        )
    per_machine = line("ranking processes per machine", math.ceil(ranking / machines), "", "--workers of the service")

    # Learning
    outcome = cost["fold"] + learn
    line("outcomes per second that one ranker can learn", 1 / outcome, "/s", "1 / (fold + learn)")
    share = load.busiest_share or 1 / load.rankers
    busiest = line("cores to learn the busiest ranker", outcomes * share * outcome, "cores", "outcomes (fold + learn)")
    if busiest > free:
        lighter = [
            name
            for name, one in constants.learners.items()
            if outcomes * share * (cost["fold"] + evaluate(one["learn"], *size)) <= free
        ]
        kind = load.learner.partition("?")[0]
        lighter.sort(key=lambda name: name.partition("?")[0] != kind)
        warnings.append(
            f"the busiest ranker gets {outcomes * share:,.0f} outcomes per second and one core learns "
            f"{free / outcome:,.0f} with this headroom, so its lag grows; split it into {math.ceil(busiest / free)} "
            f"rankers (by market, by device), report {free / busiest:.0%} of its feedback"
            + (f", or use {lighter[0]}" if lighter else "")
        )
    line(
        "learning processes",
        max(math.ceil(outcomes * outcome / free), 1),
        "",
        "outcomes (fold + learn) / (1 - headroom)",
    )

    # Store
    if load.store == "postgresql":
        database = line(
            "cores for the database",
            (load.requests * cost["rank_database"] + events * cost["event_database"]) / free,
            "cores",
            "(requests rank_database + events event_database) / (1 - headroom)",
        )
        if database > load.cores:
            warnings.append(
                f"the database needs {database:.1f} cores and its machine has {load.cores}; use a larger machine, or "
                f"split the rankers over {math.ceil(database / load.cores)} databases"
            )
        line("commits", (load.requests + events) * store["commits"], "/s", "(requests + events) commits")
        line(
            "write-ahead log",
            load.requests * cost["rank_wal"] + events * cost["event_wal"],
            "bytes/s",
            "requests rank_wal + events event_wal",
        )
    growth = line(
        "growth of the store",
        DAY * load.average * (load.requests * cost["rank_stored"] + events * cost["event_stored"]),
        "bytes/day",
        "86,400 average (requests rank_stored + events event_stored)",
    )
    line("size of the store", growth * load.retention_days, "bytes", "retention_days growth")

    # Memory and network
    line(
        "memory per ranking machine",
        per_machine * (store["memory_ranking"] + load.rankers * state)
        + store["memory_learning"]
        + 2 * load.rankers * state,
        "bytes",
        "processes (memory_ranking + rankers state) + memory_learning + 2 rankers state",
    )
    line(
        "request traffic",
        load.requests * load.candidates * load.features * VALUE_BYTES,
        "bytes/s",
        f"requests candidates features x {VALUE_BYTES} bytes of JSON",
    )
    return Plan(load, constants.machine, tuple(lines), tuple(warnings))


def _size(load: Load) -> tuple[int, int, int]:
    return load.candidates, load.features, load.shown


def _turn(events: float, processes: int, commit: float) -> float:
    """Seconds until a process may number and commit its outcomes, its own commit included. Above one event per commit
    every process always has some, and each waits for all others."""
    load = events * commit
    return commit * (processes if load >= 1 else min(processes, 1 / (1 - load)))
