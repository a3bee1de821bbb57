"""Logistic regression on pairs whose confidence is one variance a feature: O(d) an event, or what is in the rows.

In place of the curvature c·xxᵀ of a pair stands the least diagonal that is above it by the rule of diagonal dominance:
feature j has c·|x_j|·‖x‖₁. Their sum P is above the full matrix H whatever the features (P - H has no negative
eigenvalue), so no step along P⁻¹ goes further than Newton's would in any direction, correlated features or not. With
the plain diagonal c·x_j² it would: where r features say the same, r times as far.

One column may stand `alone` (its number; -1: none does): the caller's order, where that is a feature. It gains c·x_j²
and is not in ‖x‖₁, or the first lists would nail its weight down, sixty features at a time.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, log
from rankloop.kernels.pairwise import sigmoid


@jit
def _step(margin: float, square: float, weight: float) -> tuple[float, float]:
    """How far θ goes along V x for a pair with this margin xᵀθ and square xᵀV x, and the curvature where it arrives."""
    p = sigmoid(margin)
    step = weight * (1.0 - p) / (1.0 + weight * p * (1.0 - p) * square)
    p = sigmoid(margin + step * square)
    return step, weight * p * (1.0 - p)


@jit
def diagonal_onepass(theta: Array, variance: Array, rows: Array, pairs: Array, weights: Array, alone: int) -> None:
    """One Newton-like step a pair, in turn, changing θ (d,) and the variances V (d,) in place.

    As `pairwise.onepass` with V for H⁻¹: θ += ρ(1-p) / (1 + ρp(1-p) xᵀV x) · V x; then each 1 / V_j gains
    ρσ'(xᵀθ)·|x_j|·‖x‖₁.
    """
    d = theta.size
    for m in range(pairs.shape[0]):
        upper, lower = rows[pairs[m, 0]], rows[pairs[m, 1]]
        margin = square = length = 0.0
        for j in range(d):
            x = upper[j] - lower[j]
            margin += x * theta[j]
            square += x * x * variance[j]
            if j != alone:
                length += abs(x)
        step, curvature = _step(margin, square, weights[m])
        for j in range(d):
            x = upper[j] - lower[j]
            theta[j] += step * (variance[j] * x)
            variance[j] /= 1.0 + variance[j] * (curvature * abs(x) * (abs(x) if j == alone else length))


@jit
def sparse_diagonal_onepass(
    theta: Array,
    variance: Array,
    indptr: Array,
    indices: Array,
    local: Array,
    values: Array,
    pairs: Array,
    weights: Array,
    alone: int,
) -> None:
    """The same of sparse rows, bit for bit; θ and V (u,) are those of the columns that `local` numbers."""
    size = 0
    for i in range(indptr.size - 1):
        size = max(size, indptr[i + 1] - indptr[i])
    where, x = np.empty(2 * size, np.int64), np.empty(2 * size)
    for m in range(pairs.shape[0]):
        a, b = pairs[m, 0], pairs[m, 1]
        p, q, count, single = indptr[a], indptr[b], 0, -1
        margin = square = length = 0.0
        while p < indptr[a + 1] or q < indptr[b + 1]:  # two ascending rows, merged
            if q == indptr[b + 1] or (p < indptr[a + 1] and indices[p] < indices[q]):
                column, j, difference = indices[p], local[p], values[p]
                p += 1
            elif p == indptr[a + 1] or indices[q] < indices[p]:
                column, j, difference = indices[q], local[q], -values[q]
                q += 1
            else:
                column, j, difference = indices[p], local[p], values[p] - values[q]
                p += 1
                q += 1
            where[count], x[count] = j, difference
            count += 1
            margin += difference * theta[j]
            square += difference * difference * variance[j]
            if column == alone:
                single = j
            else:
                length += abs(difference)
        step, curvature = _step(margin, square, weights[m])
        for c in range(count):
            j = where[c]
            theta[j] += step * (variance[j] * x[c])
            coupled = abs(x[c]) if j == single else length
            variance[j] /= 1.0 + variance[j] * (curvature * abs(x[c]) * coupled)


@jit
def discounted_variances(variance: Array, keep: float, prior: float, ages: Array) -> Array:
    """(d,) variances after as many fadings as `ages` (d,) says of each: keep·P + (1 - keep)·prior, of precisions P.

    m of them in one: P becomes prior + keep^m (P - prior). So who fades need not touch what no list touches.
    """
    found, rate = np.empty(variance.size), log(keep)
    for j in range(variance.size):
        left = exp(rate * ages[j])
        found[j] = 1.0 / (prior + left * (1.0 / variance[j] - prior))
    return found
