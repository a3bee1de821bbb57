"""Ranking metrics over one list or over the ragged lists of many queries."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import jit
from rankloop.kernels.ranking import top_k
from rankloop.types import Array


@jit
def dcg(grades: Array, k: int) -> float:
    """Σ (2^grade - 1) / log2(1 + position) over the first k of `grades`, which stand in ranked order."""
    total = 0.0
    for p in range(min(k, grades.size)):
        total += (2.0 ** grades[p] - 1.0) / np.log2(p + 2.0)
    return total


@jit
def ideal_dcg(grades: Array, k: int) -> float:
    """The highest DCG@k that any order of these grades has."""
    best = -np.sort(-grades)
    return dcg(best, k)


@jit
def average_precision(grades: Array) -> float:
    """Mean of precision at each relevant position (grade > 0) of a whole ranked list; 0 with none relevant."""
    hits, total = 0, 0.0
    for p in range(grades.size):
        if grades[p] > 0:
            hits += 1
            total += hits / (p + 1.0)
    return total / hits if hits else 0.0


@jit
def precision(grades: Array, k: int) -> float:
    """Share of relevant documents (grade > 0) among the first k positions; a list shorter than k misses the rest."""
    hits = 0
    for p in range(min(k, grades.size)):
        hits += grades[p] > 0
    return hits / k


@jit
def auc(grades: Array) -> float:
    """Share of (relevant, irrelevant) pairs in the right order; 1 where there is no such pair."""
    above, right, pairs = 0, 0, 0
    for p in range(grades.size):
        if grades[p] > 0:
            above += 1
        else:
            right += above
            pairs += 1
    pairs *= above
    return right / pairs if pairs else 1.0


@jit
def misordered_pairs(grades: Array) -> int:
    """Pairs in the wrong order (Kendall tau distance to an ideal order); equal grades never count."""
    wrong = 0
    for p in range(grades.size):
        for q in range(p + 1, grades.size):
            wrong += grades[p] < grades[q]
    return wrong


@jit
def ragged_ideal_dcg(grades: Array, offsets: Array, k: int) -> Array:
    """(Q,) the ideal DCG@k of each query."""
    ideal = np.empty(offsets.size - 1)
    for q in range(ideal.size):
        ideal[q] = ideal_dcg(grades[offsets[q] : offsets[q + 1]], k)
    return ideal


@jit
def ragged_dcg(scores: Array, ties: Array, grades: Array, offsets: Array, k: int) -> Array:
    """(Q,) the DCG@k of each query when its documents are sorted by score, equal scores by `ties`."""
    found = np.empty(offsets.size - 1)
    for q in range(found.size):
        first, last = offsets[q], offsets[q + 1]
        order = top_k(scores[first:last], ties[first:last], k)
        found[q] = dcg(grades[first:last][order], k)
    return found


@jit
def ranked_grades(scores: Array, ties: Array, grades: Array, offsets: Array) -> Array:
    """(N,) the grades with each query's documents sorted by score, equal scores by `ties`."""
    ranked = np.empty(grades.size, grades.dtype)
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        order = top_k(scores[first:last], ties[first:last], last - first)
        for p in range(last - first):
            ranked[first + p] = grades[first + order[p]]
    return ranked


@jit
def ragged_list_metrics(ranked: Array, offsets: Array, k: int) -> Array:
    """(Q, 5) of each query's ranked grades: DCG@k, average precision, precision@k, AUC, mis-ordered pairs."""
    found = np.empty((offsets.size - 1, 5))
    for q in range(offsets.size - 1):
        grades = ranked[offsets[q] : offsets[q + 1]]
        found[q, 0] = dcg(grades, k)
        found[q, 1] = average_precision(grades)
        found[q, 2] = precision(grades, k)
        found[q, 3] = auc(grades)
        found[q, 4] = misordered_pairs(grades)
    return found
