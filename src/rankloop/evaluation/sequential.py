"""Watch a mean as it comes in, and stop whenever you like: intervals that hold at every moment at once.

A common confidence interval is right at the one sample size that was fixed before. Who looks every day and stops when
it says what he hopes for is wrong far more often than 5 %. A confidence sequence is a whole sequence of intervals, and
with probability 1 - alpha all of them hold the mean, so one may look after every value and stop for any reason.

>>> watch = ConfidenceSequence(alpha=0.05)
>>> rng = np.random.default_rng(0)
>>> watch.add(rng.choice([-1.0, 0.0, 1.0], size=2000, p=[0.15, 0.6, 0.25]))  # users prefer one of two lists, or none
>>> low, high = watch.interval()
>>> low < 0.1 < high, watch.verdict
(True, 'above')

How many values it takes is predicted by `samples_needed` beforehand and by `still_needed` on the way.
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
from rankloop.core.types import Array
from rankloop.kernels import sequential as kernels

POINTS = 65  # of the grid on which values are counted: a step of 1/32, with -1, 0 and 1 on it
BETS = 0.9 * 0.45 ** np.arange(8)  # shares of the wealth: .9 finds a mean of 1 in 9 values, .003 one of .003
_NORMAL = NormalDist()
_LEAST = 5.0  # values other than 0 (their squares' sum) before anything is predicted
_MOST = 10**9  # beyond it, a number of values means: never
_SHAPES = {"counts_": (POINTS,), "sums_": (3,), "wealth_": (2, BETS.size), "crossed_": (2,)}
Verdict = Literal["above", "below", "undecided"]


@dataclass
class ConfidenceSequence:
    """An interval for the mean of values in [-1, 1] that holds at all times at once.

    Choose it to compare two rankers on live traffic, or for anything that is watched while it runs.

    Parameters
    ----------
    alpha
        How likely it is that the mean is ever outside of the interval. Each side takes half of it: one who looks at one
        end only, and gives 2 alpha, is wrong with probability alpha.
    against
        The mean that the verdict is about.

    Examples
    --------
    >>> watch = ConfidenceSequence()
    >>> watch.add([0.0, -1.0, -1.0, 0.0, -1.0, -0.5] * 5)
    >>> watch.n, round(watch.mean, 3), watch.verdict
    (30, -0.583, 'below')

    Notes
    -----
    For every m a gambler bets that the mean is not m. Where the mean is m, no way of betting makes rich: by Ville's
    inequality wealth ever reaches 2 / alpha with probability alpha / 2 at most. The interval is all m at which he has
    not become so rich. (I. Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by betting, JRSS B
    2024, section 4.) His bets are a mixture, 8 fixed shares of his wealth from .9 down to .003, as in their section
    on diversified betting and in F. Orabona and K.-S. Jun, Tight concentrations and confidence sequences from the
    regret of universal portfolio, IEEE Trans. Inf. Theory 2024. Their default, one share that falls with time, is
    quicker where few values are enough, and takes up to twice as many where many are needed (docs/experiments.md).
    Shares are fixed, so wealth falls steadily in m, the interval is one, and its ends are found by halving, not on a
    grid of m.

    The proof needs no independence, only that each value's mean given those before it is m. If that mean moves, as
    that of a learner does, the verdict still says something: `below` is wrong with probability alpha / 2 at most if at
    no time the mean given the past was below 0. The interval is then about a mean over time, without that promise.

    Adding a value costs about 1 µs, and memory does not grow. Values are counted on a grid of 65 points; one between
    two of them counts as a mixture of both, which makes the interval a little wider and never wrong.
    """

    alpha: float = 0.05
    against: float = 0.0

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, 0, above=True)
        require(self.alpha < 1, "alpha", self.alpha, "must be below 1")
        require_number("against", self.against)
        require(abs(self.against) < 1, "against", self.against, "must be above -1 and below 1")
        self.counts_: Array = np.zeros(POINTS)
        self.sums_: Array = np.zeros(3)  # how many values, their sum, the sum of their squares
        self.wealth_: Array = np.zeros((2, BETS.size))  # log wealth of each bet on a mean above `against`, and below
        self.crossed_: Array = np.zeros(2)  # after how many values that said so, above and below; 0: not yet

    def add(self, values: ArrayLike) -> None:
        """Take in values, in the order they came."""
        given = self._checked(values)
        taken = 0
        while taken < given.size:
            taken += self._follow(given[taken:])

    def interval(self) -> tuple[float, float]:
        """The interval now. It always holds the mean of the values. All intervals hold at once, so what those of
        several moments have in common is one, too."""
        if not self.n:
            return -1.0, 1.0
        threshold = log(2.0 / self.alpha)
        low, high = (kernels.last_refused(self.counts_, BETS, self.mean, threshold, side) for side in (1.0, -1.0))
        return float(low), float(high)

    @property
    def n(self) -> int:
        """How many values have come."""
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
        """Whether the mean is above or below `against`, as soon as some interval has said so; it stays."""
        above, below = self.crossed_
        if not above and not below:
            return "undecided"
        return "above" if above and not 0 < below < above else "below"

    def state(self) -> dict[str, Array]:
        """Copies of all that it knows."""
        return {name: getattr(self, name).copy() for name in _SHAPES}

    def load(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from `state`, bit for bit."""
        fresh = {name: np.array(state.get(name, ()), dtype=np.float64) for name in _SHAPES}
        shapes = {name: array.shape for name, array in fresh.items()}
        if shapes != _SHAPES:
            raise InvalidInput(f"the state has {shapes}; it is not that of a ConfidenceSequence")
        for name, array in fresh.items():
            setattr(self, name, array)

    def _follow(self, values: Array) -> int:
        arrays = (self.counts_, self.sums_, self.wealth_, self.crossed_)
        return kernels.follow(*arrays, values, BETS, self.against, log(2.0 / self.alpha))

    @staticmethod
    def _checked(values: ArrayLike) -> Array:
        given = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if given.ndim != 1 or not (np.abs(given) <= 1.0).all():
            raise InvalidInput(f"values are {values!r:.80}; they must be numbers from -1 to 1, one after the other")
        return given


# -- how long it will take -----------------------------------------------------------------------------------------


def samples_needed(effect: float, variance: float, alpha: float = 0.05, power: float = 0.95) -> int | None:
    """How many values it takes until a `ConfidenceSequence` tells their mean from 0, with probability `power`.

    None if a billion is not enough.

    Parameters
    ----------
    effect
        The mean that is to be found, from -1 to 1 but not 0; its sign does not matter.
    variance
        Of the values. If a part d of them is -1 or 1 and the others are 0, it is d - effect².
    alpha, power
        How likely a wrong verdict may be, and how likely some verdict must be.

    Examples
    --------
    >>> samples_needed(0.2, 0.96), samples_needed(0.1, 0.99), samples_needed(0.01, 0.0999)
    (629, 2495, 25032)

    Notes
    -----
    By the normal approximation of the sum at that time, against the wealth that values of -1, 0 and 1 with such a mean
    and variance would have brought. It does not count on verdicts that come and would be lost again, so a little more
    than `power` will have come by then.
    """
    size = abs(float(effect))
    require(0.0 < size <= 1.0, "effect", effect, "must be from -1 to 1, and not 0: a mean of 0 is never told from 0")
    require(0.0 <= variance <= 1.0 - size**2 + 1e-9, "variance", variance, "must be from 0 to 1 - effect²")
    require(0.0 < power < 1.0, "power", power, "must be above 0 and below 1")
    require(0.0 < alpha < 1.0, "alpha", alpha, "must be above 0 and below 1")
    second = max(min(variance + size**2, 1.0), size)  # of values from -1 to 1, no second moment is below |mean|²
    quantile, threshold = _NORMAL.inv_cdf(power), log(2.0 / alpha)

    def enough(n: int) -> bool:
        return n * size - quantile * sqrt(n * variance) >= kernels.least_sum(n, second, BETS, threshold)

    return _first(enough, 1)


def still_needed(watch: ConfidenceSequence, power: float = 0.95) -> int | None:
    """How many more values bring a verdict with probability `power`, by what is known now; None if that is too little.

    The mean is not known, and a guess from few values would promise too much. So it is taken to lie around the mean so
    far, as far as its standard error says, and the answer counts on that. The verdict must be one against 0.

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
    """The first number that is enough, to 1 in 1000; None if there is none below a billion."""
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
