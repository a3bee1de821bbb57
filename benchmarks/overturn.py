"""Impressions until a learner that starts from a bad baseline ranking is as good as one that starts from zero."""

from __future__ import annotations

import os
from argparse import ArgumentParser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.core.registry import parse_learner
from rankloop.core.types import Array
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.trial import Trial, run

WINDOW, END = 200, 500


def overturned(ndcg: Array, level: float, window: int = WINDOW) -> float:
    """After how many lists the mean of the next `window` is at a level; nan if it never is.

    >>> overturned(np.array([0.1, 0.1, 0.9, 0.9]), 0.5, 2)
    1.0
    """
    sums = np.concatenate([[0.0], np.cumsum(ndcg)])
    there = np.flatnonzero((sums[window:] - sums[:-window]) / window >= level - 1e-12)
    return float(there[0]) if there.size else np.nan


def main() -> None:
    """Print the table."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--data", default="synthetic:mq2007?queries=300")
    options.add_argument("--learner", default="hybrid")
    options.add_argument("--users", default="perfect,navigational,informational")
    options.add_argument("--bases", default="random,reversed,reversed:model:half")
    options.add_argument("--rounds", type=int, default=3000)
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = options.parse_args()
    split, rows = open_split(asked.data), []
    name, parameters = parse_learner(asked.learner)

    def shown(base: str, user: str, start: str, seed: int) -> Array:
        given = {**parameters, "init": start}
        world = f"stationary?base={base}"
        trial = Trial(name, asked.data, user, given, asked.rounds, seed=seed, world=world, evaluations=1)
        return run(trial, split).ndcg

    for base in asked.bases.split(","):
        for user in asked.users.split(","):
            zero = [shown(base, user, "zero", seed) for seed in asked.seeds]
            ours = [shown(base, user, "base", seed) for seed in asked.seeds]
            lists = [overturned(one, float(other[:WINDOW].mean())) for one, other in zip(ours, zero, strict=True)]
            rows.append(
                {
                    "production": base,
                    "user": user,
                    "lists": " ".join(f"{value:.0f}" for value in lists),
                    "mean": f"{np.mean(lists):.0f}",
                    f"last {END}": f"{np.mean([one[-END:].mean() for one in ours]):.3f}",
                    "from zero": f"{np.mean([one[-END:].mean() for one in zero]):.3f}",
                }
            )
    print(f"Machine: {machine()}; {asked.learner}, {asked.data}, seeds {', '.join(map(str, asked.seeds))}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
