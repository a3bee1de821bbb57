"""Errors of clustered means by their definitions, with the matrices written out."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan, sqrt

import numpy as np

from rankloop.core.types import Array


def one_way(values: Array, codes: Array) -> tuple[float, float]:
    """Standard error and degrees of freedom: CR2 with a random effect of the cluster as the working model."""
    N, G = values.size, int(codes.max()) + 1
    groups = [values[codes == g] for g in range(G)]
    n = np.array([group.size for group in groups])
    # Analysis of variance with unequal sizes: variances of the noise and of the clusters' effects.
    between = sum(group.size * (group.mean() - values.mean()) ** 2 for group in groups) / (G - 1)
    noise = effect = 0.0
    if N > G:
        noise = sum(((group - group.mean()) ** 2).sum() for group in groups) / (N - G)
        effect = max((between - noise) / ((N - (n**2).sum() / N) / (G - 1)), 0.0)
    V = np.diag(n * noise + n**2 * effect) if N > G else np.diag(n.astype(float))
    residual = np.eye(G) - np.outer(n / N, np.ones(G))  # from sums of clusters to what they are above their share
    A = np.diag(1 / (1 - n / N))
    B = A @ residual @ V @ residual.T
    sums = np.array([(group - values.mean()).sum() for group in groups])
    variance = sums @ A @ sums * np.trace(V) / np.trace(B) / N**2
    return sqrt(variance), np.trace(B) ** 2 / np.trace(B @ B)


def two_way(table: Array) -> tuple[float, float]:
    """Of a complete table: (MS rows + MS columns - MS rest) / cells, and Satterthwaite's degrees of freedom."""
    R, C = table.shape
    rows, columns, grand = table.mean(axis=1), table.mean(axis=0), table.mean()
    by_row = C * ((rows - grand) ** 2).sum() / (R - 1)
    by_column = R * ((columns - grand) ** 2).sum() / (C - 1)
    rest = ((table - rows[:, None] - columns + grand) ** 2).sum() / ((R - 1) * (C - 1))
    if min(by_row, by_column) <= rest:  # the smaller effect is none: the larger alone
        larger, df = max((by_row, R - 1), (by_column, C - 1))
        return sqrt(larger / table.size), df
    whole = by_row + by_column - rest
    spread = by_row**2 / (R - 1) + by_column**2 / (C - 1) + rest**2 / ((R - 1) * (C - 1))
    return sqrt(whole / table.size), whole**2 / spread


def holm(p: Sequence[float]) -> list[float]:
    """The i-th smallest of m, times m + 1 - i, never below one before it, at most 1."""
    tested = [q for q in p if not isnan(q)]
    ranked = sorted(tested)
    steps = [min(1.0, (len(ranked) - i) * q) for i, q in enumerate(ranked)]
    return [nan if isnan(q) else max(steps[: ranked.index(q) + 1]) for q in p]
