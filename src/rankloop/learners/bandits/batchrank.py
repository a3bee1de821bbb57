"""BatchRank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import ClickLoop, ClickWorld
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    require_choice,
    require_number,
    resolve_k,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import batchrank as kernels
from rankloop.kernels.elementary import log
from rankloop.kernels.ranking import top_k
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, memo_integers, require_bounds

COLUMNS = {
    "homes": Column("item", np.int32, kernels.NEW, "numbers"),
    "spans": Column("item"),
    "stages": Column("item"),
    "stamps": Column("item"),
    "shows": Column("item"),
    "wins": Column("item"),
    "clocks": Column("query", np.int64),
}


@dataclass
class BatchRank(PerQuery):
    """Show the items of a batch equally often; split the batch when its better half is known.

    Learns the best list for users who leave with the first click and for users who look at positions by habit. It
    decides only at the end of a stage, each four times as long as the one before: `toprank` assumes no more and is much
    faster.

    Parameters
    ----------
    horizon
        About how often a query will be shown; stages and bounds depend on its logarithm.
    variant
        "paper", or "merge", which its authors benchmarked (RealMergeRankKL): batches are shuffled as a whole, all their
        displays count, and stages end after log(L T) / Δ² displays per item, Δ = 1/2 at first and halved each time.
    max_queries, max_items
        Bounds of the table; see `CascadeUCB1`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = BatchRank(horizon=1000)
    >>> shoes = Candidates("shoes", ["plain", "red", "liked"])
    >>> for _ in range(400):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicks(shown.items == "liked"), rng)
    >>> shoes.items[learner.rank(shoes, 1, rng).order]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Masrour Zoghi et al. Online learning to rank in stochastic click models. ICML 2017, Algorithms 1-3. Differences:

    - Feedback counts only for the batch and the stage in which the list was shown.
    - New items join the last batch. Items that are absent when a batch is examined go to its lower part.
    - Lists that someone else ordered do not show a batch's items equally often, so nothing is learned from them.
    """

    horizon: int = 1_000_000
    variant: Literal["paper", "merge"] = "paper"
    max_queries: int = 10_000
    max_items: int = 100

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_number("horizon", self.horizon, 3)  # log log T must be above 0
        require_choice("variant", self.variant, ("paper", "merge"))
        require_bounds(self.max_queries, self.max_items)
        self.queries_ = QueryTable(COLUMNS, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Batch by batch: the least shown of its items, in random order."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        codes = item_codes(candidates.items[: self.max_items])
        homes, spans, shows, stamps, _ = self._seats(candidates.query, codes, k)
        order = np.arange(codes.size)
        kernels.arrange(homes, spans, shows, self._variant(), rng.random((2, codes.size)), order)
        shown, rest = order[:k], order[k:]
        unseen = rest[homes[rest] != kernels.DROPPED]
        marks = np.concatenate([stamps[shown], np.full(k - shown.size, -1), stamps[unseen]])
        memo = {"stamps": marks, "unseen": codes[unseen]}
        return make_impression(candidates, np.concatenate([shown, np.arange(shown.size, k)]), memo)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        order = checked_order(candidates, order)
        return make_impression(candidates, order, {"stamps": np.full(order.size, -1), "unseen": np.zeros(0, np.int64)})

    def best(self, candidates: Candidates, k: int) -> Array:
        k = resolve_k(candidates, k)
        homes, _, shows, _, wins = self._seats(candidates.query, item_codes(candidates.items[: self.max_items]), k)
        worth = np.where(homes == kernels.DROPPED, -np.inf, -homes.astype(np.float64))
        order = top_k(worth, -wins / np.maximum(shows, 1), k)
        return np.concatenate([order, np.arange(order.size, k)])

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Count displays and clicks; look at the batches whose stage is over."""
        clicks = bernoulli_clicks(checked_values(self, impression, feedback), rng)
        unseen = memo_integers(impression, "unseen")
        stamps = memo_integers(impression, "stamps", impression.k + unseen.size)
        took_part = stamps >= 0
        if not took_part.any():
            return
        codes, numbers = np.concatenate([item_codes(impression.items), unseen]), np.full(stamps.size, -1)
        slot, numbers[took_part], _ = self.queries_.enter(impression.query, codes[took_part])
        homes, spans, stages, begun, shows, wins, clock = self.queries_.values(slot)
        batches, rule = (homes, spans, stages, begun, shows, wins, clock), (self._variant(), log(self.horizon))
        kernels.update(*batches, numbers, stamps, clicks, *rule)

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        """Rounds with one query and one user, without Python between them."""
        query, user, _, top, best, most = world
        m, rule = user.attraction.size, (self._variant(), log(self.horizon))
        slot = self.only_slot(query, m)
        homes, spans, stages, stamps, shows, wins, clock = self.queries_.values(slot)
        batches = homes, spans, stages, stamps, shows, wins, clock

        def play(coins: Array, clicks: Array, account: Array) -> None:
            kernels.simulate(*batches, *rule, user, coins, clicks, top, best, most, account)

        return ClickLoop((2, m), play, lambda done: self.queries_.set_rounds(slot, done))

    def _variant(self) -> int:
        return kernels.PAPER if self.variant == "paper" else kernels.MERGE

    def _seats(self, query: str, codes: Array, k: int) -> Array:
        """(5, c) home, span, displays, stamp and clicks of each candidate that takes part."""
        slot = self.queries_.find(query)
        homes, spans, _, stamps, shows, wins, _ = self.queries_.values(slot)
        return kernels.seats(self.queries_.numbers(slot, codes), homes, spans, shows, stamps, wins, k)
