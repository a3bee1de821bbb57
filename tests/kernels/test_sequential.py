"""Wealth against its definition, and what follows from it: where it crosses, and that portions do not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import sequential
from tests.kernels.inputs import frozen
from tests.reference import sequential as naive

POINTS = 9  # a coarse grid: -1, -.75 … 1
GRID = [-1.0 + 0.25 * i for i in range(POINTS)]
BETS = [0.9, 0.3, 0.05]
ON_GRID = st.lists(st.sampled_from(GRID), min_size=1, max_size=30)
ANYWHERE = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=30)
MEANS = st.floats(-0.99, 0.99)
SIDES = st.sampled_from([1, -1])


class Followed:
    """Values followed in portions, against one m."""

    def __init__(self, *portions: list[float], m: float = 0.0, threshold: float = np.inf) -> None:
        self.counts, self.sums, self.wealth, self.crossed = np.zeros(POINTS), np.zeros(3), np.zeros((2, 3)), np.zeros(2)
        self.stops: list[int] = []
        for portion in portions:
            left = list(portion)
            while left:
                arrays = (self.counts, self.sums, self.wealth, self.crossed)
                taken = sequential.follow(*arrays, frozen(left), frozen(BETS), m, threshold)
                self.stops.append(taken)
                left = left[taken:]

    def bits(self) -> list[bytes]:
        return [array.tobytes() for array in (self.counts, self.sums, self.wealth, self.crossed)]


def counted(values: list[float]) -> Array:
    return Followed(values).counts


@given(values=ANYWHERE)
def test_the_grid_keeps_number_and_mean(values: list[float]) -> None:
    counts = counted(values)
    assert (counts >= 0).all()
    assert counts.sum() == pytest.approx(len(values), rel=1e-12)
    assert counts @ GRID == pytest.approx(sum(values), abs=1e-9)


@given(values=ON_GRID, m=MEANS, side=SIDES)
def test_wealth_is_what_the_gambler_has(values: list[float], m: float, side: int) -> None:
    found = sequential.log_wealth(frozen(counted(values)), frozen(BETS), m, float(side))
    assert found == pytest.approx(math.log(naive.wealth(values, BETS, m, side)), abs=1e-9)


@given(values=ANYWHERE, m=MEANS, side=SIDES)
def test_between_points_wealth_is_never_more(values: list[float], m: float, side: int) -> None:
    found = sequential.log_wealth(frozen(counted(values)), frozen(BETS), m, float(side))
    assert found <= math.log(naive.wealth(values, BETS, m, side)) + 1e-9


@given(values=ANYWHERE, one=MEANS, other=MEANS, side=SIDES)
def test_wealth_falls_the_further_the_bet_is(values: list[float], one: float, other: float, side: int) -> None:
    """So what is not refused is an interval."""
    near, far = sorted((one, other), key=lambda m: side * m)
    counts = frozen(counted(values))
    rich, poor = (sequential.log_wealth(counts, frozen(BETS), m, float(side)) for m in (near, far))
    assert rich >= poor - 1e-9


@given(values=ANYWHERE, side=SIDES, threshold=st.floats(0.5, 6.0))
def test_the_end_is_where_wealth_crosses(values: list[float], side: int, threshold: float) -> None:
    counts, mean = frozen(counted(values)), sum(values) / len(values)
    end = sequential.last_refused(counts, frozen(BETS), mean, threshold, float(side))
    assert -1.0 <= end <= 1.0
    assert side * end <= side * mean
    if abs(end) < 1.0:
        assert sequential.log_wealth(counts, frozen(BETS), end, float(side)) >= threshold
        inside = end + side * 1e-9
        assert (
            side * inside > side * mean or sequential.log_wealth(counts, frozen(BETS), inside, float(side)) < threshold
        )


@given(values=ANYWHERE, cut=st.integers(0, 30), m=MEANS)
def test_the_fold_does_not_depend_on_portions(values: list[float], cut: int, m: float) -> None:
    """To the last bit."""
    whole = Followed(values, m=m, threshold=1.0)
    assert whole.bits() == Followed(values[:cut], values[cut:], m=m, threshold=1.0).bits()
    assert whole.bits() == Followed(*([value] for value in values), m=m, threshold=1.0).bits()
    assert whole.sums == pytest.approx([len(values), sum(values), sum(v * v for v in values)], abs=1e-9)


@given(values=ANYWHERE, m=MEANS)
def test_what_is_watched_is_the_wealth_against_m(values: list[float], m: float) -> None:
    """It stops at each value that first makes a side rich, and says which."""
    threshold = math.log(3.0)
    found = Followed(values, m=m, threshold=threshold)
    stops = set()
    for row, side in enumerate((1.0, -1.0)):
        rich = [
            n
            for n in range(1, len(values) + 1)
            if sequential.log_wealth(frozen(counted(values[:n])), frozen(BETS), m, side) >= threshold
        ]
        assert found.crossed[row] == (rich[0] if rich else 0)
        stops |= set(rich[:1])
        after = sequential.log_wealth(frozen(found.counts), frozen(BETS), m, side)
        assert sequential.log_mean(frozen(found.wealth[row])) == pytest.approx(after, abs=1e-9)
    assert set(np.cumsum(found.stops)) == stops | {len(values)}


@settings(max_examples=40)
@given(n=st.integers(1, 60), data=st.data(), alpha=st.sampled_from([0.3, 0.05]))
def test_least_sum(n: int, data: st.DataObject, alpha: float) -> None:
    moved = data.draw(st.integers(1, n))
    found = sequential.least_sum(float(n), moved / n, frozen(BETS), math.log(2.0 / alpha))
    expected = naive.least_sum(n, moved, BETS, alpha)
    if expected is None:
        assert found == math.inf
    else:
        # Sums of so many values of -1 and 1 go in steps of 2; the kernel takes them as going anywhere.
        assert expected - 2 < found <= expected + 1e-6
