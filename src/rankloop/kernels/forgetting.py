"""Discounting of old evidence in O(d²) per event, and the likelihood ratio of models that predict clicks."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, log, log1p, log2
from rankloop.kernels.pairwise import dot


@jit
def coordinates_an_event(d: int, keep: float) -> int:
    """How many coordinates are given their prior back an event, so that none fades to less than half between its turns.

    keep^(d / m) ≥ 1/2: 1 of 46 at keep = .99, 2 of 136; all at keep ≤ 1/2.
    """
    return int(min(d, max(1, np.ceil(-d * log2(keep)))))


@jit
def discount_precision(inverse: Array, keep: float, prior: float, turn: int) -> float:
    """H⁻¹ for keep·H + (1 - keep)·(d/m)·prior·Σ e_j e_jᵀ over the m coordinates whose turn it is, in place.

    Old evidence fades, and the prior with it; it is given back to m coordinates an event (`coordinates_an_event`), from
    number turn·m on, round and round, so much of it that its mean over a cycle is `prior`. Returns what log det H
    gained. O(m d²). Where m = d this is keep·H + (1 - keep)·prior·I.

    The matrix is made symmetric on the way, to the bit: what rounding makes uneven would grow by 1/keep an event.
    """
    d = inverse.shape[0]
    m = coordinates_an_event(d, keep)
    for i in range(d):
        for j in range(i):
            mean = (0.5 * (inverse[i, j] + inverse[j, i])) / keep
            inverse[i, j] = inverse[j, i] = mean
        inverse[i, i] /= keep
    weight = (1.0 - keep) * prior * (d / m)
    gained = d * log(keep)
    column = np.empty(d)
    for step in range(m):
        c = (turn * m + step) % d
        square = inverse[c, c]
        scale = np.sqrt(weight / (1.0 + weight * square))
        for i in range(d):
            column[i] = scale * inverse[c, i]
        for i in range(d):
            for j in range(d):
                inverse[i, j] -= column[i] * column[j]
        gained += log1p(weight * square)
    return float(gained)


@jit
def log_likelihood_ratio(rows: Array, pairs: Array, weights: Array, theta: Array, others: Array) -> Array:
    """(m,) how much better each of `others` (m, d) predicts the pairs of an impression than θ.

    A pair (a, b) has the likelihood σ(x_aᵀθ - x_bᵀθ), and counts its weight ρ ≤ 1; all of them less where pairs share
    documents, so that no document counts more than once in all. Then, if θ is right and pairs without a document in
    common are independent, the ratio's mean is at most 1, though pairs with one in common are anything but: such
    weights are a mean of matchings, and by Jensen's inequality the ratio is at most the mean of theirs.

    Another that is longer than θ predicts with θ's length: it shall be better by where it points, not by how sure it
    is. (It stays a model that was fixed before the list, so nothing changes in the above.)
    """
    k = rows.shape[0]
    load = np.zeros(k)
    for m in range(pairs.shape[0]):
        load[pairs[m, 0]] += weights[m]
        load[pairs[m, 1]] += weights[m]
    share = 1.0
    for p in range(k):
        if load[p] * share > 1.0:
            share = 1.0 / load[p]
    gains = np.empty(others.shape[0])
    before, length = _log_likelihood(rows, pairs, weights, theta, 1.0), np.sqrt(dot(theta, theta))
    for e in range(others.shape[0]):
        longer = np.sqrt(dot(others[e], others[e]))
        shrunk = length / longer if longer > length else 1.0
        gains[e] = share * (_log_likelihood(rows, pairs, weights, others[e], shrunk) - before)
    return gains


@jit
def _log_likelihood(rows: Array, pairs: Array, weights: Array, theta: Array, shrunk: float) -> float:
    """Σ ρ log σ(x_aᵀθ - x_bᵀθ), of θ times `shrunk`."""
    scores = np.empty(rows.shape[0])
    for p in range(rows.shape[0]):
        scores[p] = shrunk * dot(rows[p], theta)
    total = 0.0
    for m in range(pairs.shape[0]):
        margin = scores[pairs[m, 0]] - scores[pairs[m, 1]]
        total -= weights[m] * (max(-margin, 0.0) + log1p(exp(-abs(margin))))
    return total
