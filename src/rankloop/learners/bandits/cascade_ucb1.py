"""CascadeUCB1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import ClickLoop, ClickWorld
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    require_choice,
    resolve_k,
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import cascade as kernels
from rankloop.kernels.ranking import top_k
from rankloop.learners.bandits._propensity import chance_of
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, require_bounds


@dataclass
class CascadeUCB1(PerQuery):
    """Show the items with the highest UCB1 bounds of attractiveness.

    Assumes that users look from the top and leave with the first click, and learns from any list. `cascade-klucb` has
    tighter bounds and learns faster; this one is for comparison.

    Parameters
    ----------
    observe
        Which positions count as examined: those down to the "first" click, as in the paper, or to the "last" one, for
        users who click more than once. Without a click all of them do.
    ties
        Among equal bounds a "random" item comes first, or the first in "base" order. An item that was never examined
        has the highest bound.
    max_queries
        How many queries are remembered. A new one replaces the one learned from the longest ago.
    max_items
        How many of a query's candidates take part, the first ones of the baseline ranking; the others are ranked below
        them. So many items are remembered: a new one replaces the one learned from the longest ago.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = CascadeUCB1()
    >>> shoes = Candidates("shoes", ["plain", "red", "liked"])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicks(shown.items == "liked"), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Branislav Kveton et al. Cascading bandits: learning to rank in the cascade model. ICML 2015, Algorithm 1: the bound
    of an item with click rate w after T observations is w + √(1.5 log(t - 1) / T) in round t of its query. Difference:
    the paper begins with one observation of every item; here an item without any has the highest bound.
    """

    observe: Literal["first", "last"] = "first"
    ties: Literal["random", "base"] = "random"
    max_queries: int = 10_000
    max_items: int = 100

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_choice("observe", self.observe, ("first", "last"))
        require_choice("ties", self.ties, ("random", "base"))
        require_bounds(self.max_queries, self.max_items)
        self.queries_ = QueryTable({"shows": Column("item"), "wins": Column("item")}, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The k highest upper bounds."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        bounds = self._bounds(candidates)
        order = self._order(candidates, k, bounds, rng.random(bounds.size) * (self.ties == "random"))
        return make_impression(candidates, order, log_propensity=self._chance(candidates, bounds, order))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """One in so many, where bounds are equal and ties broken at random; else this list or never."""
        return self._chance(candidates, self._bounds(candidates), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        _, numbers, shows, wins = self._known(candidates)
        return self._order(candidates, k, kernels.rates(numbers, shows, wins), np.zeros(numbers.size))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Count what was looked at, and what was clicked."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        observed = kernels.observed(clicks, self.observe == "last", seen)
        slot, numbers, _ = self.queries_.enter(impression.query, item_codes(impression.items)[:observed])
        shows, wins = self.queries_.values(slot)
        kernels.count(numbers, bernoulli_clicks(clicks, rng), shows, wins)

    def load(self, state: Mapping[str, Array]) -> None:
        shows, wins = np.asarray(state.get("shows_", 0)), np.asarray(state.get("wins_", 0))
        if shows.shape == wins.shape and (wins < 0).any() | (wins > shows).any():
            raise InvalidInput("state 'wins_' is not between 0 and 'shows_' everywhere; restore an older version")
        super().load(state)

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        """Rounds with one query and one user, without Python between them."""
        query, user, k, top, best, most = world
        m, rounds = user.attraction.size, 0
        slot = self.only_slot(query, m)
        shows, wins = self.queries_.values(slot)
        kind, last, ties = self._kind(), self.observe == "last", self.ties == "random"

        def play(coins: Array, clicks: Array, account: Array) -> None:
            nonlocal rounds
            coins *= ties
            rule = kind, last
            rounds = kernels.simulate(shows, wins, rounds, *rule, user, coins, clicks, k, top, best, most, account)

        return ClickLoop((m,), play, lambda done: self.queries_.set_rounds(slot, done))

    def _kind(self) -> int:
        return kernels.UCB1

    def _known(self, candidates: Candidates) -> tuple[int, Array, Array, Array]:
        """The query's slot, the numbers of the candidates that take part, and the counts of the query's items."""
        slot = self.queries_.find(candidates.query)
        shows, wins = self.queries_.values(slot)
        return slot, self.queries_.numbers(slot, item_codes(candidates.items[: self.max_items])), shows, wins

    def _bounds(self, candidates: Candidates) -> Array:
        """The upper bounds of the candidates that take part."""
        slot, numbers, shows, wins = self._known(candidates)
        bounds = np.empty(numbers.size)
        kernels.keys(numbers, shows, wins, self._kind(), self.queries_.rounds(slot) + 1, bounds)
        return bounds

    def _chance(self, candidates: Candidates, bounds: Array, order: Array) -> float:
        if self.ties == "random":
            return chance_of(bounds, order)
        sure = self._order(candidates, len(order), bounds, np.zeros(bounds.size))
        return 0.0 if np.array_equal(order, sure) else -np.inf

    def _order(self, candidates: Candidates, k: int, keys: Array, ties: Array) -> Array:
        """(k,) positions by `keys`; those beyond `max_items` stand below."""
        k = resolve_k(candidates, k)
        order = top_k(keys, ties, k)
        return order if order.size == k else np.concatenate([order, np.arange(order.size, k)])
