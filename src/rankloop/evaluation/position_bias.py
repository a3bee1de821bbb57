"""Position bias: how often users examine each rank, given or estimated in three ways.

`position_bias` compares query-document pairs of a click log that were shown at several ranks. `examination_from_swaps`
uses the known probability of swapping two items in randomized rankings. `ExaminationModel` does the same incrementally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from rankloop.core.errors import CodecError, DataError, InvalidParameter
from rankloop.core.types import Bools, Floats, Ints
from rankloop.kernels.counting import strengths

RANKS = 32  # of `ExaminationModel`; lower ranks count as the last of them
PRIOR = 4.0  # pseudo-clicks for each pair of neighboring ranks, from the discount of DCG
EVERY = 64  # informative rankings between two estimates
STEPS = 40  # of the iteration, which starts from the last estimate


class Examination(NamedTuple):
    """How often users examine each rank, up to a factor; NaN where that is unknown."""

    values: Floats  # (K,)
    left_out: Floats | None = None  # (G, K) estimates without each group of rankings, for the jackknife

    @classmethod
    def known(cls, values: ArrayLike) -> Examination:
        """Return an examination that is given, not estimated.

        >>> Examination.known([1, 0.5, 0])
        Traceback (most recent call last):
        ...
        rankloop.core.errors.InvalidParameter: examination of rank 3 is 0.0; it must be a finite number above 0
        """
        found = np.array(values, dtype=np.float64)
        if found.ndim != 1 or found.size == 0:
            raise InvalidParameter(f"examination has shape {found.shape}; give a number a rank, from the top")
        for rank, value in enumerate(found.tolist(), 1):
            if not 0.0 < value < np.inf:
                raise InvalidParameter(f"examination of rank {rank} is {value}; it must be a finite number above 0")
        return cls(found)

    def longer(self, K: int) -> Examination:
        """Return the same for K ranks; the additional ones are unknown."""
        more = [(0, max(0, K - self.values.size))]
        left_out = None if self.left_out is None else np.pad(self.left_out, [(0, 0), *more], constant_values=np.nan)
        return Examination(np.pad(self.values, more, constant_values=np.nan), left_out)


# -- from swaps in randomized rankings -----------------------------------------------------------------------------


def swap_wins(clicks: Floats, shares: Floats) -> Floats:
    """Return (k, k) what one ranking says about examination: [p, q] is the click at p, weighted for comparison with q.

    `shares` (k, k) is P(R*) / (P(R) + P(R*)) for the ranking R and R* with the items of p and q swapped. Over R and R*
    together both items are at both ranks equally often, so clicks at p and q are proportional to their examination.
    """
    wins: Floats = shares * np.asarray(clicks, np.float64)[:, None]
    return wins


def examination_from_swaps(wins: Floats) -> Examination:
    """Estimate examination, 1 at the first rank, from sums of `swap_wins` over groups of rankings (G, K, K).

    A click on the pair of ranks (p, q) was at p with probability θ_p / (θ_p + θ_q) (Bradley and Terry 1952; after
    Agarwal et al., WSDM 2019). Ranks not connected to the first by swaps clicked at both ends are NaN.

    >>> examination_from_swaps(np.array([[[0.0, 8.0], [4.0, 0.0]]])).values
    array([1. , 0.5])
    """
    total = wins.sum(axis=0)
    if wins.shape[0] == 1:
        return Examination(_bradley_terry(total[None])[0])
    found = _bradley_terry(np.concatenate([total[None], total - wins]))
    return Examination(found[0], found[1:])


def _bradley_terry(wins: Floats) -> Floats:
    """(B, K) strengths of K players, 1 for the first, from wins (B, K, K) of row over column in B tournaments."""
    B, K, _ = wins.shape
    linked = np.zeros((B, K), np.bool_)
    linked[:, 0] = True
    both = (wins > 1e-9) & (np.swapaxes(wins, 1, 2) > 1e-9)  # 0 up to the rounding of differences
    for _ in range(K):
        linked |= (both & linked[:, None, :]).any(axis=2)
    wins = np.where(linked[:, :, None] & linked[:, None, :], wins, 0.0)
    games, won = wins + np.swapaxes(wins, 1, 2), wins.sum(axis=2)
    fixed = ~linked
    fixed[:, 0] = True
    free = ~fixed[:, :, None] & ~fixed[:, None, :]
    strength = np.zeros((B, K))  # as a logarithm
    for _ in range(100):
        share = 1.0 / (1.0 + np.exp(strength[:, None, :] - strength[:, :, None]))
        bend = games * share * (1.0 - share)
        slope = np.where(fixed, 0.0, won - (games * share).sum(axis=2))
        curvature = np.where(free, np.eye(K) * bend.sum(axis=2)[:, :, None] - bend, np.eye(K))
        step = np.clip(np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], -2.0, 2.0)
        strength += step
        if np.abs(step).max() < 1e-10:
            break
    return np.where(linked, np.exp(strength), np.nan)


class ExaminationModel:
    """Examination of each rank relative to the first, updated as outcomes are counted; bit-for-bit repeatable.

    The same model as `examination_from_swaps`, fitted by MM steps without BLAS (Hunter 2004). Rankings without
    randomization teach nothing. Without evidence, examination is the discount of DCG, 1 / log2(1 + rank).

    >>> model = ExaminationModel()
    >>> model.examination(3).round(2)
    array([1.  , 0.63, 0.5 ])
    >>> swapped = np.array([[0.0, 0.5], [0.5, 0.0]])  # as likely as the ranking itself
    >>> for n in range(640):
    ...     model.learn(np.array([1.0, 0.0] if n % 5 else [0.0, 1.0]), swapped)  # four clicks above, one below
    >>> model.examination(2).round(2)
    array([1.  , 0.25])
    """

    def __init__(self) -> None:
        prior = 1.0 / np.log2(2.0 + np.arange(RANKS))
        self._prior = np.zeros((RANKS, RANKS))
        for p in range(RANKS - 1):
            share = prior[p] / (prior[p] + prior[p + 1])
            self._prior[p, p + 1], self._prior[p + 1, p] = PRIOR * share, PRIOR * (1.0 - share)
        self.wins = np.zeros((RANKS, RANKS))
        self.lists = 0  # informative rankings
        self._values = prior

    def examination(self, k: int) -> Floats:
        """Return (k,) the examination of each rank, 1 for the first."""
        return self._values[:k] if k <= RANKS else np.append(self._values, np.full(k - RANKS, self._values[-1]))

    def learn(self, clicks: Floats, shares: Floats) -> None:
        """Learn from a randomized ranking: clicks (m,) and the shares (k, k) of its swaps, k >= m."""
        m = min(len(clicks), RANKS)
        if not clicks[:m].any() or not shares[:m, :m].any():
            return
        self.wins[:m, :m] += swap_wins(clicks[:m], shares[:m, :m])
        self.lists += 1
        if self.lists % EVERY == 0:
            self._values = np.minimum(strengths(self.wins + self._prior, self._values, STEPS), 4.0)

    def state(self) -> dict[str, Floats]:
        """Return copies of everything learned, as plain arrays."""
        return {"wins": self.wins.copy(), "lists": np.array([self.lists]), "looks": self._values.copy()}

    def load(self, state: Mapping[str, Floats]) -> None:
        """Restore `state`, bit for bit."""
        if state["wins"].shape != (RANKS, RANKS) or state["looks"].shape != (RANKS,):
            raise CodecError(f"the state of the examination model is not for {RANKS} ranks; count the log again")
        self.wins, self._values = state["wins"].copy(), state["looks"].copy()
        self.lists = int(state["lists"][0])


# -- from a click log ----------------------------------------------------------------------------------------------


class Pages(Protocol):
    """What `position_bias` needs of a log of result pages (`rankloop.clicks.SessionLog`)."""

    @property
    def shown(self) -> Ints:
        """(s, K) numbers of query-document pairs, -1 beyond the end of a page."""

    @property
    def clicks(self) -> NDArray[np.uint8]:
        """(s, K) 0 or 1."""

    @property
    def pairs(self) -> Sized:
        """The pairs."""


@dataclass(frozen=True, eq=False)
class PositionBias:
    """How often each rank is examined, relative to the first, with standard errors.

    A rank is NaN if no pair connects it, by clicks in both directions, with the first one. A rank that was compared and
    never clicked has 0, without an error.
    """

    examination: Floats  # (K,), 1 at the first rank
    error: Floats  # (K,) standard errors, 0 at the first rank
    shows: Floats  # (K,) impressions of pairs that were shown at several ranks and clicked
    clicks: Floats  # (K,) clicks on them
    pairs: int  # how many such pairs

    def summary(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        found = dict(vars(self))
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def position_bias(log: Pages) -> PositionBias:
    """Estimate how often each rank is examined, by comparing each query-document pair with itself at other ranks.

    Given a pair's clicks, the position-based model puts each on rank k with probability w_k θ_k / Σ_j w_j θ_j, where
    w_k is how often the pair was shown there; its attraction cancels. This is the fixed-effects Poisson estimator
    (Hausman, Hall and Griliches 1984) with robust standard errors (Wooldridge 1999). The data are those of intervention
    harvesting (Agarwal et al., WSDM 2019). Ranks must not have followed the clicks of the same day.

    >>> from rankloop.clicks import Page, SessionLog
    >>> pages = [Page("1", "shoes", ["a", "b"], flags) for flags in ([1, 0], [1, 0], [1, 0], [0, 1])]
    >>> pages += [Page("2", "shoes", ["b", "a"], flags) for flags in ([1, 0], [0, 1], [0, 0], [0, 0])]
    >>> found = position_bias(SessionLog.from_pages(pages))
    >>> found.examination.round(6).tolist(), found.pairs
    ([1.0, 0.5], 2)
    """
    shows, clicks = _moved(log)
    ranks, compared = shows.shape[1], (shows > 0).any(axis=0)
    linked = _linked(shows, clicks)
    examination, error = np.full(ranks, np.nan), np.full(ranks, np.nan)
    examination[compared & (clicks.sum(axis=0) == 0)] = 0.0
    examination[0], error[0] = 1.0, 0.0
    inside = np.flatnonzero(linked)
    if len(inside) > 1:
        examination[inside], error[inside] = _estimate(shows[:, inside], clicks[:, inside])
    return PositionBias(examination, error, shows.sum(axis=0), clicks.sum(axis=0), len(shows))


def _moved(log: Pages) -> tuple[Floats, Floats]:
    """(I, K) impressions and clicks of the pairs that were shown at several ranks and clicked."""
    ranks = log.shown.shape[1]
    if ranks == 0:
        raise DataError("the log has no pages; position bias needs pairs shown at several ranks")
    inside = log.shown >= 0
    cell = (log.shown * ranks + np.arange(ranks))[inside]
    cells, at = np.unique(cell, return_inverse=True)
    pair, rank = np.divmod(cells, ranks)
    places = np.bincount(pair, minlength=len(log.pairs))
    clicked = np.bincount(at, log.clicks[inside], len(cells))
    wanted = (places > 1) & (np.bincount(pair, clicked, len(log.pairs)) > 0)
    row = np.cumsum(wanted) - 1
    kept = wanted[pair]
    shows, clicks = np.zeros((int(wanted.sum()), ranks)), np.zeros((int(wanted.sum()), ranks))
    shows[row[pair[kept]], rank[kept]] = np.bincount(at, minlength=len(cells))[kept]
    clicks[row[pair[kept]], rank[kept]] = clicked[kept]
    return shows, clicks


def _linked(shows: Floats, clicks: Floats) -> Bools:
    """(K,) which ranks can be compared with the first: a finite estimate needs clicks in both directions."""
    ranks = shows.shape[1]
    clicked, shown = clicks > 0, shows > 0
    wins = np.array([[bool((clicked[:, k] & shown[:, j]).any()) for j in range(ranks)] for k in range(ranks)])
    _, component = connected_components(csr_matrix(wins), connection="strong")
    linked: Bools = component == component[0]
    return linked


def _estimate(shows: Floats, clicks: Floats) -> tuple[Floats, Floats]:
    """(K,) examination relative to the first rank, by Newton's method on its logarithm, and its standard errors."""
    alive = (shows > 0).sum(axis=1) > 1  # others were compared at ranks that are not linked
    shows, clicks = shows[alive], clicks[alive]
    totals = clicks.sum(axis=1, keepdims=True)
    log_examination = np.zeros(shows.shape[1])

    def likelihood(at: Floats) -> tuple[float, Floats]:
        weighted = shows * np.exp(at)
        whole = weighted.sum(axis=1, keepdims=True)
        return float((clicks.sum(axis=0) * at).sum() - (totals * np.log(whole)).sum()), weighted / whole

    height, shares = likelihood(log_examination)
    for _ in range(100):
        rest = (clicks - totals * shares)[:, 1:]
        curvature = _curvature(shares, totals)
        step = np.append(0.0, np.linalg.solve(curvature, rest.sum(axis=0)))
        while True:  # the likelihood is concave, so some part of the step goes up
            fresh, fresh_shares = likelihood(log_examination + step)
            if fresh >= height - 1e-9 * abs(height):
                break
            step = step / 2
        log_examination, height, shares = log_examination + step, fresh, fresh_shares
        if np.abs(step).max() < 1e-10:
            break
    rest = (clicks - totals * shares)[:, 1:]
    inverse = np.linalg.inv(_curvature(shares, totals))
    variance = inverse @ np.einsum("ij,ik->jk", rest, rest) @ inverse
    examination: Floats = np.exp(log_examination)
    return examination, examination * np.sqrt(np.append(0.0, np.diagonal(variance)))


def _curvature(shares: Floats, totals: Floats) -> Floats:
    """(K - 1, K - 1) minus the second derivatives of the likelihood; the first rank is fixed."""
    free = shares[:, 1:]
    curvature: Floats = np.diag((totals * free).sum(axis=0)) - np.einsum("ij,ik->jk", totals * free, free)
    return curvature
