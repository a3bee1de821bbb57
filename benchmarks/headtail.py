"""Mean NDCG of frequent and of rare queries, which come with Zipf frequencies, relative to the first learner."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.registry import make, parse_learner
from rankloop.core.types import Array
from rankloop.evaluation import statistics
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.provenance import provenance
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.trial import Trial
from rankloop.lab.worlds.world import open_world

HEAD, TAIL = 20, 3  # times that a query came
KINDS = ("head", "tail", "all")
DATA = "synthetic:mq2007?queries=10000&vali=1&test=1"
LEARNERS = ["pairrank?init=base", "hybrid?init=base", "bubblerank"]
Spread = dict[str, float]  # by "kind mark"


def spread(query: Array, ndcg: Array, marks: Sequence[int]) -> Spread:
    """Mean NDCG so far by kind of query and mark; lists without one (nan) count for nobody.

    >>> spread(np.array(["often"] * 20 + ["rare"]), np.array([0.5] * 20 + [1.0]), [21])
    {'head 21': 0.5, 'tail 21': 1.0, 'all 21': 0.5238095238095238}
    """
    found: Spread = {}
    for mark in marks:
        _, inverse, times = np.unique(query[:mark], return_inverse=True, return_counts=True)
        came, values = times[inverse], ndcg[:mark]
        for kind, mine in zip(KINDS, (came >= HEAD, came <= TAIL, came > 0), strict=True):
            some = values[mine & ~np.isnan(values)]
            found[f"{kind} {mark}"] = float(some.mean()) if some.size else np.nan
    return found


class Kept:
    """Results in a file, a line each, so that an interrupted benchmark goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path, self.begun = path, time.monotonic()
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self.found: dict[str, Spread] = {one["key"]: one["values"] for one in map(json.loads, lines)}

    def of(self, key: str, compute: Callable[[], Spread], said: str) -> Spread:
        """The values of a key, computed if they are not there yet; a line to stderr says which come now."""
        if key not in self.found:
            begun = time.process_time()
            self.found[key] = compute()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "values": self.found[key]}) + "\n")
            spent = f"{time.process_time() - begun:.0f} s; {(time.monotonic() - self.begun) / 60:.1f} min so far"
            print(f"{said}: {spent}", file=sys.stderr, flush=True)
        return self.found[key]


def rows_of(
    user: str, learners: Sequence[str], runs: dict[str, list[Spread]], marks: Sequence[int]
) -> list[dict[str, Any]]:
    """A row a learner: each kind and mark, with the difference to the first learner."""
    rows = []
    for spec in learners:
        row: dict[str, Any] = {"user": user, "learner": spec}
        for mark in marks:
            for kind in KINDS:
                values = np.array([one[f"{kind} {mark}"] for one in runs[spec]])
                row[f"{kind} {mark:,}"] = f"{values.mean():.3f}"
                if spec != learners[0]:
                    apart = statistics.mean(values - np.array([one[f"{kind} {mark}"] for one in runs[learners[0]]]))
                    row[f"{kind} {mark:,}"] += f" ({apart.value:+.3f} ± {apart.error:.3f})"
        rows.append(row)
    return rows


def served(trial: Trial, split: Split, marks: Sequence[int]) -> Spread:
    """Carry out a trial and take its lists apart."""
    world, learner = open_world(trial.world, split.train, trial.k, trial.seed), make(trial.learner, **trial.params)
    user = open_user(trial.user, split.train.highest_grade, learner.feedback)
    query, ndcg = list[str](), list[float]()
    for step in simulate(learner, world, user, trial.rounds, trial.seed):
        query.append(step.impression.query)
        ideal, grades = step.round.ideal, step.round.grades[step.impression.order]
        ndcg.append(dcg(grades, trial.k) / ideal if ideal else 0.0)
    starts = split.train.offsets[:-1]
    relevant = split.train.queries[np.maximum.reduceat(np.asarray(split.train.grades), starts) > 0]
    return spread(np.array(query), np.where(np.isin(query, relevant), ndcg, np.nan), marks)


def parser(description: str | None, out: str) -> ArgumentParser:
    """What this benchmark and its sister are asked."""
    options = ArgumentParser(description=description)
    options.add_argument("--learners", nargs="+", default=LEARNERS)
    options.add_argument("--marks", nargs="+", type=int, default=[1000, 10_000, 100_000])
    options.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    options.add_argument("--out", type=Path, default=Path(out))
    return options


def main() -> None:
    """Run what is not there yet, print the table."""
    options = parser(__doc__, "results/headtail.jsonl")
    options.add_argument("--data", default=DATA)
    options.add_argument("--users", nargs="+", default=["navigational", "informational"])
    options.add_argument("--world", default="stationary?base=model:10&frequency=zipf:1")
    given = options.parse_args()
    marks, split, kept = sorted(given.marks), open_split(given.data), Kept(given.out)
    rows: list[dict[str, Any]] = []
    for user in given.users:
        runs: dict[str, list[Spread]] = {}
        for seed in given.seeds:
            for spec in given.learners:
                name, params = parse_learner(spec)
                settings: dict[str, Any] = {"data": given.data, "user": user, "params": params, "world": given.world}
                trial = Trial(name, **settings, rounds=marks[-1], seed=seed, evaluations=1)
                key = f"{trial.id}|{marks}|{provenance(trial).code}"
                found = kept.of(key, lambda trial=trial: served(trial, split, marks), trial.id)  # type: ignore[misc]
                runs.setdefault(spec, []).append(found)
        rows += rows_of(user, given.learners, runs, marks)
    print(f"Machine: {machine()}; {given.data}, {given.world}, seeds {', '.join(map(str, given.seeds))}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
