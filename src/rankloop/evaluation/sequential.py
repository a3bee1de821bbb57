"""Confidence sequences: intervals for a mean that hold at all times at once, so that one may stop at any time.

>>> watch = ConfidenceSequence(alpha=0.05)
>>> rng = np.random.default_rng(0)
>>> watch.add(rng.choice([-1.0, 0.0, 1.0], size=2000, p=[0.15, 0.6, 0.25]))  # preferences between two rankers
>>> low, high = watch.interval()
>>> low < 0.1 < high, watch.verdict
(True, 'above')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidInput
from rankloop.core.learner import require, require_number
from rankloop.core.types import Floats
from rankloop.kernels import sequential as kernels

POINTS = 65  # of the grid on which values are counted: a step of 1/32, with -1, 0 and 1 on it
BETS = 0.9 * 0.45 ** np.arange(8)  # shares of the wealth, for large to small means
_NORMAL = NormalDist()
_LEAST = 5.0  # sum of squared values before anything is predicted
_MOST = 10**9  # a larger number of values means never
_SHAPES = {"counts_": (POINTS,), "sums_": (3,), "wealth_": (2, BETS.size), "crossed_": (2,)}
Verdict = Literal["above", "below", "undecided"]


@dataclass
class ConfidenceSequence:
    """An interval for the mean of values in [-1, 1] that holds at all times at once.

    Parameters
    ----------
    alpha
        Probability that the mean is ever outside of the interval; half of it for each side.
    against
        The mean that the verdict compares with.

    Examples
    --------
    >>> watch = ConfidenceSequence()
    >>> watch.add([0.0, -1.0, -1.0, 0.0, -1.0, -0.5] * 5)
    >>> watch.n, round(watch.mean, 3), watch.verdict
    (30, -0.583, 'below')

    Notes
    -----
    Betting with a mixture of 8 fixed shares of the wealth (Waudby-Smith and Ramdas, JRSS B 2024, section 4; Orabona and
    Jun, IEEE Trans. Inf. Theory 2024). Values need not be independent: `below` is wrong with probability alpha / 2 at
    most if the mean given the past is never below `against`. Values are counted on a grid of 65 points; one between two
    points counts as a mixture of both, which makes the interval slightly wider. docs/experiments.md compares methods.
    """

    alpha: float = 0.05
    against: float = 0.0

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, 0, above=True)
        require(self.alpha < 1, "alpha", self.alpha, "must be below 1")
        require_number("against", self.against)
        require(abs(self.against) < 1, "against", self.against, "must be above -1 and below 1")
        self.counts_: Floats = np.zeros(POINTS)
        self.sums_: Floats = np.zeros(3)  # count, sum and sum of squares
        self.wealth_: Floats = np.zeros((2, BETS.size))  # log wealth of the bets on a mean above `against`, and below
        self.crossed_: Floats = np.zeros(2)  # number of values when above and below became significant; 0: not yet

    def add(self, values: ArrayLike) -> None:
        """Add values, in order."""
        given = self._checked(values)
        taken = 0
        while taken < given.size:
            taken += self._follow(given[taken:])

    def interval(self) -> tuple[float, float]:
        """Return the current interval."""
        if not self.n:
            return -1.0, 1.0
        threshold = log(2.0 / self.alpha)
        low, high = (kernels.last_refused(self.counts_, BETS, self.mean, threshold, side) for side in (1.0, -1.0))
        return float(low), float(high)

    @property
    def n(self) -> int:
        """Number of values."""
        return int(self.sums_[0])

    @property
    def mean(self) -> float:
        """Of the values so far; 0 if there are none."""
        return float(self.sums_[1] / self.sums_[0]) if self.n else 0.0

    @property
    def variance(self) -> float:
        """Of the values so far; 0 if there are none."""
        return max(float(self.sums_[2] / self.sums_[0]) - self.mean**2, 0.0) if self.n else 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether the mean is above or below `against`, once an interval has excluded it; final."""
        above, below = self.crossed_
        if not above and not below:
            return "undecided"
        return "above" if above and not 0 < below < above else "below"

    def state(self) -> dict[str, Floats]:
        """Return copies of the state."""
        return {name: getattr(self, name).copy() for name in _SHAPES}

    def load(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore `state`, bit for bit."""
        fresh = {name: np.array(state.get(name, ()), dtype=np.float64) for name in _SHAPES}
        shapes = {name: array.shape for name, array in fresh.items()}
        if shapes != _SHAPES:
            raise InvalidInput(f"the state has {shapes}; it is not that of a ConfidenceSequence")
        for name, array in fresh.items():
            setattr(self, name, array)

    def _follow(self, values: Floats) -> int:
        arrays = (self.counts_, self.sums_, self.wealth_, self.crossed_)
        return kernels.follow(*arrays, values, BETS, self.against, log(2.0 / self.alpha))

    @staticmethod
    def _checked(values: ArrayLike) -> Floats:
        given = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if given.ndim != 1 or not (np.abs(given) <= 1.0).all():
            raise InvalidInput(f"values are {values!r:.80}; they must be numbers from -1 to 1, one after the other")
        return given


# -- how long it will take -----------------------------------------------------------------------------------------


def samples_needed(effect: float, variance: float, alpha: float = 0.05, power: float = 0.95) -> int | None:
    """Return how many values a `ConfidenceSequence` needs to tell their mean from 0; None if a billion is not enough.

    Parameters
    ----------
    effect
        The mean, from -1 to 1 but not 0.
    variance
        Of the values. If a share d of them is -1 or 1 and the others are 0, it is d - effect².
    alpha, power
        Probability of a wrong verdict, and of reaching a verdict.

    Examples
    --------
    >>> samples_needed(0.2, 0.96), samples_needed(0.1, 0.99), samples_needed(0.01, 0.0999)
    (629, 2495, 25032)

    """
    size = abs(float(effect))
    require(0.0 < size <= 1.0, "effect", effect, "must be from -1 to 1, and not 0")
    require(0.0 <= variance <= 1.0 - size**2 + 1e-9, "variance", variance, "must be from 0 to 1 - effect²")
    require(0.0 < power < 1.0, "power", power, "must be above 0 and below 1")
    require(0.0 < alpha < 1.0, "alpha", alpha, "must be above 0 and below 1")
    second = max(min(variance + size**2, 1.0), size)  # values from -1 to 1
    quantile, threshold = _NORMAL.inv_cdf(power), log(2.0 / alpha)

    def enough(n: int) -> bool:
        return n * size - quantile * sqrt(n * variance) >= kernels.least_sum(n, second, BETS, threshold)

    return _first(enough, 1)


def still_needed(watch: ConfidenceSequence, power: float = 0.95) -> int | None:
    """Predict how many more values bring a verdict against 0 with probability `power`; None if too little is known.

    The true mean is taken as normal around the current mean.

    >>> watch = ConfidenceSequence()
    >>> watch.add([0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 1.0, 1.0, 0.0, -1.0] * 20)
    >>> still_needed(watch, 0.5), still_needed(watch, 0.95)
    (361, 11541)
    """
    if watch.verdict != "undecided":
        return 0
    n, mean, second = watch.n, watch.mean, float(watch.sums_[2] / max(watch.n, 1))
    if watch.sums_[2] < _LEAST or watch.variance <= 0.0:
        return None
    variance, threshold = watch.variance, log(2.0 / watch.alpha)

    def enough(more: int) -> bool:
        least = kernels.least_sum(n + more, second, BETS, threshold)
        expected = n * mean + more * mean
        spread = sqrt(more * variance + more**2 * variance / n)
        return _NORMAL.cdf((expected - least) / spread) + _NORMAL.cdf((-expected - least) / spread) >= power

    return _first(enough, 1)


def _first(enough: Callable[[int], bool], start: int) -> int | None:
    """Return the first sufficient number to 1 in 1000; None if there is none below a billion."""
    high = start
    while not enough(high):
        high = ceil(high * 1.25)
        if high > _MOST:
            return None
    low = int(high / 1.25)
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
