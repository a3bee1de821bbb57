"""Lists kept to learn from again: gathering them, and how strongly each of their documents is pulled up or down."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, log1p, log2, power
from rankloop.kernels.metrics import ideal_dcg

EQUAL, RAW, BATCH, LIST = range(4)  # what a pair counts: 1; |ΔNDCG|, plain, over its mean in the batch, in the list


@jit
def gathered(rows: Array, sizes: Array, chosen: Array) -> tuple[Array, Array]:
    """(N, d) the rows of the lists `chosen` (L,) one after the other, and (L + 1,) where each begins.

    `rows` (C, K, d) are lists of at most K documents, `sizes` (C,) how many each has.
    """
    offsets = np.zeros(chosen.size + 1, np.int64)
    for q in range(chosen.size):
        offsets[q + 1] = offsets[q] + sizes[chosen[q]]
    found = np.empty((offsets[-1], rows.shape[2]), rows.dtype)
    for q in range(chosen.size):
        for i in range(sizes[chosen[q]]):
            for c in range(rows.shape[2]):
                found[offsets[q] + i, c] = rows[chosen[q], i, c]
    return found, offsets


@jit
def swap_gains(scores: Array, labels: Array) -> Array:
    """(n, n) |ΔNDCG| of swapping two documents in the order that the scores give, gains 2^label - 1.

    Equal scores stand in list order. 0 everywhere where no label is above 0.
    """
    n = scores.size
    gains = np.zeros((n, n))
    ideal = ideal_dcg(labels, n)
    if ideal == 0.0:
        return gains
    order = np.argsort(-scores, kind="mergesort")
    discount, worth = np.empty(n), np.empty(n)
    for p in range(n):
        discount[order[p]] = 1.0 / log2(p + 2.0)
        worth[p] = power(2.0, labels[p])
    for a in range(n):
        for b in range(a):
            change = (worth[a] - worth[b]) * (discount[a] - discount[b])
            gains[a, b] = gains[b, a] = np.abs(change) / ideal
    return gains


@jit
def relative_gains(scores: Array, labels: Array, weights: Array) -> Array:
    """(n, n) |ΔNDCG| as multiples of its mean over the list's pairs, in which a pair counts by `weights` (n, n).

    So a list's pairs share out among them what they would count without |ΔNDCG|; the only pair of a list counts 1.
    """
    gains = swap_gains(scores, labels)
    total = weighed = 0.0
    for a in range(scores.size):
        for b in range(scores.size):
            total += weights[a, b]
            weighed += weights[a, b] * gains[a, b]
    if weighed > 0.0:
        gains *= total / weighed
    return gains


@jit
def pair_pulls(
    scores: Array, offsets: Array, chosen: Array, pairs: Array, labels: Array, targets: Array, rule: int
) -> tuple[Array, float, float]:
    """The pairwise logistic loss of lists, weighed, with its slope (N,) in each score and the weight of all pairs.

    Loss of a pair (a better, b worse) with margin s = s_a - s_b and target y, 1 but for noise: log(1 + e^-s) + (1 - y)s
    times its weight, and times |ΔNDCG| as the `rule` has it: not at all (EQUAL), as it is (RAW), as a multiple of its
    mean over the pairs of the list (LIST) or of all lists (BATCH). Both are divided by the weight of all.

    List q is number chosen[q] of `pairs` (C, K, K) weights (0: no pair), `labels` (C, K) and `targets` (C, K, K), which
    may be empty: all 1.
    """
    slope = np.zeros(scores.size)
    loss, total, weighed = 0.0, 0.0, 0.0
    noisy = targets.size > 0
    gains = np.ones((1, 1))
    for q in range(chosen.size):
        c, first, n = chosen[q], offsets[q], offsets[q + 1] - offsets[q]
        if rule == LIST:
            gains = relative_gains(scores[first : first + n], labels[c, :n], pairs[c, :n, :n])
        elif rule != EQUAL:
            gains = swap_gains(scores[first : first + n], labels[c, :n])
        for a in range(n):
            for b in range(n):
                weight = np.float64(pairs[c, a, b])
                if weight == 0.0:
                    continue
                total += weight
                if rule != EQUAL:
                    weight *= gains[a, b]
                weighed += weight
                margin = scores[first + a] - scores[first + b]
                slack = 1.0 - np.float64(targets[c, a, b]) if noisy else 0.0
                e = exp(-np.abs(margin))
                loss += weight * (log1p(e) + max(-margin, 0.0) + slack * margin)
                push = weight * ((e / (1.0 + e) if margin >= 0.0 else 1.0 / (1.0 + e)) - slack)
                slope[first + a] -= push
                slope[first + b] += push
    whole = weighed if rule == BATCH else total
    scale = 1.0 / whole if whole > 0.0 else 0.0
    return slope * scale, loss * scale, total


@jit
def label_pulls(scores: Array, grades: Array, offsets: Array, counts: Array) -> tuple[Array, float]:
    """LambdaRank on graded lists: the slope (N,) in each score and the loss, a weighted mean over pairs and then lists.

    The weight of a pair of different grades is |ΔNDCG| of swapping the two in the order that the scores give, that of a
    list its number in `counts` (L,).
    """
    slope = np.zeros(scores.size)
    loss, used = 0.0, 0.0
    for q in range(offsets.size - 1):
        first, n = offsets[q], offsets[q + 1] - offsets[q]
        gains = swap_gains(scores[first : first + n], grades[first : first + n])
        total = gains.sum() / 2.0
        if total == 0.0:
            continue
        used += counts[q]
        for a in range(n):
            for b in range(n):
                if grades[first + a] > grades[first + b]:
                    weight = counts[q] * gains[a, b] / total
                    margin = scores[first + a] - scores[first + b]
                    e = exp(-np.abs(margin))
                    loss += weight * (log1p(e) + max(-margin, 0.0))
                    push = weight * (e / (1.0 + e) if margin >= 0.0 else 1.0 / (1.0 + e))
                    slope[first + a] -= push
                    slope[first + b] += push
    if used == 0.0:
        return slope, 0.0
    return slope / used, loss / used
