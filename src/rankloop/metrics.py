"""Ranking metrics, checked and ready to call: DCG, NDCG, average precision, precision, AUC, Kendall tau.

Every function takes the grades of a ranked list, best position first. The gain is 2^grade - 1 and the discount
log2(1 + position). What NDCG says of a list in which nothing is relevant is a convention, so it is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels import metrics as kernels
from rankloop.types import Array

Empty = Literal["skip", "0", "1"]
Grades = Sequence[float] | Array


def dcg(grades: Grades, k: int = 10) -> float:
    """Discounted cumulative gain of the first k.

    >>> from math import log2
    >>> dcg([0, 1, 0, 2]) == 1 / log2(1 + 2) + 3 / log2(1 + 4)
    True
    """
    return float(kernels.dcg(_grades(grades), _cut(k)))


def ndcg(grades: Grades, k: int = 10, candidates: Grades | None = None, empty: Empty = "0") -> float:
    """DCG over the highest DCG@k possible; `candidates` are the grades of all that could have been shown.

    >>> from math import log2
    >>> ndcg([0, 1]) == 1 / log2(1 + 2)
    True
    >>> ndcg([1, 0], candidates=[0, 0, 2, 1]) == 1 / (3 / log2(1 + 1) + 1 / log2(1 + 2))
    True
    >>> ndcg([0, 0], empty="1"), ndcg([0, 0], empty="skip")
    (1.0, nan)
    """
    _check_empty(empty)
    ideal = float(kernels.ideal_dcg(_grades(grades if candidates is None else candidates), _cut(k)))
    if ideal == 0.0:
        return {"skip": float("nan"), "0": 0.0, "1": 1.0}[empty]
    return float(kernels.dcg(_grades(grades), k)) / ideal


def average_precision(grades: Grades) -> float:
    """Mean of the precision at each relevant position of a whole list; grades above 0 are relevant.

    >>> average_precision([1, 0, 2]) == (1 / 1 + 2 / 3) / 2
    True
    """
    return float(kernels.average_precision(_grades(grades)))


def precision(grades: Grades, k: int = 10) -> float:
    """Share of relevant documents in the first k positions.

    >>> precision([1, 0, 2, 0], k=4)
    0.5
    """
    return float(kernels.precision(_grades(grades), _cut(k)))


def auc(grades: Grades) -> float:
    """Share of (relevant, irrelevant) pairs in the right order; 1 where there is no such pair.

    >>> auc([1, 0, 1, 0]) == 3 / 4
    True
    """
    return float(kernels.auc(_grades(grades)))


def misordered_pairs(grades: Grades) -> int:
    """Pairs in the wrong order, PairRank's regret; documents of equal grade never count.

    >>> misordered_pairs([0, 2, 1, 1])
    3
    """
    return int(kernels.misordered_pairs(_grades(grades)))


def kendall_tau(grades: Grades) -> float:
    """(right - wrong) / (right + wrong) over the pairs of different grades; 1 where there is no such pair.

    >>> kendall_tau([2, 0, 1]) == (2 - 1) / 3
    True
    """
    values = _grades(grades)
    wrong, right = misordered_pairs(values), misordered_pairs(values[::-1])
    return (right - wrong) / (right + wrong) if right + wrong else 1.0


def mean_ndcg(
    scores: Array, grades: Array, offsets: Array, k: int = 10, ties: Array | None = None, empty: Empty = "skip"
) -> float:
    """Mean NDCG@k over queries whose documents stand one after the other: query q's from offsets[q] to offsets[q+1].

    >>> from math import log2
    >>> mean_ndcg(np.array([2.0, 1, 5, 4]), np.array([1, 0, 0, 1]), np.array([0, 2, 4])) == (1 + 1 / log2(3)) / 2
    True
    """
    if not len(scores) == len(grades) == offsets[-1]:
        raise InvalidInput(
            f"{len(scores)} scores, {len(grades)} grades and offsets up to {offsets[-1]}; all must agree"
        )
    found = kernels.ragged_dcg(scores, np.zeros(scores.size) if ties is None else ties, grades, offsets, k)
    return mean_ratio(found, kernels.ragged_ideal_dcg(grades, offsets, k), empty)


def evaluate(
    scores: Array, grades: Array, offsets: Array, k: int = 10, ties: Array | None = None, empty: Empty = "skip"
) -> dict[str, float]:
    """Every metric of this module, the mean over queries; the last two tell the pairs of all queries together.

    NDCG, average precision and AUC leave out queries with nothing relevant, or count them as `empty` says.

    >>> found = evaluate(np.array([2.0, 1, 5, 4]), np.array([1, 0, 0, 1]), np.array([0, 2, 4]), k=1)
    >>> found["ndcg@1"], found["ap"], found["precision@1"], found["auc"], found["misordered"], found["tau"]
    (0.5, 0.75, 0.5, 0.5, 1.0, 0.0)
    """
    if not len(scores) == len(grades) == offsets[-1]:
        raise InvalidInput(
            f"{len(scores)} scores, {len(grades)} grades and offsets up to {offsets[-1]}; all must agree"
        )
    ties = np.zeros(len(scores)) if ties is None else ties
    ranked = kernels.ranked_grades(scores, ties, grades, offsets)
    lists = kernels.ragged_list_metrics(ranked, offsets, _cut(k))
    backwards = kernels.ragged_list_metrics(kernels.ranked_grades(-scores, -ties, grades, offsets), offsets, k)
    ideal = kernels.ragged_ideal_dcg(grades, offsets, k)
    relevant = np.where(ideal > 0, 1.0, 0.0)
    wrong, right = float(lists[:, 4].sum()), float(backwards[:, 4].sum())
    return {
        f"ndcg@{k}": mean_ratio(lists[:, 0], ideal, empty),
        f"dcg@{k}": float(lists[:, 0].mean()),
        "ap": mean_ratio(lists[:, 1], relevant, empty),
        f"precision@{k}": float(lists[:, 2].mean()),
        "auc": mean_ratio(lists[:, 3], relevant, empty),
        "misordered": wrong,
        "tau": (right - wrong) / (right + wrong) if right + wrong else 1.0,
    }


def mean_ratio(found: Array, ideal: Array, empty: Empty) -> float:
    """Mean of found/ideal over the queries, those with nothing relevant taken as `empty` says."""
    _check_empty(empty)
    relevant = ideal > 0
    ratios = found[relevant] / ideal[relevant]
    if empty == "skip":
        return float(ratios.mean()) if ratios.size else float("nan")
    return float((ratios.sum() + (empty == "1") * (~relevant).sum()) / ideal.size)


def _grades(grades: Any) -> Array:
    values = np.asarray(grades, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise InvalidInput(f"grades are {grades!r}; give a list of finite numbers of at least 0")
    return values


def _check_empty(empty: str) -> None:
    if empty not in ("skip", "0", "1"):
        raise InvalidInput(f"empty is {empty!r}; queries with nothing relevant can be 'skip', '0' or '1'")


def _cut(k: int) -> int:
    if k < 1:
        raise InvalidInput(f"k is {k}; a list is cut after at least one position")
    return k
