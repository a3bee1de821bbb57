"""What the fits have in common: smoothing, and the climb of expectation maximisation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankloop.clicks.log import SessionLog
from rankloop.core.learner import require, require_number
from rankloop.core.types import Array
from rankloop.kernels import click_fits

TINY = 1e-9  # estimates stay this far from 0 and 1, so that every page has a logarithm
_WORSE = 0.05  # of log-likelihood a page: a leap that loses more is not taken
RANK_PRIOR = 2.0  # by rank there is much data: one click and one that was not, as if seen before, are enough


def check_options(prior: object, tolerance: object = 0.0, iterations: object = 1) -> None:
    """Refuse options that no fit takes."""
    require_number("prior", prior, 0)
    require_number("tolerance", tolerance, 0)
    whole = isinstance(iterations, int) and not isinstance(iterations, bool) and iterations >= 1
    require(whole, "iterations", iterations, "must be a whole number of at least 1")


def share(count: Array, total: Array, mean: Array | float, prior: float) -> Array:
    """count / total as if `prior` more had been seen, of which `mean` counted; `mean` where nothing was seen."""
    seen = np.maximum(total + prior, TINY)
    return np.clip((count + np.maximum(prior, TINY - total) * mean) / seen, TINY, 1.0 - TINY)


def pooled(count: Array, total: Array, prior: float) -> Array:
    """(P + 1,) each pair's share, drawn to the mean of all pairs, and at the end that mean for pairs never seen."""
    mean = float(share(count.sum(), total.sum(), 0.5, 0.0))
    return np.append(share(count, total, mean, prior), mean)


Progress = Callable[[int, int], None]  # done, of how many at most


class ChainCounts:
    """The expected counts of one round for a model that reads from the top; see `click_fits.chain_counts`."""

    def __init__(self, log: SessionLog, by_rank: bool) -> None:
        self.log, self.by_rank = log, by_rank
        self.pages = (log.shown, log.lengths, log.clicks)
        _, self.clicked = click_fits.shown_and_clicked(*self.pages, 0, len(log.pairs))
        self.examined = np.zeros(len(log.pairs))
        self.satisfied = np.zeros(log.ranks if by_rank else len(log.pairs))
        self.asked = np.zeros_like(self.satisfied)
        self.flow = np.zeros((3, 2))

    def first_attraction(self, prior: float) -> Array:
        """Clicks a look, as if everybody stopped reading at the last click."""
        read, clicked = click_fits.shown_and_clicked(*self.pages, 2, len(self.log.pairs))
        return pooled(clicked, read, prior)

    def last_clicks(self) -> tuple[Array, Array]:
        """How many clicks were a page's last, and how many there were, by pair or by rank."""
        return click_fits.last_clicks(*self.pages, self.by_rank, len(self.satisfied))

    def take(self, attraction: Array, satisfaction: Array, stay: Array) -> float:
        """Count under these numbers; the log-likelihood."""
        out = (self.examined, self.satisfied, self.asked, self.flow)
        return click_fits.chain_counts(attraction, satisfaction, self.by_rank, stay, *self.pages, *out)


Numbers = tuple[Array, ...]


def browse(
    log: SessionLog, columns: int, prior: float, tolerance: float, iterations: int, on_progress: Progress | None
) -> tuple[Array, Array, Array]:
    """Fit attraction (P + 1,) and examination (m, columns); the third is the trace. One column ignores clicks above.

    The start takes the click rates of the ranks for examination, which is the truth if all documents are alike.
    """
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

    rates = np.minimum(rates, 0.99)  # 1 would stay 1
    start = (pooled(clicked, np.maximum(looks, clicked), prior), np.repeat(rates[:, None], columns, axis=1))
    (attraction, examination), trace = climb(update, start, len(log), tolerance, iterations, on_progress)
    return attraction, examination, trace


def climb(
    update: Callable[..., tuple[Numbers, float]],
    start: Numbers,
    pages: int,
    tolerance: float,
    iterations: int,
    on_progress: Progress | None,
) -> tuple[Numbers, Array]:
    """Expectation maximisation from `start` until no number moves by more than `tolerance`, or `iterations` times.

    `update` gives the next numbers and the log-likelihood of the last ones. After every second update comes a leap
    along the direction of both (Varadhan & Roland 2008, SQUAREM with their third step length), which saves four of five
    updates on real logs; one that lands where pages are much less likely is not taken.

    The log-likelihood does not tell when to stop: with a prior whose mean is learned it may rise, fall and settle.
    Returns the numbers and (i,) the mean log-likelihoods of a page.
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
