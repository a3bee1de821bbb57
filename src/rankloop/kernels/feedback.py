"""Feedback as kernels want it."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import jit
from rankloop.types import Array


@jit
def filled(values: Array, k: int) -> tuple[Array, bool]:
    """(k,) the values with 0 for slots that were not reported, and whether all are finite numbers of at least 0."""
    whole = np.zeros(k)
    fine = True
    for p in range(values.size):
        whole[p] = values[p]
        fine = fine and 0.0 <= values[p] < np.inf
    return whole, fine
