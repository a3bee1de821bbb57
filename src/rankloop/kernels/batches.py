"""Logistic regression on pairs in batches: what lists teach is summed, and one solve takes all of it in.

A list of k rows adds to a gradient (d,) and to half of a precision matrix H (d, d), in O(k d²/2), where the step of a
list by itself costs four times that. The inverse, which rankings ask for, is made anew once a batch, in O(d³/2).
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.pairwise import add_scaled, dot, named, sigmoid

PANEL = 4  # rows that the inverse takes at a time


@jit
def bend(margin: float) -> float:
    """The curvature (σ(z) - 1/2) / z of the parabola that touches log(1 + e^-z) at ±z and lies above it elsewhere.

    At 0 it is the true curvature 1/4; further out it is larger, so a step by it never goes too far, however many pairs
    of a batch pull the same way. (Jaakkola & Jordan, Bayesian parameter estimation via variational methods, 2000.)
    """
    if abs(margin) < 1e-3:
        return 0.25 - margin * margin / 48.0
    return (sigmoid(margin) - 0.5) / margin


@jit
def gather(
    precision: Array,
    push: Array,
    theta: Array,
    features: Array,
    pairs: Array,
    weights: Array,
    keep: float,
    prior: float,
) -> None:
    """Add what the pairs of a list say at θ to the precision (d, d) and the gradient (d,), in place.

    A pair x = x_a - x_b with z = xᵀθ adds ρ(1 - σ(z)) x to the gradient and ρ `bend(z)` xxᵀ to the precision, of which
    only the lower half is kept. Evidence of before fades first: keep·H + (1 - keep)·prior·I.

    The pairs of a list are the edges of a graph over its rows, so their sum is XᵀLX with its weighted Laplacian L: k
    products of rows, however many pairs there are. X is taken from one of the rows, which then costs nothing.
    """
    if pairs.shape[0] == 0:
        return
    d = theta.size
    some = named(pairs, features.shape[0])
    k = some.size - 1
    # what needs memory comes first: nothing is half gathered
    where = np.zeros(features.shape[0], np.int64)
    rows, weighted = np.empty((k, d)), np.zeros((k, d))
    slope, laplacian = np.zeros(k + 1), np.zeros((k + 1, k + 1))
    scores = np.zeros(k + 1)  # the last is the row that all are taken from
    for n in range(k + 1):
        where[some[n]] = n
    for n in range(k):
        for j in range(d):
            rows[n, j] = features[some[n], j] - features[some[k], j]
        scores[n] = dot(rows[n], theta)
    for m in range(pairs.shape[0]):
        a, b, weight = where[pairs[m, 0]], where[pairs[m, 1]], weights[m]
        margin = scores[a] - scores[b]
        step, curvature = weight * (1.0 - sigmoid(margin)), weight * bend(margin)
        slope[a] += step
        slope[b] -= step
        laplacian[a, a] += curvature
        laplacian[b, b] += curvature
        laplacian[a, b] -= curvature
        laplacian[b, a] -= curvature
    add_scaled(push, slope[:k], rows)
    for n in range(k):
        add_scaled(weighted[n], laplacian[n, :k], rows)
    if keep < 1.0:
        for i in range(d):
            for j in range(i + 1):
                precision[i, j] *= keep
            precision[i, i] += (1.0 - keep) * prior
    add_half_products(precision, rows, weighted, 1.0)


@jit
def add_half_products(matrix: Array, left: Array, right: Array, sign: float) -> None:
    """The lower half of matrix (d, d) += sign · leftᵀ right, of rows (k, d), four of them at a time."""
    k = left.shape[0]
    for i in range(matrix.shape[0]):
        row = matrix[i]
        n = 0
        while n + 4 <= k:
            a, b, c, e = sign * left[n, i], sign * left[n + 1, i], sign * left[n + 2, i], sign * left[n + 3, i]
            for j in range(i + 1):
                row[j] += (a * right[n, j] + b * right[n + 1, j]) + (c * right[n + 2, j] + e * right[n + 3, j])
            n += 4
        while n < k:
            a = sign * left[n, i]
            for j in range(i + 1):
                row[j] += a * right[n, j]
            n += 1


@jit
def half_inverse(matrix: Array) -> Array:
    """The inverse (d, d) of a symmetric positive definite matrix of which the lower half is given.

    The sweep (Gauss-Jordan in place, which needs no pivots there), four rows at a time: with B those rows and R the
    others, A_BB becomes A_BB⁻¹, A_RB becomes A_RB A_BB⁻¹ and A_RR loses A_RB A_BB⁻¹ A_BR. After all turns the matrix is
    minus its inverse.
    """
    d = matrix.shape[0]
    work = matrix.copy()
    for first in range(0, d, PANEL):
        size = min(PANEL, d - first)
        across = np.zeros((size, d))  # A_BR, 0 in the columns of B
        for q in range(size):
            b = first + q
            for j in range(first):
                across[q, j] = work[b, j]
            for i in range(first + size, d):
                across[q, i] = work[i, b]
        corner = _corner_inverse(work, first, size)
        solved = np.zeros((size, d))  # A_BB⁻¹ A_BR
        for q in range(size):
            add_scaled(solved[q], corner[q], across)
        add_half_products(work, solved, across, -1.0)
        for q in range(size):
            b = first + q
            for j in range(first):
                work[b, j] = solved[q, j]
            for p in range(q + 1):
                work[b, first + p] = -corner[q, p]
            for i in range(first + size, d):
                work[i, b] = solved[q, i]
    for i in range(d):
        for j in range(i + 1):
            work[i, j] = -work[i, j]
            work[j, i] = work[i, j]
    return work


@jit
def _corner_inverse(work: Array, first: int, size: int) -> Array:
    """The inverse of `size` rows and columns from `first` on, of which the lower half is given."""
    corner = np.empty((size, size))
    for q in range(size):
        for p in range(q + 1):
            corner[q, p] = corner[p, q] = work[first + q, first + p]
    for m in range(size):
        pivot = 1.0 / corner[m, m]
        for i in range(size):
            if i != m:
                factor = corner[i, m] * pivot
                for j in range(size):
                    if j != m:
                        corner[i, j] -= factor * corner[m, j]
        for i in range(size):
            if i != m:
                corner[i, m] = -corner[i, m] * pivot
                corner[m, i] = corner[m, i] * pivot
        corner[m, m] = pivot
    return corner


@jit
def stepped(theta: Array, inverse: Array, push: Array) -> Array:
    """(d,) θ + H⁻¹ · gradient."""
    found = np.empty(theta.size)
    for i in range(theta.size):
        found[i] = theta[i] + dot(inverse[i], push)
    return found
