"""Everything that says ±: means, their standard errors and intervals, clusters, paired differences, Holm.

One number a run is not a sample of as many numbers as there are rounds or queries: values that share a query, a fold,
a user or a seed go up and down together. Say which values belong together (`clustered`), and the error allows for it.

>>> str(mean([0.74, 0.75, 0.76]))
'0.750 ± 0.006'
>>> ndcg, query = [0.9, 0.8, 0.2, 0.3], ["a", "a", "b", "b"]
>>> str(mean(ndcg)), str(clustered(ndcg, query))  # four numbers, but two queries
('0.6 ± 0.2', '0.6 ± 0.3')

Intervals are Student's t. A value that is not a number (a query with nothing relevant has no NDCG, a run that did not
measure has no value) is left out, and `n` counts what stays; infinite ones are refused. How often the intervals hold
the truth is simulated in benchmarks/coverage.py.

References: Bell, McCaffrey, Bias reduction in standard errors for linear regression with multi-stage samples, Survey
Methodology 2002, and Imbens, Kolesár, Robust standard errors in small samples, REStat 2016 (one way: `clustered` is
their correction and degrees of freedom for a mean); Satterthwaite, An approximate distribution of estimates of variance
components, Biometrics 1946 (two ways); Holm, A simple sequentially rejective multiple test procedure, 1979.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import floor, isfinite, isnan, log10, nan, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array

K = TypeVar("K", bound=Hashable)
_SWEEPS = 200  # over the two labels of an incomplete table, until its additive fit stands
_ROUNDING = 1e-12  # a variance this much below the squared values is no variance but rounding


class Estimate(NamedTuple):
    """A number from a sample, with how far it may be off.

    >>> found = mean([1.0, 2.0, 3.0])
    >>> found.n, found.df, round(found.error, 4)
    (3, 2.0, 0.5774)
    >>> [round(bound, 3) for bound in found.interval()], round(found.p_above(0.0), 4)
    ([-0.484, 4.484], 0.0371)
    >>> mean([1.0]).interval()  # one value does not say how far it may be off
    (nan, nan)
    """

    value: float
    error: float  # standard error; nan where there are not two values or clusters
    df: float  # degrees of freedom of the error, for Student's t
    n: int  # how many values it is from

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Holds the truth with probability `level`; (nan, nan) where the error is not known."""
        _check_level(level)
        half = self.error * float(stdtrit(self.df, 0.5 + level / 2)) if isfinite(self.error) else nan
        return self.value - half, self.value + half

    def p_above(self, bound: float = 0.0) -> float:
        """One-sided p-value of "the truth is at most `bound`": small if it is above; nan if the error is not known.

        An error of exactly 0 (runs without any chance) gives 0, a half or 1.
        """
        return self._tail(self.value - bound)

    def p_below(self, bound: float = 0.0) -> float:
        """One-sided p-value of "the truth is at least `bound`": small if it is below."""
        return self._tail(bound - self.value)

    def _tail(self, distance: float) -> float:
        if not isfinite(self.error) or isnan(distance):
            return nan
        if self.error == 0.0:
            return 0.5 - 0.5 * float(np.sign(distance))
        return float(stdtr(self.df, -distance / self.error))

    def __str__(self) -> str:
        if not isfinite(self.error):
            return f"{self.value:.3f}"
        digits = 3 if self.error == 0.0 else min(max(-floor(log10(self.error)), 0), 15)
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f}"


class Means(NamedTuple):
    """Means along an axis, as arrays."""

    value: Array
    error: Array  # nan where there are not two values
    df: Array
    n: Array

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """As that of `Estimate`, of each."""
        _check_level(level)
        half = self.error * stdtrit(np.maximum(self.df, 1.0), 0.5 + level / 2)
        return self.value - half, self.value + half


def mean(values: ArrayLike) -> Estimate:
    """Mean of independent values (one a seed), and its standard error s / √n.

    >>> mean([2.0, float("nan"), 4.0])
    Estimate(value=3.0, error=1.0, df=1.0, n=2)
    """
    found = means(_column(values))
    return Estimate(float(found.value), float(found.error), float(found.df), int(found.n))


def means(matrix: ArrayLike, axis: int = 0) -> Means:
    """Mean and standard error along an axis of many samples at once: a curve from (seeds, points).

    >>> found = means([[1.0, 5.0], [3.0, float("nan")]])
    >>> found.value, found.error, found.n
    (array([2., 5.]), array([ 1., nan]), array([2, 1]))
    """
    table = _numbers(matrix)
    there = ~np.isnan(table)
    n = there.sum(axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(there, table, 0.0).sum(axis) / n
        squares = np.where(there, (table - np.expand_dims(value, axis)) ** 2, 0.0).sum(axis)
        error = np.where(n > 1, np.sqrt(squares / (n - 1) / n), np.nan)
    highest = np.max(np.where(there, table, -np.inf), axis, initial=-np.inf)
    equal = highest == np.min(np.where(there, table, np.inf), axis, initial=np.inf)
    error = np.where(equal & (n > 1), 0.0, error)  # the mean of equal numbers may be off by a rounding
    return Means(value, error, np.maximum(n - 1.0, 0.0), n)


def running(values: ArrayLike) -> Means:
    """Mean and standard error of the first one, two, … of independent values, in the order they came.

    Each by itself: who looks at all of them and stops at a good one wants `rankloop.evaluation.sequential`.

    >>> running([1.0, 3.0, 2.0]).value
    array([1., 2., 2.])
    """
    column = _column(values)
    if np.isnan(column).any():
        raise InvalidInput(f"value {int(np.isnan(column).argmax())} is not a number; leave it out")
    n = np.arange(1, column.size + 1)
    value = np.cumsum(column) / n
    # Welford's steps, which do not cancel where the mean is large against the spread.
    squares = np.cumsum((column - value) * (column - np.append(0.0, value)[:-1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(n > 1, np.sqrt(np.maximum(squares, 0.0) / (n - 1) / n), np.nan)
    return Means(value, error, n - 1.0, n)


def clustered(values: ArrayLike, *labels: ArrayLike | Sequence[Hashable]) -> Estimate:
    """Mean of all values, with an error that allows for values of one label going together.

    One sequence of labels, one of them a value: values of a label (query, fold, user) are a cluster, whatever goes on
    within it; with clusters of equal size this is Student's t of the cluster means. Two sequences: values may go
    together by either (the same queries under several seeds); the truth is then that of all queries and all seeds.

    >>> found = clustered([1.0, 2.0, 3.0, 6.0], ["a", "a", "b", "b"])
    >>> found == mean([1.5, 4.5])._replace(n=4)
    True
    >>> table = [[0.2, 0.3], [0.5, 0.8], [0.8, 0.9]]  # three queries under two seeds
    >>> query, seed = np.indices((3, 2))
    >>> str(clustered(np.ravel(table), query.ravel(), seed.ravel()))
    '0.6 ± 0.2'
    """
    column = _column(values)
    if not 1 <= len(labels) <= 2:
        raise InvalidInput(f"{len(labels)} sequences of labels were given; values are clustered by one or by two")
    codes = [_codes(one, column.size) for one in labels]
    there = ~np.isnan(column)
    column, codes = column[there], [np.unique(one[there], return_inverse=True)[1] for one in codes]
    if column.size == 0:
        return Estimate(nan, nan, 0.0, 0)
    value = float(column.mean())
    sides = [_one_way(column, one) for one in codes]
    if len(sides) == 1:
        variance, df = sides[0]
    else:
        variance, df = _two_way(column, codes[0], codes[1], sides[0], sides[1])
    return Estimate(value, sqrt(variance) if variance >= 0.0 else nan, df, column.size)


def paired(high: Mapping[K, float], low: Mapping[K, float], clusters: Mapping[K, Hashable] | None = None) -> Estimate:
    """Mean of high - low over the keys (seeds, or (query, seed)) that both have: what both share cancels.

    `clusters` says which keys belong together, as the labels of `clustered`. Keys where either is not a number do not
    count.

    >>> paired({0: 0.75, 1: 0.85, 2: 0.65}, {0: 0.70, 1: 0.81, 2: 0.59, 3: 0.1}).n
    3
    >>> both = paired({("q", 0): 3.0, ("q", 1): 4.0, ("r", 0): 9.0}, {("q", 0): 1.0, ("q", 1): 2.0, ("r", 0): 5.0},
    ...               {("q", 0): "q", ("q", 1): "q", ("r", 0): "r"})
    >>> round(both.value, 3), both.n
    (2.667, 3)
    """
    keys = [key for key in high if key in low]
    differences = np.array([high[key] - low[key] for key in keys], dtype=np.float64)
    if clusters is None:
        return mean(differences)
    lacking = next((key for key in keys if key not in clusters), None)
    if lacking is not None:
        raise InvalidInput(f"{lacking!r} is in no cluster; name one for every key that both have")
    return clustered(differences, [clusters[key] for key in keys])


def slope(x: ArrayLike, ys: ArrayLike) -> Estimate:
    """Mean over seeds of the least-squares slope of each row of `ys` (seeds, points) against `x` (points,).

    Each seed's curve is one value, however many points it has: neighbours on a curve are not independent.

    >>> found = slope([0.0, 1.0, 2.0], [[0.0, 1.0, 2.0], [1.0, 3.0, 5.0]])
    >>> found.value, round(found.error, 6), found.n
    (1.5, 0.5, 2)
    """
    at, curves = _numbers(x), np.atleast_2d(_numbers(ys))
    if at.ndim != 1 or curves.ndim != 2 or curves.shape[1] != at.size or np.unique(at).size < 2:
        raise InvalidInput(
            f"x has shape {at.shape} and ys {curves.shape}; give at least two different points x and a row of ys a seed"
        )
    if np.isnan(at).any():
        raise InvalidInput(f"x[{int(np.isnan(at).argmax())}] is not a number; a slope needs to know every point")
    centred = at - at.mean()
    return mean(curves @ centred / (centred @ centred))


def holm(p: Sequence[float] | Array) -> Array:
    """p-values adjusted for being a family: of those below α, the chance that any is a false alarm is at most α.

    The i-th smallest of m counts m + 1 - i times, and none less than one before it. NaN (not tested) stays NaN and
    does not count.

    >>> holm([0.01, 0.04, float("nan"), 0.03])
    array([0.03, 0.06,  nan, 0.06])
    """
    given = _numbers(p)
    if given.ndim != 1 or ((given < 0.0) | (given > 1.0)).any():
        raise InvalidInput(f"p is {p!r:.80}; give a list of probabilities")
    adjusted = np.full(given.size, np.nan)
    tested = np.flatnonzero(~np.isnan(given))
    order = tested[np.argsort(given[tested], kind="stable")]
    times = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(given[order] * times), 1.0)
    return adjusted


# -- the variance of a mean under clusters -------------------------------------------------------------------------


def _one_way(values: Array, codes: Array) -> tuple[float, float]:
    """Variance of the mean and its degrees of freedom, for clusters 0 … G - 1.

    The squared sums of the residuals of each cluster, each over 1 - its share of the values (CR2). Their expectation
    and spread are those under a random effect of the cluster beside noise, whose two variances are estimated: with
    equal sizes that changes nothing, with unequal ones it takes out the bias and gives Satterthwaite's degrees.
    """
    N, sizes = values.size, np.bincount(codes).astype(np.float64)
    G = sizes.size
    if G < 2:
        return nan, 0.0
    residuals = values - values.mean()
    sums = np.bincount(codes, residuals)
    share = sizes / N
    within = max(float(residuals @ residuals) - float((sums**2 / sizes).sum()), 0.0)
    between = float((sums**2 / sizes).sum()) / (G - 1)
    noise = within / (N - G) if N > G else 0.0
    effect = max((between - noise) / ((N - float(sizes @ sizes) / N) / (G - 1)), 0.0) if N > G else 0.0
    V = sizes * noise + sizes**2 * effect
    if float(V.sum()) <= _ROUNDING * float(values @ values):
        V = sizes  # nothing varies, or every value is a cluster of its own: all alike
    bias, df = cr2_terms(share, V)
    found = float((sums**2 / (1.0 - share)).sum()) / bias / N**2
    return (found if found > (_ROUNDING * np.abs(values).max()) ** 2 else 0.0), df


def cr2_terms(share: Array, variances: Array) -> tuple[float, float]:
    """What to divide Σ r_g² / (1 - share_g) by, and its degrees of freedom, if the clusters' sums have `variances`.

    r_g is what the sum of cluster g is above its share of the total.

    >>> bias, df = cr2_terms(np.full(4, 0.25), np.ones(4))
    >>> round(bias, 9), round(df, 9)
    (1.0, 3.0)
    """
    scale, total = 1.0 / (1.0 - share), float(variances.sum())
    expected = float((scale * (variances * (1.0 - 2.0 * share) + share**2 * total)).sum())
    # tr(B²) for B = √A M diag(V) Mᵀ √A with M = I - share 1ᵀ: a diagonal and two outer products, so no (G, G) array.
    P, U, X = (float((scale * part).sum()) for part in (variances**2, share**2, variances * share))
    own = share * (share * total - 2.0 * variances)
    squares = 2 * P * U + (total * U) ** 2 + 2 * X**2 - 4 * total * X * U
    squares += float((scale**2 * variances * (variances + 2.0 * own)).sum())
    return expected / total, expected**2 / squares


def _two_way(
    values: Array, rows: Array, columns: Array, by_row: tuple[float, float], by_column: tuple[float, float]
) -> tuple[float, float]:
    """Variance and degrees of freedom where values share a row or a column.

    Both one-way variances hold the noise of the cells, so one of it is taken off again; neither is gone below, as
    that would be a negative variance of the other's effect.
    """
    if isnan(by_row[0]) or isnan(by_column[0]):
        return nan, 0.0
    N, I, J = values.size, int(rows.max()) + 1, int(columns.max()) + 1  # noqa: E741
    cells, cell = np.unique(rows * J + columns, return_inverse=True)
    free = cells.size - I - J + 1
    larger = max(by_row, by_column)
    if (
        free < 1
    ):  # no cell is left to tell noise from effects: the two are added, which is too wide and never too narrow
        return by_row[0] + by_column[0], min(by_row[1], by_column[1])
    left = values - values.mean()
    row_sizes, column_sizes = np.bincount(rows), np.bincount(columns)
    for _ in range(_SWEEPS):  # a complete table is done after one
        before = left
        left = left - (np.bincount(rows, left) / row_sizes)[rows]
        left = left - (np.bincount(columns, left) / column_sizes)[columns]
        if np.abs(left - before).max() <= _ROUNDING * np.abs(values).max():
            break
    noise = float((np.bincount(cell, left) ** 2).sum()) * cells.size / free / N**2
    variance = by_row[0] + by_column[0] - noise
    if variance <= larger[0]:
        return larger
    degrees = sum(v**2 / df for v, df in (by_row, by_column, (noise, float(free))))
    return variance, variance**2 / degrees


# -- what comes in -------------------------------------------------------------------------------------------------


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InvalidParameter(f"level is {level!r}; it is a probability and must lie between 0 and 1")


def _numbers(values: Any) -> Array:
    try:
        found: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"values are {values!r:.80}; give numbers, as many in each row") from error
    if np.isinf(found).any():
        place = tuple(int(i) for i in np.argwhere(np.isinf(found))[0])
        raise InvalidInput(f"the value at {place} is infinite; leave it out or find out what overflowed")
    return found


def _column(values: Any) -> Array:
    found = _numbers(values)
    if found.ndim != 1:
        raise InvalidInput(f"values have shape {found.shape}; give one list of numbers")
    return found


def _codes(labels: Any, n: int) -> Array:
    given = list(labels)
    if len(given) != n:
        raise InvalidInput(f"{len(given)} labels for {n} values; give one a value")
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in given], dtype=np.int64)
