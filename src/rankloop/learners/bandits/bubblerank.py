"""BubbleRank: a good list, safely improved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels import bubblerank as kernels
from rankloop.learner import Explanation, checked_order, checked_values, cut, drawn, require_number, show
from rankloop.learners.bandits._queries import Field, Queries, codes_of, integers_of, require_bounds
from rankloop.types import Array, Candidates, Feedback, FeedbackKind, Impression


@dataclass
class BubbleRank:
    """Start from the list that the caller would show, and let better items bubble up, one place at a time.

    Every list shown is the query's base list with some neighbours exchanged, so no item is ever more than one place
    from where it stands there. When the clicks say that the lower of two neighbours is better, with next to no doubt,
    the base list changes; so it only gets better. Choose it for queries that come back often, with a list that is good
    already and must not be spoilt. It learns each query for itself, uses ids and no features, and is slow to carry an
    item far: where the list is bad, `toprank` is faster.

    Parameters
    ----------
    horizon
        How often a query will come, if that is known: a pair is decided with confidence δ = horizon⁻⁴. None takes
        (1 + rounds so far)⁻⁴, which needs no such knowledge; a pair may then be tried again later.
    max_queries
        How many queries are remembered. A new one takes the place of the one learned from the longest ago.
    max_items
        How many items of a query are remembered, likewise.

    Examples
    --------
    The first list of a query is the base list that learning starts from. A list of another learner is as good a start
    (the paper's BubbleRankKL): put the candidates into its order, `Candidates(q, c.items[other.best(c, c.n)])`.

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
    Chang Li et al. BubbleRank: safe online learning to re-rank via implicit click feedback (paper 002), Algorithm 1.
    Only pairs that were randomised count, also when their feedback comes late: lines 13-19 do not say so, but Lemma 6
    needs it. So lists that someone else ordered teach nothing, nor does a list that bounded exposure had to change.

    With fewer positions than items (k < n, the paper's open question) the item at position k + 1 takes part in the last
    pair; it is clicked or not when it is shown, and counts as not clicked when it is not. Items further down never come
    up.

    A candidate that the query does not know stands where the caller put it, and enters the base list behind the item
    that stood before it. One that is gone keeps its place in the base list and its statistics; those around it close
    up.

    A query of m items costs 48 + 16 m + 4 m (m - 1) bytes, and about 105 in a dictionary: 673 for ten items.
    """

    horizon: int | None = None
    max_queries: int = 1_000_000
    max_items: int = 100

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.horizon is not None:
            require_number("horizon", self.horizon, 2)
        require_bounds(self.max_queries, self.max_items)
        fields = {"places": Field("item", np.int32, -1), "leads": Field("pair"), "duels": Field("pair")}
        self.queries_ = Queries(fields, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The base list, with some neighbours exchanged."""
        k = cut(candidates, k)
        codes, listed, flags, parity = self._tossed(candidates, k, rng.random)
        order = np.empty_like(listed)
        kernels.exchange(listed, flags, order)
        memo = {"pairs": flags, "unseen": codes[order[k:]], "parity": np.array([parity])}
        return drawn(candidates, order[:k], -math.log(2.0) * np.count_nonzero(flags), memo)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """One half for every pair that is tried; lists that exchanging these does not give never come."""
        _, listed, flags, _ = self._tossed(candidates, len(order), np.zeros)
        for p in np.flatnonzero(flags):
            if order[p] == listed[p + 1]:
                listed[p], listed[p + 1] = listed[p + 1], listed[p]
        possible = np.array_equal(listed[: len(order)], order)
        return -math.log(2.0) * np.count_nonzero(flags) if possible else -math.inf

    def _tossed(self, candidates: Candidates, k: int, toss: Callable[[int], Array]) -> tuple[Array, Array, Array, int]:
        """The items' codes, the base list down to k + 1, what the coins said of its neighbours, and the parity."""
        codes, slot = codes_of(candidates.items), self.queries_.find(candidates.query)
        numbers, (places, leads, duels) = self.queries_.numbers(slot, codes), self.queries_.of(slot)
        listed = kernels.base_list(places, numbers)[: k + 1]
        flags, rounds = np.zeros(listed.size - 1, np.int64), self.queries_.rounds(slot)
        bar, coins = kernels.bar_of(self.horizon or 0.0, rounds + 1), toss(listed.size // 2)
        kernels.randomise(numbers[listed], leads, duels, bar, rounds % 2, coins, flags)
        return codes, listed, flags, rounds % 2

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; nothing was randomised, so nothing will be learned from it."""
        order = checked_order(candidates, order)
        flags, unseen, parity = np.zeros(order.size - 1, np.int64), np.zeros(0, np.int64), np.array([-1])
        return show(candidates, order, {"pairs": flags, "unseen": unseen, "parity": parity})

    def best(self, candidates: Candidates, k: int) -> Array:
        """The base list."""
        slot = self.queries_.find(candidates.query)
        numbers = self.queries_.numbers(slot, codes_of(candidates.items))
        return kernels.base_list(self.queries_.of(slot)[0], numbers)[: cut(candidates, k)]

    def explain(self, impression: Impression) -> Explanation:
        """Which neighbours it was the turn of, and which of these were left to a coin; of an adopted list, none."""
        k, parity = impression.k, int(integers_of(impression, "parity", 1)[0])
        if parity < 0:
            shown = Candidates(impression.query, impression.items)
            return Explanation(self.best(shown, k), np.zeros((0, 2), np.int64), 0)
        best, flags = np.empty(k, np.int64), integers_of(impression, "pairs")[: k - 1]
        kernels.exchange(np.arange(k), flags, best)
        upper = np.flatnonzero(flags)
        return Explanation(best, np.stack([upper, upper + 1], axis=1), (k - parity) // 2)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:  # noqa: ARG002
        """Compare the items of each randomised pair; exchange neighbours of the base list where that is due."""
        clicks = checked_values(self, impression, feedback)
        parity, unseen = integers_of(impression, "parity", 1), integers_of(impression, "unseen")
        flags = integers_of(impression, "pairs", impression.k - 1 + unseen.size)
        if unseen.size > 1:
            raise InvalidInput(f"the impression's memo has {unseen.size} unseen items; there can be at most one")
        if parity[0] < 0:
            return
        shown = np.concatenate([codes_of(impression.items), unseen])
        listed = np.empty_like(shown)
        kernels.exchange(shown, flags, listed)
        slot, numbers, fresh = self.queries_.enter(impression.query, listed)
        bar = kernels.bar_of(self.horizon or 0.0, self.queries_.rounds(slot))
        places, leads, duels = self.queries_.of(slot)
        kernels.update(places, leads, duels, numbers, fresh, flags, clicks, bar)

    def state(self) -> dict[str, Array]:
        """The base list and the pairs of each query."""
        return self.queries_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        self.queries_.load(state, ("places",))
