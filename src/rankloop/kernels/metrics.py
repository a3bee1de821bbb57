"""Ranking metrics and losses on true grades, of one list or of the ragged lists of many queries."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.ranking import top_k

LIST_METRICS = ("dcg", "ideal", "ap", "precision", "recall", "auc", "rr", "err", "rbp")


@jit
def dcg(grades: Array, k: int) -> float:
    """Σ (2^grade - 1) / log2(1 + position) over the first k of `grades`, which stand in ranked order."""
    total = 0.0
    for p in range(min(k, grades.size)):
        total += (2.0 ** grades[p] - 1.0) / np.log2(p + 2.0)
    return total


@jit
def ideal_dcg(grades: Array, k: int) -> float:
    """The highest DCG@k that any order of these grades has."""
    best = -np.sort(-grades)
    return dcg(best, k)


@jit
def average_precision(grades: Array) -> float:
    """Mean of precision at each relevant position (grade > 0) of a whole ranked list; 0 with none relevant."""
    hits, total = 0, 0.0
    for p in range(grades.size):
        if grades[p] > 0:
            hits += 1
            total += hits / (p + 1.0)
    return total / hits if hits else 0.0


@jit
def precision(grades: Array, k: int) -> float:
    """Share of relevant documents (grade > 0) among the first k positions; a list shorter than k misses the rest."""
    hits = 0
    for p in range(min(k, grades.size)):
        hits += grades[p] > 0
    return hits / k


@jit
def auc(grades: Array) -> float:
    """Share of (relevant, irrelevant) pairs in the right order; 1 where there is no such pair."""
    above, right, pairs = 0, 0, 0
    for p in range(grades.size):
        if grades[p] > 0:
            above += 1
        else:
            right += above
            pairs += 1
    pairs *= above
    return right / pairs if pairs else 1.0


@jit
def discounted_sum(gains: Array, k: int) -> float:
    """Σ gain / log2(1 + position) over the first k of `gains`, which stand in ranked order."""
    total = 0.0
    for p in range(min(k, gains.size)):
        total += gains[p] / np.log2(p + 2.0)
    return total


@jit
def recall(grades: Array, candidates: Array, k: int) -> float:
    """Share of the relevant `candidates` (grade > 0) that stand in the first k; NaN with none relevant."""
    relevant, hits = 0, 0
    for i in range(candidates.size):
        relevant += candidates[i] > 0
    for p in range(min(k, grades.size)):
        hits += grades[p] > 0
    return hits / relevant if relevant else np.nan


@jit
def reciprocal_rank(grades: Array, k: int) -> float:
    """1 / position of the first relevant document (grade > 0), 0 if there is none in the first k."""
    for p in range(min(k, grades.size)):
        if grades[p] > 0:
            return 1.0 / (p + 1.0)
    return 0.0


@jit
def expected_reciprocal_rank(grades: Array, k: int, highest: float) -> float:
    """Σ P(the user is satisfied at a position, and was not before) / position; satisfied: (2^grade - 1) / 2^highest."""
    total, searching = 0.0, 1.0
    for p in range(min(k, grades.size)):
        satisfied = 2.0 ** (grades[p] - highest) - 2.0**-highest
        total += searching * satisfied / (p + 1.0)
        searching *= 1.0 - satisfied
    return total


@jit
def rank_biased_precision(grades: Array, p: float) -> float:
    """(1 - p) Σ p^(position - 1) over the relevant (grade > 0): users who go on to the next with probability p."""
    total, reached = 0.0, 1.0 - p
    for i in range(grades.size):
        if grades[i] > 0:
            total += reached
        reached *= p
    return total


@jit
def misordered_pairs(grades: Array) -> int:
    """Pairs in the wrong order (Kendall tau distance to an ideal order); equal grades never count."""
    wrong = 0
    for p in range(grades.size):
        for q in range(p + 1, grades.size):
            wrong += grades[p] < grades[q]
    return wrong


@jit
def ragged_ideal_dcg(grades: Array, offsets: Array, k: int) -> Array:
    """(Q,) the ideal DCG@k of each query."""
    ideal = np.empty(offsets.size - 1)
    for q in range(ideal.size):
        ideal[q] = ideal_dcg(grades[offsets[q] : offsets[q + 1]], k)
    return ideal


@jit
def ragged_dcg(scores: Array, ties: Array, grades: Array, offsets: Array, k: int) -> Array:
    """(Q,) the DCG@k of each query when its documents are sorted by score, equal scores by `ties`."""
    found = np.empty(offsets.size - 1)
    for q in range(found.size):
        first, last = offsets[q], offsets[q + 1]
        order = top_k(scores[first:last], ties[first:last], k)
        found[q] = dcg(grades[first:last][order], k)
    return found


@jit
def ranked(scores: Array, ties: Array, values: Array, offsets: Array) -> Array:
    """(N,) the values with each query's documents sorted by score, equal scores by `ties`."""
    found = np.empty(values.size, values.dtype)
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        order = top_k(scores[first:last], ties[first:last], last - first)
        for p in range(last - first):
            found[first + p] = values[first + order[p]]
    return found


@jit
def ragged_list_metrics(grades: Array, gains: Array, offsets: Array, k: int, highest: float, p: float) -> Array:
    """(Q, 9) of each query's grades and gains in ranked order: in the order of `LIST_METRICS`."""
    found = np.empty((offsets.size - 1, 9))
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        own = grades[first:last]
        found[q, 0] = discounted_sum(gains[first:last], k)
        found[q, 1] = discounted_sum(-np.sort(-gains[first:last]), k)
        found[q, 2] = average_precision(own)
        found[q, 3] = precision(own, k)
        found[q, 4] = recall(own, own, k)
        found[q, 5] = auc(own)
        found[q, 6] = reciprocal_rank(own, own.size)
        found[q, 7] = expected_reciprocal_rank(own, k, highest)
        found[q, 8] = rank_biased_precision(own, p)
    return found


@jit
def ragged_pairs(scores: Array, grades: Array, offsets: Array) -> Array:
    """(Q, 3) how many of each query's pairs of different grades the scores have right, wrong and equal."""
    found = np.zeros((offsets.size - 1, 3))
    for q in range(offsets.size - 1):
        for i in range(offsets[q], offsets[q + 1]):
            for j in range(i + 1, offsets[q + 1]):
                if grades[i] == grades[j]:
                    continue
                if scores[i] == scores[j]:
                    found[q, 2] += 1
                elif (scores[i] > scores[j]) == (grades[i] > grades[j]):
                    found[q, 0] += 1
                else:
                    found[q, 1] += 1
    return found


@jit
def ranknet_loss(scores: Array, grades: Array, offsets: Array) -> tuple[float, Array]:
    """RankNet's logistic loss and its slope (N,) in each score.

    Per query the mean over its pairs of different grades, then the mean over the queries that have such a pair.
    """
    slopes = np.zeros(scores.size)
    loss = 0.0
    used = 0
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        pairs = 0
        for i in range(first, last):
            for j in range(first, i):
                pairs += grades[i] != grades[j]
        if pairs == 0:
            continue
        used += 1
        for i in range(first, last):
            for j in range(first, last):
                if grades[i] > grades[j]:
                    gap = scores[i] - scores[j]
                    e = np.exp(-np.abs(gap))
                    loss += (np.log1p(e) + max(-gap, 0.0)) / pairs
                    slope = (e / (1.0 + e) if gap >= 0 else 1.0 / (1.0 + e)) / pairs
                    slopes[i] -= slope
                    slopes[j] += slope
    used = max(used, 1)
    return loss / used, slopes / used


@jit
def kendall_regret(grades: Array, order: Array) -> int:
    """How many pairs a list has in the wrong order: the Kendall tau distance between it and the nearest ideal order.

    `grades` (n,) are those of all candidates, `order` (k,) the positions shown. A document stands above all that are
    shown below it and all that are not shown; the order of those not shown is unknown, so they do not count among
    themselves. Nor do equal grades.
    """
    wrong = 0
    below = np.ones(grades.size, np.bool_)
    for p in range(order.size):
        below[order[p]] = False
        for j in range(grades.size):
            wrong += below[j] & (grades[j] > grades[order[p]])
    return wrong
