"""Regret against the best fixed ranking in hindsight, for every measure of the paper on top-k feedback.

Most measures are a sum over items of (a weight of its rank) times (what the round's vector says of it): then the best
ranking sorts the items by the sum over rounds of the latter. AP is not, and its best ranking is looked for among all.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array

LOSSES = ("sumloss", "pairwise", "auc")  # smaller is better
MEASURES = ("sumloss", "pairwise", "dcg", "precision", "ndcg", "auc", "ap")
_BINARY = ("pairwise", "auc", "ap")
_MOST_ITEMS = 8  # of which all rankings are tried, for AP


class Regret:
    """The regret of the rankings that were shown, as it stands.

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
        """What the best fixed ranking would have been better by, up to now."""
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
        """(T, m) what each item counts; ranks weigh it."""
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
