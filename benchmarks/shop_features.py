"""NDCG that declared features reach in a shop, as a share of what the simulated visitors really go by.

Items have a quality that no field holds, and visitors like brands that no field names: rates and clicks must show both.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.clicks.users import DependentClickUser
from rankloop.core.learner import Learner
from rankloop.core.registry import make
from rankloop.core.rng import Rng
from rankloop.core.scaling import scaled
from rankloop.core.types import Array, Candidates
from rankloop.evaluation.metrics import ndcg
from rankloop.features.context import Request
from rankloop.features.counters import CountedOutcome
from rankloop.features.pipeline import FeaturePipeline
from rankloop.features.table import Table

CATEGORIES = ("lamp", "chair", "table", "shelf", "mirror", "carpet")
BRANDS = tuple(f"brand {letter}" for letter in "abcdefgh")
WORDS = ("red", "blue", "green", "oak", "steel", "glass", "round", "small", "large", "folding")
TAGS = ("cosy", "modern", "rustic", "loud", "plain", "warm")
WEIGHTS = np.array([1.2, 1.6, 1.6, -0.8, 0.8, -0.6])  # of the columns of `Visit.by_hand`, each scaled to 0 … 1
CUTS = (0.3, 0.55, 0.75, 0.9)  # shares of a list below the grades 1, 2, 3 and 4
# How visitors read a list: click and stop probability by grade; the stop coin falls at every item they look at.
READER = DependentClickUser((0.05, 0.15, 0.35, 0.6, 0.8), (0.1, 0.1, 0.12, 0.15, 0.2), stop_requires_click=False)
START, PACE = 1_700_000_000.0, 300.0  # the first visit, and seconds between two

DECLARED: list[str | dict[str, Any]] = [
    {"name": "words", "kind": "text", "of": "item.title", "measure": "share"},
    {"name": "bm25", "kind": "text", "of": "item.title"},
    {"name": "price", "kind": "field", "of": "item.price", "log": True},
    {"name": "tags", "kind": "match", "of": "item.tags", "to": "user.likes"},
    {"name": "age", "kind": "age", "of": "item.listed", "log": False},
    {"name": "rate", "kind": "rate", "by": "item", "prior": 5.0},
    {"name": "own brand", "kind": "rate", "by": ["user", "item.brand"], "prior": 1.0},
    {"name": "lately", "kind": "clicked", "of": "item.brand", "last": 50, "window": "all"},
]
STATIC = DECLARED[:5]  # what needs no counting


class Visit(NamedTuple):
    """A visitor who asks for something."""

    request: Request
    grades: Array  # (n,) 0 … 4, what this visitor thinks of each candidate
    by_hand: Array  # (n, 6) the very numbers that he goes by, as nobody could compute them


@dataclass
class Shop:
    """Visits 0, 1, 2 … of a shop, each a function of seed and number.

    >>> shop = Shop(seed=1)
    >>> visit = shop.at(0)
    >>> visit.request.query, len(visit.request.ids), int(visit.grades.max())
    ('large lamp', 20, 4)
    """

    seed: int = 0
    items: int = 150
    visitors: int = 25
    candidates: int = 20
    table: Table = field(init=False, repr=False)
    users: Table = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._streams = Rng(self.seed)
        rng = self._streams.for_event("shop", 0)
        n = self.items
        self._category, self._brand = rng.integers(len(CATEGORIES), size=n), rng.integers(len(BRANDS), size=n)
        self._quality = rng.random(n)
        self._price = np.exp(rng.normal(4.0, 0.6, n))
        self._listed = START - rng.uniform(0.0, 60.0, n) * 86400.0
        self._words = rng.random((n, len(WORDS))) < 0.35
        self._tags = rng.random((n, len(TAGS))) < 0.3
        self.table, self.users = Table(), Table()
        for i in range(n):
            words = [word for word, there in zip(WORDS, self._words[i], strict=True) if there]
            self.table.upsert(
                f"item {i}",
                {
                    "title": " ".join([*words, CATEGORIES[self._category[i]]]),
                    "brand": BRANDS[self._brand[i]],
                    "price": float(self._price[i]),
                    "tags": [tag for tag, there in zip(TAGS, self._tags[i], strict=True) if there],
                    "listed": float(self._listed[i]),
                },
            )
        self._likes = rng.random((self.visitors, len(TAGS))) < 0.4
        self._brands = np.argsort(rng.random((self.visitors, len(BRANDS))), axis=1)[:, :2]
        for u in range(self.visitors):
            likes = [tag for tag, there in zip(TAGS, self._likes[u], strict=True) if there]
            self.users.upsert(f"visitor {u}", {"likes": likes})

    def at(self, t: int) -> Visit:
        """Visit t."""
        rng = self._streams.for_event("visit", t)
        user, category, word = (int(rng.integers(n)) for n in (self.visitors, len(CATEGORIES), len(WORDS)))
        shelf = np.flatnonzero(self._category == category)
        chosen = rng.permutation(shelf)[: self.candidates]
        query, time = f"{WORDS[word]} {CATEGORIES[category]}", START + PACE * t
        liked = self._likes[user]
        by_hand = np.stack(
            [
                0.5 + 0.5 * self._words[chosen, word],
                np.isin(self._brand[chosen], self._brands[user]).astype(np.float64),
                self._quality[chosen],
                np.log1p(self._price[chosen]),
                (self._tags[chosen] & liked).sum(axis=1) / max(1, int(liked.sum())),
                (time - self._listed[chosen]) / 86400.0,
            ],
            axis=1,
        )
        low, high = by_hand.min(axis=0), by_hand.max(axis=0)
        utility = ((by_hand - low) / np.where(high > low, high - low, 1.0) * WEIGHTS).sum(axis=1)
        ranks = np.argsort(np.argsort(utility)) / len(chosen)
        request = Request([f"item {i}" for i in chosen.tolist()], query, f"visitor {user}", time)
        return Visit(request, np.searchsorted(CUTS, ranks, side="right"), by_hand)


Features = Literal["by hand", "declared", "static"]
K = 10


def visits(shop: Shop, learner: Learner, features: Features, count: int) -> Array:
    """(count,) NDCG@10, for the visitor of the moment, of the best list that the learner knew at each visit.

    `by hand`: the very numbers that visitors go by; `declared`: what a shop can declare, counts included; `static`:
    that without the counts. Counters take an outcome in after its list was made and clicked, never before.
    """
    streams = Rng(shop.seed)
    pipeline = FeaturePipeline.from_spec(STATIC if features == "static" else DECLARED)
    counters = pipeline.counters()
    found = np.empty(count)
    for t in range(count):
        visit = shop.at(t)
        view = None
        if features == "by hand":
            rows = visit.by_hand
        else:
            view = pipeline.context(visit.request, shop.table, shop.users, counters)
            rows = pipeline.rows(view)
        candidates = scaled(Candidates(visit.request.query, visit.request.ids, rows))
        found[t] = ndcg(visit.grades[learner.best(candidates, K)], K, visit.grades)
        shown = learner.rank(candidates, K, streams.for_event("rank", t))
        feedback = READER.react(visit.grades[shown.order], streams.for_event("user", t))
        learner.learn(shown, feedback, streams.for_event("learn", t))
        if view is not None and counters is not None:
            notes = pipeline.notes(view, shown.order, shown.memo)
            counters.fold(CountedOutcome(visit.request.time, feedback.values, notes))
    return found


KINDS: tuple[Features, ...] = ("by hand", "declared", "static")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--visits", type=int, default=4000)
    parser.add_argument("--seeds", default="10-12", help="first-last; choose on others than these")
    parser.add_argument("--learners", default="pairrank,hybrid")
    given = parser.parse_args()
    first, last = (int(part) for part in given.seeds.split("-"))
    seeds = range(first, last + 1)
    print(f"NDCG@10 of the last quarter of {given.visits} visits, seeds {first} to {last}, ± standard error\n")
    print("| learner | features | first tenth | last quarter | of hand-made |")
    print("| --- | --- | --- | --- | --- |")
    for name in given.learners.split(","):
        curves = {}
        for kind in KINDS:
            curves[kind] = np.stack([visits(Shop(seed), make(name), kind, given.visits) for seed in seeds])
            early = curves[kind][:, : given.visits // 10].mean(axis=1)
            late = curves[kind][:, -given.visits // 4 :].mean(axis=1)
            share = late / curves["by hand"][:, -given.visits // 4 :].mean(axis=1)
            spread = late.std(ddof=1) / np.sqrt(len(late)) if len(late) > 1 else 0.0
            row = (f"{early.mean():.3f}", f"{late.mean():.3f} ± {spread:.3f}", f"{share.mean():.3f}")
            print(f"| {name} | {kind} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
