"""Position bias from a log alone, by comparing the same query-document pair at different ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from rankloop.clicks.log import SessionLog
from rankloop.core.errors import DataError
from rankloop.core.types import Array


@dataclass(frozen=True, eq=False)
class PositionBias:
    """How often each rank is looked at, relative to the first, with standard errors.

    A rank has nan where the log does not tell: no pair connects it, by clicks in both directions, with the first one.
    A rank that was compared and never clicked has 0, without an error.
    """

    examination: Array  # (K,), 1 at the first rank
    error: Array  # (K,) standard errors, 0 at the first rank
    shows: Array  # (K,) displays of pairs that were shown at several ranks and clicked at one
    clicks: Array  # (K,) clicks on them
    pairs: int  # how many such pairs

    def summary(self) -> dict[str, Any]:
        """All of it, as JSON would say it."""
        found = dict(vars(self))
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def position_bias(log: SessionLog) -> PositionBias:
    """Estimate how often each rank is looked at, whatever the documents are worth.

    If a pair was shown w_k times at rank k and c_k is how often it was clicked there, the position-based model says
    E[c_k] = w_k · attraction · examination_k. Given the pair's clicks, each fell on rank k with probability
    w_k examination_k / Σ_j w_j examination_j, in which the attraction has cancelled: so a pair that moved is a small
    experiment about ranks, and pairs that never moved tell nothing. Examination is the maximum of the likelihood of all
    these experiments.

    No model of attraction is needed, and no random numbers; the swaps may come from any source that does not itself
    follow the clicks of the day: an exploring learner, an A/B test, a new index. It is a ratio to the first rank.

    Examples
    --------
    Two documents that changed places: four clicks at the first rank, two at the second, for the same displays.

    >>> from rankloop.clicks.log import Page
    >>> pages = [Page("1", "shoes", ["a", "b"], flags) for flags in ([1, 0], [1, 0], [1, 0], [0, 1])]
    >>> pages += [Page("2", "shoes", ["b", "a"], flags) for flags in ([1, 0], [0, 1], [0, 0], [0, 0])]
    >>> found = position_bias(SessionLog.from_pages(pages))
    >>> found.examination.round(6).tolist(), found.pairs
    ([1.0, 0.5], 2)

    Notes
    -----
    The data are those of intervention harvesting (Agarwal, Zaitsev, Wang, Li, Najork & Joachims 2019). They sum the
    click rates of all pairs seen at two ranks and fit a relevance for each two ranks. Here each pair is compared with
    itself only, which is the fixed-effects Poisson estimator of panel data (Hausman, Hall & Griliches 1984). It is
    consistent when the means are right, though clicks are not Poisson (Wooldridge 1999), with his robust standard
    errors, pair by pair. Errors of examination are those of its logarithm times itself.
    """
    shows, clicks = _moved(log)
    ranks, compared = log.ranks, (shows > 0).any(axis=0)
    linked = _linked(shows, clicks)
    examination, error = np.full(ranks, np.nan), np.full(ranks, np.nan)
    examination[compared & (clicks.sum(axis=0) == 0)] = 0.0
    examination[0], error[0] = 1.0, 0.0
    inside = np.flatnonzero(linked)
    if len(inside) > 1:
        examination[inside], error[inside] = _estimate(shows[:, inside], clicks[:, inside])
    return PositionBias(examination, error, shows.sum(axis=0), clicks.sum(axis=0), len(shows))


def _moved(log: SessionLog) -> tuple[Array, Array]:
    """(I, K) displays and clicks of the pairs that were shown at several ranks and clicked."""
    if log.ranks == 0:
        raise DataError("the log has no pages; position bias needs pairs shown at several ranks")
    inside = log.shown >= 0
    cell = (log.shown * log.ranks + np.arange(log.ranks))[inside]
    cells, at = np.unique(cell, return_inverse=True)
    pair, rank = np.divmod(cells, log.ranks)
    places = np.bincount(pair, minlength=len(log.pairs))
    clicked = np.bincount(at, log.clicks[inside], len(cells))
    wanted = (places > 1) & (np.bincount(pair, clicked, len(log.pairs)) > 0)
    row = np.cumsum(wanted) - 1
    kept = wanted[pair]
    shows, clicks = np.zeros((int(wanted.sum()), log.ranks)), np.zeros((int(wanted.sum()), log.ranks))
    shows[row[pair[kept]], rank[kept]] = np.bincount(at, minlength=len(cells))[kept]
    clicks[row[pair[kept]], rank[kept]] = clicked[kept]
    return shows, clicks


def _linked(shows: Array, clicks: Array) -> Array:
    """(K,) which ranks can be compared with the first: a finite estimate needs clicks in both directions."""
    ranks = shows.shape[1]
    clicked, shown = clicks > 0, shows > 0
    wins = np.array([[bool((clicked[:, k] & shown[:, j]).any()) for j in range(ranks)] for k in range(ranks)])
    _, component = connected_components(csr_matrix(wins), connection="strong")
    linked: Array = component == component[0]
    return linked


def _estimate(shows: Array, clicks: Array) -> tuple[Array, Array]:
    """(K,) examination relative to the first rank, by Newton's method on its logarithm, and its standard errors."""
    alive = (shows > 0).sum(axis=1) > 1  # some may have lost the ranks that they were compared at
    shows, clicks = shows[alive], clicks[alive]
    totals = clicks.sum(axis=1, keepdims=True)
    log_examination = np.zeros(shows.shape[1])

    def likelihood(at: Array) -> tuple[float, Array]:
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
    examination: Array = np.exp(log_examination)
    return examination, examination * np.sqrt(np.append(0.0, np.diagonal(variance)))


def _curvature(shares: Array, totals: Array) -> Array:
    """(K - 1, K - 1) minus the second derivatives of the likelihood; the first rank is fixed."""
    free = shares[:, 1:]
    curvature: Array = np.diag((totals * free).sum(axis=0)) - np.einsum("ij,ik->jk", totals * free, free)
    return curvature
