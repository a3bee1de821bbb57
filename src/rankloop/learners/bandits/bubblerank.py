"""BubbleRank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from rankloop.core.capabilities import Explanation
from rankloop.core.compiled_rounds import ClickLoop, ClickWorld
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    require,
    require_number,
    resolve_k,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import bubblerank as kernels
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, memo_integers, require_bounds

ANYTIME = 4.0  # without delta and horizon δ = 1 / (1 + t) in round t; docs/learners/bandits.md has what else was tried


@dataclass
class BubbleRank(PerQuery):
    """Start from the baseline ranking and move better items up, one position at a time.

    Every list shown is the query's base list with some neighbors exchanged; with more items than positions, an item
    from below may take the last position. The base list changes only when clicks show, with confidence 1 - δ, that the
    lower of two neighbors is better. Choose it for queries that repeat often and have a good list already. It uses ids
    and no features, and moves items slowly: where the list is bad, `toprank` is faster.

    Parameters
    ----------
    horizon
        How often a query will be shown, if that is known: a pair is decided with δ = horizon⁻⁴, as in the paper.
    delta
        δ itself, instead of `horizon`: the probability of a wrong decision on a pair. With neither, δ = 1 / (1 +
        rounds).
    max_queries, max_items
        Bounds of the table; see `CascadeUCB1`.

    Examples
    --------
    The first list of a query is its first base list. To start from the list of another learner, put the candidates into
    its order: `Candidates(q, c.items[other.best(c, c.n)])`.

    >>> rng = np.random.default_rng(1)
    >>> learner = BubbleRank()
    >>> shoes = Candidates("shoes", ["plain", "red", "liked"])
    >>> for _ in range(500):
    ...     shown = learner.rank(shoes, 3, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 3)]
    array(['liked', 'plain', 'red'], dtype='<U5')

    Notes
    -----
    Chang Li et al. BubbleRank: safe online learning to re-rank via implicit click feedback. UAI 2019, Algorithm 1.
    Differences:

    - Only pairs that were randomized count, as Lemma 6 needs, so lists that someone else ordered teach nothing.
    - A fair coin chooses between the pairs (1, 2), (3, 4), … and (2, 3), (4, 5), …; the paper alternates, which would
      never try some pairs when feedback is late.
    - With fewer positions than items, a random item from below the list is paired with the last one shown, unless it is
      known to be worse.
    - An unknown candidate is inserted behind the item that preceded it; an absent one keeps its place and statistics.
    """

    horizon: int | None = None
    delta: float | None = None
    max_queries: int = 10_000
    max_items: int = 100

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.horizon is not None:
            require_number("horizon", self.horizon, 2)
        if self.delta is not None:
            require_number("delta", self.delta, 0, above=True)
            require(self.delta < 1, "delta", self.delta, "must be below 1: the chance to be wrong about a pair")
            require(self.horizon is None, "delta", self.delta, "and horizon both say how sure is sure; give one only")
        require_bounds(self.max_queries, self.max_items)
        columns = {
            "places": Column("item", np.int32, -1, "permutation"),
            "leads": Column("pair"),
            "duels": Column("pair"),
        }
        self.queries_ = QueryTable(columns, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The base list, with some neighbors exchanged."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        base = self._base(candidates, k)
        flags = np.zeros(k, np.int64)
        coins = rng.random(kernels.tosses(base.numbers.size, k))
        parity, outside = kernels.randomize(base.numbers, k, base.leads, base.duels, base.bar, coins, flags)
        listed, memo = base.listed[:k], {"pairs": flags, "parity": np.array([parity])}
        if outside >= 0:
            known = np.flatnonzero(base.numbers[k:outside] >= 0)
            above = k + int(known[-1]) if known.size else k - 1  # who stands before it: of the list, or known
            listed = np.append(listed, base.listed[outside])
        order = np.empty_like(listed)
        kernels.exchange(listed, flags, parity, order)
        if outside >= 0:  # who had no position, and behind whom the one from outside stood
            memo["outside"] = base.codes[[order[k], base.listed[above]]]
        return make_impression(candidates, order[:k], memo, self._log_chance(base, order[:k]))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """Half for each parity: one half for every pair that is tried, and a fair draw of the one from outside."""
        return self._log_chance(self._base(candidates, len(order)), order)

    def _base(self, candidates: Candidates, k: int) -> _Base:
        """The base list of the candidates that take part, and what is known of their pairs."""
        codes, slot = item_codes(candidates.items), self.queries_.find(candidates.query)
        numbers, (places, leads, duels) = self.queries_.numbers(slot, codes), self.queries_.values(slot)
        listed = kernels.base_list(places, numbers)
        part = numbers[listed[: max(k, min(listed.size, self.max_items))]]
        return _Base(codes, listed, part, leads, duels, kernels.bar_of(*self._bar(), self.queries_.rounds(slot) + 1))

    def _log_chance(self, base: _Base, order: Array) -> float:
        return kernels.log_chance(base.numbers, base.listed, order, base.leads, base.duels, base.bar)

    def _bar(self) -> tuple[float, float]:
        """4 log(1/δ) where δ is known, and how it grows with log(1 + t) where it is not."""
        if self.delta is not None:
            return 4.0 * math.log(1.0 / self.delta), 0.0
        return (16.0 * math.log(self.horizon), 0.0) if self.horizon else (0.0, ANYTIME)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        order = checked_order(candidates, order)
        return make_impression(candidates, order, {"pairs": np.zeros(order.size, np.int64), "parity": np.array([-1])})

    def best(self, candidates: Candidates, k: int) -> Array:
        slot = self.queries_.find(candidates.query)
        numbers = self.queries_.numbers(slot, item_codes(candidates.items))
        return kernels.base_list(self.queries_.values(slot)[0], numbers)[: resolve_k(candidates, k)]

    def explain(self, impression: Impression) -> Explanation:
        """Which neighbors it was the turn of, and which of these were left to a coin; of an adopted list, none."""
        k, parity = impression.k, int(memo_integers(impression, "parity", 1)[0])
        if parity < 0:
            shown = Candidates(impression.query, impression.items)
            return Explanation(self.best(shown, k), np.zeros((0, 2), np.int64), 0)
        best, flags = np.empty(k, np.int64), memo_integers(impression, "pairs", k)[: k - 1]
        kernels.exchange(np.arange(k), flags, parity, best)
        upper = np.flatnonzero(flags)
        return Explanation(best, np.stack([upper, upper + 1], axis=1), (k - parity) // 2)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Compare the items of each randomized pair; exchange neighbors of the base list where that is due."""
        clicks = bernoulli_clicks(checked_values(self, impression, feedback), rng)
        parity, flags = memo_integers(impression, "parity", 1).item(), memo_integers(impression, "pairs", impression.k)
        outside = memo_integers(impression, "outside", 2) if flags[-1] > 0 else np.zeros(0, np.int64)
        if parity < 0:
            return
        shown = np.concatenate([item_codes(impression.items), outside[:1]])
        listed = np.empty_like(shown)
        kernels.exchange(shown, flags, parity, listed)
        slot, numbers, fresh = self.queries_.enter(impression.query, listed)
        above = self.queries_.numbers(slot, outside[1:]).item() if outside.size else -1
        bar = kernels.bar_of(*self._bar(), self.queries_.rounds(slot))
        places, leads, duels = self.queries_.values(slot)
        kernels.update(places, leads, duels, numbers, fresh, above, flags, parity, clicks, bar)

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        """Rounds with one query and one user, without Python between them."""
        query, user, k, top, best, most = world
        m, bar, rounds = user.attraction.size, self._bar(), 0
        slot = self.only_slot(query, m)
        places, leads, duels = self.queries_.values(slot)
        base = np.arange(m)

        def play(coins: Array, clicks: Array, account: Array) -> None:
            nonlocal rounds
            pairs = base, leads, duels
            rounds = kernels.simulate(*pairs, rounds, *bar, user, coins, clicks, top, best, most, account)
            places[base] = np.arange(m)

        return ClickLoop((kernels.tosses(m, k),), play, lambda done: self.queries_.set_rounds(slot, done))


class _Base(NamedTuple):
    """A query's base list and its pairs, as they are when a list is made of it."""

    codes: Array  # (c,) of the candidates
    listed: Array  # (c,) candidates, top first
    numbers: Array  # (b,) the items' numbers of the first of these, those that take part; -1: not known
    leads: Array
    duels: Array
    bar: float
