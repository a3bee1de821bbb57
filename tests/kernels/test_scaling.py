"""Sizes of features against their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import LARGEST
from rankloop.kernels import scaling
from tests.kernels.inputs import SEEDS, frozen
from tests.reference import scaling as naive


@given(n=st.integers(1, 9), d=st.integers(1, 5), seed=SEEDS)
def test_list_moments(n: int, d: int, seed: int) -> None:
    """The same sums in the same order; what is the same in all rows has no spread at all."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, d)) * 10.0 ** rng.integers(-3, 9, d) + 10.0 ** rng.integers(-3, 12, d)
    middle, spread = scaling.list_moments(frozen(rows))
    assert (middle.tolist(), spread.tolist()) == naive.list_moments(rows.tolist())
    assert (spread[(rows == rows[0]).all(0)] == 0.0).all()


@given(n=st.integers(1, 9), d=st.integers(1, 5), seed=SEEDS)
def test_standardize(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 99, d)
    middle, spread = frozen(rng.normal(size=d)), frozen(rng.choice([0.0, 1e-30, 0.5, 1e6], d))
    for bound in (3.0, LARGEST):
        found = scaling.standardize(frozen(rows), middle, spread, bound)
        assert found.tolist() == naive.standardize(rows.tolist(), middle.tolist(), spread.tolist(), bound)
        assert np.abs(found).max() <= bound
