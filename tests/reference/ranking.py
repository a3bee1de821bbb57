"""Scores and orders by their definitions."""

from __future__ import annotations

from collections.abc import Sequence


def linear_scores(features: Sequence[Sequence[float]], theta: Sequence[float]) -> list[float]:
    """x·θ for each row; 0 with an empty θ."""
    if len(theta) == 0:
        return [0.0] * len(features)
    return [sum(value * weight for value, weight in zip(row, theta, strict=True)) for row in features]


def top_k(scores: Sequence[float], ties: Sequence[float], k: int) -> list[int]:
    """Sort everything, by score descending, then by tie ascending, and cut."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], ties[i]))[:k]
