"""Naive twins of `rankloop.kernels.counting`: dictionaries and lists."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from rankloop.core.types import Array


class Windowed:
    """Amounts by key and time bucket, all of them kept; a bucket that is P behind the newest in its place is late."""

    def __init__(self, parts: int, width: int) -> None:
        self.parts, self.late = parts, 0
        self._zero = [0.0] * width
        self._kept: dict[int, dict[int, list[float]]] = defaultdict(dict)

    def add(self, key: int, bucket: int, amounts: list[float]) -> None:
        """Into one bucket of one key."""
        kept = self._kept[key]
        if any(other > bucket and other % self.parts == bucket % self.parts for other in kept):
            self.late += 1
            return
        before = kept.get(bucket, self._zero)
        kept[bucket] = [a + b for a, b in zip(before, amounts, strict=True)]

    def within(self, key: int, bucket: int) -> list[float]:
        """The window that ends with a bucket: the newest in each place of the ring, if it is inside."""
        kept, found = self._kept[key], list(self._zero)
        for number in range(bucket - self.parts + 1, bucket + 1):
            newer = any(other > number and other % self.parts == number % self.parts for other in kept)
            if number in kept and not newer:
                found = [a + b for a, b in zip(found, kept[number], strict=True)]
        return found


def share_of_last(
    entries: list[tuple[float, int]], last: int, length: int, since: float, candidates: list[list[int]]
) -> list[float]:
    """The share of the last entries (time, code) after `since` that each candidate has."""
    recent = [code for time, code in entries[-min(last, length) :] if time >= since]
    return [sum(code in own for code in recent) / len(recent) if recent else 0.0 for own in candidates]


def strengths(wins: Array, start: Array, steps: int) -> list[float]:
    """Rounds of Hunter's MM algorithm, one player after the other."""
    found = [float(v) for v in start]
    for _ in range(steps):
        for p in range(len(found)):
            others = [q for q in range(len(found)) if q != p]
            won = sum(float(wins[p, q]) for q in others)
            games = sum(float(wins[p, q] + wins[q, p]) / (found[p] + found[q]) for q in others)
            if won > 0 and games > 0:
                found[p] = won / games
        found = [value / found[0] for value in found]
    return found


def offsets_of(lists: list[list[int]]) -> tuple[Array, Array]:
    """Lists as offsets and codes."""
    flat = [code for one in lists for code in one]
    return np.append(0, np.cumsum([len(one) for one in lists], dtype=np.int64)), np.array(flat, np.uint64)
