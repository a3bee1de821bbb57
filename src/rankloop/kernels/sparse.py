"""Scores, norms and distances of sparse rows, in time that goes by what is in them and not by how wide they are.

Rows are CSR: row i has the columns indices[indptr[i] : indptr[i + 1]], ascending, and the values beside them. `local`
(m,) are the same columns by a number of their own, 0 … u - 1 (`numbered`), so that what a list needs of arrays as wide
as the rows is fetched once, and all work after that is in small ones.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import log

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: consecutive columns fall far apart
_GOLDEN = 0.6180339887498949


@jit
def numbered(indices: Array) -> tuple[Array, Array]:
    """(m,) the columns by numbers of their own, in the order in which they first come, and (u,) the column of each."""
    m, bits = indices.size, 4
    while (1 << bits) < 2 * m:
        bits += 1
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    table = np.full(mask + 1, -1, np.int64)
    local, columns, count = np.empty(m, np.int64), np.empty(m, np.int64), 0
    for p in range(m):
        column = np.int64(indices[p])
        at = np.int64((np.uint64(column) * _MULTIPLIER) >> shift)
        while table[at] >= 0 and columns[table[at]] != column:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = count
            columns[count] = column
            count += 1
        local[p] = table[at]
    return local, columns[:count]


@jit
def sparse_scores(indptr: Array, local: Array, values: Array, theta: Array) -> Array:
    """(n,) x·θ, summed over ascending columns: the bits of `row_products` with the same rows as a table."""
    n = indptr.size - 1
    found = np.zeros(n)
    if theta.size == 0:
        return found
    for i in range(n):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += values[p] * theta[local[p]]
        found[i] = total
    return found


@jit
def sparse_with_places(
    indptr: Array, indices: Array, values: Array, places: Array, width: int
) -> tuple[Array, Array, Array]:
    """The rows, and in column `width` behind all others what the base order says of each: -log(1 + place)."""
    n = indptr.size - 1
    starts = np.empty(n + 1, np.int64)
    columns, numbers = np.empty(indices.size + n, np.int32), np.empty(indices.size + n)
    for i in range(n):
        starts[i] = indptr[i] + i
        for p in range(indptr[i], indptr[i + 1]):
            columns[p + i], numbers[p + i] = indices[p], values[p]
        columns[indptr[i + 1] + i], numbers[indptr[i + 1] + i] = width, -log(1.0 + places[i])
    starts[n] = indptr[n] + n
    return starts, columns, numbers


@jit
def sparse_norms(indptr: Array, local: Array, values: Array, spread: Array) -> Array:
    """(n,) the length of each row less the mean of all, a column j counting spread_j: Σ_j v_j (x_j - mean_j)²."""
    n = indptr.size - 1
    mean = np.zeros(spread.size)
    for p in range(values.size):
        mean[local[p]] += values[p]
    whole = 0.0
    for j in range(spread.size):
        mean[j] /= n
        whole += spread[j] * mean[j] * mean[j]
    found = np.empty(n)
    for i in range(n):
        square = whole
        for p in range(indptr[i], indptr[i + 1]):
            j = local[p]
            square += spread[j] * values[p] * (values[p] - 2.0 * mean[j])
        found[i] = np.sqrt(max(square, 0.0))
    return found


@jit
def sparse_gram(indptr: Array, local: Array, values: Array, spread: Array, some: Array) -> Array:
    """(r, r) Σ_j v_j x_j y_j of every two of the rows `some` (r,)."""
    r = some.size
    gram, row = np.zeros((r, r)), np.zeros(spread.size)
    for a in range(r):
        first, last = indptr[some[a]], indptr[some[a] + 1]
        for p in range(first, last):
            row[local[p]] = spread[local[p]] * values[p]
        for b in range(a + 1):
            total = 0.0
            for p in range(indptr[some[b]], indptr[some[b] + 1]):
                total += row[local[p]] * values[p]
            gram[a, b] = gram[b, a] = total
        for p in range(first, last):
            row[local[p]] = 0.0
    return gram


@jit
def sparse_mean_squared_distance(indptr: Array, local: Array, values: Array, columns: int) -> float:
    """Mean of ‖x_i - x_j‖² over the pairs of rows; 1 where there is none or all rows are the same.

    Σ over pairs ‖x_i - x_j‖² = Σ_j (n Σ_i x_ij² - (Σ_i x_ij)²), of `columns` columns that are used at all.
    """
    n = indptr.size - 1
    total, squares = np.zeros(columns), np.zeros(columns)
    for p in range(values.size):
        total[local[p]] += values[p]
        squares[local[p]] += values[p] * values[p]
    distance, size = 0.0, 0.0
    for j in range(columns):
        distance += max(n * squares[j] - total[j] * total[j], 0.0)
        size += squares[j]
    if n < 2 or distance <= 1e-14 * n * size:  # equal rows leave a rest of rounding
        return 1.0
    return 2.0 * distance / (n * (n - 1.0))


@jit
def sparse_row_marks(indptr: Array, indices: Array, values: Array) -> Array:
    """(n,) a number by which to know a row again, as `pairwise.row_marks`: Σ_j x_j (1 + the fraction of j·golden)."""
    n = indptr.size - 1
    marks = np.zeros(n)
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            turn = (indices[p] + 1.0) * _GOLDEN
            marks[i] += values[p] * (1.0 + (turn - np.floor(turn)))
    return marks
