"""Draws the README's figure: held-out and cumulative NDCG of learners for three users."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rankloop.lab.plots import figures
from rankloop.lab.runs.sweep import run_trials
from rankloop.lab.runs.trial import Trial

LEARNERS = ["pairrank", "pdgd", "greedy", "epsilon-greedy", "offline-ranknet", "random"]
USERS = ["perfect", "navigational", "informational"]


def main() -> None:
    """Five seeds of 3,000 rounds; a few minutes."""
    data = "synthetic:mslr?queries=500"
    trials = [Trial(name, data, user, rounds=3000, seed=s) for name in LEARNERS for user in USERS for s in range(5)]
    table = run_trials(trials, Path("results/readme.parquet"), processes=2)
    for measure, name in (("offline.ndcg@10", "held-out"), ("online.cndcg", "cumulative")):
        figures.save(
            figures.learning_curves(table, measure, log_x=measure.startswith("offline")), f"docs/figures/{name}"
        )


if __name__ == "__main__":
    main()
