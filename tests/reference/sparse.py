"""Naive twins of `rankloop.kernels.sparse` and `rankloop.kernels.diagonal`: the same rows as a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np

from rankloop.core.types import Array


def table(indptr: Array, indices: Array, values: Array, width: int) -> list[list[float]]:
    """Rows with all their zeros."""
    rows = [[0.0] * width for _ in range(len(indptr) - 1)]
    for i in range(len(rows)):
        for p in range(indptr[i], indptr[i + 1]):
            rows[i][indices[p]] = float(values[p])
    return rows


def norms(rows: Array, spread: Array) -> list[float]:
    """Of the rows less their mean."""
    centred = rows - rows.mean(axis=0)
    return [sqrt(sum(v * x * x for v, x in zip(spread, row, strict=True))) for row in centred]


def mean_squared_distance(rows: Array) -> float:
    """Over every two rows."""
    found = [float(((x - y) ** 2).sum()) for i, x in enumerate(rows) for y in rows[:i]]
    return (sum(found) / len(found) if found else 0.0) or 1.0


def with_places(rows: Array, places: Sequence[int]) -> Array:
    """One column more."""
    return np.column_stack([rows, [-log(1 + place) for place in places]])


def diagonal_onepass(
    theta: Array,
    variance: Array,
    rows: Array,
    pairs: Sequence[tuple[int, int]],
    weights: Sequence[float],
    alone: int = -1,
) -> tuple[Array, Array]:
    """θ by Newton's step with the matrix P; then P gains the row sums of the pair's |curvature|, on its diagonal."""
    theta, precision = theta.copy(), np.diag(1 / variance)

    def p_of(margin: float) -> float:
        return 1 / (1 + exp(-margin)) if margin > -500 else 0.0

    for (a, b), weight in zip(pairs, weights, strict=True):
        x = rows[a] - rows[b]
        p = p_of(float(x @ theta))
        theta = theta + weight * (1 - p) * np.linalg.solve(precision + weight * p * (1 - p) * np.outer(x, x), x)
        p = p_of(float(x @ theta))
        together = np.abs(weight * p * (1 - p) * np.outer(x, x))
        if alone >= 0:
            together[alone, :alone] = together[alone, alone + 1 :] = 0.0
            together[:alone, alone] = together[alone + 1 :, alone] = 0.0
        precision += np.diag(together.sum(axis=1))
    return theta, 1 / np.diagonal(precision)


def discounted_variances(variance: float, keep: float, prior: float, age: int) -> float:
    """One event after the other."""
    precision = 1 / variance
    for _ in range(age):
        precision = keep * precision + (1 - keep) * prior
    return 1 / precision
