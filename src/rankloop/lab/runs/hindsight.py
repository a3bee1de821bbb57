"""Regret against the best fixed ranking, or the best fixed linear ranker, in hindsight."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.philox import uniforms
from rankloop.kernels.surrogates import weighed_loss
from rankloop.lab.datasets.dataset import Dataset
from rankloop.learners.grades.rtopk import SURROGATES

LOSSES = ("sumloss", "pairwise", "auc")  # smaller is better
MEASURES = ("sumloss", "pairwise", "dcg", "precision", "ndcg", "auc", "ap")
_BINARY = ("pairwise", "auc", "ap")
_MOST_ITEMS = 8  # of which all rankings are tried, for AP
_SLACK = 1e-3  # of ranksvm's rounded hinge
_BISECTIONS = 60


# -- the best fixed ranking ---------------------------------------------------------------------------------------


class Regret:
    """The regret of the rankings shown so far.

    Parameters
    ----------
    measure
        "sumloss", "pairwise", "auc" (losses), "dcg", "precision", "ndcg", "ap" (gains). pairwise, auc and ap are about
        two grades; ap about at most 8 items.
    items
        How many there are.
    cut
        Of "precision": positions that count, Precision@cut.

    Examples
    --------
    >>> regret = Regret("sumloss", items=2)
    >>> regret.add(np.array([[0, 1], [1, 0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))  # the second round was wrong
    >>> regret.value, regret.rounds
    (1.0, 2)
    """

    def __init__(self, measure: str, items: int, cut: int = 10) -> None:
        if measure not in MEASURES:
            raise InvalidParameter(f"measure is {measure!r}; it must be one of {', '.join(MEASURES)}")
        if measure == "ap" and items > _MOST_ITEMS:
            raise InvalidParameter(f"items is {items}; the best ranking for ap is found for at most {_MOST_ITEMS}")
        self.measure, self.rounds, self.shown = measure, 0, 0.0
        ranks = np.arange(1.0, items + 1)
        self._weights = {
            "dcg": 1 / np.log2(1 + ranks),
            "ndcg": 1 / np.log2(1 + ranks),
            "precision": (ranks <= cut).astype(np.float64),
        }.get(measure, ranks)
        self._sums = np.zeros((items, items)) if measure == "ap" else np.zeros(items)
        self._ahead = 0.0  # of pairwise and auc: what a perfect list has in ranks, and no loss

    def add(self, orders: Array, grades: Array) -> None:
        """Count rounds: (T, m) the items in the order shown, and (T, m) their grades by item."""
        grades = np.asarray(grades, dtype=np.float64)
        if orders.shape != grades.shape or grades.shape[1:] != self._weights.shape:
            raise InvalidInput(f"orders {orders.shape} and grades {grades.shape}; give rounds x all items of both")
        if self.measure in _BINARY and not np.isin(grades, (0.0, 1.0)).all():
            raise InvalidInput(f"{self.measure} is about two grades, 0 and 1; there are others")
        self.rounds += len(orders)
        if self.measure == "ap":
            self._add_ap(orders, grades)
            return
        gains = self._gains(grades)
        self.shown += float((np.take_along_axis(gains, orders, 1) @ self._weights).sum())
        self._sums += gains.sum(0)
        if self.measure in ("pairwise", "auc"):
            relevant = grades.sum(1)
            self._ahead += float((relevant * (relevant + 1) / 2 * _over(1.0, self._pairs(grades))).sum())

    @property
    def value(self) -> float:
        """How much better the best fixed ranking would have been, up to now."""
        return self.shown - self.best if self.measure in LOSSES else self.best - self.shown

    @property
    def best(self) -> float:
        """The value of the best fixed ranking."""
        if self.measure == "ap":
            return max(_ap_value(self._sums, np.array(ranks)) for ranks in permutations(range(1, len(self._sums) + 1)))
        return float(-np.sort(-self._sums) @ self._weights)

    @property
    def loss(self) -> float:
        """The value of what was shown, as the measure defines it; pairwise and auc are counted in ranks otherwise."""
        return self.shown - self._ahead

    def _gains(self, grades: Array) -> Array:
        """(T, m) the gain of each item, to be weighted by its rank."""
        if self.measure in ("sumloss", "pairwise"):
            return grades
        if self.measure == "precision":
            return (grades > 0).astype(np.float64)
        if self.measure == "auc":
            return grades * _over(1.0, self._pairs(grades))[:, None]
        gains = 2.0**grades - 1.0
        if self.measure == "ndcg":
            gains = gains * _over(1.0, -np.sort(-gains, axis=1) @ self._weights)[:, None]
        return gains

    def _pairs(self, grades: Array) -> Array:
        """(T,) what the loss in ranks is divided by: relevant times irrelevant items, for auc."""
        relevant = grades.sum(1)
        pairs: Array = relevant * (grades.shape[1] - relevant) if self.measure == "auc" else np.ones(len(grades))
        return pairs

    def _add_ap(self, orders: Array, grades: Array) -> None:
        share = _over(1.0, grades.sum(1))[:, None]
        self._sums += (grades * share).T @ grades
        ranked = np.take_along_axis(grades, orders, 1)
        self.shown += float((np.cumsum(ranked, axis=1) / self._weights * ranked * share).sum())


def _over(one: float, values: Array) -> Array:
    """one / value, 0 where a value is 0."""
    return np.divide(one, values, out=np.zeros(values.shape), where=values != 0)


def _ap_value(pairs: Array, ranks: Array) -> float:
    """Σ of how often i and j are relevant together, over the rank of i, for j not below i."""
    return float((pairs * (ranks[None, :] <= ranks[:, None]) / ranks[:, None]).sum())


# -- the best fixed linear ranker ----------------------------------------------------------------------------------


class Best(NamedTuple):
    """The best ranker in the ball, and what it loses in all."""

    theta: Array
    loss: float


def queries_drawn(dataset: Dataset, rounds: int, seed: int) -> Array:
    """(Q,) how often each query came in so many rounds of a run in the world `stationary`."""
    drawn = np.empty((rounds, 1))
    with np.errstate(over="ignore"):
        uniforms(Rng(seed).key("world"), 0, drawn)
    return np.bincount((drawn[:, 0] * len(dataset)).astype(np.int64), minlength=len(dataset)).astype(np.float64)


def best_ranker(dataset: Dataset, counts: Array, surrogate: str, radius: float = np.inf, grades_to: int = 4) -> Best:
    """The w with ‖w‖ ≤ radius that loses least when query q comes counts[q] times; convex surrogates only.

    `grades_to` is the learner's highest grade, from which on kl is a straight line.

    By L-BFGS; if the ball is too small for the best ranker, with the ridge that puts it on the surface, found by
    bisection. ranksvm's hinge is rounded off over 1e-3, which loses at most 5e-4 per pair.

    >>> tiny = Dataset("tiny", np.eye(2), np.array([2, 1]), np.array([0, 2]), np.array(["a"]))
    >>> found = best_ranker(tiny, np.ones(1), "squared")
    >>> np.round(found.theta, 6), round(found.loss, 6)
    (array([2., 1.]), 0.0)
    """
    if surrogate == "smoothdcg":
        raise InvalidParameter("smoothdcg is not convex; its best ranker cannot be found for sure")
    features, grades = np.asarray(dataset.features), dataset.grades.astype(np.float64)
    offsets, kind, highest = dataset.offsets, SURROGATES[surrogate], float(grades_to)
    scale = max(counts.sum(), 1.0)  # per round, so that the tolerance means the same for any number of them

    def objective(theta: Array, ridge: float) -> tuple[float, Array]:
        loss, slopes = weighed_loss(features @ theta, grades, offsets, counts / scale, kind, highest, _SLACK)
        return loss + ridge * float(theta @ theta), slopes @ features + 2 * ridge * theta

    theta = _minimized(objective, np.zeros(dataset.width), 0.0)
    if np.linalg.norm(theta) > radius:
        low, high = 0.0, 1.0
        while np.linalg.norm(_minimized(objective, theta, high)) > radius:
            high *= 10
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            theta = _minimized(objective, theta, middle)
            inside = np.linalg.norm(theta) <= radius
            low, high = (low, middle) if inside else (middle, high)
            if high - low <= 1e-6 * high:
                break
        theta = theta * min(1.0, radius / float(np.linalg.norm(theta)))
    exact = weighed_loss(features @ theta, grades, offsets, counts, kind, highest, 1e-12)[0]
    return Best(theta, float(exact))


def _minimized(objective: object, start: Array, ridge: float) -> Array:
    from scipy.optimize import minimize  # half a second to import, needed only here

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-13, "gtol": 1e-9}
    found = minimize(objective, start, args=(ridge,), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)
