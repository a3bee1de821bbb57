"""Scores, norms and distances of feature rows, dense or sparse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array, SparseRows
from rankloop.kernels import pairwise, sparse
from rankloop.kernels.ranking import linear_scores

Rows = Array | SparseRows


class NumberedRows(NamedTuple):
    """Sparse rows whose u different columns are numbered 0 … u - 1, so that work arrays have u entries."""

    indptr: Array  # (n + 1,)
    indices: Array  # (m,) the columns
    local: Array  # (m,) their numbers
    values: Array  # (m,)
    columns: Array  # (u,) the column of each number

    def scores(self, theta: Array) -> Array:
        """(n,) x·θ, of the weights (u,) of the columns that there are."""
        return sparse.sparse_scores(self.indptr, self.local, self.values, theta)

    def norms(self, spread: Array) -> Array:
        """(n,) lengths of the rows minus their mean."""
        return sparse.sparse_norms(self.indptr, self.local, self.values, spread)

    def gram(self, spread: Array, some: Array) -> Array:
        """(r, r) the Gram matrix of the rows `some`."""
        return sparse.sparse_gram(self.indptr, self.local, self.values, spread, some)


def numbered(rows: SparseRows) -> NumberedRows:
    """The rows with their columns numbered."""
    return NumberedRows(rows.indptr, rows.indices, *_numbers(rows))


def _numbers(rows: SparseRows) -> tuple[Array, Array, Array]:
    local, columns = sparse.numbered(rows.indices)
    return local, rows.values, columns


def row_scores(rows: Rows, theta: Array) -> Array:
    """(n,) x·θ; an empty θ, of a model that has learned nothing, gives 0."""
    if isinstance(rows, SparseRows):
        return sparse.sparse_scores(rows.indptr, rows.indices, rows.values, theta)
    return linear_scores(rows, theta)


def row_marks(rows: Rows) -> Array:
    """(n,) a number per row that is equal for equal rows."""
    if isinstance(rows, SparseRows):
        return sparse.sparse_row_marks(rows.indptr, rows.indices, rows.values)
    return pairwise.row_marks(rows)


def mean_squared_distance(rows: Rows, base: bool) -> float:
    """The mean over pairs of rows; with `base` the last column, the baseline ranking, is left out."""
    if isinstance(rows, SparseRows):
        local, values, columns = _numbers(rows)
        if base:  # each row ends with it
            keep = rows.indices != rows.width - 1
            starts = rows.indptr - np.arange(rows.indptr.size)
            return float(sparse.sparse_mean_squared_distance(starts, local[keep], values[keep], columns.size))
        return float(sparse.sparse_mean_squared_distance(rows.indptr, local, values, columns.size))
    return float(pairwise.mean_squared_distance(rows[:, : rows.shape[1] - base]))
