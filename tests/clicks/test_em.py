"""The maximize of expectation maximization, and smoothing."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.clicks.em import maximize, pooled, share
from rankloop.core.types import Array


def test_leaps_come_to_the_fixed_point_in_few_steps() -> None:
    """A map that comes one hundredth closer each time: 900 plain steps, and it stops where it stands still."""
    goal = (np.array([0.2, 0.7, 0.4]), np.array([[0.9], [0.5]]))
    rates = (np.array([0.9, 0.99, 0.5]), np.array([[0.99], [0.8]]))

    def update(*numbers: Array) -> tuple[tuple[Array, ...], float]:
        nearer = [g + q * (x - g) for g, q, x in zip(goal, rates, numbers, strict=True)]
        return tuple(nearer), -7.0

    start = (np.full(3, 0.6), np.full((2, 1), 0.3))
    found, trace = maximize(update, start, 2, 1e-9, 1000, None)
    assert len(trace) < 60
    assert set(trace.tolist()) == {-3.5}  # a page's
    for here, there in zip(found, goal, strict=True):
        assert here == pytest.approx(there, abs=1e-6)


def test_a_leap_to_where_pages_are_less_likely_is_not_taken() -> None:
    """.1, .15, .19 points to .35, where the log-likelihood is lower: it goes on from .19."""
    seen: list[float] = []

    def update(number: Array) -> tuple[tuple[Array, ...], float]:
        seen.append(round(float(number[0]), 9))
        onwards = {0.1: 0.15, 0.15: 0.19, 0.35: 0.3}.get(seen[-1], seen[-1])
        return (np.array([onwards]),), -9.0 if seen[-1] > 0.3 else -1.0

    (found,), _ = maximize(update, (np.array([0.1]),), 1, 1e-9, 100, None)
    assert seen == [0.1, 0.15, 0.35, 0.19]
    assert found.tolist() == [0.19]


def test_shares_are_drawn_to_the_mean_and_never_0_or_1() -> None:
    count, total = np.array([0.0, 3.0, 4.0, 0.0]), np.array([0.0, 4.0, 4.0, 2.0])
    assert pooled(count, total, 2.0) == pytest.approx([0.7, 4.4 / 6, 5.4 / 6, 1.4 / 4, 0.7])
    without = pooled(count, total, 0.0)
    assert without == pytest.approx([0.7, 0.75, 1.0, 0.0, 0.7], abs=1e-8)
    assert 0 < without.min() < without.max() < 1
    assert share(np.zeros(1), np.zeros(1), 0.5, 0.0).tolist() == [0.5]
    assert pooled(np.zeros(0), np.zeros(0), 1.0).tolist() == [0.5]
