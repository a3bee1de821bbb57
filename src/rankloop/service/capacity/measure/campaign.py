"""All runs that a file of constants needs, and the curves through them.

Lists of several sizes, with and without feedback, go to a service with one process that ranks (how long is it taken up
by each?) and to one with more processes than there are cores (what does each take of a machine that is full?). The
learner in these runs is `greedy`, which takes next to nothing; what other learners take is measured apart and added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from rankloop import __version__
from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import resolved
from rankloop.service.capacity.constants import Constants, LearnerConstants, StoreConstants
from rankloop.service.capacity.curves import Curve, Size, fitted, fitted_together
from rankloop.service.capacity.measure import learners as alone
from rankloop.service.capacity.measure.processes import machine_name
from rankloop.service.capacity.measure.runs import Bench, Run, serving

CARRIER = "greedy"
CONNECTIONS = 32  # for each process that ranks: enough that it always has something to do
SIZES = (
    Size(10, 10, 5),
    Size(50, 30, 10),
    Size(30, 100, 10),
    Size(150, 40, 20),
    Size(60, 136, 10),
    Size(200, 100, 10),
    Size(200, 180, 20),
)
CLICKED = (SIZES[0], SIZES[2], SIZES[3], SIZES[4])
SHARE = 1.0  # of these lists have an event each
LEARNERS = (
    *("pairrank", "pairrank?batch=64", "hybrid", "hybrid?batch=64"),
    *("adaptive", "pdgd", "greedy", "dbgd", "mgd"),
)
FULL, PARTS = ("1", "n", "n d"), ("1", "k d")
RANK, LEARN, STATE = ("1", "n", "n d", "n d d"), ("1", "k d", "d d", "k d d"), ("1", "d", "d d")
MEASURED = (
    *("rate", "ranking", "learning", "database", "sender"),
    *("feedback", "commits", "wal", "rows", "stored", "received"),
)
OnStep = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How long and how often; a minute for one store with the defaults."""

    turns: int = 1
    seconds: float = 1.5

    def __post_init__(self) -> None:
        if self.turns < 1 or not 0.2 <= self.seconds <= 60:
            raise InvalidParameter(
                f"turns is {self.turns} and seconds {self.seconds}; give at least 1 turn, and 0.2 to 60 seconds a run"
            )


def steps(stores: Sequence[str], learners: Sequence[str], effort: Effort) -> int:
    """How often `measured` will call `on_step`."""
    return len(learners) * len(alone.SIZES) + len(stores) * (2 * effort.turns * (len(SIZES) + len(CLICKED)) + 1)


def measured(
    stores: Sequence[str], learners: Sequence[str], effort: Effort, on_step: OnStep = lambda _: None
) -> tuple[Constants, list[Run]]:
    """Constants of this machine, and the runs they are from. A store is a file that is not there, or a URL."""
    chosen = dict.fromkeys([*learners, CARRIER])
    found = {name: _learner(name, on_step) for name in chosen}
    runs: list[Run] = []
    stored = {}
    for store in stores:
        stored["postgresql" if "://" in store else "sqlite"] = _store(store, found[CARRIER], effort, runs, on_step)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Constants(machine_name(), os.cpu_count() or 1, now, __version__, stored, found), runs


def _learner(name: str, on_step: OnStep) -> LearnerConstants:
    resolved(name.partition("?")[0], {})  # an unknown name is told before anything is measured
    costs = alone.costs(name, on_step=lambda: on_step(f"{name} alone"))
    sizes = [cost.size for cost in costs]
    return LearnerConstants(
        fitted(RANK, sizes, [cost.rank for cost in costs]),
        fitted(LEARN, sizes, [cost.learn for cost in costs]),
        fitted(STATE, sizes, [cost.state for cost in costs]),
    )


def _store(store: str, carrier: LearnerConstants, effort: Effort, runs: list[Run], on_step: OnStep) -> StoreConstants:
    cores = os.cpu_count() or 1
    with serving(store, 1) as bench:
        on_step("one caller")
        single = [
            bench.run(20, 20, learner=CARRIER, connections=1, feedback=SHARE, seconds=effort.seconds)
            for _ in range(effort.turns)
        ]
        spare = _runs(bench, effort, on_step)
    with serving(store, cores + 1) as bench:
        busy = _runs(bench, effort, on_step)
    runs.extend([*single, *spare, *busy])
    return constants_of(single, spare, busy, carrier, cores)


def _runs(bench: Bench, effort: Effort, on_step: OnStep) -> list[Run]:
    """Every size in turn, several times over, so that what else the machine does meets all alike."""
    found = []
    for _ in range(effort.turns):
        for size, share in [*((size, 0.0) for size in SIZES), *((size, SHARE) for size in CLICKED)]:
            on_step(f"{bench.workers} processes, {size.n} x {size.d}")
            one = bench.run(
                size.n,
                size.d,
                learner=CARRIER,
                k=size.k,
                connections=CONNECTIONS * bench.workers,
                feedback=share,
                seconds=effort.seconds,
            )
            found.append(one)
    return found


def typical(runs: Sequence[Run]) -> list[Run]:
    """One run of each kind, with the medians of all that was measured: on a machine that others use, too, a core is not
    always as quick, and a plan is for the days as they are."""
    kinds: dict[tuple[Size, bool], list[Run]] = {}
    for run in runs:
        kinds.setdefault((size_of(run), run.events > 0), []).append(run)
    found = []
    for same in kinds.values():
        middle = {name: median(getattr(run, name) for run in same) for name in MEASURED}
        found.append(replace(same[0], **middle))
    return found


def constants_of(
    one_caller: list[Run], spare: list[Run], busy: list[Run], carrier: LearnerConstants, cores: int
) -> StoreConstants:
    """Curves through runs."""
    single = sorted(one_caller, key=lambda run: run.p50)[len(one_caller) // 2]
    taken = [used_by(run) / max(cores - run.others, 0.5) for run in busy]
    spare, busy = typical(spare), typical(busy)

    def rank(run: Run) -> float:
        return carrier.rank.at(size_of(run))

    def hold(run: Run) -> float:
        return run.workers / run.rate - rank(run)

    def curve(terms: Sequence[str], runs: list[Run], of: Callable[[Run], float]) -> Curve:
        return fitted(terms, [size_of(run) for run in runs], [max(of(run), 0.0) for run in runs])

    def pair(terms: Sequence[str], runs: list[Run], of: Callable[[Run], float]) -> tuple[Curve, Curve]:
        shares, values = [run.feedback for run in runs], [max(of(run), 0.0) for run in runs]
        return fitted_together(terms, PARTS, [size_of(run) for run in runs], shares, values)

    wal_list, wal_event = pair(PARTS, spare + busy, lambda run: run.wal)
    stored_list, stored_event = pair(PARTS, spare + busy, lambda run: run.stored)
    rows_list, rows_event = pair(PARTS, spare, lambda run: run.rows)
    hold_list, hold_event = pair(FULL, spare, hold)
    ranking_list, ranking_event = pair(FULL, busy, lambda run: run.ranking - rank(run))
    database_list, database_event = pair(PARTS, busy, lambda run: run.database)
    sender_list, sender_event = pair(FULL, busy, lambda run: run.sender)
    answer, _ = pair(("1", "k"), spare, lambda run: run.received)
    _, event = pair(("1", "k"), spare, lambda run: run.received + run.reported)
    clicked = [run for run in busy if run.events]
    mean = sum(single.quantiles) / len(single.quantiles)
    return StoreConstants(
        hold_list=hold_list,
        hold_event=hold_event,
        ranking_list=ranking_list,
        ranking_event=ranking_event,
        database_list=database_list,
        database_event=database_event,
        fold_event=curve(PARTS, clicked, lambda run: run.learning / run.feedback - carrier.learn.at(size_of(run))),
        sender_list=sender_list,
        sender_event=sender_event,
        wal_list=wal_list,
        wal_event=wal_event,
        stored_list=stored_list,
        stored_event=stored_event,
        rows_list=rows_list,
        rows_event=rows_event,
        request=curve(FULL, spare, lambda run: run.request),
        answer=answer,
        event=event,
        commits=median(run.commits / (1 + run.feedback) for run in spare),
        usable=min(median(taken), 1.0),
        list_trip=max(single.p50 - hold_list.at(size_of(single)) - rank(single), 0.0),
        event_trip=max(single.events_p50 - hold_event.at(size_of(single)), 0.0),
        spread=tuple(one / mean for one in single.quantiles),
        memory_ranking=max(run.memory_ranking for run in spare),
        memory_learning=max(run.memory_learning for run in spare),
    )


def used_by(run: Run) -> float:
    """Cores that a run put to use."""
    return run.rate * (run.ranking + run.learning + run.database + run.sender)


def size_of(run: Run) -> Size:
    """Of its lists."""
    return Size(run.candidates, run.features, run.k)
