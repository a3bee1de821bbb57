"""Interleaving: show one list mixed from several rankers, and read from the clicks which of them ranks better.

A mixed list carries all that scoring needs, and scoring is a function of list and clicks alone: any number of lists can
be open, and clicks may come late, in any order or never.

>>> rng = np.random.default_rng(0)
>>> mixed = mix([[0, 1, 2, 3], [3, 1, 0, 2]], k=3, rng=rng)
>>> mixed.order
array([3, 0, 2])
>>> outcome(mixed, clicks=[1, 0, 0]).round(3)  # the second ranker wants document 3 first, the first one last
array([0.015, 0.985])

Three methods, each for two rankers (interleaving) or more (multileaving):

- `team-draft`: rankers take turns; a click belongs to the one who put the document there. Lists are as good as the
  rankers' own. It cannot see some differences: with 0, 1, 2 against 1, 2, 0 and clicks on 2 it calls a draw for ever.
- `probabilistic`: each position draws a ranker, and from it a document by soft ranks. It sees every difference, but any
  document may come up anywhere. The credit is exact: no assignment of documents to rankers is ever sampled.
- `pairwise-preference`: each position takes any document that some ranker has so high; clicks tell pairs of documents
  apart and rankers are credited for the pairs they order rightly. Sees every difference, with lists like team draft's.

References: Radlinski, Kurup, Joachims (CIKM 2008), team draft. Schuth et al. (CIKM 2014), team-draft multileaving.
Hofmann, Whiteson, de Rijke (CIKM 2011), probabilistic interleaving. Schuth et al. (SIGIR 2015), probabilistic
multileaving. Oosterhuis and de Rijke (CIKM 2017), pairwise-preference multileaving.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidInput, UnknownName
from rankloop.core.learner import require, require_number
from rankloop.core.types import Array
from rankloop.kernels import interleaving as kernels
from rankloop.kernels.feedback import filled

Method = Literal["team-draft", "probabilistic", "pairwise-preference"]
METHODS: tuple[Method, ...] = get_args(Method)
TAU = 3.0  # Hofmann et al. 2011, section 4: how fast soft ranks fall
_STEEPEST = 30.0  # beyond it the soft ranks of long lists would be too small for a float


class Mixed(NamedTuple):
    """A list mixed from several rankings, and what it takes to divide its clicks among them.

    The memo can travel in an impression's: `Mixed(method, impression.order, impression.memo)` scores the same.
    """

    method: Method
    order: Array  # (k,) positions in the candidate list, top first
    # team-draft: team (k,) int64, who put each document there; rankers (1,) int64, how many there are
    # probabilistic: credit (k, R) float64, the probability of each ranker to have put each document there
    # pairwise-preference: ranks (k, R) int64, each document's in each ranking; choices (k,) int64, how many could stand
    # at each position
    memo: Mapping[str, Array]

    @property
    def k(self) -> int:
        """How many documents are shown."""
        return len(self.order)


class Preferences(NamedTuple):
    """How likely each ranker is to have won against one of them, and to have lost."""

    win: Array  # (R,)
    loss: Array  # (R,)

    @property
    def tie(self) -> Array:
        """(R,) the rest."""
        rest: Array = np.maximum(1.0 - self.win - self.loss, 0.0)
        return rest

    @property
    def score(self) -> Array:
        """(R,) win - loss: above 0 where the ranker did better."""
        score: Array = self.win - self.loss
        return score


# -- mixing --------------------------------------------------------------------------------------------------------


def mix(
    rankings: ArrayLike, k: int, rng: np.random.Generator, method: Method = "probabilistic", tau: float = TAU
) -> Mixed:
    """A list of k documents mixed from the rankings.

    Parameters
    ----------
    rankings
        (R, n) a row a ranker: all positions of the candidate list, top first. `rankings_of` makes them from scores.
    k
        Documents to show, at most n.
    rng
        Where the random numbers come from.
    method
        team-draft, probabilistic or pairwise-preference.
    tau
        How fast the soft ranks 1/rank^tau fall (probabilistic only): 0 shows anything, 30 almost the rankings' order.

    Examples
    --------
    >>> mixed = mix([[0, 1, 2], [0, 2, 1], [0, 1, 2]], 2, np.random.default_rng(1), "team-draft")
    >>> mixed.order, mixed.memo["team"]
    (array([0, 1]), array([1, 2]))

    Notes
    -----
    Probabilistic multileaving draws a ranker for each position independently, as the interleaving of Hofmann et al.
    (2011) does: only then are positions independent given the list, which makes the credit exact.
    """
    rows = _checked_rankings(rankings)
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= rows.shape[1]:
        raise InvalidInput(
            f"k is {k!r}; it must be a whole number from 1 to {rows.shape[1]}, the number of documents in a ranking"
        )
    if method == "team-draft":
        order, team = kernels.team_draft(rows, rng.random(k), k)
        return Mixed(method, order, {"team": team, "rankers": np.array([len(rows)])})
    if method == "probabilistic":
        order, credit = kernels.probabilistic(rows, rng.random((2, k)), k, _checked_tau(tau))
        return Mixed(method, order, {"credit": credit})
    _check_method(method)
    order, ranks, choices = kernels.pairwise_preference(rows, rng.random(k), k)
    return Mixed(method, order, {"ranks": ranks, "choices": choices})


def rankings_of(scores: ArrayLike, rng: np.random.Generator) -> Array:
    """(R, n) the rankings that scores (R, n) give, highest first; equal scores in random order, the same for all.

    >>> rankings_of([[0.1, 0.7, 0.2], [3, 2, 1]], np.random.default_rng(0))
    array([[1, 2, 0],
           [0, 1, 2]])
    """
    try:
        table = np.ascontiguousarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"scores are not a table of numbers ({error}); give (R, n), a row a ranker") from None
    if table.ndim != 2 or table.size == 0:
        raise InvalidInput(f"scores have shape {table.shape}; give (R, n), a row a ranker")
    if np.isnan(table).any():
        r, i = (int(v) for v in np.argwhere(np.isnan(table))[0])
        raise InvalidInput(f"scores[{r}, {i}] is nan; a document without a score has no rank: give it one")
    return kernels.rankings(table, rng.random(size=(table.shape[1],)))


def credit_of(rankings: ArrayLike, order: ArrayLike, tau: float = TAU) -> Array:
    """(k, R) how likely each ranker is to have put each document there, for any list, whoever ordered it.

    For a list that was changed after mixing, or adopted: `Mixed("probabilistic", order, {"credit": credit_of(…)})` is
    scored like any other. Mind that only lists drawn by `mix` treat rankers alike: a list in one ranker's own order
    credits that ranker with most of its clicks, whatever they are on.

    Parameters
    ----------
    rankings
        (R, n) as for `mix`.
    order
        (k,) positions of the candidate list that were shown, top first.
    tau
        How fast the soft ranks fall.

    Examples
    --------
    >>> credit_of([[0, 1, 2], [1, 0, 2]], [2, 0, 1], tau=1)  # a document that both have last, then one they disagree on
    array([[0.5       , 0.5       ],
           [0.66666667, 0.33333333],
           [0.5       , 0.5       ]])
    """
    rows = _checked_rankings(rankings)
    shown = _integers("order", order, 1)
    if shown.size == 0 or shown.min() < 0 or shown.max() >= rows.shape[1] or np.bincount(shown).max() > 1:
        raise InvalidInput(
            f"order is {shown.tolist()}; give at least one position from 0 to {rows.shape[1] - 1}, each at most once"
        )
    return kernels.credit_of(rows, shown, _checked_tau(tau))


# -- scoring -------------------------------------------------------------------------------------------------------


def outcome(mixed: Mixed, clicks: ArrayLike) -> Array:
    """(R,) each ranker's credit for the clicks.

    Team draft: the clicks on documents that it put there. Probabilistic: the same in expectation over all ways in which
    the list can have come about. Pairwise preference: the weight of the click pairs that it has in the right order,
    where a click is preferred to every unclicked document down to one below the last click.

    Parameters
    ----------
    mixed
        The list as `mix` made it.
    clicks
        (m,) above 0 for a clicked position, from the top; m may be shorter than the list.

    Examples
    --------
    >>> mixed = Mixed("team-draft", np.array([4, 2, 7]), {"team": np.array([0, 1, 1]), "rankers": np.array([2])})
    >>> outcome(mixed, [1, 1, 1])
    array([1., 2.])
    """
    values = _checked_clicks(mixed, clicks)
    if mixed.method == "team-draft":
        team, rankers = _team(mixed)
        return np.bincount(team[values > 0], minlength=rankers).astype(np.float64)
    if mixed.method == "probabilistic":
        return kernels.expected_clicks(_credit(mixed), values)
    return kernels.pair_credit(*_pair_memo(mixed), values)


def preferences(mixed: Mixed, clicks: ArrayLike, against: int = 0) -> Preferences:
    """The probability that each ranker beats ranker `against` on this list, and that it loses.

    Probabilistic: exact, over all ways in which the list can have come about. Otherwise 0 or 1, by who has the larger
    `outcome`. With pairwise preference add up outcomes instead: there the winner of a list has many light pairs or few
    heavy ones, so that counting lists is not fair even if clicks are random, while outcomes are.

    >>> mixed = Mixed("probabilistic", np.array([5, 3]), {"credit": np.array([[0.25, 0.75], [0.5, 0.5]])})
    >>> found = preferences(mixed, clicks=[1, 1])
    >>> found.win, found.loss, found.tie
    (array([0.   , 0.375]), array([0.   , 0.125]), array([1. , 0.5]))
    """
    if mixed.method == "probabilistic":
        posterior, values = _credit(mixed), _checked_clicks(mixed, clicks)
        win, loss = kernels.win_and_loss(posterior, values, _checked_ranker(against, posterior.shape[1]))
        return Preferences(win, loss)
    credit = outcome(mixed, clicks)
    lead = credit - credit[_checked_ranker(against, credit.size)]
    least = 1e-9 * credit.max()  # weights of pairs are not whole numbers: equal sums may differ in the last bits
    return Preferences((lead > least).astype(np.float64), (lead < -least).astype(np.float64))


# -- what is let in ------------------------------------------------------------------------------------------------


def _checked_rankings(rankings: ArrayLike) -> Array:
    rows = _integers("rankings", rankings, 2)
    if len(rows) < 2 or rows.shape[1] == 0:
        raise InvalidInput(f"rankings have shape {rows.shape}; give (R, n): at least two rankers, a row each")
    odd = kernels.odd_one(rows)
    if odd >= 0:
        raise InvalidInput(
            f"rankings[{odd}] is {_shortened(rows[odd])}; it must hold each of 0 … {rows.shape[1] - 1} once, "
            "the positions of all candidates"
        )
    return rows


def _integers(name: str, values: ArrayLike, dimensions: int) -> Array:
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


def _checked_clicks(mixed: Mixed, clicks: ArrayLike) -> Array:
    """(k,) clicks as float64, positions that were not reported filled with 0."""
    _check_method(mixed.method)
    try:
        reported = np.asarray(clicks, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"clicks are {clicks!r}; give a number for each position") from None
    if reported.ndim != 1 or reported.size > mixed.k:
        raise InvalidInput(f"clicks have shape {reported.shape} for {mixed.k} shown; give at most one value a position")
    values, fine = filled(reported, mixed.k, np.finfo(np.float64).max)
    if not fine:
        raise InvalidInput(f"clicks are {reported.tolist()}; every value must be a finite number of at least 0")
    return (values > 0.0).astype(np.float64)  # whatever a click was worth, it is one


def _team(mixed: Mixed) -> tuple[Array, int]:
    team, rankers = _memo(mixed, "team", np.int64, mixed.k), _memo(mixed, "rankers", np.int64, 1)
    _must(mixed, "team", bool(rankers[0] > 0) and bool((team >= 0).all() and (team < rankers[0]).all()))
    return team, int(rankers[0])


def _credit(mixed: Mixed) -> Array:
    credit = _memo(mixed, "credit", np.float64, mixed.k, None)
    _must(mixed, "credit", bool(((credit >= 0.0) & (credit <= 1.0)).all()))
    return credit


def _pair_memo(mixed: Mixed) -> tuple[Array, Array]:
    ranks, choices = _memo(mixed, "ranks", np.int64, mixed.k, None), _memo(mixed, "choices", np.int64, mixed.k)
    _must(mixed, "ranks", bool((ranks >= 0).all()))
    _must(mixed, "choices", bool((choices > 0).all()))
    return ranks, choices


def _memo(mixed: Mixed, name: str, dtype: Any, *shape: int | None) -> Array:
    """An array of the memo: kernels do not look whether it is whole."""
    value = mixed.memo.get(name)
    found = () if value is None else value.shape
    fits = len(found) == len(shape) and all(want in (None, size) for size, want in zip(found, shape, strict=True))
    _must(mixed, name, fits and value is not None and value.dtype == dtype and value.size > 0)
    whole: Array = np.ascontiguousarray(value)
    return whole


def _must(mixed: Mixed, name: str, rule: bool) -> None:
    if not rule:
        raise InvalidInput(
            f"the memo's {name!r} is missing or not that of a {mixed.method} list of {mixed.k}; pass on what mix made"
        )


def _shortened(row: Array) -> str:
    return str(row.tolist()) if row.size <= 20 else f"{row[:20].tolist()[:-1]} …"
