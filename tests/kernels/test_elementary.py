"""Elementary functions in plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels.elementary import exp_minus


@given(st.floats(0.0, 800.0))
def test_exp_minus_is_the_exponential(x: float) -> None:
    assert exp_minus(x) == pytest.approx(math.exp(-x), rel=4e-16, abs=1e-323)


def test_exp_minus_at_its_ends() -> None:
    assert exp_minus(0.0) == 1.0
    assert exp_minus(np.inf) == 0.0
    assert math.isnan(exp_minus(np.nan))
