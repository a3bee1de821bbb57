"""Inverse gap weighting and the diagonal Gaussian regression, by their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chances(scores: Sequence[float], left: Sequence[bool], gamma: float, epsilon: float) -> list[float]:
    """ε / (m + γΔ) for who is behind; the leaders share what is left."""
    there = [score for score, still in zip(scores, left, strict=True) if still]
    best = max(there)
    behind = [
        epsilon / (len(there) + gamma * (best - score)) if still and score < best else 0.0
        for score, still in zip(scores, left, strict=True)
    ]
    share = (1.0 - sum(behind)) / there.count(best)
    return [share if still and score == best else part for score, still, part in zip(scores, left, behind, strict=True)]


def order_log_probability(scores: Sequence[float], order: Sequence[int], gamma: float, epsilon: float) -> float:
    """The sum of the logs, position by position."""
    left, total = [True] * len(scores), 0.0
    for pick in order:
        chance = chances(scores, left, gamma, epsilon)[pick]
        if chance <= 0.0:
            return -math.inf
        total += math.log(chance)
        left[pick] = False
    return total


def regress(
    theta: Sequence[float],
    variance: Sequence[float],
    level: Sequence[float],
    rows: Sequence[Sequence[float]],
    rewards: Sequence[float],
    noise: float,
) -> tuple[list[float], list[float]]:
    """Kalman's step with a diagonal covariance, the intercept as one feature more that is always 1."""
    means, widths = [*theta, level[0]], [*variance, level[1]]
    for row, reward in zip(rows, rewards, strict=True):
        x = [*row, 1.0]
        predicted = sum(a * b for a, b in zip(means, x, strict=True))
        spread = noise + sum(v * b * b for v, b in zip(widths, x, strict=True))
        gains = [v * b / spread for v, b in zip(widths, x, strict=True)]
        means = [a + g * (reward - predicted) for a, g in zip(means, gains, strict=True)]
        widths = [v * (1.0 - g * b) for v, g, b in zip(widths, gains, x, strict=True)]
    return means, widths
