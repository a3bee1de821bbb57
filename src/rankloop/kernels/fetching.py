"""Numbers of a table for the candidates of a list."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def fetch(block: Array, rows: Array, places: Array, columns: Array, found: Array) -> int:
    """Write column `places[j]` of `block` for each of `rows` (n,) into column `columns[j]` of `found` (n, d). A row or
    a place below 0 is NaN, as what is missing is in the block; how many were NaN."""
    gaps = 0
    for i in range(rows.size):
        row = rows[i]
        for j in range(places.size):
            value = np.nan
            if row >= 0 and places[j] >= 0:
                value = block[row, places[j]]
            if value != value:
                gaps += 1
            found[i, columns[j]] = value
    return gaps
