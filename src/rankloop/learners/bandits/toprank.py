"""TopRank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.compiled_rounds import ClickLoop, ClickWorld
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    require_number,
    resolve_k,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import toprank as kernels
from rankloop.kernels.elementary import log
from rankloop.kernels.ranking import top_k
from rankloop.learners.bandits._propensity import chance_of
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, memo_integers, require_bounds


@dataclass
class TopRank(PerQuery):
    """Shuffle items that are not known to differ; rank an item below another as soon as clicks show that it is worse.

    It assumes only that no order gets more clicks than that by attractiveness and that, in shuffled positions, clicks
    depend on the item more than on the position. Much faster than `batchrank`. The first lists of a query are random:
    choose `bubblerank` where a good list must be kept.

    Parameters
    ----------
    horizon
        About how often a query will be shown. Decisions have confidence δ = 1 / horizon.
    max_queries, max_items
        Bounds of the table; see `CascadeUCB1`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = TopRank()
    >>> shoes = Candidates("shoes", ["plain", "red", "liked"])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicks(shown.items == "liked"), rng)
    >>> shoes.items[learner.rank(shoes, 1, rng).order]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Tor Lattimore et al. TopRank: a practical algorithm for online stochastic ranking. NeurIPS 2018, Algorithm 1: j goes
    below i when S ≥ √(2 N log(c √N / δ)). Differences:

    - The memo holds the blocks at display time, for late feedback; items of the last block that had no position count
      as not clicked.
    - Blocks are formed of the candidates at hand; a new item is in the first block.
    - Lists that someone else ordered are not a random draw, so nothing is learned from them.
    """

    horizon: int = 1_000_000
    max_queries: int = 10_000
    max_items: int = 100

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_number("horizon", self.horizon, 2)
        require_bounds(self.max_queries, self.max_items)
        self.queries_ = QueryTable({"leads": Column("pair"), "duels": Column("pair")}, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Block by block, each in random order."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        codes = item_codes(candidates.items[: self.max_items])
        _, block, _ = self._blocks(candidates.query, codes)
        order = np.arange(codes.size)
        kernels.shuffled(block, rng.random(codes.size), order)
        shown, rest = order[:k], order[k:]
        # Nobody clicked the others of the last block: whether they had a position was chance. Lower blocks had none.
        unseen = rest[block[rest] == block[shown[-1]]]
        blocks = np.concatenate([block[shown], np.full(k - shown.size, -1), block[unseen]])
        memo = {"blocks": blocks, "unseen": codes[unseen]}
        order = np.concatenate([shown, np.arange(shown.size, k)])
        return make_impression(candidates, order, memo, chance_of(-block, order))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The product over positions of 1 / (items of the block that are left)."""
        _, block, _ = self._blocks(candidates.query, item_codes(candidates.items[: self.max_items]))
        return chance_of(-block, order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        order = checked_order(candidates, order)
        return make_impression(candidates, order, {"blocks": np.full(order.size, -1), "unseen": np.zeros(0, np.int64)})

    def best(self, candidates: Candidates, k: int) -> Array:
        k = resolve_k(candidates, k)
        numbers, block, leads = self._blocks(candidates.query, item_codes(candidates.items[: self.max_items]))
        order = top_k(-block.astype(np.float64), -kernels.net_wins(leads, numbers, block), k)
        return np.concatenate([order, np.arange(order.size, k)])

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Compare the items of each block that was shown."""
        clicks = bernoulli_clicks(checked_values(self, impression, feedback), rng)
        unseen = memo_integers(impression, "unseen")
        blocks = memo_integers(impression, "blocks", impression.k + unseen.size)
        took_part = blocks >= 0
        if not took_part.any():
            return
        codes, numbers = np.concatenate([item_codes(impression.items), unseen]), np.full(blocks.size, -1)
        slot, numbers[took_part], _ = self.queries_.enter(impression.query, codes[took_part])
        leads, duels = self.queries_.values(slot)
        kernels.update(leads, duels, numbers, blocks, clicks, self._bar())

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        """Rounds with one query and one user, without Python between them."""
        query, user, k, top, best, most = world
        m, bar = user.attraction.size, self._bar()
        slot = self.only_slot(query, m)
        leads, duels = self.queries_.values(slot)

        def play(coins: Array, clicks: Array, account: Array) -> None:
            kernels.simulate(leads, duels, bar, user, coins, clicks, k, top, best, most, account)

        return ClickLoop((m,), play, lambda done: self.queries_.set_rounds(slot, done))

    def _bar(self) -> float:
        return log(kernels.C * self.horizon)

    def _blocks(self, query: str, codes: Array) -> tuple[Array, Array, Array]:
        """Numbers and blocks of the candidates that take part, and the query's leads."""
        slot = self.queries_.find(query)
        numbers, (leads, duels) = self.queries_.numbers(slot, codes), self.queries_.values(slot)
        block = np.empty(codes.size, np.int64)
        kernels.blocks(leads, duels, numbers, self._bar(), block)
        return numbers, block, leads
