"""Naive twins of `rankloop.kernels.matching`: sets and dictionaries."""

from __future__ import annotations

import math


def overlap(own: list[int], wanted: list[int], jaccard: bool) -> float:
    """Share of what is wanted that is there, or of all that there is."""
    both = set(own) & set(wanted)
    if not wanted:
        return 0.0
    return len(both) / len(set(own) | set(wanted) if jaccard else set(wanted))


def one_hot(own: list[int], values: list[int]) -> list[float]:
    """1 for each value that is there."""
    return [float(value in own) for value in values]


def crossed(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    """All pairs."""
    return [(a, b) for a in left for b in right]


def word_match(text: list[int] | None, words: list[int], idf: list[float], usual: float, bm25: bool) -> float:
    """BM25 of a text as a set of words, or the share of the query's words that are in it."""
    if text is None or not words:
        return 0.0
    hits = [w for w, word in enumerate(words) if word in text]
    if not bm25:
        return len(hits) / len(words)
    return sum(idf[w] * 2.2 / (1 + 1.2 * (1 - 0.75 + 0.75 * len(text) / usual)) for w in hits)


def fetch(block: list[list[float]], rows: list[int], places: list[int]) -> list[list[float]]:
    """The values of each row at each place; NaN of what is not there."""
    return [[block[row][place] if row >= 0 and place >= 0 else math.nan for place in places] for row in rows]
