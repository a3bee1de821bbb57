"""Ranking metrics by their definitions; grades stand in ranked order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

from tests.reference.ranking import top_k


def dcg(grades: Sequence[float], k: int) -> float:
    """Σ (2^r - 1) / log2(1 + position), positions from 1."""
    return sum((2**grade - 1) / math.log2(1 + position) for position, grade in enumerate(grades[:k], start=1))


def ideal_dcg(grades: Sequence[float], k: int) -> float:
    """DCG of the grades sorted."""
    return dcg(sorted(grades, reverse=True), k)


def precision(grades: Sequence[float], k: int) -> float:
    """Relevant among the first k, over k: a list shorter than k is short of relevant documents."""
    return sum(grade > 0 for grade in grades[:k]) / k


def average_precision(grades: Sequence[float]) -> float:
    """Mean over the relevant documents of the precision at their positions."""
    at = [precision(grades, position) for position, grade in enumerate(grades, start=1) if grade > 0]
    return sum(at) / len(at) if at else 0.0


def auc(grades: Sequence[float]) -> float:
    """Share of the (relevant, irrelevant) pairs that have the relevant one above."""
    right = [above > 0 for above, below in combinations(grades, 2) if (above > 0) != (below > 0)]
    return sum(right) / len(right) if right else 1.0


def misordered_pairs(grades: Sequence[float]) -> int:
    """Pairs with the lower grade above."""
    return sum(above < below for above, below in combinations(grades, 2))


def ragged_ideal_dcg(grades: Sequence[float], offsets: Sequence[int], k: int) -> list[float]:
    """Query q has the documents offsets[q] … offsets[q + 1] - 1."""
    return [ideal_dcg(grades[start:end], k) for start, end in pairwise(offsets)]


def ragged_dcg(
    scores: Sequence[float], ties: Sequence[float], grades: Sequence[float], offsets: Sequence[int], k: int
) -> list[float]:
    """Each query sorted by score, then by tie."""
    found = []
    for start, end in pairwise(offsets):
        order = top_k(scores[start:end], ties[start:end], k)
        found.append(dcg([grades[start + i] for i in order], k))
    return found
