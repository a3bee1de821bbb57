"""Scores and the order they give."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import log
from rankloop.kernels.products import product, row_products

SORTED_FROM = 256  # positions from which two sorts beat a buffer that is kept in order


@jit
def linear_scores(features: Array, theta: Array) -> Array:
    """(n,) x·θ; a learner that has seen nothing has an empty θ and scores everything 0."""
    if theta.size == 0:
        return np.zeros(features.shape[0])
    scores: Array = row_products(features, theta)
    return scores


@jit
def with_places(features: Array, places: Array) -> Array:
    """(n, d + 1) the rows, and behind them what the base order says of each: -log(1 + place).

    Two documents differ by the logarithm of the ratio of their places, so that the upper end of a list is distinguished
    and the lower hardly is, and by the same whether the list is long or short.
    """
    n, d = features.shape
    rows = np.empty((n, d + 1))
    for i in range(n):
        for j in range(d):
            rows[i, j] = features[i, j]
        rows[i, d] = -log(1.0 + places[i])
    return rows


@jit
def scores_with_places(features: Array, places: Array, theta: Array) -> Array:
    """(n,) `linear_scores` of `with_places`, bit for bit, without a copy of the rows."""
    n, d = features.shape
    scores: Array = row_products(features, theta[:d])
    for i in range(n):
        scores[i] += -log(1.0 + places[i]) * theta[d]
    return scores


@jit
def rankers_scores(rankers: Array, features: Array) -> Array:
    """(R, n) x·θ of R rankers (R, d) and n documents (n, d): `linear_scores` of each, bit for bit."""
    R, n = rankers.shape[0], features.shape[0]
    if R >= 8:  # enough for rankers to be scored side by side
        return np.ascontiguousarray(product(features, np.ascontiguousarray(rankers.T)).T)
    scores = np.empty((R, n))
    for r in range(R):
        scores[r] = row_products(features, rankers[r])
    return scores


@jit
def top_k(scores: Array, ties: Array, k: int) -> Array:
    """(k,) positions of the k highest scores, best first; among equal scores the smaller of `ties` comes first.

    Where those are equal too, the order is that of the list. k may exceed the list.

    One pass with a sorted buffer of k: the lists are long and k is short, so this beats sorting them all. Where k is
    long too it does not, and they are sorted.
    """
    n = scores.size
    k = min(k, n)
    if k > SORTED_FROM:
        drawn = np.argsort(ties, kind="mergesort")
        return drawn[np.argsort(-scores[drawn], kind="mergesort")][:k]
    order = np.empty(max(k, 0), np.int64)
    filled = 0
    if k < 1:
        return order
    for i in range(n):
        score, tie = scores[i], ties[i]
        if filled == k:
            last = order[k - 1]
            if score < scores[last] or (score == scores[last] and tie >= ties[last]):
                continue
            slot = k - 1
        else:
            slot = filled
            filled += 1
        while slot > 0:
            above = order[slot - 1]
            if scores[above] > score or (scores[above] == score and ties[above] <= tie):
                break
            order[slot] = above
            slot -= 1
        order[slot] = i
    return order


@jit
def bounded_order(preferred: Array, displacement: int, k: int) -> Array:
    """(k,) positions of the base order, as `preferred` as can be while none moves by more than `displacement`.

    `preferred` (n,) is a permutation of 0 … n-1, most wanted first. A document that could not be shown any lower takes
    its place now; else the most preferred of those left that may stand so high does. So what is not shown need not be.
    """
    n = preferred.size
    k = max(min(k, n), 0)
    displacement = max(min(displacement, n), 0)
    placed = np.zeros(n, np.bool_)
    order = np.empty(k, np.int64)
    first = 0  # where those left begin in `preferred`
    for p in range(k):
        pick = p - displacement
        if pick < 0 or placed[pick]:
            while placed[preferred[first]]:
                first += 1
            i = first
            while placed[preferred[i]] or preferred[i] > p + displacement:
                i += 1
            pick = preferred[i]
        order[p] = pick
        placed[pick] = True
    return order


@jit
def epsilon_greedy_order(scores: Array, ties: Array, coins: Array, epsilon: float, k: int) -> Array:
    """(k,) positions: at each, with probability ε a uniformly random document of those left, else the best left.

    `coins` (2, k): the first row decides whether to explore, the second which document.
    """
    n = scores.size
    k = min(k, n)
    best = top_k(scores, ties, k)  # at most k - 1 of these can be gone when the last position asks for one
    left = np.arange(n)
    where = np.arange(n)  # where[i]: i's place in `left`, -1 once shown
    order = np.empty(k, np.int64)
    next_best = 0
    for p in range(k):
        if coins[0, p] < epsilon:
            pick = left[int(coins[1, p] * (n - p))]
        else:
            while where[best[next_best]] < 0:
                next_best += 1
            pick = best[next_best]
        order[p] = pick
        last = left[n - p - 1]
        left[where[pick]] = last
        where[last] = where[pick]
        where[pick] = -1
    return order


@jit
def epsilon_greedy_log_probability(scores: Array, order: Array, epsilon: float) -> float:
    """log P(`order`) under `epsilon_greedy_order`, -inf if it cannot come up; ε = 0 is greedy, ε = 1 uniform.

    At each position: ε / (documents left), and, for one of the m best left, (1 - ε) / m. Tie-breaks are drawn once a
    list, and still the factors are right: however a document was picked, the others' order is as random as before.
    """
    n = scores.size
    left = np.ones(n, np.bool_)
    log_probability = 0.0
    for p in range(order.size):
        highest, equal = -np.inf, 0
        if epsilon < 1.0:
            for i in range(n):
                if left[i] and scores[i] > highest:
                    highest, equal = scores[i], 1
                elif left[i] and scores[i] == highest:
                    equal += 1
        chance = epsilon / (n - p)
        if epsilon < 1.0 and scores[order[p]] == highest:
            chance += (1.0 - epsilon) / equal
        if chance == 0.0:
            return -np.inf
        log_probability += log(chance)
        left[order[p]] = False
    return log_probability


@jit
def constrained_order(
    preferred: Array, groups: Array, most: Array, within: Array, taken: Array, slots: Array
) -> tuple[Array, Array]:
    """(f,) documents for the positions `slots` (f,), as `preferred` (n,) as can be with at most `most` (q,) of a group
    in the first `within` (q,) positions; and (q,) which quotas could not be kept.

    `groups` (q, n) has each document's group under each quota, -1 for none, and `taken` (q, g) how many of each stand
    at other positions already. From the top down, the most preferred that no quota forbids. Where all are forbidden it
    is the most preferred.
    """
    counts = taken.copy()
    placed = np.zeros(preferred.size, np.bool_)
    order = np.empty(slots.size, np.int64)
    broken = np.zeros(most.size, np.bool_)
    first = 0  # where those left begin in `preferred`
    for p in range(slots.size):
        while placed[preferred[first]]:
            first += 1
        pick = preferred[first]
        for i in range(first, preferred.size):
            document = preferred[i]
            allowed = not placed[document]
            for q in range(most.size):
                group = groups[q, document]
                if allowed and group >= 0 and slots[p] < within[q]:
                    allowed = counts[q, group] < most[q]
            if allowed:
                pick = document
                break
        for q in range(most.size):
            group = groups[q, pick]
            if group >= 0 and slots[p] < within[q]:
                counts[q, group] += 1
                broken[q] = broken[q] or counts[q, group] > most[q]
        order[p] = pick
        placed[pick] = True
    return order, broken
