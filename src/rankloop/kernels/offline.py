"""Losses on true grades, for the offline models that online learners are compared with."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


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
    shown below it and all that are not shown; of those not shown nobody knows the order, so they do not count among
    themselves. Nor do equal grades.
    """
    wrong = 0
    below = np.ones(grades.size, np.bool_)
    for p in range(order.size):
        below[order[p]] = False
        for j in range(grades.size):
            wrong += below[j] & (grades[j] > grades[order[p]])
    return wrong
