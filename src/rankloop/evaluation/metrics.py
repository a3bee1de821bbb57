"""Ranking metrics: (N)DCG, AP, precision, recall, MRR, ERR, RBP, AUC, Kendall's tau.

Functions of one list take its grades, best position first. Functions of many queries take scores and grades of all
documents, and the offsets of the queries (`evaluate`, `per_query`). A document is relevant if its grade is above 0. The
gain of (N)DCG is 2^grade - 1 ("exponential") or the grade ("linear"), the discount log2(1 + position). `empty` is the
NDCG of a list with nothing relevant. Equal scores keep the given order, or that of `ties`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Floats, Ints
from rankloop.kernels import metrics as kernels

Empty = Literal["skip", "0", "1"]
Gain = Literal["exponential", "linear"]
Grades = Sequence[float] | Floats | Ints
Numbers = Sequence[float] | Floats | Ints
HIGHEST_GRADE = 1000.0  # 2^grade, summed over a list, must fit in a double


# -- of one list ---------------------------------------------------------------------------------------------------


def dcg(grades: Grades, k: int = 10, gain: Gain = "exponential") -> float:
    """Return the discounted cumulative gain of the first k.

    >>> from math import log2
    >>> dcg([0, 1, 0, 2]) == 1 / log2(1 + 2) + 3 / log2(1 + 4)
    True
    >>> dcg([0, 1, 0, 2], gain="linear") == 1 / log2(1 + 2) + 2 / log2(1 + 4)
    True
    """
    return float(kernels.discounted_sum(_gains(_grades(grades), gain), _cut(k)))


def ndcg(
    grades: Grades, k: int = 10, candidates: Grades | None = None, empty: Empty = "0", gain: Gain = "exponential"
) -> float:
    """Return DCG@k divided by the highest possible; `candidates` are the grades of all candidates.

    >>> from math import log2
    >>> ndcg([0, 1]) == 1 / log2(1 + 2)
    True
    >>> ndcg([1, 0], candidates=[0, 0, 2, 1]) == 1 / (3 / log2(1 + 1) + 1 / log2(1 + 2))
    True
    >>> ndcg([0, 0], empty="1"), ndcg([0, 0], empty="skip")
    (1.0, nan)
    """
    _check_empty(empty)
    best = -np.sort(-_gains(_grades(grades if candidates is None else candidates), gain))
    ideal = float(kernels.discounted_sum(best, _cut(k)))
    return dcg(grades, k, gain) / ideal if ideal > 0.0 else _IF_EMPTY[empty]


def average_precision(grades: Grades) -> float:
    """Return the mean precision at the relevant positions of a whole list.

    >>> average_precision([1, 0, 2]) == (1 / 1 + 2 / 3) / 2
    True
    """
    return float(kernels.average_precision(_grades(grades)))


def precision(grades: Grades, k: int = 10) -> float:
    """Return the share of relevant documents in the first k positions.

    >>> precision([1, 0, 2, 0], k=4)
    0.5
    """
    return float(kernels.precision(_grades(grades), _cut(k)))


def recall(grades: Grades, k: int = 10, candidates: Grades | None = None, empty: Empty = "0") -> float:
    """Return the share of all relevant documents that are in the first k; `candidates` as in `ndcg`.

    >>> recall([1, 0, 2, 0], k=1)
    0.5
    """
    _check_empty(empty)
    every = _grades(grades if candidates is None else candidates)
    found = float(kernels.recall(_grades(grades), every, _cut(k)))
    return _IF_EMPTY[empty] if np.isnan(found) else found


def reciprocal_rank(grades: Grades, k: int | None = None) -> float:
    """Return 1 / position of the first relevant document, 0 if there is none in the first k.

    >>> reciprocal_rank([0, 0, 1]), reciprocal_rank([0, 0, 1], k=2)
    (0.3333333333333333, 0.0)
    """
    values = _grades(grades)
    return float(kernels.reciprocal_rank(values, values.size if k is None else _cut(k)))


def err(grades: Grades, k: int = 10, highest: float = 4.0) -> float:
    """Return the expected reciprocal rank (Chapelle et al. 2009).

    A document of grade g satisfies with probability (2^g - 1) / 2^highest; `highest` is the top of the scale.

    >>> err([1, 4], highest=4) == 1 / 16 + (1 - 1 / 16) * 15 / 16 / 2
    True
    """
    values = _grades(grades)
    return float(kernels.expected_reciprocal_rank(values, _cut(k), _top(values, highest)))


def rbp(grades: Grades, p: float = 0.8) -> float:
    """Return the rank-biased precision with persistence p (Moffat, Zobel 2008).

    >>> round(rbp([1, 0, 1], p=0.5), 3) == 0.5 * (1 + 0.25)
    True
    """
    return float(kernels.rank_biased_precision(_grades(grades), _chance(p)))


def auc(grades: Grades) -> float:
    """Return the share of (relevant, irrelevant) pairs in the right order; 1 if there is no such pair.

    >>> auc([1, 0, 1, 0]) == 3 / 4
    True
    """
    return float(kernels.auc(_grades(grades)))


def misordered_pairs(grades: Grades) -> int:
    """Return the number of pairs in the wrong order, PairRank's regret.

    >>> misordered_pairs([0, 2, 1, 1])
    3
    """
    return int(kernels.misordered_pairs(_grades(grades)))


def kendall_tau(grades: Grades) -> float:
    """Return (right - wrong) / (right + wrong) over the pairs of different grades; 1 if there is no such pair.

    >>> kendall_tau([2, 0, 1]) == (2 - 1) / 3
    True
    """
    values = _grades(grades)
    wrong, right = misordered_pairs(values), misordered_pairs(values[::-1])
    return (right - wrong) / (right + wrong) if right + wrong else 1.0


# -- of many queries -----------------------------------------------------------------------------------------------


def mean_ndcg(
    scores: Numbers,
    grades: Grades,
    offsets: Sequence[int] | Ints,
    k: int = 10,
    ties: Numbers | None = None,
    empty: Empty = "skip",
) -> float:
    """Return the mean NDCG@k over queries; documents of query q are at offsets[q] to offsets[q + 1].

    >>> from math import log2
    >>> mean_ndcg([2.0, 1, 5, 4], [1, 0, 0, 1], [0, 2, 4]) == (1 + 1 / log2(3)) / 2
    True
    """
    given = _checked(scores, grades, offsets, ties)
    _gains(given.grades, "exponential")  # checks the grades
    found = kernels.ragged_dcg(given.scores, given.ties, given.grades, given.offsets, _cut(k))
    return mean_ratio(found, kernels.ragged_ideal_dcg(given.grades, given.offsets, k), empty)


def per_query(
    scores: Numbers,
    grades: Grades,
    offsets: Sequence[int] | Ints,
    k: int = 10,
    ties: Numbers | None = None,
    empty: Empty = "skip",
    gain: Gain = "exponential",
    highest: float | None = None,
    p: float = 0.8,
) -> dict[str, Floats]:
    """Return every metric of this module per query, (Q,) each.

    NDCG, AP, recall, AUC and RR of queries with nothing relevant are NaN, or what `empty` says. "right", "wrong" and
    "equal" count pairs of different grades by their scores; "tau" is (right - wrong) over all three. `highest` is the
    top of the scale of ERR (None: the highest grade), `p` the persistence of RBP.

    >>> from rankloop.evaluation import statistics
    >>> found = per_query([2.0, 1, 5, 4], [1, 0, 0, 1], [0, 2, 4], k=1)
    >>> found["ndcg@1"], str(statistics.mean(found["ndcg@1"]))
    (array([1., 0.]), '0.5 ± 0.5')
    """
    _check_empty(empty)
    given, k = _checked(scores, grades, offsets, ties), _cut(k)
    top = max(float(given.grades.max(initial=0.0)), 1.0) if highest is None else _top(given.grades, highest)
    gains = _gains(given.grades, gain)
    own, worth = (kernels.ranked(given.scores, given.ties, one, given.offsets) for one in (given.grades, gains))
    lists = kernels.ragged_list_metrics(own, worth, given.offsets, k, top, _chance(p))
    column = {name: lists[:, i] for i, name in enumerate(kernels.LIST_METRICS)}
    right, wrong, equal = kernels.ragged_pairs(given.scores, given.grades, given.offsets).T
    relevant = column["ideal"] > 0

    def where_relevant(values: Floats) -> Floats:
        return np.where(relevant, values, _IF_EMPTY[empty])

    with np.errstate(invalid="ignore", divide="ignore"):
        ndcg_values, tau = column["dcg"] / column["ideal"], (right - wrong) / (right + wrong + equal)
    return {
        f"ndcg@{k}": where_relevant(ndcg_values),
        f"dcg@{k}": column["dcg"],
        "ap": where_relevant(column["ap"]),
        f"precision@{k}": column["precision"],
        f"recall@{k}": where_relevant(column["recall"]),
        "rr": where_relevant(column["rr"]),
        f"err@{k}": column["err"],
        "rbp": column["rbp"],
        "auc": where_relevant(column["auc"]),
        "right": right,
        "wrong": wrong,
        "equal": equal,
        "tau": tau,
    }


def evaluate(
    scores: Numbers,
    grades: Grades,
    offsets: Sequence[int] | Ints,
    k: int = 10,
    ties: Numbers | None = None,
    empty: Empty = "skip",
    gain: Gain = "exponential",
    highest: float | None = None,
    p: float = 0.8,
) -> dict[str, float]:
    """Return the means of `per_query`; "misordered" and "tau" are over the pairs of all queries.

    A pair of equal scores counts as half a misordered one. With no pair tau is 1.

    >>> found = evaluate([2.0, 1, 5, 4], [1, 0, 0, 1], [0, 2, 4], k=1)
    >>> found["ndcg@1"], found["ap"], found["precision@1"], found["mrr"], found["misordered"], found["tau"]
    (0.5, 0.75, 0.5, 0.75, 1.0, 0.0)
    """
    values = per_query(scores, grades, offsets, k, ties, empty, gain, highest, p)
    right, wrong, equal = (float(values.pop(name).sum()) for name in ("right", "wrong", "equal"))
    del values["tau"]
    values["mrr"] = values.pop("rr")
    found = {}
    for name, column in values.items():
        counted = column[~np.isnan(column)]
        found[name] = float(counted.mean()) if counted.size else float("nan")
    pairs = right + wrong + equal
    return {**found, "misordered": wrong + equal / 2, "tau": (right - wrong) / pairs if pairs else 1.0}


def mean_ratio(found: Floats, ideal: Floats, empty: Empty) -> float:
    """Return the mean of found/ideal over queries; `empty` is the value of those with nothing relevant."""
    _check_empty(empty)
    relevant = ideal > 0
    ratios = found[relevant] / ideal[relevant]
    if empty == "skip":
        return float(ratios.mean()) if ratios.size else float("nan")
    return float((ratios.sum() + (empty == "1") * (~relevant).sum()) / ideal.size)


_IF_EMPTY = {"skip": float("nan"), "0": 0.0, "1": 1.0}


class _Given(NamedTuple):
    scores: Floats
    grades: Floats
    offsets: Ints
    ties: Floats


def _checked(scores: Any, grades: Any, offsets: Any, ties: Any) -> _Given:
    found, starts = np.asarray(scores, dtype=np.float64), np.asarray(offsets)
    if starts.ndim != 1 or starts.size < 1 or starts[0] != 0 or (np.diff(starts) < 0).any() or starts.dtype.kind != "i":
        raise InvalidInput(f"offsets are {offsets!r:.80}; give whole numbers that begin with 0 and do not fall")
    if found.ndim != 1 or not len(found) == len(grades) == starts[-1]:
        raise InvalidInput(f"{len(found)} scores, {len(grades)} grades and offsets up to {starts[-1]}; all must agree")
    order = np.zeros(found.size) if ties is None else np.asarray(ties, dtype=np.float64)
    if order.shape != found.shape:
        raise InvalidInput(f"ties have shape {order.shape} for {found.size} scores; give one a score")
    for name, values in (("score", found), ("tie", order)):
        if np.isnan(values).any():
            at = int(np.isnan(values).argmax())
            query = int(np.searchsorted(starts, at, side="right")) - 1
            raise InvalidInput(f"{name} {at} (document {at - starts[query]} of query {query}) is not a number")
    return _Given(found, _grades(grades), starts.astype(np.int64), order)


def _grades(grades: Any) -> Floats:
    values = np.asarray(grades, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise InvalidInput(f"grades are {grades!r:.80}; give a list of finite numbers of at least 0")
    return values


def _gains(grades: Floats, gain: str) -> Floats:
    if gain not in get_args(Gain):
        raise InvalidInput(f"gain is {gain!r}; it must be one of {', '.join(get_args(Gain))}")
    if gain == "linear":
        return grades
    if grades.max(initial=0.0) > HIGHEST_GRADE:
        raise InvalidInput(
            f"a grade is {grades.max():g}; above {HIGHEST_GRADE:g} 2^grade is too large: scale grades, or gain='linear'"
        )
    gains: Floats = 2.0**grades - 1.0
    return gains


def _top(grades: Floats, highest: float) -> float:
    if not grades.max(initial=0.0) <= highest < np.inf:
        raise InvalidInput(f"highest is {highest!r}; it is the top of the scale, and a grade is {grades.max():g}")
    return float(highest)


def _chance(p: float) -> float:
    if not 0.0 <= p < 1.0:
        raise InvalidInput(f"p is {p!r}; it is the probability to go on and must be at least 0 and below 1")
    return float(p)


def _check_empty(empty: str) -> None:
    if empty not in _IF_EMPTY:
        raise InvalidInput(f"empty is {empty!r}; queries with nothing relevant can be 'skip', '0' or '1'")


def _cut(k: int) -> int:
    if k < 1:
        raise InvalidInput(f"k is {k}; a list is cut after at least one position")
    return k
