"""From a load to processes, machines, a database and bytes: arithmetic on measured constants, each line with its own.

    plan = make_plan(Load(requests=10_000, candidates=100, features=136), constants.load())
    for line in plan.lines: ...

Every `Line` has a value, the formula it comes from and the numbers in the formula, so that nobody has to believe it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rankloop.service.capacity.constants import Constants
from rankloop.service.capacity.load import Load

DAY = 86_400.0
LONG = 0.05  # seconds that lists may wait for events before it is worth a warning


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
    apart = load.feedback_apart
    most = line(
        "lists a second that one process can rank",
        1 / (cost.list_hold if apart else cost.hold),
        "/s",
        "1 / (hold_list + rank)" if apart else "1 / (hold_list + rank + clicks_per_list hold_event)",
        hold_list=f"{store.hold_list.text()} µs",
        hold_event=f"{store.hold_event.text()} µs",
        rank=f"{learner.rank.text()} µs ({load.learner})",
    )
    ranking = max(math.ceil(per_second / (most * free)), 1)
    line("ranking processes", ranking, "", "requests / (lists a second of one x (1 - headroom)), rounded up")
    reporting = ranking
    if apart:
        reporting = max(math.ceil(events * cost.event_hold / free), 1)
        line("processes that take feedback", reporting, "", "events hold_event / (1 - headroom), rounded up")
    turn = line(
        "an event waits for its turn",
        _turn(events, reporting, store.event_trip),
        "s",
        "processes that take feedback x event_trip where events x event_trip is above 1: their outcomes are numbered "
        "in one order, and a number is held until it is on the disk",
        event_trip=f"{1e3 * store.event_trip:.2g} ms",
    )
    if turn > LONG and not apart:
        warnings.append(
            f"{ranking} processes take feedback, one after the other: {1e3 * turn:.0f} ms a round, for which the lists "
            "of each wait, too. Let the balancer send /v1/feedback to processes of their own (--feedback-apart)"
        )
    cores = line(
        "cores that rank",
        per_second * cost.ranking / (store.usable * free),
        "cores",
        "requests (ranking_list + rank + clicks_per_list ranking_event) / (usable (1 - headroom))",
        ranking_list=f"{store.ranking_list.text()} µs",
        ranking_event=f"{store.ranking_event.text()} µs",
        usable=f"{store.usable:.2f}",
    )
    machines = max(math.ceil(max(cores, ranking + (reporting if apart else 0)) / load.cores), 1)
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


def _turn(events: float, processes: int, trip: float) -> float:
    """Seconds until it is a commit's turn to number its outcomes, its own trip included.

    Few events queue as in front of any server. As soon as there are more than one a trip, every process always has
    some, and each waits for all the others; what gathers meanwhile goes in one commit.
    """
    load = events * trip
    return trip * (processes if load >= 1 else min(processes, 1 / (1 - load)))


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
