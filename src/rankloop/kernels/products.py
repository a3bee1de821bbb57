"""Products of matrices whose sums come in one order on every machine.

A BLAS picks its code by the CPU, and with it the order of the sums: the last bits of a score, and of what is learned
from it, would hang on where it was computed. Here every sum runs over the columns in ascending order, a rounding after
each product and each sum, so all x86 machines agree bit for bit, and a row's product does not depend on the other rows.
Speed comes from sums that run side by side, never from sums that are split.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def row_products(rows: Array, vector: Array) -> Array:
    """(n,) x·v of each of the rows (n, d), in float64. Eight rows at a time: one sum alone waits for each addition."""
    n, d = rows.shape
    found = np.empty(n)
    whole = n - n % 8
    for i in range(0, whole, 8):
        a, b, c, e, f, g, h, p = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            v = vector[j]
            a += rows[i, j] * v
            b += rows[i + 1, j] * v
            c += rows[i + 2, j] * v
            e += rows[i + 3, j] * v
            f += rows[i + 4, j] * v
            g += rows[i + 5, j] * v
            h += rows[i + 6, j] * v
            p += rows[i + 7, j] * v
        found[i], found[i + 1], found[i + 2], found[i + 3] = a, b, c, e
        found[i + 4], found[i + 5], found[i + 6], found[i + 7] = f, g, h, p
    for i in range(whole, n):
        total = 0.0
        for j in range(d):
            total += rows[i, j] * vector[j]
        found[i] = total
    return found


@jit
def row_dots(left: Array, right: Array) -> Array:
    """(n,) x·y of each row x of `left` (n, d) and the row y of `right` beside it; four at a time."""
    n, d = left.shape
    found = np.empty(n)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            a += left[i, j] * right[i, j]
            b += left[i + 1, j] * right[i + 1, j]
            c += left[i + 2, j] * right[i + 2, j]
            e += left[i + 3, j] * right[i + 3, j]
        found[i], found[i + 1], found[i + 2], found[i + 3] = a, b, c, e
    for i in range(whole, n):
        total = 0.0
        for j in range(d):
            total += left[i, j] * right[i, j]
        found[i] = total
    return found


@jit
def product(left: Array, right: Array) -> Array:
    """(n, m) left (n, d) times right (d, m), both C-contiguous and of one type, which the sums have too.

    Whole rows of `right` are added up, so neighboring columns share an instruction; for two rows of `left` and four
    of `right` at a time, so what was fetched is used.
    """
    n, d = left.shape
    m = right.shape[1]
    found = np.zeros((n, m), left.dtype)
    even, whole = n - n % 2, d - d % 4
    for i in range(0, even, 2):
        upper, lower = found[i], found[i + 1]
        for c in range(0, whole, 4):
            s, t, u, v = left[i, c], left[i, c + 1], left[i, c + 2], left[i, c + 3]
            w, x, y, z = left[i + 1, c], left[i + 1, c + 1], left[i + 1, c + 2], left[i + 1, c + 3]
            one, two, three, four = right[c], right[c + 1], right[c + 2], right[c + 3]
            for j in range(m):
                a, b, e, f = one[j], two[j], three[j], four[j]
                upper[j] = (((upper[j] + s * a) + t * b) + u * e) + v * f
                lower[j] = (((lower[j] + w * a) + x * b) + y * e) + z * f
        for c in range(whole, d):
            for j in range(m):
                upper[j] += left[i, c] * right[c, j]
                lower[j] += left[i + 1, c] * right[c, j]
    for i in range(even, n):
        for c in range(d):
            for j in range(m):
                found[i, j] += left[i, c] * right[c, j]
    return found
