"""Estimates from a log and their intervals: units that are never split, the jackknife over groups of them, bounds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array
from rankloop.evaluation.statistics import cr2_terms

GROUPS = 200  # of lists, for the jackknife: its error is then known to 5 %
FEW = 30.0  # effective clicks below which the normal approximation is not to be trusted …
FEW_LISTS = 100.0  # … and effective lists, where these are not even half of all: weights that vary much have tails
SUMS = 2_000_000  # numbers that the sums over groups may be, so that very long lists make fewer groups …
FEWEST = 20  # … but not below this, as many as there are where examination is fitted again and again


class Estimate(NamedTuple):
    """A mean over lists, and where it lies with the probability asked for."""

    value: float
    low: float
    high: float
    error: float  # standard error
    effective: float  # how many equally weighted clicks (by position) or lists (by list) would say as much
    warning: str = ""


class Statistic(NamedTuple):
    """An estimate before its interval: with all lists, and without each group of them."""

    value: float
    left_out: Array  # (G,) without each group
    effective: float
    means: Array | None = None  # (G,) for a mean over lists: each group's share of it, times G
    least: float = 0.0  # no share can be below
    largest: float = 0.0  # or above
    warning: str = ""
    units: Units | None = None  # what the groups are made of; None: groups of one size
    bounds: tuple[float, float] | None = None  # by list: between which the truth must lie
    off: float = 0.0  # by list: how much weights that do not average 1 can have put it off
    carried: bool = True  # by enough, evenly weighted enough, for Student's interval

    def minus(self, other: Statistic) -> Statistic:
        """The difference, of which the error is known exactly where the two share their lists."""
        both = self.means is not None and other.means is not None
        bounds = None
        if self.bounds is not None and other.bounds is not None:
            bounds = self.bounds[0] - other.bounds[1], self.bounds[1] - other.bounds[0]
        return Statistic(
            self.value - other.value,
            self.left_out - other.left_out,
            min(self.effective, other.effective),
            self.means - other.means if both else None,  # type: ignore[operator]
            self.least - other.largest,
            self.largest - other.least,
            self.warning or other.warning,
            self.units,
            bounds,
            self.off + other.off,
            self.carried and other.carried,
        )

    def estimate(self, level: float = 0.95) -> Estimate:
        """With its interval: Student's, or one that holds for any number where too few would carry that."""
        if not 0.0 < level < 1.0:
            raise InvalidParameter(f"level is {level!r}; it is a probability and must lie between 0 and 1")
        G = self.left_out.size
        error, half = self._student(level)
        low, high, warning = -np.inf, np.inf, self.warning
        if not self.carried:
            warning = warning or f"only {self.effective:.1f} effective observations: do not rely on it"
            if self.bounds is not None:
                low, high = self.bounds
                half = max(half, self.off + hoeffding(self.effective, high - low, level))
            elif self.means is not None and G > 1:
                half = max(half, bernstein(self.means, self.largest - self.least, level))
        half = half if np.isfinite(half) else np.inf
        # What is bounded cannot lie beyond; an estimate by weights can, and is then left in its own interval.
        low, high = (max(self.value - half, min(low, self.value)), min(self.value + half, max(high, self.value)))
        return Estimate(self.value, low, high, error, self.effective, warning)

    def _student(self, level: float) -> tuple[float, float]:
        """Standard error by the jackknife, groups weighed by their sizes, and half of Student's interval."""
        G = self.left_out.size
        if G < 2:
            return np.inf, np.inf
        units = Units.equal(G) if self.units is None else self.units
        keeps = 1.0 - units.share
        spread = self.left_out - (keeps * self.left_out).sum() / (G - 1)
        error = sqrt(float((keeps * spread**2).sum()) / units.bias)
        return error, float(stdtrit(units.df, 0.5 + level / 2)) * error


class Units(NamedTuple):
    """What is independent in a log, lists or users, put into groups for the jackknife."""

    group: Array  # (N,) of each list
    share: Array  # (G,) of all lists that each group has
    bias: float  # what the jackknife's variance is to be divided by, as groups differ in size …
    df: float  # … and its degrees of freedom (`statistics.cr2_terms`)
    number: int  # of lists, or of users

    @classmethod
    def of(cls, N: int, users: Array | Sequence[Hashable] | None, groups: int) -> Units:
        """N lists in at most so many groups, all of one user in the same; without users each list by itself.

        >>> Units.of(5, ["ann", "bob", "ann", "cid", "bob"], 2).group
        array([0, 1, 0, 0, 1])
        """
        if users is None:
            G = max(1, min(groups, N))
            share = np.bincount(np.arange(N) % G, minlength=G) / N
            return cls(np.arange(N) % G, share, *_terms(share, [share]), N)
        given: list[Hashable] = np.asarray(users).tolist() if isinstance(users, np.ndarray) else list(users)
        if len(given) != N:
            raise InvalidInput(f"{len(given)} users for {N} lists; give one a list")
        numbers: dict[Hashable, int] = {}
        user = np.array([numbers.setdefault(one, len(numbers)) for one in given])
        G = max(1, min(groups, len(numbers)))
        lists = np.bincount(user).astype(np.float64)
        squares = np.bincount(np.arange(lists.size) % G, lists**2, G)
        share = np.bincount(user % G, minlength=G) / N
        # Whether lists of a user go together is not known here: the fewer degrees of freedom of yes and no.
        return cls(user % G, share, *_terms(share, [share, squares]), lists.size)

    @classmethod
    def from_sums(cls, lists: Array, squares: Array | None, number: int) -> Units:
        """From the lists (G,) of each group, none of them empty; `squares` (G,) are the sums over a group's users of
        the square of how many lists each has, None if lists are the units. Which list is of which group is not kept.
        """
        share = lists / lists.sum()
        working = [share] if squares is None else [share, squares]
        return cls(np.empty(0, np.int64), share, *_terms(share, working), number)

    @classmethod
    def equal(cls, G: int) -> Units:
        """Groups of one size."""
        return cls(np.arange(G), np.full(G, 1.0 / G), 1.0, G - 1.0, G)

    def summed(self, values: Array) -> Array:
        """(G,) the sum over each group."""
        return np.bincount(self.group, values, self.share.size)


def _terms(share: Array, working: Sequence[Array]) -> tuple[float, float]:
    if share.size < 2:
        return 1.0, 1.0
    return min((cr2_terms(share, variances) for variances in working), key=lambda terms: terms[1])


def bernstein(values: Array, width: float, level: float) -> float:
    """Half an interval for the mean of independent values in a range of `width`; holds for any number of them.

    Maurer and Pontil 2009, theorem 4, on both sides.

    >>> round(bernstein(np.array([0.0, 1.0] * 500), 1.0, 0.95), 4)
    0.0571
    """
    n, logs = values.size, log(4.0 / (1.0 - level))
    return sqrt(2.0 * float(values.var(ddof=1)) * logs / n) + 7.0 * width * logs / (3.0 * (n - 1))


def hoeffding(effective: float, width: float, level: float) -> float:
    """Half an interval for a weighted mean of independent values in a range of `width`, by its effective number.

    Hoeffding 1963, theorem 2, on both sides: with weights w of sum 1, Σ (w width)² is width² over Kish's number.

    >>> round(hoeffding(1.0, 1.0, 0.95), 3), round(hoeffding(100.0, 1.0, 0.95), 3)
    (1.358, 0.136)
    """
    return width * sqrt(log(2.0 / (1.0 - level)) / (2.0 * effective)) if effective > 0.0 else np.inf
