"""Grades dealt by utility, by the definition."""

from __future__ import annotations

from collections.abc import Sequence


def deal_grades(features: Sequence[Sequence[float]], taste: Sequence[float], best: Sequence[int]) -> list[int]:
    """Sort the documents by utility, equal ones as they stand, and deal from the top."""
    liked = [sum(value * weight for value, weight in zip(row, taste, strict=True)) for row in features]
    order = sorted(range(len(liked)), key=lambda i: -liked[i])
    return [best[order.index(i)] for i in range(len(liked))]
