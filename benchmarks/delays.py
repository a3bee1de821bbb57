"""What late feedback costs: `python -m benchmarks.delays`.

Users answer at once, or after 10, 100 or 1,000 impressions on average (geometric, so out of order too): as many lists
are open at a time. Navigational users on the generated mslr, 3,000 rounds, means over three seeds with standard errors:
cumulative NDCG of what was shown (γ = .9995) and held-out NDCG@10 at the end.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.evaluation import statistics
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.trial import Trial, run

LEARNERS = ["dbgd", "mgd", "nsgd", "dm2l", "m3l", "nm2l", "pm2l", "pdgd", "pairrank"]
DELAYS = [0, 10, 100, 1000]
DATA = "synthetic:mslr?queries=300"


def main() -> None:
    """Run and print."""
    split, rows = open_split(DATA), []
    for learner in LEARNERS:
        row: dict[str, object] = {"learner": learner}
        for delay in DELAYS:
            late = f"late?mean={delay}" if delay else "none"
            trials = [
                Trial(learner, DATA, "navigational", rounds=3000, seed=s, delays=late, evaluations=2) for s in range(3)
            ]
            records = [run(trial, split) for trial in trials]
            shown = np.array([record.last("online.cndcg") for record in records])
            learned = np.array([record.last("offline.ndcg@10") for record in records])
            row[f"{delay:,} late"] = f"{statistics.mean(shown)}, {learned.mean():.3f}"
        rows.append(row)
    print(f"Machine: {machine()}; cumulative, held-out\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
