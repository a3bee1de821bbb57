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


def bounded_order(preferred: Sequence[int], displacement: int, k: int) -> list[int]:
    """Position by position: who would come too late next time goes first, else the most wanted who is not too early."""
    left, order = list(preferred), []
    for position in range(min(k, len(preferred))):
        due = [item for item in left if item + displacement <= position]
        allowed = [item for item in left if item - displacement <= position]
        chosen = (due + allowed)[0]
        order.append(chosen)
        left.remove(chosen)
    return order
