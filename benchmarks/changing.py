"""Learners under users whose tastes change: mean NDCG of the rankings shown, paired with the first learner's.

`data@SEEDS` names the seeds of a data set, `learner@SEEDS` those of a learner. Interrupted, it continues from --out.
`--cost` prints processor time instead.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.capabilities import report_of
from rankloop.core.registry import make, parse_learner
from rankloop.evaluation import statistics
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.record import Record, common_columns
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.sweep import Event, run_trials
from rankloop.lab.runs.trial import Trial
from rankloop.lab.worlds.world import open_world

WORLDS = ["stationary", "swap", "piecewise?every=1000", "drift?period=1000", "recurring?every=500&tastes=2"]
USERS = ["perfect", "navigational", "informational"]
DATA = ["synthetic:mq2007@300-304", "synthetic:mslr?queries=200@300-301"]
METAS = [f"{name}?horizon=3000" for name in ("pm2l", "nm2l", "m3l", "dm2l")]
LEARNERS = ["adaptive", "pairrank", "pairrank?forget=0.99", "pairrank?forget=0.98", "pdgd", *METAS]
SHAPES = [("synthetic:mslr", 100), ("synthetic:mq2007", 40)]  # for --cost: 136 and 46 features


@dataclass(frozen=True)
class Shown(Trial):
    """A run of which only the lists shown are measured, and what a learner that follows says of itself."""

    @property
    def id(self) -> str:
        """That of the trial, and that it is not one."""
        return f"{super().id}|shown"

    def run_trials(self, opened: Callable[[str], Split], on_progress: Callable[[int], None]) -> Record:
        """Run it."""
        train, learner = opened(self.data).train, make(self.learner, **self.params)
        world = open_world(self.world, train, self.k, self.seed)
        user = open_user(self.user, train.highest_grade, learner.feedback)
        total, since, changed, start = 0.0, 0, 0, perf_counter()
        for step in simulate(learner, world, user, self.rounds, self.seed):
            if step.round.ideal > 0.0:
                total += dcg(step.round.grades[step.impression.order], self.k) / step.round.ideal
            drift = report_of(learner).drift
            if drift is not None and drift.since != since:
                since, changed = drift.since, changed + 1
            if step.t % 1000 == 999:
                on_progress(step.t + 1)
        found = {"online.ndcg": total / self.rounds, "handovers": float(changed)}
        drift = report_of(learner).drift
        found["alarms"] = float(drift.alarms) if drift is not None else 0.0
        seconds = perf_counter() - start
        at, measures = np.array([self.rounds]), {name: np.array([value]) for name, value in found.items()}
        columns = {**common_columns(self), "data": self.data, "user": self.user}
        stated = {"online.ndcg": "as of a Trial"}
        return Record(self, at, measures, stated, seconds, self.rounds / seconds, columns)


def main() -> None:
    """Parse, run, print."""
    asked = _parsed()
    print(f"Machine: {machine()}\n")
    if asked.cost:
        worlds = ("stationary", "piecewise?every=500")
        print_rows([_cost(*shape, world, asked.learners[:2]) for shape, world in product(SHAPES, worlds)])
        return
    cells = [
        (data, seed, user) for data, seeds in map(_with_seeds, asked.data) for seed in seeds for user in asked.users
    ]
    trials: dict[tuple[str, str], dict[tuple[str, int, str], Shown]] = {}
    for spec, world in product(asked.learners, asked.worlds):
        name, seeds = _with_seeds(spec)
        learner, params = parse_learner(name)
        trials[name, world] = {
            cell: Shown(learner, cell[0], cell[2], params, asked.rounds, seed=cell[1], world=world)
            for cell in cells
            if not seeds or cell[1] in seeds
        }
    rows = run_trials([trial for runs in trials.values() for trial in runs.values()], asked.out, 1, _tell)
    stored = {row["run"]: row for row in rows.to_pylist()}
    values = {key: {cell: stored[trial.id] for cell, trial in runs.items()} for key, runs in trials.items()}
    print(f"{', '.join(asked.data)}; {', '.join(asked.users)}; {asked.rounds:,} rounds\n")
    learners = [_with_seeds(spec)[0] for spec in asked.learners]
    print_rows([_row(world, learners, values) for world in asked.worlds])
    print()
    print_rows([_told(world, learners[0], values) for world in asked.worlds])


def _parsed() -> Namespace:
    parser, texts = ArgumentParser(description=__doc__), partial(str.split, sep=",")
    parser.add_argument("--learners", type=texts, default=LEARNERS, help="with commas between; the first is compared")
    parser.add_argument("--worlds", type=texts, default=WORLDS)
    parser.add_argument("--data", type=texts, default=DATA)
    parser.add_argument("--users", type=texts, default=USERS)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("results/changing.parquet"))
    parser.add_argument("--cost", action="store_true", help="processor time of the first two learners instead")
    return parser.parse_args()


def _with_seeds(text: str) -> tuple[str, list[int]]:
    """`name@200-204`, or a name alone."""
    name, _, seeds = text.partition("@")
    first, _, last = seeds.partition("-")
    return name, list(range(int(first), int(last or first) + 1)) if first else []


def _tell(event: Event) -> None:
    if event.kind in ("finished", "failed", "outdated"):
        told = f"{event.done}/{event.runs} {event.kind} {event.trial.id} {event.reason}".rstrip()
        print(told, file=sys.stderr, flush=True)


# -- tables --------------------------------------------------------------------------------------------------------

Values = dict[tuple[str, str], dict[tuple[str, int, str], dict[str, Any]]]  # of learner and world, by data, seed, user


def _row(world: str, learners: Sequence[str], values: Values) -> dict[str, Any]:
    """The first learner's mean, and those of the others with the difference; all in runs that both have."""
    first, row = values[learners[0], world], {"world": world}
    for learner in learners:
        runs = values[learner, world]
        mine = np.array([run["online.ndcg"] for run in runs.values()])
        row[learner] = f"{mine.mean():.4f}"
        if learner != learners[0]:
            gap = np.array([first[cell]["online.ndcg"] for cell in runs]) - mine
            error = statistics.clustered(gap, [f"{data} {seed}" for data, seed, _ in runs]).error
            row[learner] += f" ({gap.mean():+.4f} ± {error:.4f}; {gap.mean() / mine.mean():+.1%}, n={len(gap)})"
    return row


def _told(world: str, learner: str, values: Values) -> dict[str, Any]:
    runs = values[learner, world].values()
    row: dict[str, Any] = {"world": world, "runs": len(runs)}
    for what in ("handovers", "alarms"):
        found = [run[what] for run in runs]
        row[what] = f"{np.mean(found):.2f} a run, {sum(value > 0 for value in found)} runs with any"
    return row


def _cost(data: str, length: int, where: str, learners: Sequence[str], turns: int = 5) -> dict[str, Any]:
    """Microseconds a round, rank and learn; in turns, so that whatever else the machine does meets both alike."""
    spec = f"{data}?queries=300&docs={length}&sizes=fixed&vali=1&test=1"
    train, rounds, taken = open_split(spec).train, 1500, {name: list[float]() for name in learners}
    for turn, name in product(range(turns), learners):
        learner, params = parse_learner(name)
        made: Any = make(learner, **params)
        spent = [0.0]
        made.rank, made.learn = _timed(made.rank, spent), _timed(made.learn, spent)
        user = open_user("informational", train.highest_grade, made.feedback)
        for step in simulate(made, open_world(where, train, 10, turn), user, rounds, turn):
            if step.t == 99:  # kernels are loaded, first lists are over
                spent[0] = 0.0
        taken[name].append(1e6 * spent[0] / (rounds - 100))
    row: dict[str, Any] = {"documents x features": f"{length} x {train.width}", "world": where}
    row |= {f"{name}, µs": f"{np.median(times):.0f}" for name, times in taken.items()}
    ratios = np.array(taken[learners[0]]) / np.array(taken[learners[1]])
    return {**row, "ratio, least to most": f"{np.median(ratios):.2f}, {ratios.min():.2f} to {ratios.max():.2f}"}


def _timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        start = process_time()
        try:
            return function(*arguments)
        finally:
            spent[0] += process_time() - start

    return called


if __name__ == "__main__":
    main()
