"""Shared parts of fitting click models: smoothing and expectation maximization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankloop.clicks.log import SessionLog
from rankloop.core.learner import require, require_number
from rankloop.core.types import Array
from rankloop.kernels import click_fits

TINY = 1e-9  # distance of estimates from 0 and 1, so that log-likelihoods are finite
_WORSE = 0.05  # log-likelihood per page: an extrapolation that loses more is rejected
RANK_PRIOR = 2.0  # pseudo-counts by rank: one click and one skip


def check_options(prior: object, tolerance: object = 0.0, iterations: object = 1) -> None:
    """Raise an error for invalid options."""
    require_number("prior", prior, 0)
    require_number("tolerance", tolerance, 0)
    whole = isinstance(iterations, int) and not isinstance(iterations, bool) and iterations >= 1
    require(whole, "iterations", iterations, "must be a whole number of at least 1")


def share(count: Array, total: Array, mean: Array | float, prior: float) -> Array:
    """Return count / total, smoothed by `prior` pseudo-counts with the given mean."""
    seen = np.maximum(total + prior, TINY)
    return np.clip((count + np.maximum(prior, TINY - total) * mean) / seen, TINY, 1.0 - TINY)


def pooled(count: Array, total: Array, prior: float) -> Array:
    """Return (P + 1,) each pair's share, smoothed to the mean of all pairs; the last is the mean, for unseen pairs."""
    mean = float(share(count.sum(), total.sum(), 0.5, 0.0))
    return np.append(share(count, total, mean, prior), mean)


Progress = Callable[[int, int], None]  # done, of how many at most


class ChainCounts:
    """Expected counts of one iteration for a model that reads from the top; see `click_fits.chain_counts`."""

    def __init__(self, log: SessionLog, by_rank: bool) -> None:
        self.log, self.by_rank = log, by_rank
        self.pages = (log.shown, log.lengths, log.clicks)
        _, self.clicked = click_fits.shown_and_clicked(*self.pages, 0, len(log.pairs))
        self.examined = np.zeros(len(log.pairs))
        self.satisfied = np.zeros(log.ranks if by_rank else len(log.pairs))
        self.asked = np.zeros_like(self.satisfied)
        self.flow = np.zeros((3, 2))

    def initial_attraction(self, prior: float) -> Array:
        """Return clicks per examination, assuming that users stop at the last click."""
        read, clicked = click_fits.shown_and_clicked(*self.pages, 2, len(self.log.pairs))
        return pooled(clicked, read, prior)

    def last_clicks(self) -> tuple[Array, Array]:
        """Return how many clicks were the last of their page, and how many there were, by pair or by rank."""
        return click_fits.last_clicks(*self.pages, self.by_rank, len(self.satisfied))

    def update(self, attraction: Array, satisfaction: Array, stay: Array) -> float:
        """Update the counts for these parameters and return the log-likelihood."""
        out = (self.examined, self.satisfied, self.asked, self.flow)
        return click_fits.chain_counts(attraction, satisfaction, self.by_rank, stay, *self.pages, *out)


Numbers = tuple[Array, ...]


def browse(
    log: SessionLog, columns: int, prior: float, tolerance: float, iterations: int, on_progress: Progress | None
) -> tuple[Array, Array, Array]:
    """Fit attraction (P + 1,) and examination (m, columns), and return the trace too; one column ignores clicks."""
    pages, pairs = (log.shown, log.lengths, log.clicks), len(log.pairs)
    shows, clicked = click_fits.shown_and_clicked(*pages, 0, pairs)
    rank_shows = click_fits.browsing_shows(log.lengths, log.clicks, columns)
    attracted, examined = np.zeros(pairs), np.zeros_like(rank_shows)
    rates = share(log.clicks.sum(axis=0), log.shows(), 0.5, RANK_PRIOR)
    rates /= rates.max()
    inside = log.shown >= 0
    looks = np.bincount(log.shown[inside], np.broadcast_to(rates, inside.shape)[inside], pairs)

    def update(attraction: Array, examination: Array) -> tuple[Numbers, float]:
        total = click_fits.browsing_counts(attraction, examination, *pages, attracted, examined)
        return (pooled(attracted, shows, prior), share(examined, rank_shows, 0.5, RANK_PRIOR)), total

    rates = np.minimum(rates, 0.99)  # 1 is a fixed point
    start = (pooled(clicked, np.maximum(looks, clicked), prior), np.repeat(rates[:, None], columns, axis=1))
    (attraction, examination), trace = maximize(update, start, len(log), tolerance, iterations, on_progress)
    return attraction, examination, trace


def maximize(
    update: Callable[..., tuple[Numbers, float]],
    start: Numbers,
    pages: int,
    tolerance: float,
    iterations: int,
    on_progress: Progress | None,
) -> tuple[Numbers, Array]:
    """Run expectation maximization from `start` until no parameter changes by more than `tolerance`.

    `update` returns the next parameters and the log-likelihood of the last ones. Every second update is followed by an
    extrapolation (SQUAREM of Varadhan & Roland 2008, third step length) unless it lowers the log-likelihood too much.
    Returns the parameters and (i,) the mean log-likelihoods per page.
    """
    trace: list[float] = []

    def updated(numbers: Array) -> Array:
        parts = np.split(numbers, ends)
        found, total = update(*(part.reshape(one.shape) for part, one in zip(parts, start, strict=True)))
        trace.append(total / pages)
        if on_progress:
            on_progress(len(trace), iterations)
        return np.concatenate([part.ravel() for part in found])

    ends = np.cumsum([one.size for one in start])[:-1]
    numbers, safe = np.concatenate([one.ravel() for one in start]), None
    while True:
        first = updated(numbers)
        step = first - numbers
        if np.abs(step).max() <= tolerance or len(trace) >= iterations:
            break
        if safe is not None and trace[-1] < trace[-2] - _WORSE:
            numbers, safe = safe, None
            continue
        safe = updated(first)
        bend = safe - first - step
        length = max(1.0, float(np.sqrt((step**2).sum() / max((bend**2).sum(), TINY**2))))
        far = numbers + 2.0 * length * step + length**2 * bend
        numbers = np.where((far > TINY) & (far < 1.0 - TINY), far, safe)
    parts = np.split(first, ends)
    return tuple(part.reshape(one.shape) for part, one in zip(parts, start, strict=True)), np.array(trace)
