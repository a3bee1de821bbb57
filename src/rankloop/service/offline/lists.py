"""Lists side by side, and what can be said of them all at once: their base order, their probability, their swaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array, Feedback, Impression
from rankloop.kernels import plackett_luce, ranking
from rankloop.service.maintenance.archive.columns import CANDIDATES, LOG_PROPENSITY, Chunk
from rankloop.service.ranking.placement import SLOTS, feedback_without_pins

LOGGED, BASE = "as logged", "base order"
UNIT = 2**20  # what a reward of the whole scale counts: sums of integers are exact


class Lists(NamedTuple):
    """N lists as numbers, the shorter ones filled up to K."""

    seq: Array  # (N,) their outcomes
    users: Array  # (N,) a number for whose list it was, 0 where that is not known
    group: Array  # (N,) that it goes into, for the jackknife
    clicks: Array  # (N, K)
    earned: Array  # (N, K) what is estimated: the clicks, or rewards in 1 / UNIT of the scale
    ranks: dict[str, Array]  # policy -> (N, K) the rank at which it puts each slot's item, -1 beyond the list's end
    log_weights: dict[str, Array]  # policy -> (N,) log P_new(list) - log P_logged(list), NaN where that is not known


class Block(NamedTuple):
    """Lists of one length, with notes of the same names and shapes."""

    rows: Array  # (m,) which lists of a portion
    order: Array  # (m, k)
    clicks: Array  # (m, k)
    earned: Array  # (m, k)
    memo: dict[str, Array]  # (m, …) each

    @property
    def k(self) -> int:
        """How long they are."""
        return int(self.order.shape[1])

    def base_ranks(self) -> Array:
        """(m, k) where the caller's own order has the item of each slot, among those that were shown."""
        found = np.empty(self.order.shape, np.int64)
        places = np.argsort(self.order, axis=1)
        np.put_along_axis(found, places, np.broadcast_to(np.arange(self.k), places.shape), axis=1)
        return found

    @property
    def drawn(self) -> bool:
        """Whether the notes say how likely each list was."""
        return LOG_PROPENSITY in self.memo and CANDIDATES in self.memo

    def chances(self) -> Array:
        """(m,) log P of those that were drawn from all candidates there were, NaN of others: which items were shown
        was chance, too, and a challenger only orders them."""
        if not self.drawn:
            return np.full(len(self.rows), np.nan)
        whole = self.memo[CANDIDATES][:, 0] == self.k
        return np.where(whole, self.memo[LOG_PROPENSITY][:, 0], np.nan)

    def swap_shares(self, may_be_uniform: bool) -> tuple[Array, Array] | None:
        """Of drawn lists, which (m,) tell P(R*) / (P(R) + P(R*)) for every two slots, and that (m, k, k); None: none.

        PairRank writes it down, BubbleRank which neighbours it tossed a coin for, TopRank the blocks that it shuffled.
        Lists of Plackett-Luce are known by their probability. So are uniformly random ones, if no list of the learner's
        is less likely than those (`may_be_uniform`; ε-greedy's are, and one of them may be as likely by accident).
        """
        memo, k, m = self.memo, self.k, len(self.rows)
        told, all_of_them = memo[LOG_PROPENSITY][:, 0], np.ones(m, np.bool_)
        if "shares" in memo:
            return all_of_them, memo["shares"]
        if "pairs" in memo:
            shares, at = np.zeros((m, k, k)), np.arange(k - 1)
            shares[:, at, at + 1] = shares[:, at + 1, at] = 0.5 * (memo["pairs"][:, : k - 1] > 0)
            return all_of_them, shares
        if "blocks" in memo:
            block = memo["blocks"][:, :k]
            together = (block[:, :, None] == block[:, None, :]) & (block[:, :, None] >= 0) & ~np.eye(k, dtype=np.bool_)
            return all_of_them, np.where(together, 0.5, 0.0)
        if "scores" in memo and "rest" in memo:
            scores, rest = np.ascontiguousarray(memo["scores"]), np.ascontiguousarray(memo["rest"][:, 0])
            found, shares = plackett_luce.swap_tables(scores, rest)
            return np.isclose(found, told, rtol=1e-9, atol=1e-9), shares
        if not may_be_uniform or k < 2:
            return None
        uniform = np.empty(m)
        for n in np.unique(memo[CANDIDATES][:, 0]).tolist():
            chance = ranking.epsilon_greedy_log_probability(np.zeros(int(n)), np.arange(k), 1.0)
            uniform[memo[CANDIDATES][:, 0] == n] = chance
        shares = np.broadcast_to(0.5 * (1.0 - np.eye(k)), (m, k, k))
        return np.isclose(uniform, told, rtol=1e-9, atol=1e-9), shares


def swap_shares(impression: Impression, may_be_uniform: bool) -> Array | None:
    """(k, k) of one drawn list, if its memo tells; None if not."""
    (block,) = blocks_of([impression], [np.zeros(impression.k)])
    found = block.swap_shares(may_be_uniform)
    return found[1][0] if found is not None and found[0][0] else None


def clicked(impression: Impression, values: Array, seen: int | None = None) -> tuple[Feedback, Array]:
    """What users did with what the learner put there, and (k,) which slots they clicked, whatever it was worth."""
    feedback = feedback_without_pins(impression, Feedback("clicks", np.asarray(values, np.float64), seen))
    clicks = np.zeros(impression.k, np.uint8)
    clicks[: len(feedback.values)] = feedback.values[: impression.k] > 0
    return feedback, clicks


def blocks_of(impressions: Sequence[Impression], clicks: Sequence[Array]) -> list[Block]:
    """Lists one by one, put under each other."""
    by_kind: dict[object, list[int]] = defaultdict(list)
    for row, one in enumerate(impressions):
        by_kind[one.k, tuple((name, value.shape) for name, value in one.memo.items())].append(row)
    return [
        Block(
            np.array(rows),
            np.stack([impressions[row].order for row in rows]),
            np.stack([clicks[row] for row in rows]),
            np.stack([clicks[row] for row in rows]),
            {name: np.stack([impressions[row].memo[name] for row in rows]) for name in impressions[rows[0]].memo},
        )
        for rows in by_kind.values()
    ]


def blocks_in(chunk: Chunk, wanted: Array, scale: float | None = None) -> Iterator[Block]:
    """The lists of a chunk that are `wanted` (n,); rows are counted among these. With a `scale`, rewards are what was
    earned, else clicks."""
    place = np.cumsum(wanted) - 1
    lengths = np.diff(chunk.ends)
    for one in chunk.alike:
        some = np.flatnonzero(wanted[one.rows])
        if some.size == 0:
            continue
        rows, memo = one.rows[some], {name: value[some] for name, value in one.memo.items()}
        order = one.arrays["order"][some]
        clicks = np.zeros(order.shape, np.uint8)
        if SLOTS in memo:  # pinned items stand between: rare, and worked out one by one
            for j, row in enumerate(rows.tolist()):
                bare = Impression("", order[j], order[j], None, {SLOTS: memo[SLOTS][j]})
                clicks[j] = clicked(bare, chunk.values[chunk.ends[row] : chunk.ends[row + 1]])[1]
        else:
            for length in np.unique(lengths[rows]).tolist():
                as_long = np.flatnonzero(lengths[rows] == length)
                upto = min(length, order.shape[1])
                at = chunk.ends[rows[as_long]][:, None] + np.arange(upto)
                clicks[as_long[:, None], np.arange(upto)] = chunk.values[at] > 0
        earned = clicks if scale is None else _rewards(chunk, rows, order.shape[1], memo, scale)
        yield Block(place[rows], order, clicks, earned, memo)


def _rewards(chunk: Chunk, rows: Array, k: int, memo: dict[str, Array], scale: float) -> Array:
    """(m, k) the rewards of some lists, cut at the scale."""
    found = np.zeros((len(rows), k), np.int64)
    for j, row in enumerate(rows.tolist()):
        if (given := chunk.rewards[row]) is not None:
            values = np.array(given)
            values = values[memo[SLOTS][j]] if SLOTS in memo else values[:k]  # without those of pinned items
            found[j, : len(values)] = np.rint(np.minimum(values / scale, 1.0) * UNIT)
    return found
