"""Sizes of features by their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt


def list_moments(rows: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each column, counted from its first value."""
    middle, spread = [], []
    for column in zip(*rows, strict=True):
        total = 0.0
        for value in column[1:]:
            total += value - column[0]
        mean = column[0] + total / len(column)
        squares = 0.0
        for value in column:
            squares += (value - mean) * (value - mean)
        middle.append(mean)
        spread.append(sqrt(squares / len(column)) if len(set(column)) > 1 else 0.0)
    return middle, spread


def standardize(
    rows: Sequence[Sequence[float]], middle: Sequence[float], spread: Sequence[float], largest: float
) -> list[list[float]]:
    """(x - middle) / spread within ±largest, 0 where there is no spread."""
    return [
        [
            0.0 if size == 0.0 else min(max((value - mean) / size, -largest), largest)
            for value, mean, size in zip(row, middle, spread, strict=True)
        ]
        for row in rows
    ]


class Stream:
    """What a stream of lists says of sizes, from all of its lists at once."""

    def __init__(self, lists: Sequence[Sequence[Sequence[float]]]) -> None:
        known = len(lists)
        while known & (known - 1):  # the scale in use is that of the last power of two
            known -= 1
        self.lists = lists[:known]

    def scale(self) -> tuple[list[float], list[float]]:
        """Mean of means, and √12 times the mean of the deviations that are not 0."""
        middles, spreads = zip(*(list_moments(rows) for rows in self.lists), strict=True)
        middle = [sum(column) / len(self.lists) for column in zip(*middles, strict=True)]
        spread = [sum(column) / max(sum(value > 0 for value in column), 1) for column in zip(*spreads, strict=True)]
        return middle, [sqrt(12) * size for size in spread]
