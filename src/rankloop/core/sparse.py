"""Sparse rows of features, such as hashed categories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankloop.core.errors import InvalidInput

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LARGEST = 1e100  # squares of larger features could overflow
WIDEST = 2**31 - 1  # columns are 32-bit integers


@dataclass(frozen=True, slots=True, eq=False, init=False)
class SparseRows:
    """(n, width) numbers in CSR format, checked, copied and read-only.

    Row i has the columns indices[indptr[i] : indptr[i + 1]], ascending and unique, and the values there.

    Parameters
    ----------
    indptr
        (n + 1,) the start of each row, and the end of the last.
    indices
        (m,) columns, from 0, in any order within a row; values of the same column add up.
    values
        (m,) finite numbers.
    width
        Number of columns.

    Examples
    --------
    >>> rows = SparseRows(indptr=[0, 2, 3], indices=[7, 2, 2], values=[1.0, 0.5, 1.0], width=100_000)
    >>> rows.shape, rows.indices
    ((2, 100000), array([2, 7, 2], dtype=int32))
    >>> SparseRows([0, 1], [100_000], [1.0], 100_000)
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: row 0 has column 100000; columns count from 0 and must be below the width, 100000
    """

    indptr: Ints  # (n + 1,)
    indices: NDArray[np.int32]  # (m,)
    values: Floats  # (m,)
    width: int

    def __init__(self, indptr: ArrayLike, indices: ArrayLike, values: ArrayLike, width: int) -> None:
        starts, columns = _whole(indptr, "indptr"), _whole(indices, "indices")
        try:
            numbers = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"values are not numbers ({error}); give a number for each index") from None
        if isinstance(width, bool) or not isinstance(width, int | np.integer) or not 0 < width <= WIDEST:
            raise InvalidInput(f"width is {width!r}; it must be a whole number from 1 to {WIDEST:,}")
        _check(starts, columns, numbers, int(width))
        _put(self, *_canonical(starts, columns, numbers, int(width)), int(width))

    @classmethod
    def of(cls, rows: Iterable[tuple[ArrayLike, ArrayLike]], width: int) -> SparseRows:
        """Make rows from (columns, values) of each, as `features.hashing.hashed` returns them.

        >>> SparseRows.of([([7, 2], [1.0, 0.5]), ([], [])], width=10).dense()
        array([[0. , 0. , 0.5, 0. , 0. , 0. , 0. , 1. , 0. , 0. ],
               [0. , 0. , 0. , 0. , 0. , 0. , 0. , 0. , 0. , 0. ]])
        """
        columns, values = [], []
        for i, (some, numbers) in enumerate(rows):
            columns.append(np.asarray(some) if np.size(some) else np.zeros(0, np.int64))
            values.append(np.asarray(numbers, np.float64))
            if columns[-1].shape != values[-1].shape:
                raise InvalidInput(
                    f"row {i} has {columns[-1].size} columns for {values[-1].size} values; give one value per column"
                )
        if not columns:
            raise InvalidInput("there is no row; give at least one")
        starts = np.concatenate(([0], np.cumsum([some.size for some in columns])))
        return cls(starts, np.concatenate(columns), np.concatenate(values), width)

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseRows:
        """Convert a sparse matrix or array of scipy."""
        rows = matrix.tocsr()
        return cls(rows.indptr, rows.indices, rows.data, rows.shape[1])

    @classmethod
    def without_copy(cls, indptr: Array, indices: Array, values: Array, width: int) -> SparseRows:
        """Make rows from valid arrays of the right types, without checks; the caller must not change them.

        >>> SparseRows.without_copy(np.array([0, 1]), np.array([3], np.int32), np.array([0.5]), 10).shape
        (1, 10)
        """
        rows = object.__new__(cls)
        _put(rows, indptr, indices, values, width)
        return rows

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.indptr.size - 1, self.width

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.indptr.nbytes + self.indices.nbytes + self.values.nbytes)

    def __len__(self) -> int:
        return self.indptr.size - 1

    def take(self, rows: Array) -> SparseRows:
        """Return copies of the rows at these positions."""
        starts, lengths = self.indptr[:-1][rows], np.diff(self.indptr)[rows]
        ends = np.cumsum(lengths)
        where = np.repeat(starts - (ends - lengths), lengths) + np.arange(lengths.sum())
        return SparseRows.without_copy(np.concatenate(([0], ends)), self.indices[where], self.values[where], self.width)

    def head(self, m: int) -> SparseRows:
        """Return views of the first m rows."""
        starts = self.indptr[: m + 1]
        return SparseRows.without_copy(starts, self.indices[: starts[-1]], self.values[: starts[-1]], self.width)

    def dense(self) -> Floats:
        """Return a dense (n, width) array."""
        table = np.zeros(self.shape)
        table[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.values
        return table


def _put(rows: SparseRows, indptr: Array, indices: Array, values: Array, width: int) -> None:
    for name, value in (("indptr", indptr), ("indices", indices), ("values", values)):
        value.flags.writeable = False
        object.__setattr__(rows, name, value)
    object.__setattr__(rows, "width", width)


def _whole(given: ArrayLike, name: str) -> Ints:
    """Return an int64 copy."""
    try:
        found = np.array(given)
    except ValueError:
        raise InvalidInput(f"{name} holds lists of different lengths; give whole numbers") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidInput(f"{name} has shape {found.shape} and type {found.dtype}; give a list of whole numbers")
    return found.astype(np.int64)


def _check(indptr: Array, indices: Array, values: Array, width: int) -> None:
    """Raise an error unless the arrays are valid CSR rows."""
    if values.ndim != 1 or indices.size != values.size:
        raise InvalidInput(f"{indices.size} indices for values of shape {values.shape}; give one value per index")
    if indptr.size < 2 or indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise InvalidInput(
            f"indptr is {indptr.tolist()!r:.80}; it must begin with 0, never fall, and end with {indices.size}, the "
            "number of indices, and have one entry more than there are rows, at least one"
        )
    outside = np.flatnonzero((indices < 0) | (indices >= width))
    if outside.size:
        row, column = np.searchsorted(indptr, outside[0], "right") - 1, indices[outside[0]]
        raise InvalidInput(f"row {row} has column {column}; columns count from 0 and must be below the width, {width}")
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))  # nan, too
    if wrong.size:
        row, column = np.searchsorted(indptr, wrong[0], "right") - 1, indices[wrong[0]]
        raise InvalidInput(
            f"features[{row}, {column}] is {values[wrong[0]]}; features must be finite numbers within ±{LARGEST:g}: "
            "replace or drop it"
        )


def _canonical(indptr: Array, indices: Array, values: Array, width: int) -> tuple[Array, Array, Array]:
    """Sort the columns of each row and add up duplicates."""
    rising = np.diff(indices) > 0
    begins = indptr[1:-1]
    begins = begins[(begins > 0) & (begins < indices.size)]
    rising[begins - 1] = True  # columns may fall between rows
    if not rising.all():
        keys = np.repeat(np.arange(indptr.size - 1), np.diff(indptr)) * width + indices
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.concatenate(([True], np.diff(keys[order]) > 0)))
        keys, values = keys[order][first], np.add.reduceat(values[order], first)
        indices = keys % width
        indptr = np.searchsorted(keys, np.arange(indptr.size) * width)
    return indptr, indices.astype(np.int32), values
