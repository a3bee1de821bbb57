"""What learning in batches costs in quality: `python -m benchmarks.batches [DATA …]`.

`pairrank` with a step an outcome against batches of 8, 64 and 256, by the same queries, users and random numbers:
held-out NDCG@10 at the end, and what was served on the way, the mean NDCG@10 of all lists. Means over seeds, and in
brackets the difference to a step an outcome, paired by seed, with its standard error. Interrupted, it goes on where it
stopped. `python -m benchmarks.learn_rate` tells what batches gain.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.common import machine, print_rows
from rankloop.evaluation import statistics
from rankloop.lab.plots.learning import short_names
from rankloop.lab.runs.results import Curve, curves
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.trial import Trial

DATA = ["synthetic:mslr?queries=300", "synthetic:mq2008"]
USERS = ["perfect", "navigational", "informational"]
SIZES = [1, 8, 64, 256]
MEASURES = {"held-out": "offline.ndcg@10", "served": "online.ndcg"}


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.batches", description=__doc__)
    parser.add_argument("data", nargs="*", default=DATA)
    parser.add_argument("--users", nargs="+", default=USERS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--learner", default="pairrank")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/batches.parquet"))
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    trials = [
        Trial(asked.learner, data, user, {"batch": size}, asked.rounds, seed=seed, evaluations=2)
        for data in asked.data
        for user in asked.users
        for size in asked.sizes
        for seed in seeds
    ]
    table = carry_out(trials, asked.out, asked.processes)
    found = {measure: curves(table, measure) for measure in MEASURES.values()}
    names, labels = short_names(asked.data), list(dict.fromkeys(trial.label for trial in trials))
    print(f"Machine: {machine()}; {asked.learner}, {asked.rounds:,} rounds, seeds {seeds[0]} to {seeds[-1]}\n")
    print_rows(
        [
            {"data": names[data], "user": user, "NDCG@10": name}
            | {
                f"batch={size}": _cell(found[measure][data, user, label], found[measure][data, user, labels[0]])
                for size, label in zip(asked.sizes, labels, strict=True)
            }
            for data in asked.data
            for user in asked.users
            for name, measure in MEASURES.items()
        ]
    )


def _cell(curve: Curve, base: Curve) -> str:
    """The mean, and the paired difference to the base where it is another."""
    ends = [{seed: values[-1] for seed, values in one.values.items()} for one in (curve, base)]
    mean = sum(ends[0].values()) / len(ends[0])
    if curve is base:
        return f"{mean:.4f}"
    gap = statistics.paired(*ends)
    error = f" ± {gap.error:.4f}" if gap.n > 1 else ""
    return f"{mean:.4f} ({gap.value:+.4f}{error})"


if __name__ == "__main__":
    main()
