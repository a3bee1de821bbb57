"""Dealing grades against its definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import simulated_users
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import grading as naive


@given(n=st.integers(1, 12), d=st.integers(1, 9), seed=SEEDS)
def test_deal_grades(n: int, d: int, seed: int) -> None:
    """Small whole numbers, so that utilities are exact and often equal."""
    rng = np.random.default_rng(seed)
    features, taste = frozen(rng.integers(-2, 3, (n, d))), frozen(rng.integers(-2, 3, d))
    best = positions(sorted(rng.integers(0, 5, n), reverse=True))
    expected = naive.deal_grades(features.tolist(), taste.tolist(), best.tolist())
    assert simulated_users.deal_grades(features, taste, best).tolist() == expected


@given(n=st.integers(1, 12), d=st.integers(1, 9), seed=SEEDS)
def test_utilities(n: int, d: int, seed: int) -> None:
    """The numbers of the definition; the bits of a document do not depend on those around it."""
    rng = np.random.default_rng(seed)
    features, taste = frozen(rng.normal(size=(n, d))), frozen(rng.normal(size=d))
    found = simulated_users.utilities(features, taste)
    assert found == pytest.approx(features @ taste, abs=1e-12)
    assert [simulated_users.utilities(features[i : i + 1], taste)[0] for i in range(n)] == found.tolist()


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=SEEDS)
def test_many_queries_are_each_dealt_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets, total = positions(np.cumsum([0, *lengths])), sum(lengths)
    features, taste, grades = frozen(rng.normal(size=(total, 3))), frozen(rng.normal(size=3)), rng.integers(0, 5, total)
    best = simulated_users.ragged_best_first(positions(grades), offsets)
    dealt = simulated_users.ragged_deal_grades(features, taste, positions(best), offsets)
    for first, last in pairwise(offsets):
        assert best[first:last].tolist() == sorted(grades[first:last], reverse=True)
        alone = naive.deal_grades(features[first:last].tolist(), taste.tolist(), best[first:last].tolist())
        assert dealt[first:last].tolist() == alone
