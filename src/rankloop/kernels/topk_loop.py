"""Whole runs in compiled code: the learners' own kernels, round after round, without Python between them.

A round is that of `rankloop.lab.runs.simulate` with the world `stationary` and a grader, random numbers included
(`kernels.philox`), so a run gives the bits that the plain loop gives; tests hold the two equal.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels import ftpl, topk
from rankloop.kernels._jit import Array, jit
from rankloop.kernels.metrics import dcg
from rankloop.kernels.philox import uniforms
from rankloop.kernels.ranking import linear_scores, top_k


@jit
def _query(keys: Array, t: int, queries: int) -> int:
    """The query that the world brings in round t."""
    number = np.empty((1, 1))
    uniforms(keys[0], t, number)
    return int(number[0, 0] * queries)


@jit
def _shown_ndcg(grades: Array, order: Array, k: int, ideal: float) -> float:
    """NDCG@k of a list; 0 where nothing is relevant."""
    return dcg(grades[order[:k]], k) / ideal if ideal > 0.0 else 0.0


@jit
def rtopk_rounds(
    features: Array,
    grades: Array,
    offsets: Array,
    ideal: Array,
    keys: Array,
    first: int,
    theta: Array,
    k: int,
    rule: topk.Rule,
    ndcg: Array,
    losses: Array,
) -> Array:
    """(d,) θ after as many rounds as `ndcg` is long, the first of which has number `first`; fills ndcg and losses.

    `keys` (2, 2): of the streams "world" and "rank". Losses are the surrogate's, of the scores that made the list: the
    random keys where it was random (Algorithm 2, line 8). With no room for them, they are not computed.
    """
    numbers = np.empty((1, 2 * np.diff(offsets).max() + 1))
    for i in range(ndcg.size):
        t = first + i
        q = _query(keys, t, offsets.size - 1)
        rows, truth = features[offsets[q] : offsets[q + 1]], grades[offsets[q] : offsets[q + 1]]
        drawn = numbers[:, : 2 * truth.size + 1]
        uniforms(keys[1], t, drawn)
        order, weights, propensity, known = topk.display(rows, theta, float(t), drawn[0], min(k, truth.size), rule)
        graded = order[: weights.size]
        if losses.size:
            explored = drawn[0, 0] < topk.gamma_of(rule, float(t))
            scores = drawn[0, truth.size + 1 :].copy() if explored else linear_scores(rows, theta)
            losses[i] = topk.surrogate_loss(scores, truth, rule)
        ndcg[i] = _shown_ndcg(truth, order, k, ideal[q])
        theta = topk.learned(theta, float(t), rows[graded], weights, propensity, known, truth[graded], rule)
    return theta


@jit
def listnet_rounds(
    features: Array,
    grades: Array,
    offsets: Array,
    ideal: Array,
    keys: Array,
    first: int,
    theta: Array,
    k: int,
    rate: float,
    radius: float,
    ndcg: Array,
) -> Array:
    """(d,) θ of `listnet-full` after as many rounds as `ndcg` is long; whole lists are shown and graded, NDCG is @k."""
    numbers = np.empty((1, np.diff(offsets).max()))
    for i in range(ndcg.size):
        t = first + i
        q = _query(keys, t, offsets.size - 1)
        rows, truth = features[offsets[q] : offsets[q + 1]], grades[offsets[q] : offsets[q + 1]]
        uniforms(keys[1], t, numbers[:, : truth.size])
        order, scores = topk.listnet_display(rows, theta, numbers[0, : truth.size], truth.size)
        ndcg[i] = _shown_ndcg(truth, order, k, ideal[q])
        theta = topk.listnet_learned(theta, float(t), rows[order], scores, truth[order], rate, radius)
    return theta


@jit
def random_rounds(grades: Array, offsets: Array, ideal: Array, keys: Array, first: int, k: int, ndcg: Array) -> None:
    """NDCG@k of the lists of `random`."""
    numbers = np.empty((1, np.diff(offsets).max()))
    for i in range(ndcg.size):
        t = first + i
        q = _query(keys, t, offsets.size - 1)
        truth = grades[offsets[q] : offsets[q + 1]]
        uniforms(keys[1], t, numbers[:, : truth.size])
        drawn = numbers[0, : truth.size]
        ndcg[i] = _shown_ndcg(truth, top_k(drawn, drawn, min(k, truth.size)), k, ideal[q])


@jit
def items_rounds(grades: Array, key: Array, first: int, board: ftpl.Board, rule: ftpl.ItemRule, orders: Array) -> None:
    """Let `rtopk-items` order m items under the relevance vectors `grades` (T, m); fills orders (T, m), whole lists.

    `key` (2,) is that of the stream "rank", `first` the number of the first round.
    """
    rounds, m = grades.shape
    numbers, coins = np.arange(m), np.empty((1, 2 * m + 1))
    for t in range(rounds):
        uniforms(key, first + t, coins)
        block = board.block[0]
        order, explored, length = ftpl.arrange(board, numbers, coins[0], m, rule)
        graded = order[:explored]
        ftpl.observe(board, graded, grades[t][graded], block, length, m, rule)
        orders[t] = order


@jit
def ftpl_rounds(
    grades: Array, key: Array, first: int, sums: Array, weights: Array, rule: ftpl.ItemRule, orders: Array
) -> None:
    """The same for `ftpl-full`, which sees all grades."""
    rounds, m = grades.shape
    numbers, coins = np.arange(m), np.empty((1, m))
    for t in range(rounds):
        uniforms(key, first + t, coins)
        order = ftpl.follow(numbers, sums, weights, first + t, coins[0], m, rule)
        ftpl.count_in(sums, weights, order, grades[t][order], rule.measure)
        orders[t] = order
