"""Plackett-Luce rankings: sampling the first k, and how likely a ranking is with two documents swapped."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, exps, log, log1p
from rankloop.kernels.preferences import ALL, click_pairs, propensity_weights
from rankloop.kernels.ranking import linear_scores, scores_with_places, top_k

TINY = 1e-300  # keeps a denominator that underflowed above zero


@jit
def sample(scores: Array, uniforms: Array, k: int) -> Array:
    """(k,) positions of the first k of a Plackett-Luce ranking, by the Gumbel trick on `uniforms` in [0, 1)."""
    noisy = np.empty(scores.size)
    for i in range(scores.size):
        noisy[i] = scores[i] - log(-log(max(uniforms[i], TINY)))
    return top_k(noisy, uniforms, k)


@jit
def draw(features: Array, theta: Array, uniforms: Array, k: int) -> tuple[Array, Array, Array, float, float]:
    """A list of a linear model: order (k,), its rows (k, d), their scores (k,), the weight of the rest, and log P."""
    return _listed(features, linear_scores(features, theta), uniforms, k)


@jit
def draw_from_base(features: Array, theta: Array, uniforms: Array, k: int) -> tuple[Array, Array, Array, float, float]:
    """The same of a model whose last weight is that of the base order, which the features have no column for."""
    places = np.arange(features.shape[0])
    return _listed(features, scores_with_places(features, places, theta), uniforms, k)


@jit
def _listed(features: Array, scores: Array, uniforms: Array, k: int) -> tuple[Array, Array, Array, float, float]:
    order = sample(scores, uniforms, k)
    rows, shown = np.empty((order.size, features.shape[1])), np.empty(order.size)
    for p in range(order.size):
        rows[p] = features[order[p]]
        shown[p] = scores[order[p]]
    rest = rest_weight(scores, order)
    return order, rows, shown, rest, log_probability(shown, rest)


@jit
def rest_weight(scores: Array, order: Array) -> float:
    """log Σ exp(score) of the documents that are not in `order`, -inf if all were shown."""
    shown = np.zeros(scores.size, np.bool_)
    for p in range(order.size):
        shown[order[p]] = True
    highest = -np.inf
    for i in range(scores.size):
        if not shown[i]:
            highest = max(highest, scores[i])
    if highest == -np.inf:
        return highest
    total = 0.0
    for i in range(scores.size):
        if not shown[i]:
            total += exp(scores[i] - highest)
    return float(highest + log(total))


@jit
def log_probability(scores: Array, rest: float) -> float:
    """log P of the shown list: Σ of each score minus the log weight of all that could still have come.

    `scores` (k,) are those of the shown documents, `rest` the log weight of the others.
    """
    total = 0.0
    left = rest  # log Σ exp(score) of what is not placed yet, from the last position up
    for p in range(scores.size - 1, -1, -1):
        above, below = max(scores[p], left), min(scores[p], left)
        left = above + log1p(exp(below - above))
        total += scores[p] - left
    return total


@jit
def swap_shares(scores: Array, rest: float, pairs: Array) -> Array:
    """(m,) ρ = P(R*) / (P(R) + P(R*)) for each pair of positions, R* being the shown list R with the two swapped.

    `scores` (k,) are those of the shown documents at display time, `rest` the log weight of the others. Only the
    denominators between the two positions differ, so a pair costs its distance. Exact while no score lies more than
    690 below the highest; beyond that it stays in [0, 1] but documents so far down count as equal.
    """
    k = scores.size
    highest = max(scores.max(), rest)
    weight = exps(scores - highest)
    left = np.empty(k + 1)  # left[p]: weight of all documents not yet placed at position p
    left[k] = exp(rest - highest)
    for p in range(k - 1, -1, -1):
        left[p] = left[p + 1] + weight[p]
    shares = np.empty(pairs.shape[0])
    for m in range(pairs.shape[0]):
        upper, lower = min(pairs[m, 0], pairs[m, 1]), max(pairs[m, 0], pairs[m, 1])
        ratio = 1.0  # P(R) / P(R*)
        others = left[lower + 1]  # left[p] without the lower document, summed rather than subtracted
        for p in range(lower, upper, -1):
            if p < lower:
                others += weight[p]
            ratio *= max(others + weight[upper], TINY) / max(left[p], TINY)
        shares[m] = 1.0 / (1.0 + ratio)
    return shares


@jit
def debiased(
    scores: Array, rest: float, doubt: float, shares: Array, clicks: Array, pairs: Array, better: Array
) -> Array:
    """(m,) `propensity_weights` with `doubt` times the Plackett-Luce share of each pair for its doubtful weight, times
    by how much the `better` (m,) was: one call in place of many small ones."""
    doubtful = swap_shares(scores, rest, pairs)
    for m in range(doubtful.size):
        doubtful[m] *= doubt
    weights = propensity_weights(shares, doubtful, clicks, pairs)
    for m in range(weights.size):
        weights[m] *= better[m]
    return weights


@jit
def swap_tables(scores: Array, rest: Array) -> tuple[Array, Array]:
    """Of m lists at once, scores (m, k) and rest (m,): (m,) log P of each, and (m, k, k) `swap_shares` of every two of
    its positions, 0 where they are the same one."""
    m, k = scores.shape
    pairs = np.empty((k * (k - 1) // 2, 2), np.int64)
    at = 0
    for p in range(k):
        for q in range(p + 1, k):
            pairs[at, 0], pairs[at, 1] = p, q
            at += 1
    told, shares = np.empty(m), np.zeros((m, k, k))
    for i in range(m):
        told[i] = log_probability(scores[i], rest[i])
        found = swap_shares(scores[i], rest[i], pairs)
        for at in range(pairs.shape[0]):
            p, q = pairs[at, 0], pairs[at, 1]
            shares[i, p, q] = found[at]
            shares[i, q, p] = found[at]
    return told, shares


@jit
def pdgd_pulls(scores: Array, rest: float, clicks: Array, pairs: Array) -> Array:
    """(k,) how strongly each shown document is pulled up: Σ ±ρ σ'(s_a - s_b) over pairs (clicked a, unclicked b), times
    what a was better by."""
    shares = swap_shares(scores, rest, pairs)
    pull = np.zeros(scores.size)
    for m in range(pairs.shape[0]):
        a, b = pairs[m, 0], pairs[m, 1]
        e = exp(-np.abs(scores[a] - scores[b]))
        push = shares[m] * e / ((1.0 + e) * (1.0 + e)) * (clicks[a] - clicks[b])
        pull[a] += push
        pull[b] -= push
    return pull


@jit
def pdgd_gradient(features: Array, scores: Array, rest: float, clicks: Array, examine_next: bool, seen: int) -> Array:
    """(d,) Σ ρ σ'(s_a - s_b) (x_a - x_b) over clicked a, examined unclicked b; empty if there is no such pair."""
    return pdgd_gradient_from_base(features, np.empty(0, np.int64), scores, rest, clicks, examine_next, seen)


@jit
def pdgd_gradient_from_base(
    features: Array, places: Array, scores: Array, rest: float, clicks: Array, examine_next: bool, seen: int
) -> Array:
    """(d + 1,) the same of `with_places`, bit for bit, without a copy of the rows; (d,) if `places` is empty."""
    pairs = click_pairs(clicks, examine_next, seen, ALL, clicks)
    if pairs.shape[0] == 0:
        return np.empty(0)
    pull = pdgd_pulls(scores, rest, clicks, pairs)  # summed a document first, so that features are read once
    n, d = features.shape
    gradient = np.zeros(d + (places.size > 0))
    for p in range(n):
        if pull[p] != 0.0:
            for j in range(d):
                gradient[j] += pull[p] * features[p, j]
            if places.size:
                gradient[d] += pull[p] * -log(1.0 + places[p])
    return gradient


@jit
def pdgd_step(theta: Array, gradient: Array, rate: float) -> Array:
    """(d,) θ + rate · gradient; an empty θ is zero."""
    found = np.empty(gradient.size)
    for j in range(gradient.size):
        found[j] = rate * gradient[j] + (theta[j] if theta.size else 0.0)
    return found
