"""Head and tail: who serves queries that come often, and who those that hardly come? `python -m benchmarks.headtail`.

Queries come with Zipf frequencies, candidates in a production order. NDCG of the lists shown after so many rounds, of
queries that had come at least 20 times by then (head) and of those that had come at most three times (tail); means over
seeds with standard errors, in brackets the difference to the first learner, paired by seed.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.__main__ import machine, print_rows
from rankloop import statistics
from rankloop.lab.data.sources import open_split
from rankloop.lab.runs.trial import Trial, run
from rankloop.registry import parse_learner
from rankloop.types import Array

HEAD, TAIL = 20, 3  # times that a query came
Spread = dict[tuple[int, str], float]


def spread(query: Array, ndcg: Array, marks: list[int]) -> Spread:
    """Mean NDCG so far by mark and kind of query; lists of queries without a relevant document count for nobody."""
    found: Spread = {}
    for mark in marks:
        names, inverse, times = np.unique(query[:mark], return_inverse=True, return_counts=True)
        assert len(names) == len(times)
        came, values = times[inverse], ndcg[:mark]
        for kind, mine in (("head", came >= HEAD), ("tail", came <= TAIL), ("all", came > 0)):
            found[mark, kind] = float(np.nanmean(values[mine])) if mine.any() else np.nan
    return found


def main() -> None:
    """Print the table."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--data", default="synthetic:mq2007")
    options.add_argument("--users", default="navigational,informational")
    options.add_argument("--learners", default="pairrank?start=base,hybrid?start=base,bubblerank")
    options.add_argument("--marks", default="1000,10000")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--world", default="stationary?base=model:10&frequency=zipf:1")
    given = options.parse_args()
    marks, split, rows = [int(mark) for mark in given.marks.split(",")], open_split(given.data), []
    for user in given.users.split(","):
        first: list[Spread] = []
        for spec in given.learners.split(","):
            name, params = parse_learner(spec)
            runs = []
            for seed in range(given.seeds):
                record = run(
                    Trial(
                        name,
                        data=given.data,
                        user=user,
                        params=params,
                        rounds=marks[-1],
                        seed=seed,
                        world=given.world,
                        trace=True,
                        evaluations=1,
                    ),
                    split,
                )
                runs.append(spread(record.trace["query"], record.trace["ndcg"], marks))
            first = first or runs
            row = {"user": user, "learner": spec}
            for mark in marks:
                for kind in ("head", "tail", "all"):
                    values = np.array([one[mark, kind] for one in runs])
                    apart = values - np.array([one[mark, kind] for one in first])
                    beside = f" ({statistics.mean(apart).value:+.3f} ± {statistics.mean(apart).error:.3f})"
                    row[f"{kind} {mark:,}"] = f"{values.mean():.3f}" + ("" if runs is first else beside)
            rows.append(row)
    print(f"Machine: {machine()}; {given.data}, {given.world}, seeds 0 to {given.seeds - 1}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
