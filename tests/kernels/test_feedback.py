"""Feedback kernels against what numpy says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import input_checks
from tests.kernels.inputs import SEEDS, frozen


@given(SEEDS, st.integers(1, 6), st.integers(1, 9), st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e308, -1e308]))
def test_a_table_is_finite_if_all_of_it_is(seed: int, m: int, d: int, odd: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    rows[rng.integers(m), rng.integers(d)] = odd
    assert input_checks.all_finite(frozen(rows)) == np.isfinite(rows).all()


@pytest.mark.parametrize(
    ("values", "fine"), [([1.0, 0.3], True), ([], True), ([-1.0], False), ([np.nan], False), ([1.1], False)]
)
def test_slots_that_were_not_reported_are_zero(values: list[float], fine: bool) -> None:
    whole, ok = input_checks.filled(frozen(values), 3, 1.0)
    assert (ok, whole[len(values) :].tolist()) == (fine, [0.0] * (3 - len(values)))
    assert np.array_equal(whole[: len(values)], values, equal_nan=True)
