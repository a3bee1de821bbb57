"""Feedback as kernels want it, and what was shown."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def filled(values: Array, k: int, most: float) -> tuple[Array, bool]:
    """(k,) the values with 0 for slots that were not reported, and whether all are numbers from 0 to `most`."""
    whole = np.zeros(k)
    fine = True
    for p in range(values.size):
        whole[p] = values[p]
        fine = fine and 0.0 <= values[p] <= most
    return whole, fine


@jit
def all_finite(rows: Array) -> bool:
    """Whether every number of a table is finite."""
    fine = True
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):  # no early way out: compiled, several numbers are looked at at once
            fine &= abs(rows[i, j]) < np.inf
    return fine


@jit
def filled_beside(values: Array, rows: Array, most: float) -> tuple[Array, bool, bool]:
    """What `filled` says of the values for the rows (k, d), and whether all rows are finite: one call for both."""
    whole, fine = filled(values, rows.shape[0], most)
    return whole, fine, all_finite(rows)
