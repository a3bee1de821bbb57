"""What the kernels are fed.

Every array is read-only unless a kernel says that it works in place. Compiled code then refuses to build if it writes
to one, so each test here also shows that inputs are accepted as they come and stay untouched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from rankloop.core.types import Array

SEEDS = st.integers(0, 2**32 - 1)
# Few distinct values, so that ties are common; the huge gaps are where a naive softmax overflows.
SCORES = st.sampled_from([0.0, 0.0, 0.5, -1.5, 2.0, 1e-9, 30.0, -40.0, 1e3, -1e3])
GRADES = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 4.0])


def frozen(values: ArrayLike, dtype: Any = np.float64) -> Array:
    """A read-only copy."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


NOTHING = frozen([])  # documents have no part of their own


def positions(values: ArrayLike) -> Array:
    """Read-only positions or documents."""
    return frozen(values, np.int64)


def pair_rows(values: ArrayLike) -> Array:
    """Read-only (m, 2) pairs of positions, also for m = 0."""
    return frozen(np.array(values, dtype=np.int64).reshape(-1, 2), np.int64)


def spd(d: int, rng: np.random.Generator) -> Array:
    """(d, d) a random well-conditioned symmetric positive definite matrix."""
    root = rng.normal(size=(d, d))
    matrix: Array = root @ root.T + 0.5 * np.eye(d)
    return matrix


def some_lists(seed: int, N: int, K: int) -> tuple[Array, Array, Array]:
    """Clicks, ranks and attractions of lists, some of them shorter than K."""
    rng = np.random.default_rng(seed)
    clicks, ranks, attraction = rng.integers(0, 2, (N, K)), np.full((N, K), -1), rng.random((N, K))
    for t in range(N):
        length = int(rng.integers(1, K + 1))
        ranks[t, :length] = rng.permutation(length)
    return np.where(ranks >= 0, clicks, 0), ranks, attraction
