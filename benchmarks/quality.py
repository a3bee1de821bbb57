"""Held-out NDCG@10 and cumulative online NDCG of learners after simulated rounds, by data set, user and delay.

Means over seeds with standard errors; in brackets the difference to the first learner, paired by seed. An interrupted
run continues from --out. For example: --learners pairrank pairrank?alpha=0.3.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


from benchmarks.common import machine, print_rows
from rankloop.core.registry import parse_learner
from rankloop.evaluation import statistics
from rankloop.lab.plots.figures import short_names
from rankloop.lab.runs.results import Curve, curves
from rankloop.lab.runs.sweep import run_trials
from rankloop.lab.runs.trial import Trial

WORLDS = ["mslr", "yahoo?features=200", "mq2007", "mq2008", "np2003", "mslr?relevance=nonlinear"]
LEARNERS = ["pdgd", "pairrank", "greedy"]
USERS = ["perfect", "navigational", "informational"]
MEASURES = ["offline.ndcg@10", "online.cndcg"]


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", default=[f"synthetic:{world}" for world in WORLDS])
    parser.add_argument(
        "--learners", nargs="+", default=LEARNERS, help="the first is what the others are compared with"
    )
    parser.add_argument("--users", nargs="+", default=USERS)
    parser.add_argument("--delays", default="none", help="of feedback: none, or late?mean=100")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/quality.parquet"))
    asked = parser.parse_args()
    trials = [
        Trial(
            name,
            data,
            f"{user}?stop_requires_click=false",
            parameters,
            asked.rounds,
            seed=seed,
            delays=asked.delays,
            evaluations=2,
        )
        for data in asked.data
        for user in asked.users
        for name, parameters in map(parse_learner, asked.learners)
        for seed in range(asked.seeds)
    ]
    table = run_trials(trials, asked.out, asked.processes)
    found = {measure: curves(table, measure) for measure in MEASURES}
    names, labels = short_names(asked.data), list(dict.fromkeys(trial.label for trial in trials))
    print(f"Machine: {machine()}; {asked.rounds} rounds, {asked.seeds} seeds\n")
    print_rows(
        [
            {
                "data": names[data],
                "user": user,
                **{
                    f"{label}: {measure}": _cell(
                        found[measure][data, f"{user}?stop_requires_click=false", label],
                        found[measure][data, f"{user}?stop_requires_click=false", labels[0]],
                        4 if measure.startswith("offline") else 1,
                    )
                    for label in labels
                    for measure in MEASURES
                },
            }
            for data in asked.data
            for user in asked.users
        ]
    )


def _cell(curve: Curve, base: Curve, digits: int) -> str:
    """Mean ± standard error, and the paired difference to the base where there is one."""
    text = f"{curve.mean[-1]:.{digits}f}" + (f" ± {curve.error[-1]:.{digits}f}" if curve.seeds > 1 else "")
    if curve is base:
        return text
    gap = statistics.paired(*({seed: values[-1] for seed, values in one.values.items()} for one in (curve, base)))
    error = f" ± {gap.error:.{digits}f}" if gap.n > 1 else ""
    return f"{text} ({gap.value:+.{digits}f}{error})"


if __name__ == "__main__":
    main()
