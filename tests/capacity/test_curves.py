"""Curves go through what was measured, and say how far off they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput
from rankloop.service.capacity.curves import TERMS, Curve, Size, fitted, fitted_together

SIZES = [Size(n, d, k) for n, d, k in ((10, 10, 5), (50, 30, 10), (30, 100, 10), (150, 40, 20), (200, 180, 20))]


@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3))
def test_a_cost_that_is_a_curve_is_found_again(parts: list[float]) -> None:
    truth = Curve(dict(zip(("1", "n", "n d"), parts, strict=True)))
    found = fitted(("1", "n", "n d"), SIZES, [truth.at(size) for size in SIZES])
    unseen = Size(100, 136)
    assert found.at(unseen) == pytest.approx(truth.at(unseen), rel=1e-5)
    assert found.worst < 1e-3


def test_lists_and_events_are_told_apart() -> None:
    of_list, of_event = Curve({"1": 2.0, "n d": 0.01}), Curve({"1": 5.0, "k d": 0.03})
    shares = [0.0, 0.0, 0.0, 1.0, 0.5] * 2
    sizes = SIZES + SIZES[::-1]
    values = [of_list.at(size) + share * of_event.at(size) for size, share in zip(sizes, shares, strict=True)]
    lists, events = fitted_together(("1", "n", "n d"), ("1", "k d"), sizes, shares, values)
    assert lists.at(Size(7, 9)) == pytest.approx(of_list.at(Size(7, 9)))
    assert events.at(Size(7, 9)) == pytest.approx(of_event.at(Size(7, 9)))


def test_the_error_is_of_points_that_were_left_out() -> None:
    """One point that lies off shows in the worst error by about as much as it lies off, not spread over all."""
    values = [3.0 + 0.1 * size.n for size in SIZES]
    values[2] *= 1.5
    found = fitted(("1", "n"), SIZES, values)
    assert 0.3 < found.worst < 0.6


def test_nothing_gets_cheaper_by_being_more() -> None:
    found = fitted(("1", "n"), SIZES, [10.0 - 0.01 * size.n for size in SIZES])
    assert all(value >= 0 for value in found.parts.values())
    assert found.at(Size(10_000, 10)) > 0


def test_every_term_grows_with_the_size_or_stays() -> None:
    for name, term in TERMS.items():
        assert term(Size(20, 40, 10)) >= term(Size(10, 20, 5)) > 0, name


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two or more"):
        fitted(("1",), [Size(1, 1)], [1.0])
    with pytest.raises(InvalidInput, match="not finite"):
        fitted(("1",), SIZES, [1.0, np.nan, 1.0, 1.0, 1.0])
    with pytest.raises(InvalidInput, match="term 'n n'"):
        Curve({"n n": 1.0})
    with pytest.raises(InvalidInput, match="at least 0"):
        Curve({"n": -1.0})
