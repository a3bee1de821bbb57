"""Learning in batches, pair by pair with whole matrices; and the list of outcomes after which a batch is full."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rankloop.core.types import Array
from tests.reference.pairwise import sigmoid


def bend(z: float) -> float:
    """The curvature of the parabola that touches log(1 + e^-z) at z and -z: tanh(z/2) / 2z."""
    return math.tanh(z / 2) / (2 * z) if z else 0.25


def gather(
    theta: Array, precision: Array, features: Array, pairs: Sequence[Sequence[int]], weights: Sequence[float]
) -> tuple[Array, Array]:
    """H and the gradient after the pairs of a list."""
    push = np.zeros_like(theta)
    for (a, b), rho in zip(pairs, weights, strict=True):
        x = features[a] - features[b]
        z = float(x @ theta)
        push = push + rho * (1 - sigmoid(z)) * x
        precision = precision + rho * bend(z) * np.outer(x, x)
    return precision, push


def ends(outcomes: int, batch: int) -> list[int]:
    """Outcomes after which a batch is full, of so many: each has `batch` of them, but at most an eighth of those before
    it, and at least one."""
    found = [0]
    while found[-1] <= outcomes:
        found.append(found[-1] + max(1, min(batch, found[-1] // 8)))
    return found[1:-1]
