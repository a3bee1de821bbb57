"""What features of very different sizes cost, by how they are scaled: `python -m benchmarks.normalisation`.

Generated sets whose raw features are multiplied by 10^-3 … 10^4 and moved by some of their sizes, as a BM25, a price
and a date lie apart; held-out NDCG@10 and that of the lists shown, over seeds. `stream` is what the service and the
library do; those of `SPREADS` say what statistics of the whole training set, known beforehand, would have given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels.ragged import minmax_queries
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.trial import Trial, run

SETS = ("mq2007", "mslr")
LEARNERS = ("pairrank", "hybrid")
HOW = ("query-minmax", "stream", "none")


def sized(split: Split, seed: int) -> Split:
    """The same documents with features of very different sizes."""
    rng, d = np.random.default_rng([seed, 16]), split.train.width
    size = 10.0 ** rng.uniform(-3, 4, d)
    offset = rng.normal(size=d) * 3 * size
    return Split(*(_with(part, part.features * size + offset) for part in split))  # type: ignore[union-attr, arg-type]


def scaled(split: Split, how: str) -> Split:
    """As a run of the lab takes it."""
    if how == "query-minmax":
        parts = []
        for part in split.parts.values():
            rows = part.features.copy()
            minmax_queries(rows, part.offsets)
            parts.append(_with(part, rows))
        return Split(*parts)
    if how in SPREADS:
        middle, spread = split.train.features.mean(0), SPREADS[how](split.train)
        spread = np.where(spread > 1e-9 * np.abs(middle), spread, np.inf)
        return Split(*(_with(part, (part.features - middle) / spread) for part in split.parts.values()))
    return Split(*(replace(part, normalisation=how, _candidates={}) for part in split.parts.values()))


def _with(part: Dataset, rows: Array) -> Dataset:
    return replace(part, features=rows, _candidates={})


def _deviations(part: Dataset) -> Array:
    """(Q, d) standard deviations within each query."""
    found = []
    for q in range(len(part)):
        rows = part.features[part.offsets[q] : part.offsets[q + 1]]
        found.append(np.where(rows.max(0) == rows.min(0), 0.0, rows.std(0)))
    return np.array(found)


def _mean_of_deviations(part: Dataset) -> Array:
    found = _deviations(part)
    return np.asarray(found.sum(0) / np.maximum((found > 0).sum(0), 1))


def _quartiles(part: Dataset) -> Array:
    low, high = np.quantile(part.features, (0.25, 0.75), axis=0)
    return np.asarray((high - low) / 1.349)


SPREADS: dict[str, Callable[[Dataset], Array]] = {
    "deviation of all": lambda part: np.asarray(part.features.std(0)),
    "root mean square within": lambda part: np.asarray(np.sqrt((_deviations(part) ** 2).mean(0))),
    "mean deviation within": _mean_of_deviations,
    "quartiles": _quartiles,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--user", default="navigational")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--spreads", action="store_true", help="compare statistics of the whole set instead")
    given = parser.parse_args()
    print("| set | learner | features | held-out NDCG@10 | of lists shown |\n| --- | --- | --- | --- | --- |")
    for name in given.sets:
        for learner in given.learners:
            for how in (*SPREADS, *HOW) if given.spreads else HOW:
                held, shown = [], []
                for seed in range(given.seeds):
                    spec = f"synthetic:{name}?normalise=none&queries={given.queries}&vali=10&test=100&seed={seed}"
                    split = scaled(sized(open_split(spec), seed), how)
                    trial = Trial(learner, user=given.user, rounds=given.rounds, seed=seed, evaluations=2)
                    measures = run(trial, split).measures
                    held.append(measures["offline.ndcg@10"][-1])
                    shown.append(measures["online.ndcg"][-1])
                print(f"| {name} | {learner} | {how} | {_mean(held)} | {_mean(shown)} |", flush=True)


def _mean(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()
