"""Means with standard errors and intervals: clusters, paired differences, multiple tests.

>>> str(mean([0.74, 0.75, 0.76]))
'0.750 ± 0.006'
>>> ndcg, query = [0.9, 0.8, 0.2, 0.3], ["a", "a", "b", "b"]
>>> str(mean(ndcg)), str(clustered(ndcg, query))  # four values, but two independent queries
('0.6 ± 0.2', '0.6 ± 0.3')

Intervals are Student's t. NaN values are left out, infinite ones are an error. References: Bell, McCaffrey, Survey
Methodology 2002, and Imbens, Kolesár, REStat 2016 (CR2); Satterthwaite, Biometrics 1946; Holm 1979.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import floor, isfinite, isnan, log10, nan, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Floats, Ints

K = TypeVar("K", bound=Hashable)
_SWEEPS = 200  # of the additive fit of an incomplete table, at most
_ROUNDING = 1e-12  # a variance this small relative to the squared values is rounding


class Estimate(NamedTuple):
    """An estimate with its standard error.

    >>> found = mean([1.0, 2.0, 3.0])
    >>> found.n, found.df, round(found.error, 4)
    (3, 2.0, 0.5774)
    >>> [round(bound, 3) for bound in found.interval()], round(found.p_above(0.0), 4)
    ([-0.484, 4.484], 0.0371)
    >>> mean([1.0]).interval()  # one value has no standard error
    (nan, nan)
    """

    value: float
    error: float  # standard error; nan with fewer than two values or clusters
    df: float  # degrees of freedom of the error, for Student's t
    n: int  # number of values

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval; (nan, nan) if the error is unknown."""
        _check_level(level)
        half = self.error * float(stdtrit(self.df, 0.5 + level / 2)) if isfinite(self.error) else nan
        return self.value - half, self.value + half

    def p_above(self, bound: float = 0.0) -> float:
        """Return the one-sided p-value of "the true value is at most `bound`"; nan if the error is unknown."""
        return self._tail(self.value - bound)

    def p_below(self, bound: float = 0.0) -> float:
        """Return the one-sided p-value of "the true value is at least `bound`"."""
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

    value: Floats
    error: Floats  # nan with fewer than two values
    df: Floats
    n: Ints

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the confidence intervals."""
        _check_level(level)
        half = self.error * stdtrit(np.maximum(self.df, 1.0), 0.5 + level / 2)
        return self.value - half, self.value + half


def mean(values: ArrayLike) -> Estimate:
    """Return the mean of independent values and its standard error s / √n.

    >>> mean([2.0, float("nan"), 4.0])
    Estimate(value=3.0, error=1.0, df=1.0, n=2)
    """
    found = means(_column(values))
    return Estimate(float(found.value), float(found.error), float(found.df), int(found.n))


def means(matrix: ArrayLike, axis: int = 0) -> Means:
    """Return means and standard errors along an axis, such as a curve from (seeds, points).

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
    error = np.where(equal & (n > 1), 0.0, error)  # equal values have no error, whatever the rounding of their mean
    return Means(value, error, np.maximum(n - 1.0, 0.0), n)


def running(values: ArrayLike) -> Means:
    """Return mean and standard error of the first one, two, … of independent values.

    To stop as soon as a result is significant, use `rankloop.evaluation.sequential`.

    >>> running([1.0, 3.0, 2.0]).value
    array([1., 2., 2.])
    """
    column = _column(values)
    if np.isnan(column).any():
        raise InvalidInput(f"value {int(np.isnan(column).argmax())} is not a number; leave it out")
    n = np.arange(1, column.size + 1)
    value = np.cumsum(column) / n
    # Welford's update, which does not cancel if the mean is large.
    squares = np.cumsum((column - value) * (column - np.append(0.0, value)[:-1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(n > 1, np.sqrt(np.maximum(squares, 0.0) / (n - 1) / n), np.nan)
    return Means(value, error, (n - 1).astype(np.float64), n)


def clustered(values: ArrayLike, *labels: ArrayLike | Sequence[Hashable]) -> Estimate:
    """Return the mean of all values, with an error that allows for correlation within labels.

    With one sequence of labels, values with the same label are a cluster. With two, values may be correlated by either
    (the same queries under several seeds).

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
        raise InvalidInput(f"{len(labels)} sequences of labels; give one or two")
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
    """Return the mean of high - low over common keys (seeds, or (query, seed)) that are not NaN.

    `clusters` are the labels of keys, as for `clustered`.

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
        raise InvalidInput(f"{lacking!r} is in no cluster; give one for every common key")
    return clustered(differences, [clusters[key] for key in keys])


def holm(p: Sequence[float] | Floats) -> Floats:
    """Return p-values adjusted for multiple tests (Holm); NaN (not tested) stays NaN and does not count.

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


def _one_way(values: Floats, codes: Ints) -> tuple[float, float]:
    """Variance of the mean and its degrees of freedom, for clusters 0 … G - 1.

    The CR2 estimate, whose bias and Satterthwaite degrees of freedom are those of a random cluster effect beside noise.
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
        V = sizes  # no variance
    bias, df = cr2_terms(share, V)
    found = float((sums**2 / (1.0 - share)).sum()) / bias / N**2
    return (found if found > (_ROUNDING * np.abs(values).max()) ** 2 else 0.0), df


def cr2_terms(share: Floats, variances: Floats) -> tuple[float, float]:
    """Return the expectation of Σ r_g² / (1 - share_g) and its degrees of freedom, if cluster sums have `variances`.

    r_g is the sum of cluster g minus its share of the total.

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
    values: Floats, rows: Ints, columns: Ints, by_row: tuple[float, float], by_column: tuple[float, float]
) -> tuple[float, float]:
    """Variance and degrees of freedom where values share a row or a column.

    Both one-way variances include the noise of the cells, so it is subtracted once; the result is at least the larger.
    """
    if isnan(by_row[0]) or isnan(by_column[0]):
        return nan, 0.0
    N, I, J = values.size, int(rows.max()) + 1, int(columns.max()) + 1  # noqa: E741
    cells, cell = np.unique(rows * J + columns, return_inverse=True)
    free = cells.size - I - J + 1
    larger = max(by_row, by_column)
    if free < 1:  # noise cannot be separated from effects: the sum is conservative
        return by_row[0] + by_column[0], min(by_row[1], by_column[1])
    left = values - values.mean()
    row_sizes, column_sizes = np.bincount(rows), np.bincount(columns)
    for _ in range(_SWEEPS):  # a complete table needs one
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


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InvalidParameter(f"level is {level!r}; it is a probability and must lie between 0 and 1")


def _numbers(values: Any) -> Floats:
    try:
        found: Floats = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"values are {values!r:.80}; give numbers, as many in each row") from error
    if np.isinf(found).any():
        place = tuple(int(i) for i in np.argwhere(np.isinf(found))[0])
        raise InvalidInput(f"the value at {place} is infinite; leave it out or find out what overflowed")
    return found


def _column(values: Any) -> Floats:
    found = _numbers(values)
    if found.ndim != 1:
        raise InvalidInput(f"values have shape {found.shape}; give one list of numbers")
    return found


def _codes(labels: Any, n: int) -> Ints:
    given = list(labels)
    if len(given) != n:
        raise InvalidInput(f"{len(given)} labels for {n} values; give one a value")
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in given], dtype=np.int64)
