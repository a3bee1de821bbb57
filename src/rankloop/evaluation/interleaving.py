"""Interleaving: show one ranking that combines those of several rankers, and infer from clicks which is better.

>>> rng = np.random.default_rng(0)
>>> shown = interleave([[0, 1, 2, 3], [3, 1, 0, 2]], k=3, rng=rng)
>>> shown.order
array([3, 0, 2])
>>> credit(shown, clicks=[1, 0, 0]).round(3)
array([0.015, 0.985])

Methods, each for two or more rankers:

- `team-draft`: rankers take turns, a click is credited to the ranker that placed the document. Rankings are as good as
  the rankers' own, but some differences are invisible. Radlinski et al. (CIKM 2008), Schuth et al. (CIKM 2014).
- `probabilistic`: each position draws a ranker, and from it a document by soft ranks; the credit is exact. Sees every
  difference, but any document may appear anywhere. Hofmann et al. (CIKM 2011), Schuth et al. (SIGIR 2015).
- `pairwise-preference`: documents that a ranker has high enough; rankers are credited for click pairs in the right
  order. Oosterhuis and de Rijke (CIKM 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidInput, UnknownName
from rankloop.core.learner import require, require_number
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Floats, Ints
from rankloop.kernels import interleaving as kernels
from rankloop.kernels.input_checks import filled

Method = Literal["team-draft", "probabilistic", "pairwise-preference"]
METHODS: tuple[Method, ...] = get_args(Method)
TAU = 3.0  # decay of soft ranks: Hofmann et al. 2011, section 4
_STEEPEST = 30.0  # soft ranks of long rankings underflow beyond it


class InterleavedRanking(NamedTuple):
    """An interleaved ranking, and what is needed to divide its clicks among the rankers.

    `InterleavedRanking(method, impression.order, impression.memo)` scores the same if the memo is stored.
    """

    method: Method
    order: Ints  # (k,) positions in the candidate list, top first
    # team-draft: team (k,) int64, the ranker of each document; rankers (1,) int64, their number
    # probabilistic: credit (k, R) float64, the probability that each ranker placed each document
    # pairwise-preference: ranks (k, R) int64 in each ranking; choices (k,) int64, possible documents per position
    memo: Mapping[str, Array]

    @property
    def k(self) -> int:
        """Number of documents shown."""
        return len(self.order)


class Preferences(NamedTuple):
    """Probabilities that each ranker beats a reference ranker, and that it loses."""

    win: Floats  # (R,)
    loss: Floats  # (R,)

    @property
    def tie(self) -> Floats:
        """(R,) probabilities of a tie."""
        rest: Floats = np.maximum(1.0 - self.win - self.loss, 0.0)
        return rest

    @property
    def score(self) -> Floats:
        """(R,) win - loss."""
        score: Floats = self.win - self.loss
        return score


def interleave(
    rankings: ArrayLike, k: int, rng: np.random.Generator | int, method: Method = "probabilistic", tau: float = TAU
) -> InterleavedRanking:
    """Interleave rankings into one of k documents.

    Parameters
    ----------
    rankings
        (R, n) one row per ranker: all positions of the candidates, top first; see `rankings_from_scores`.
    k
        Documents to show, at most n.
    rng
        A generator, or a seed.
    method
        team-draft, probabilistic or pairwise-preference.
    tau
        Decay of the soft ranks 1/rank^tau (probabilistic only), from 0 to 30.

    Examples
    --------
    >>> shown = interleave([[0, 1, 2], [0, 2, 1], [0, 1, 2]], 2, 1, "team-draft")
    >>> shown.order, shown.memo["team"]
    (array([0, 1]), array([1, 2]))
    """
    rows, rng = _checked_rankings(rankings), as_rng(rng)
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= rows.shape[1]:
        raise InvalidInput(
            f"k is {k!r}; it must be a whole number from 1 to {rows.shape[1]}, the number of documents in a ranking"
        )
    if method == "team-draft":
        order, team = kernels.team_draft(rows, rng.random(k), k)
        return InterleavedRanking(method, order, {"team": team, "rankers": np.array([len(rows)])})
    if method == "probabilistic":
        order, credit = kernels.probabilistic(rows, rng.random((2, k)), k, _checked_tau(tau))
        return InterleavedRanking(method, order, {"credit": credit})
    _check_method(method)
    order, ranks, choices = kernels.pairwise_preference(rows, rng.random(k), k)
    return InterleavedRanking(method, order, {"ranks": ranks, "choices": choices})


def rankings_from_scores(scores: ArrayLike, rng: np.random.Generator | int) -> Ints:
    """Return (R, n) the rankings by scores (R, n), highest first; ties in random order, the same for all rankers.

    >>> rankings_from_scores([[0.1, 0.7, 0.2], [3, 2, 1]], 0)
    array([[1, 2, 0],
           [0, 1, 2]])
    """
    try:
        table = np.ascontiguousarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"scores are not a table of numbers ({error}); give (R, n), one row per ranker") from None
    if table.ndim != 2 or table.size == 0:
        raise InvalidInput(f"scores have shape {table.shape}; give (R, n), one row per ranker")
    if np.isnan(table).any():
        r, i = (int(v) for v in np.argwhere(np.isnan(table))[0])
        raise InvalidInput(f"scores[{r}, {i}] is nan; give every document a score")
    return kernels.rankings(table, as_rng(rng).random(size=(table.shape[1],)))


def credit(shown: InterleavedRanking, clicks: ArrayLike) -> Floats:
    """Return (R,) each ranker's credit for the clicks.

    Team draft: clicks on its documents. Probabilistic: their expectation over all ways to get the ranking. Pairwise
    preference: the weight of the click pairs that it orders rightly; a click is preferred to every unclicked document
    down to one below the last click.

    Parameters
    ----------
    shown
        The ranking that `interleave` returned.
    clicks
        (m,) above 0 for a clicked position, from the top; m may be smaller than k.

    Examples
    --------
    >>> memo = {"team": np.array([0, 1, 1]), "rankers": np.array([2])}
    >>> credit(InterleavedRanking("team-draft", np.array([4, 2, 7]), memo), [1, 1, 1])
    array([1., 2.])
    """
    values = _checked_clicks(shown, clicks)
    if shown.method == "team-draft":
        team, rankers = _team(shown)
        return np.bincount(team[values > 0], minlength=rankers).astype(np.float64)
    if shown.method == "probabilistic":
        return kernels.expected_clicks(_credit(shown), values)
    return kernels.pair_credit(*_pair_memo(shown), values)


def preferences(shown: InterleavedRanking, clicks: ArrayLike, against: int = 0) -> Preferences:
    """Return the probability that each ranker beats ranker `against` on this ranking, and that it loses.

    Exact for `probabilistic`, else 0 or 1 by the larger credit. For `pairwise-preference` add up credits instead,
    because counting wins is not fair there.

    >>> memo = {"credit": np.array([[0.25, 0.75], [0.5, 0.5]])}
    >>> found = preferences(InterleavedRanking("probabilistic", np.array([5, 3]), memo), clicks=[1, 1])
    >>> found.win, found.loss, found.tie
    (array([0.   , 0.375]), array([0.   , 0.125]), array([1. , 0.5]))
    """
    if shown.method == "probabilistic":
        posterior, values = _credit(shown), _checked_clicks(shown, clicks)
        win, loss = kernels.win_and_loss(posterior, values, _checked_ranker(against, posterior.shape[1]))
        return Preferences(win, loss)
    found = credit(shown, clicks)
    lead = found - found[_checked_ranker(against, found.size)]
    least = 1e-9 * found.max()  # equal sums may differ in the last bits
    return Preferences((lead > least).astype(np.float64), (lead < -least).astype(np.float64))


def _checked_rankings(rankings: ArrayLike) -> Ints:
    rows = _integers("rankings", rankings, 2)
    if len(rows) < 2 or rows.shape[1] == 0:
        raise InvalidInput(f"rankings have shape {rows.shape}; give (R, n): one row for each of at least two rankers")
    odd = kernels.odd_one(rows)
    if odd >= 0:
        raise InvalidInput(
            f"rankings[{odd}] is {_shortened(rows[odd])}; it must hold each of 0 … {rows.shape[1] - 1} once, "
            "the positions of all candidates"
        )
    return rows


def _integers(name: str, values: ArrayLike, dimensions: int) -> Ints:
    try:
        given = np.asarray(values)
    except ValueError:
        raise InvalidInput(f"{name} holds lists of different lengths; every ranker must rank all candidates") from None
    if given.ndim != dimensions:
        shape = "(R, n)" if dimensions == 2 else "(k,)"
        raise InvalidInput(f"{name} has shape {given.shape}; give {shape} positions, top first")
    if given.size and given.dtype.kind not in "iu":
        raise InvalidInput(f"{name} is of type {given.dtype}; positions are whole numbers: give integers")
    return np.ascontiguousarray(given, dtype=np.int64)


def _checked_ranker(number: int, rankers: int) -> int:
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or not 0 <= number < rankers:
        raise InvalidInput(f"against is {number!r}; it must be a ranker's number, from 0 to {rankers - 1}")
    return int(number)


def _checked_tau(tau: float) -> float:
    require_number("tau", tau, 0)
    require(tau <= _STEEPEST, "tau", tau, f"must be at most {_STEEPEST:g}")
    return float(tau)


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise UnknownName.among("interleaving method", method, METHODS)


def _checked_clicks(shown: InterleavedRanking, clicks: ArrayLike) -> Floats:
    """Return (k,) clicks as float64, 0 for positions that were not reported."""
    _check_method(shown.method)
    try:
        reported = np.asarray(clicks, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"clicks are {clicks!r}; give a number for each position") from None
    if reported.ndim != 1 or reported.size > shown.k:
        raise InvalidInput(f"clicks have shape {reported.shape} for {shown.k} shown; give one per position")
    values, fine = filled(reported, shown.k, np.finfo(np.float64).max)
    if not fine:
        raise InvalidInput(f"clicks are {reported.tolist()}; every value must be a finite number of at least 0")
    return (values > 0.0).astype(np.float64)  # rewards count as clicks


def _team(shown: InterleavedRanking) -> tuple[Ints, int]:
    team, rankers = _memo(shown, "team", np.int64, shown.k), _memo(shown, "rankers", np.int64, 1)
    _must(shown, "team", bool(rankers[0] > 0) and bool((team >= 0).all() and (team < rankers[0]).all()))
    return team, int(rankers[0])


def _credit(shown: InterleavedRanking) -> Floats:
    credit = _memo(shown, "credit", np.float64, shown.k, None)
    _must(shown, "credit", bool(((credit >= 0.0) & (credit <= 1.0)).all()))
    return credit


def _pair_memo(shown: InterleavedRanking) -> tuple[Ints, Ints]:
    ranks, choices = _memo(shown, "ranks", np.int64, shown.k, None), _memo(shown, "choices", np.int64, shown.k)
    _must(shown, "ranks", bool((ranks >= 0).all()))
    _must(shown, "choices", bool((choices > 0).all()))
    return ranks, choices


def _memo(shown: InterleavedRanking, name: str, dtype: Any, *shape: int | None) -> Array:
    """Return an array of the memo, checked."""
    value = shown.memo.get(name)
    found = () if value is None else value.shape
    fits = len(found) == len(shape) and all(want in (None, size) for size, want in zip(found, shape, strict=True))
    _must(shown, name, fits and value is not None and value.dtype == dtype and value.size > 0)
    whole: Array = np.ascontiguousarray(value)
    return whole


def _must(shown: InterleavedRanking, name: str, rule: bool) -> None:
    if not rule:
        raise InvalidInput(
            f"{name!r} is missing in the memo or not that of a {shown.method} ranking of {shown.k}; "
            "pass on what interleave returned"
        )


def _shortened(row: Ints) -> str:
    return str(row.tolist()) if row.size <= 20 else f"{row[:20].tolist()[:-1]} …"
