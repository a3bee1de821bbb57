"""Exponentials, logarithms and products of our own: near the truth, and in one order."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import elementary
from rankloop.kernels.products import product, row_products
from tests.kernels.inputs import frozen

EXACT = Context(prec=400, Emin=-9999, Emax=9999)  # digits enough for 1 + the smallest number
ONE = Decimal(1)


def check(found: float, true: Decimal, units: float = 3.0) -> None:
    """Within so many units in the last place."""
    assert abs(Decimal(found) - true) <= Decimal(units * math.ulp(float(true)))


@given(st.floats(-745.0, 709.7))
def test_exp(x: float) -> None:
    check(elementary.exp(x), EXACT.exp(Decimal(x)))


@given(st.floats(5e-324, 1.7e308))
def test_log(x: float) -> None:
    check(elementary.log(x), EXACT.ln(Decimal(x)))


@given(st.floats(0.5, 2.0))
def test_log_around_one(x: float) -> None:
    check(elementary.log(x), EXACT.ln(Decimal(x)))


@given(st.one_of(st.floats(-0.99, 1.0), st.floats(1.0, 1e15)))
def test_log1p(x: float) -> None:
    check(elementary.log1p(x), EXACT.ln(EXACT.add(ONE, Decimal(x))))


@given(st.floats(-30.0, 30.0))
def test_expm1_and_tanh(x: float) -> None:
    check(elementary.expm1(x), EXACT.subtract(EXACT.exp(Decimal(x)), ONE))
    twice = EXACT.exp(Decimal(2.0 * x))
    check(elementary.tanh(x), EXACT.divide(EXACT.subtract(twice, ONE), EXACT.add(twice, ONE)))


@given(st.integers(1, 10**6))
def test_log2_is_whole_for_powers_of_two(n: int) -> None:
    check(elementary.log2(float(n)), EXACT.divide(EXACT.ln(Decimal(n)), EXACT.ln(Decimal(2))))
    assert elementary.log2(2.0 ** (n % 1000)) == n % 1000


@given(st.floats(0.5, 1e6), st.sampled_from([1 / 3, 2 / 3, -3.0, 2.0, 7.0, 0.5]))
def test_power(x: float, y: float) -> None:
    true = EXACT.exp(EXACT.multiply(Decimal(y), EXACT.ln(Decimal(x))))
    check(elementary.power(x, y), true, units=2.0 + 2.0 * abs(math.log(x) * y))


def test_powers_of_whole_numbers_are_whole() -> None:
    assert [elementary.power(2.0, float(g)) for g in range(6)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert elementary.power(10.0, 3.0) == 1000.0


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "log2", "tanh"])
@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 800.0, -800.0])
def test_the_ends_are_those_of_numpy(name: str, x: float) -> None:
    with np.errstate(all="ignore"):
        wanted = float(getattr(np, name)(x))
    own: Callable[[float], float] = getattr(elementary, name)
    assert own(x) == pytest.approx(wanted, rel=1e-15, nan_ok=True)


def in_order(left: Array, right: Array) -> Array:
    """Σ over c ascending, a rounding after each product and each sum."""
    found = np.zeros((left.shape[0], right.shape[1]), left.dtype)
    for i in range(found.shape[0]):
        for j in range(found.shape[1]):
            for c in range(left.shape[1]):
                found[i, j] = found[i, j] + left[i, c] * right[c, j]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 1), (2, 4, 8), (3, 7, 5), (9, 11, 3), (16, 6, 1), (5, 0, 2)])
def test_products_are_the_plain_sums_bit_for_bit(n: int, d: int, m: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    left, right = frozen(rng.normal(size=(n, d)), dtype), frozen(rng.normal(size=(d, m)), dtype)
    assert product(left, right).tobytes() == in_order(left, right).tobytes()
    vector = frozen(rng.normal(size=d))
    rows = frozen(left)
    assert row_products(rows, vector).tobytes() == in_order(rows, vector.reshape(-1, 1)).tobytes()
