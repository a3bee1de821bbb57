"""Naive twins of `rankloop.kernels.metrics`, straight from the definitions."""

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


def discounted_sum(gains: Sequence[float], k: int) -> float:
    """Σ gain / log2(1 + position)."""
    return sum(gain / math.log2(1 + position) for position, gain in enumerate(gains[:k], start=1))


def recall(grades: Sequence[float], candidates: Sequence[float], k: int) -> float:
    """Relevant among the first k, over all relevant candidates."""
    every = sum(grade > 0 for grade in candidates)
    return sum(grade > 0 for grade in grades[:k]) / every if every else math.nan


def reciprocal_rank(grades: Sequence[float], k: int) -> float:
    """One over the first relevant position."""
    return next((1 / position for position, grade in enumerate(grades[:k], start=1) if grade > 0), 0.0)


def expected_reciprocal_rank(grades: Sequence[float], k: int, highest: float) -> float:
    """Chapelle et al. 2009, equation 4: Σ 1/r Π_{i<r} (1 - R_i) R_r."""
    R = [(2**grade - 1) / 2**highest for grade in grades]
    return sum(R[r] * math.prod(1 - R[i] for i in range(r)) / (r + 1) for r in range(min(k, len(R))))


def rank_biased_precision(grades: Sequence[float], p: float) -> float:
    """Moffat and Zobel 2008: (1 - p) Σ rel_i p^(i - 1)."""
    return (1 - p) * sum((grade > 0) * p**i for i, grade in enumerate(grades))


def pairs(scores: Sequence[float], grades: Sequence[float]) -> tuple[int, int, int]:
    """Pairs of different grades with scores in the right order, in the wrong one, and equal."""
    signs = [(s - t) * (g - h) for (s, g), (t, h) in combinations(list(zip(scores, grades, strict=True)), 2) if g != h]
    return sum(x > 0 for x in signs), sum(x < 0 for x in signs), sum(x == 0 for x in signs)


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


def kendall_regret(grades: Sequence[float], order: Sequence[int]) -> int:
    """Pairs of documents, one at least shown, of which the one that stands higher has the lower grade."""
    place = {document: rank for rank, document in enumerate(order)}
    wrong = 0
    for a, b in combinations(range(len(grades)), 2):
        if a not in place and b not in place:
            continue
        above, beneath = (a, b) if place.get(a, len(grades)) < place.get(b, len(grades)) else (b, a)
        wrong += grades[above] < grades[beneath]
    return wrong
