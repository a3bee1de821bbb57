"""The costs behind `rankloop plan`: rankings and events of a full service by size, and learners by themselves.

Writes src/rankloop/service/capacity.json. A load generator keeps services with one ranking process and with more
processes than cores busy on SQLite and PostgreSQL; costs are sums of non-negative terms fitted to processor times.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import numpy as np
import psycopg
from scipy.optimize import nnls

from benchmarks.common import (
    Running,
    children,
    machine,
    parent_of,
    postgres,
    print_rows,
    processor_seconds,
    resident_bytes,
    service,
)
from rankloop import __version__
from rankloop.clicks.users import DependentClickUser
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Candidates
from rankloop.service.capacity import SHIPPED, Constants, evaluate
from rankloop.service.load_generator import LoadPlan, LoadReport, run, start


class Size(NamedTuple):
    """Candidates, features of each, positions shown."""

    n: int
    d: int
    k: int = 10


SIZES = (Size(10, 10, 5), Size(50, 30), Size(30, 100), Size(150, 40, 20), Size(60, 136), Size(200, 180, 20))
CLICKED = (SIZES[0], SIZES[2], SIZES[3], SIZES[4])  # with an event per ranking
ALONE = (*SIZES, Size(300, 100), Size(60, 220))
CARRIER = "greedy"  # the learner of the service runs: costs almost nothing
LEARNERS = ("pairrank", "hybrid", "adaptive", "pdgd", "greedy", "dbgd", "mgd")
RANK_TERMS, SHOWN_TERMS = ("1", "n", "n d"), ("1", "k d")
LEARNER_TERMS = {"rank": ("1", "n", "n d", "n d d"), "learn": ("1", "k d", "d d", "k d d"), "state": ("1", "d", "d d")}
IDLE = 3.0  # seconds to watch processes without requests
COUNTERS = (
    "SELECT xact_commit, pg_current_wal_insert_lsn() - '0/0', pg_database_size(datname) FROM pg_stat_database "
    "WHERE datname = current_database()"
)
Terms = dict[str, float]


@dataclass(frozen=True)
class Look:
    """Counters at one moment: processor seconds per role, commits, bytes logged and stored."""

    at: float
    ranking: float
    learning: float
    database: float
    commits: float
    wal: float
    stored: float


@dataclass(frozen=True)
class Run:
    """What one ranking with its share of events cost."""

    size: Size
    share: float  # events per ranking
    report: LoadReport
    busy: float
    ranking: float
    learning: float
    database: float
    commits: float
    wal: float
    stored: float


class Bench:
    """A running service whose processes are watched."""

    def __init__(self, one: Running, store: str, workers: int) -> None:
        self.url, self.store, self.workers = one.url, store, workers
        pids = children(one.pid)
        self.ranking, self.learning = pids[:workers], pids[workers]
        self.database = psycopg.connect(store, autocommit=True) if "://" in store else None
        self._postmaster = parent_of(self.database.info.backend_pid) if self.database else 0
        time.sleep(1)
        before = self.look()
        time.sleep(IDLE)
        after = self.look()
        self.idle = {
            role: (getattr(after, role) - getattr(before, role)) / (after.at - before.at)
            for role in ("ranking", "learning", "database")
        }

    def look(self) -> Look:
        """Read all counters."""
        if self.database is not None:
            counters = [float(value) for value in self.database.execute(COUNTERS).fetchone() or (0, 0, 0)]
        else:
            with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as file:
                pages, size = (file.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
            counters = [0.0, 0.0, float(pages * size)]
        return Look(
            time.monotonic(),
            sum(map(processor_seconds, self.ranking)),
            processor_seconds(self.learning),
            processor_seconds(self._postmaster, with_children=True) if self._postmaster else 0.0,
            *counters,
        )

    def run(self, size: Size, share: float, seconds: float, connections: int = 32) -> Run:
        """Keep the service busy with one size of request."""
        plan = LoadPlan(
            url=self.url, rate=0, seconds=seconds, candidates=size.n, features=size.d, k=size.k, feedback=share,
            learner=CARRIER, connections=connections * self.workers, warm_up=0,
        )  # fmt: skip
        start(run(LoadPlan(**{**vars(plan), "seconds": 0.7})))  # compiles and fills caches
        self._caught_up()
        before = self.look()
        report = start(run(plan))
        self._caught_up()
        time.sleep(1.1 if self.database is not None else 0)  # PostgreSQL reports its counters once per second
        after = self.look()
        if report.errors or not report.answered:
            raise SystemExit(f"{size}: {report.errors or 'no answers'}; the costs are of a service that answers")
        took = after.at - before.at
        spent = {
            role: max(getattr(after, role) - getattr(before, role) - idle * took, 0.0) / report.answered
            for role, idle in self.idle.items()
        }
        counted = {
            name: (getattr(after, name) - getattr(before, name)) / report.answered
            for name in ("commits", "wal", "stored")
        }
        return Run(
            size, report.feedback.n / report.answered, report, self.workers / report.achieved_rate, **spent, **counted
        )

    def _caught_up(self) -> None:
        while httpx.get(f"{self.url}/v1/rankers/load", timeout=60).json().get("unlearned_impressions"):
            time.sleep(0.05)


def fit(terms: Sequence[str], sizes: Sequence[Size], values: Sequence[float]) -> Terms:
    """Non-negative terms with the least relative error."""
    return fit_pair(terms, (), sizes, [0.0] * len(sizes), values)[0]


def fit_pair(
    first: Sequence[str], second: Sequence[str], sizes: Sequence[Size], shares: Sequence[float], values: Sequence[float]
) -> tuple[Terms, Terms]:
    """Terms of a ranking and of an event, from values of rankings of which a share had an event each."""
    rows = np.array(
        [
            [*(evaluate({t: 1.0}, *size) for t in first), *(share * evaluate({t: 1.0}, *size) for t in second)]
            for size, share in zip(sizes, shares, strict=True)
        ]
    )
    weights = 1 / np.maximum(np.abs(values), 1e-9)
    scale = np.maximum(np.abs(rows * weights[:, None]).max(axis=0), 1e-9)
    found = nnls(rows * weights[:, None] / scale, np.asarray(values) * weights)[0] / scale
    parts = [float(f"{value:.5g}") for value in found * ((rows * found).max(axis=0) > 1e-6 * max(np.abs(values)))]
    return (
        {t: value for t, value in zip(first, parts, strict=False) if value > 0},
        {t: value for t, value in zip(second, parts[len(first) :], strict=True) if value > 0},
    )


def learner_costs(spec: str) -> dict[str, Terms]:
    """Costs of rank, learn and state of one learner, without a service."""
    found: dict[str, list[float]] = {"rank": [], "learn": [], "state": []}
    for size in ALONE:
        tries = [_alone(spec, size) for _ in range(3)]
        for name, values in zip(found, zip(*tries, strict=True), strict=True):
            found[name].append(min(values))
    return {name: fit(LEARNER_TERMS[name], ALONE, values) for name, values in found.items()}


def _alone(spec: str, size: Size, rounds: int = 370, counted: int = 120) -> tuple[float, float, float]:
    streams, user = Rng(0), DependentClickUser.named("navigational", 4)
    rows = streams.for_event("capacity/truth", 0).random((40, size.n, size.d))
    scores = rows[:, :, :10].sum(axis=2)
    grades = np.searchsorted(np.quantile(scores, (0.5, 0.75, 0.9, 0.97)), scores, side="right")
    ids = [f"item-{i}" for i in range(size.n)]
    queries = [Candidates(f"q{q}", [f"q{q}/{one}" for one in ids], table.copy()) for q, table in enumerate(rows)]
    name, parameters = parse_learner(spec)
    learner = make(name, **parameters)
    ranked, learned = [], []
    for t in range(rounds):
        q, chance = t * 7 % 40, streams.for_event("capacity/rank", t)
        begun = time.thread_time()
        shown = learner.rank(queries[q], size.k, chance)
        ranked.append(time.thread_time() - begun)
        feedback = user.react(grades[q][shown.order], streams.for_event("capacity/user", t))
        chance = streams.for_event("learn", t)
        begun = time.thread_time()
        learner.learn(shown, feedback, chance)
        learned.append(time.thread_time() - begun)
    state = float(sum(array.nbytes for array in learner.state().values()))
    return median(ranked[-counted:]), float(np.mean(learned[-counted:])), state


def store_costs(store: str, carrier: dict[str, Terms], turns: int, seconds: float) -> dict[str, Any]:
    """Costs of rankings and events on one store."""
    cores = os.cpu_count() or 1
    with service(store, "--workers", "1") as one:
        bench = Bench(one, store, 1)
        alone = bench.run(Size(20, 20), 1.0, seconds, connections=1)
        single = list(_runs(bench, turns, seconds))
        memory = median(map(resident_bytes, bench.ranking)), resident_bytes(bench.learning)
    with service(store, "--workers", str(cores + 1)) as one:
        full = list(_runs(Bench(one, store, cores + 1), turns, seconds))

    def rank(run: Run) -> float:
        return evaluate(carrier["rank"], *run.size)

    def pair(terms: Sequence[str], runs: list[Run], of: Callable[[Run], float]) -> tuple[Terms, Terms]:
        values = [max(of(run), 0.0) for run in runs]
        return fit_pair(terms, SHOWN_TERMS, [run.size for run in runs], [run.share for run in runs], values)

    costs: dict[str, Any] = {}
    costs["rank_busy"], costs["event_busy"] = pair(RANK_TERMS, single, lambda run: run.busy - rank(run))
    costs["rank_cpu"], costs["event_cpu"] = pair(RANK_TERMS, full, lambda run: run.ranking - rank(run))
    costs["rank_database"], costs["event_database"] = pair(SHOWN_TERMS, full, lambda run: run.database)
    costs["rank_wal"], costs["event_wal"] = pair(SHOWN_TERMS, single + full, lambda run: run.wal)
    costs["rank_stored"], costs["event_stored"] = pair(SHOWN_TERMS, single + full, lambda run: run.stored)
    clicked = [run for run in full if run.share]
    outcomes = [run.learning / run.share - evaluate(carrier["learn"], *run.size) for run in clicked]
    costs["fold"] = fit(SHOWN_TERMS, [run.size for run in clicked], outcomes)
    return costs | {
        "commit_seconds": max(alone.report.feedback.p50 / 1e3 - evaluate(costs["event_busy"], *alone.size), 0.0),
        "commits": median(run.commits / (1 + run.share) for run in single),
        "memory_ranking": memory[0],
        "memory_learning": memory[1],
    }


def _runs(bench: Bench, turns: int, seconds: float) -> Iterator[Run]:
    for _ in range(turns):
        for size, share in (*((size, 0.0) for size in SIZES), *((size, 1.0) for size in CLICKED)):
            sys.stderr.write(f"{bench.workers} processes, {size.n} x {size.d}\n")
            yield bench.run(size, share, seconds)


def main() -> None:
    """Measure, write the file, print the costs."""
    parser = ArgumentParser("python -m benchmarks capacity", description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="per run")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS))
    options = parser.parse_args()
    learners = {name: learner_costs(name) for name in dict.fromkeys([*options.learners, CARRIER])}
    stores = {}
    with ExitStack() as stack:
        for name in options.stores:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankloop-capacity-")))
            store = stack.enter_context(postgres(folder)) if name == "postgresql" else str(folder / "store.db")
            stores[name] = store_costs(store, learners[CARRIER], options.turns, options.seconds)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    Constants(machine(), os.cpu_count() or 1, now, __version__, stores, learners).save(options.out)
    print(f"Machine: {machine()}, load generator on the same machine\n")
    print_rows(
        [
            {"of": name, "cost": cost, "value": " + ".join(f"{v:.3g} {t}" for t, v in value.items())}
            if isinstance(value, dict)
            else {"of": name, "cost": cost, "value": value}
            for name, costs in {**stores, **learners}.items()
            for cost, value in costs.items()
        ]
    )


if __name__ == "__main__":
    main()
