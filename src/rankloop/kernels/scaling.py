"""Sizes of features: moments of a list, standardized rows, rows scaled per query."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def list_moments(rows: Array) -> tuple[Array, Array]:
    """(d,) mean and (d,) standard deviation of each feature in a list (n, d); of one that is the same in all exactly 0.

    Distances are counted from the first row: a date of 1.7e9 whose values are seconds apart keeps its deviation.
    """
    n, d = rows.shape
    middle, spread, varies = np.zeros(d), np.zeros(d), np.zeros(d, np.bool_)
    for i in range(1, n):
        for j in range(d):
            middle[j] += rows[i, j] - rows[0, j]
            varies[j] |= rows[i, j] != rows[0, j]
    for j in range(d):
        middle[j] = rows[0, j] + middle[j] / n
    for i in range(n):
        for j in range(d):
            if varies[j]:
                spread[j] += (rows[i, j] - middle[j]) * (rows[i, j] - middle[j])
    for j in range(d):
        spread[j] = np.sqrt(spread[j] / n)
    return middle, spread


@jit
def standardize(rows: Array, middle: Array, spread: Array, bound: float) -> Array:
    """(n, d) each feature less its middle, in units of its spread, within ±bound; 0 where the spread is 0."""
    n, d = rows.shape
    made = np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            if spread[j] > 0.0:
                made[i, j] = min(max((rows[i, j] - middle[j]) / spread[j], -bound), bound)
    return made


@jit
def minmax_queries(features: Array, offsets: Array) -> None:
    """Scale each feature of each query to [0, 1] in place; one that is constant in the query becomes 0."""
    width = features.shape[1]
    low, high, unit = np.empty(width), np.empty(width), np.empty(width)
    for q in range(offsets.size - 1):
        low[:] = features[offsets[q]]
        high[:] = low
        for i in range(offsets[q] + 1, offsets[q + 1]):
            for j in range(width):
                low[j] = min(low[j], features[i, j])
                high[j] = max(high[j], features[i, j])
        for j in range(width):  # some sets write 1.8e308 for "missing": count in halves where high - low overflows
            unit[j] = 0.5 if high[j] / 2 - low[j] / 2 > 8e307 else 1.0
        for i in range(offsets[q], offsets[q + 1]):
            for j in range(width):
                if high[j] == low[j]:
                    features[i, j] = 0.0
                else:
                    span = high[j] * unit[j] - low[j] * unit[j]
                    features[i, j] = (features[i, j] * unit[j] - low[j] * unit[j]) / span
