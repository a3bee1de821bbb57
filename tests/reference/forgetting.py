"""Naive twins of `rankloop.kernels.forgetting`: whole matrices, and probabilities as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, log, log2

import numpy as np

from rankloop.core.types import Array


def exactly_faded(matrix: Array, keep: float, prior: float) -> Array:
    """keep·H + (1 - keep)·prior·I: what fading is meant to be, an inverse of O(d³) away."""
    return np.asarray(keep * matrix + (1 - keep) * prior * np.eye(len(matrix)))


def discounted_variances(matrix: Array, keep: float, prior: float, turn: int) -> Array:
    """keep·H, and the prior given back to the coordinates whose turn it is."""
    d = len(matrix)
    m = min(d, max(1, ceil(-d * log2(keep))))
    found = keep * matrix
    for step in range(m):
        j = (turn * m + step) % d
        found[j, j] += (1 - keep) * prior * d / m
    return found


def log_likelihood_ratio(
    rows: Array, pairs: Sequence[tuple[int, int]], weights: Sequence[float], theta: Array, others: Array
) -> list[float]:
    """log of Π (σ of the other / σ of θ)^share, no document's shares above 1 in all, no other longer than θ."""
    load = [sum(w for w, pair in zip(weights, pairs, strict=True) if p in pair) for p in range(len(rows))]
    share = 1 / max(1.0, *load)

    def likelihood(model: Array) -> float:
        return sum(
            share * w * log(1 / (1 + exp(-float((rows[a] - rows[b]) @ model))))
            for w, (a, b) in zip(weights, pairs, strict=True)
        )

    lengths = [float(np.linalg.norm(model)) for model in (theta, *others)]
    shrunk = [other * min(1.0, lengths[0] / (at or 1.0)) for other, at in zip(others, lengths[1:], strict=True)]
    return [likelihood(other) - likelihood(theta) for other in shrunk]
