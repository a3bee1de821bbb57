"""NDCG after a feature was removed, added and renamed: carried over, from nothing, and without a change."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rankloop.clicks.users import open_user
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates
from rankloop.evaluation.metrics import ndcg
from rankloop.kernels.scaling import minmax_queries
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.service.control.rankers import complete, state_change
from rankloop.service.ranking import model as models
from rankloop.wire.rankers import Spec

K = 10
ARMS = ("no change", "carried over", "from nothing")
SETS = {
    "websearch300 (201 queries)": "websearch300",
    "generated mq2007 (600 queries)": "synthetic:mq2007?normalize=none&seed={seed}",
    "generated mq2007 (every query new)": "synthetic:mq2007?normalize=none&seed={seed}&queries={queries}",
}


def columns_of(part: Dataset, count: int = 11) -> list[int]:
    """The columns that correlate most with grades within queries; none that repeats a better one."""
    rows, grades = part.features.copy(), part.grades.astype(np.float64)
    minmax_queries(rows, part.offsets)
    for q in range(len(part)):
        own = slice(part.offsets[q], part.offsets[q + 1])
        rows[own] -= rows[own].mean(0)
        grades[own] -= grades[own].mean()
    sizes = np.sqrt((rows**2).sum(0))
    values = np.where(sizes > 0, np.abs(rows.T @ grades) / np.maximum(sizes, 1e-12), 0.0)
    chosen: list[int] = []
    for column in np.argsort(-values, kind="stable").tolist():
        alike = [abs(rows[:, column] @ rows[:, other]) / (sizes[column] * sizes[other]) for other in chosen]
        if all(one < 0.9 for one in alike):
            chosen.append(column)
        if len(chosen) == count:
            break
    return chosen


class Stream:
    """Queries and users of one seed, the same for every ranker; rankings are scaled as the service does."""

    def __init__(self, part: Dataset, columns: list[int], base: int, rounds: int, seed: int, user: str) -> None:
        rng = np.random.default_rng([seed, 27])
        each_once = rounds <= len(part)
        self.asked = rng.permutation(len(part))[:rounds] if each_once else rng.integers(len(part), size=rounds)
        self._part, self._columns, self._base, self._seed = part, columns, base, seed
        self._scaled = Spec().normalization == "query-minmax"  # else the learner scales
        self._user = open_user(user, part.highest_grade)

    def show(self, learner: Any, t: int, some: list[int]) -> float:
        """Rank the t-th query by some of the columns and learn from the user; the NDCG of what was shown."""
        q = int(self.asked[t])
        own = slice(self._part.offsets[q], self._part.offsets[q + 1])
        order = np.argsort(-self._part.features[own, self._base], kind="stable")
        rows = self._part.features[own][order][:, [self._columns[j] for j in some]]
        if self._scaled:
            minmax_queries(rows, np.array([0, len(rows)]))
        grades: Array = self._part.grades[own][order]
        candidates = Candidates(str(self._part.queries[q]), [str(i) for i in order], rows)
        shown = learner.rank(candidates, min(K, len(rows)), Rng(self._seed).for_event("rank", t))
        feedback: Any = self._user.react(grades[shown.order], Rng(self._seed).for_event("user", t))
        learner.learn(shown, feedback, Rng(self._seed).for_event("learn", t))
        return float(ndcg(grades[shown.order], K, candidates=grades, empty="skip"))


def trial(part: Dataset, seed: int, before: int, after: int, user: str) -> dict[str, Array]:
    """(after,) NDCG of each arm after the change; NaN for queries without a relevant document."""
    best = columns_of(part)
    rng = np.random.default_rng([seed, 72])
    columns = [best[i] for i in rng.permutation(len(best))]
    stream = Stream(part, columns, best[3], before + after, seed, user)
    old = complete(Spec(features=[f"f{j}" for j in range(10)]))
    gone, renamed = (int(j) for j in rng.choice(10, 2, replace=False))
    kept = [j for j in range(11) if j != gone]
    names = ["renamed" if j == renamed else f"f{j}" for j in kept]
    new = complete(Spec(features=names))
    learner = models.make_learner(old)
    for t in range(before):
        stream.show(learner, t, list(range(10)))
    state = models.state_bytes(old, learner.state())
    made = state_change(old, new, {f"f{renamed}": "renamed"})
    assert made is not None
    arms: dict[str, tuple[Any, list[int]]] = {
        "no change": (models.load_learner(old, state, "the state"), list(range(10))),
        "carried over": (models.load_learner(new, state, "the state", [made]), kept),
        "from nothing": (models.make_learner(new), kept),
    }
    spans = range(before, before + after)
    return {arm: np.array([stream.show(one, t, some) for t in spans]) for arm, (one, some) in arms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="", help="folder of websearch300; without it, generated sets only")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--before", type=int, default=5000)
    parser.add_argument("--after", type=int, default=500)
    parser.add_argument("--user", default="navigational")
    given = parser.parse_args()
    print(f"| data | ranker | next 100 | next {given.after} | carried over less this, next {given.after} |")
    print("| --- | --- | --- | --- | --- |")
    for name, spec in SETS.items():
        if spec == "websearch300" and not given.data:
            continue
        began, found = time.perf_counter(), []
        for seed in range(given.seeds):
            options = {"seed": seed, "queries": given.before + given.after}
            path = f"{given.data}?normalize=none" if spec == "websearch300" else spec.format(**options)
            part = open_split(path).train
            found.append(trial(replace(part, _candidates={}), seed, given.before, given.after, given.user))
        for arm in ARMS:
            early = [float(np.nanmean(one[arm][:100])) for one in found]
            late = [float(np.nanmean(one[arm])) for one in found]
            less = [float(np.nanmean(one["carried over"]) - np.nanmean(one[arm])) for one in found]
            same = arm == "carried over"
            print(
                f"| {name} | {arm} | {_mean(early)} | {_mean(late)} | {'' if same else _mean(less, '+')} |", flush=True
            )
        print(f"<!-- {name}: {time.perf_counter() - began:.0f} s -->", flush=True)


def _mean(values: list[float], sign: str = "") -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    write: Callable[[float], str] = lambda value: format(value, f"{sign}.3f")  # noqa: E731
    return f"{write(float(np.mean(values)))} ± {error:.3f}"


if __name__ == "__main__":
    main()
