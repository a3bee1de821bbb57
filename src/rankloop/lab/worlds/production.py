"""The production ranker of a simulated team: the baseline order in which a world's candidates come.

`data` (as in the file), `random`, `feature:7` (counted from 1), `feature` (the one that ranks 10 labeled queries best),
`model:10` (a linear model fitted to 10 labeled queries), `model:half`, `reversed` (worst first), or `reversed:` before
one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation.metrics import mean_ndcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet

LABELED = 10  # queries by which `feature` chooses
RIDGE = 1e-2  # of the model: with a few labeled queries and hundreds of features, less of it is worse
BASES = "data, random, feature, feature:J, model:N, model:half, reversed, or reversed: before one of these"


@dataclass(frozen=True, eq=False)
class Production:
    """A production ranker, made from a seed and the labeled part of a training set.

    >>> tiny = Dataset("tiny", np.array([[0.2], [0.9], [0.5]]), np.array([0, 2, 1]), np.array([0, 3]), np.array(["a"]))
    >>> Production("feature:1", tiny).order(tiny).candidates(0).items
    array([1, 2, 0])
    """

    base: str
    train: Dataset = field(repr=False)
    seed: int = 0

    def __post_init__(self) -> None:
        _, kind, argument = parse_base(self.base)
        if kind == "feature" and argument and int(argument) > self.train.width:
            raise InvalidParameter(f"base is {self.base!r}, but {self.train.name} has {self.train.width} features")

    def order(self, dataset: Dataset, grades: Array | None = None) -> Dataset:
        """A part of the data set with the documents of each query in this ranker's order; `data` copies nothing.

        Documents keep their ids. Only `reversed` looks at grades: those given, else the part's own.
        """
        sign, kind, argument = parse_base(self.base)
        if kind == "data" and sign > 0:
            return dataset
        score = sign * self._score(dataset, kind, argument, dataset.grades if grades is None else grades)
        ties = Rng(self.seed).for_event(f"production/{dataset.name}", 0).random(len(score))
        query = np.repeat(np.arange(len(dataset)), np.diff(dataset.offsets))
        order = np.lexsort((ties, -score, query))
        return replace(
            dataset,
            features=np.asarray(dataset.features)[order],
            grades=np.asarray(dataset.grades)[order],
            items=dataset.item_ids()[order],
            _candidates={},
        )

    def _score(self, dataset: Dataset, kind: str, argument: str, grades: Array) -> Array:
        if kind == "grades":
            return np.asarray(grades, dtype=np.float64)
        if kind == "data":
            return -np.arange(len(dataset.grades), dtype=np.float64)
        if kind == "random":
            return np.zeros(len(dataset.grades))
        if kind == "feature":
            chosen = int(argument) - 1 if argument else best_feature(self.train, self.seed)
            return np.array(dataset.features[:, chosen], dtype=np.float64)
        wanted = len(self.train) // 2 if argument == "half" else int(argument)
        scores: Array = np.asarray(dataset.features) @ _weights(self.train, wanted, self.seed)
        return scores


def parse_base(base: str) -> tuple[float, str, str]:
    """Sign, kind and argument of a base order's name.

    >>> parse_base("model:10"), parse_base("reversed:feature:3"), parse_base("reversed")
    ((1.0, 'model', '10'), (-1.0, 'feature', '3'), (-1.0, 'grades', ''))
    """
    if base == "reversed":
        return -1.0, "grades", ""
    kind, colon, argument = base.removeprefix("reversed:").partition(":")
    whole = argument.isascii() and argument.isdigit() and 0 < len(argument) < 10 and int(argument) > 0
    fits = {
        "data": not colon,
        "random": not colon,
        "feature": not colon or whole,
        "model": whole or argument == "half",
    }
    if not fits.get(kind):
        raise InvalidParameter(f"base is {base!r}; it must be one of {BASES}, J and N counted from 1")
    return -1.0 if base.startswith("reversed:") else 1.0, kind, argument


def labeled(train: Dataset, wanted: int, seed: int) -> Array:
    """(wanted,) the queries whose grades the production ranker knows."""
    grades, starts = np.asarray(train.grades), train.offsets[:-1]
    useful = np.flatnonzero(np.maximum.reduceat(grades, starts) > np.minimum.reduceat(grades, starts))
    if len(useful) < wanted:
        raise InvalidParameter(
            f"base wants {wanted} labeled queries, but {train.name} has {len(useful)} with different grades"
        )
    return np.sort(Rng(seed).for_event("labelled", 0).permutation(useful)[:wanted])


@lru_cache(maxsize=16)
def best_feature(train: Dataset, seed: int) -> int:
    """The feature (counted from 0) with the highest NDCG@10 over 10 labeled queries; of equal ones the first."""
    features, grades, offsets = _rows(train, labeled(train, LABELED, seed))
    # Where a feature does not vary, the order of the file would count, which may itself be good.
    ties = Rng(seed).for_event("labelled", 1).random(len(grades))
    worth = [mean_ndcg(column, grades, offsets, ties=ties) for column in np.ascontiguousarray(features.T)]
    return int(np.argmax(worth))


@lru_cache(maxsize=16)
def _weights(train: Dataset, wanted: int, seed: int) -> Array:
    """(d,) of the linear model; kept, since every learner of a comparison asks for the same."""
    model = OfflineRankNet(RIDGE)
    model.fit(*_rows(train, labeled(train, wanted, seed)))
    return model.theta_


def _rows(train: Dataset, queries: Array) -> tuple[Array, Array, Array]:
    """Features, grades and offsets of some queries alone."""
    bounds = [(int(train.offsets[q]), int(train.offsets[q + 1])) for q in queries]
    features = np.concatenate([np.asarray(train.features[first:last]) for first, last in bounds])
    grades = np.concatenate([np.asarray(train.grades[first:last]) for first, last in bounds])
    return features, grades, np.concatenate([[0], np.cumsum([last - first for first, last in bounds])])
