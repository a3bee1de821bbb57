"""The shop: products with features, and shoppers with tastes that the rankers only see through clicks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rankloop.clicks.users import DependentClickUser
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation.metrics import ndcg

FEATURES = ("text_match", "popularity", "rating", "price", "discount", "newness", "delivery_days")
SHELVES = ("running shoes", "desk lamp", "coffee maker", "backpack", "headphones", "rain jacket")
MAKERS = ("arrow", "birch", "comet", "delta", "ember", "fjord", "grove", "ivory", "jade", "kestrel", "lumen", "moor")
SHOWN = 6  # positions of a list
GRADES = (0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4)  # of the products of a shelf, from the least liked to the most


class Taste(NamedTuple):
    """What a kind of shopper looks for: weights of features that are scaled to 0 … 1 on each shelf."""

    name: str
    weights: dict[str, float]


TASTES = (
    Taste("bargain hunter", {"price": -1.0, "discount": 0.9, "rating": 0.2, "text_match": 0.3}),
    Taste("quality seeker", {"rating": 1.0, "delivery_days": -0.5, "discount": 0.2, "text_match": 0.3}),
    Taste("trend follower", {"newness": 1.2, "rating": 0.4, "price": 0.3, "text_match": 0.3}),
)
# Click and stop probability by grade; a shopper may stop at every product they examine, clicked or not.
HABITS = {
    "in a hurry": DependentClickUser((0.02, 0.08, 0.25, 0.6, 0.9), (0.3, 0.3, 0.35, 0.5, 0.7), False),
    "looking around": DependentClickUser((0.05, 0.15, 0.35, 0.6, 0.8), (0.1, 0.1, 0.12, 0.15, 0.2), False),
}
SEASONS = ((0.70, 0.25, 0.05), (0.05, 0.25, 0.70))  # how many shoppers have each taste: before and after the change


class Visit(NamedTuple):
    """A shopper at a shelf."""

    shelf: int
    taste: int
    habit: int
    season: int


@dataclass
class Shop:
    """Shelves of twelve products each, in an order by popularity: the baseline ranking.

    >>> shop = Shop(seed=1)
    >>> shop.products[1][:2]
    ['moor', 'comet']
    >>> visit = Visit(shelf=1, taste=0, habit=0, season=0)
    >>> shop.clicks(visit, shop.products[1], 0)
    ['moor']
    """

    seed: int = 0
    products: list[list[str]] = field(init=False)  # by shelf, in baseline order
    rows: list[Array] = field(init=False)  # (12, 7) their features

    def __post_init__(self) -> None:
        self._streams = Rng(self.seed)
        self._users = list(HABITS.values())
        self.products, self.rows, self._grades = [], [], []
        for shelf in range(len(SHELVES)):
            rng = self._streams.for_event("demo/shelf", shelf)
            rows = _products(rng)
            baseline = np.argsort(-(rows[:, 1] / 1000 + 2.0 * rows[:, 0]))
            rows = rows[baseline]
            scaled = (rows - rows.min(0)) / (rows.max(0) - rows.min(0))
            liked = np.stack([scaled @ [taste.weights.get(name, 0.0) for name in FEATURES] for taste in TASTES])
            grades = np.empty(liked.shape, np.int64)
            np.put_along_axis(grades, np.argsort(liked, axis=1), np.array(GRADES)[None, :], axis=1)
            self.rows.append(rows)
            self.products.append(rng.permutation(MAKERS).tolist())
            self._grades.append(grades)

    def visit(self, n: int, season: int) -> Visit:
        """The shopper number `n`."""
        rng = self._streams.for_event("demo/visit", n)
        taste = int(rng.choice(len(TASTES), p=SEASONS[season]))
        return Visit(int(rng.integers(len(SHELVES))), taste, int(rng.integers(len(HABITS))), season)

    def clicks(self, visit: Visit, shown: list[str], n: int) -> list[str]:
        """Clicks of visit `n`; the same for every ranker that shows the same ranking."""
        grades = self._grades[visit.shelf][visit.taste, self._places(visit, shown)]
        clicked = self._users[visit.habit].react(grades, self._streams.for_event("demo/clicks", n)).values
        return [item for item, click in zip(shown, clicked, strict=True) if click]

    def quality(self, visit: Visit, shown: list[str]) -> float:
        """NDCG of a ranking for the shoppers of the season; gains are averaged over their tastes."""
        gains = SEASONS[visit.season] @ (2.0 ** self._grades[visit.shelf] - 1.0)
        grades = np.log2(1.0 + gains)  # whose gain is the mean gain
        return ndcg(grades[self._places(visit, shown)], len(shown), grades)

    def _places(self, visit: Visit, shown: list[str]) -> list[int]:
        return [self.products[visit.shelf].index(item) for item in shown]


def _products(rng: np.random.Generator) -> Array:
    """(12, 7) features of a shelf: expensive products are a little better, popular ones a little cheaper."""
    n = len(MAKERS)
    hidden = rng.normal(size=n)
    price = np.exp(3.8 + 0.5 * hidden + 0.4 * rng.normal(size=n))
    newness = rng.random(n)
    columns = (
        rng.uniform(0.5, 1.0, n),
        np.exp(5.0 - 0.3 * hidden - 1.5 * newness + 0.8 * rng.normal(size=n)),
        np.clip(4.0 + 0.3 * hidden + 0.4 * rng.normal(size=n), 1.0, 5.0),
        price,
        np.where(rng.random(n) < 0.5, 0.0, rng.uniform(5.0, 40.0, n)),
        newness,
        rng.integers(1, 9, n).astype(float),
    )
    return np.stack(columns, axis=1).round(3)
