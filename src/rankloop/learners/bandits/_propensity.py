"""How likely the lists of bandits are that put the highest keys on top."""

from __future__ import annotations

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels.ranking import epsilon_greedy_log_probability


def chance_of(keys: Array, order: Array) -> float:
    """log P(`order`), if the highest of `keys` (c,) come first, equal ones in random order; -inf: it never comes.

    Candidates from c on take no part: they stand below, as they came.

    >>> round(float(np.exp(chance_of(np.array([1.0, 2.0, 2.0]), np.array([2, 1, 0, 3])))), 3)
    0.5
    """
    if order.size > keys.size:
        if not np.array_equal(order[keys.size :], np.arange(keys.size, order.size)):
            return -np.inf
        order = order[: keys.size]
    if order.max() >= keys.size:
        return -np.inf
    return float(epsilon_greedy_log_probability(keys.astype(np.float64, copy=False), order, 0.0))
