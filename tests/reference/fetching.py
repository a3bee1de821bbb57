"""Naive twin of `rankloop.kernels.matching`: dictionaries."""

from __future__ import annotations

import math


def fetch(block: list[list[float]], rows: list[int], places: list[int]) -> list[list[float]]:
    """The values of each row at each place; NaN of what is not there."""
    return [[block[row][place] if row >= 0 and place >= 0 else math.nan for place in places] for row in rows]
