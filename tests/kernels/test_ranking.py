"""Scores and orders against their definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import ranking
from tests.kernels.inputs import SCORES, SEEDS, frozen, positions
from tests.reference import ranking as naive


@given(n=st.integers(1, 12), d=st.integers(1, 9), seed=SEEDS)
def test_linear_scores(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, theta = frozen(rng.normal(size=(n, d))), frozen(rng.normal(size=d))
    expected = naive.linear_scores(features.tolist(), theta.tolist())
    assert ranking.linear_scores(features, theta).tolist() == expected  # the same sums, in the same order


@given(data=st.data(), scores=st.lists(SCORES, min_size=1, max_size=15), k=st.integers(1, 20))
def test_top_k(data: st.DataObject, scores: list[float], k: int) -> None:
    ties = data.draw(st.permutations(range(len(scores))))
    assert ranking.top_k(frozen(scores), frozen(ties), k).tolist() == naive.top_k(scores, ties, k)


@given(data=st.data(), n=st.integers(1, 12), displacement=st.integers(0, 14), k=st.integers(1, 14))
def test_bounded_order(data: st.DataObject, n: int, displacement: int, k: int) -> None:
    """As its definition, k different positions, none moved too far, and nobody left out who would have to be shown."""
    preferred = data.draw(st.permutations(range(n)))
    order = ranking.bounded_order(positions(preferred), displacement, k).tolist()
    assert order == naive.bounded_order(preferred, displacement, k)
    assert len(order) == len(set(order)) == min(k, n)
    assert all(0 <= item < n and abs(place - item) <= displacement for place, item in enumerate(order))
    assert set(range(min(k, n) - displacement)) <= set(order)


@given(data=st.data(), n=st.integers(1, 12), displacement=st.integers(0, 14), k=st.integers(1, 14))
def test_a_list_within_bounds_is_shown_as_preferred(data: st.DataObject, n: int, displacement: int, k: int) -> None:
    """Preferences drawn near the base order, so that many keep the bound: those are taken as they are."""
    noise = data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.6, 1.6, 2.6]), min_size=n, max_size=n))
    preferred = sorted(range(n), key=lambda item: item + noise[item])
    wanted = preferred[:k]
    within = all(abs(place - item) <= displacement for place, item in enumerate(wanted))
    order = ranking.bounded_order(positions(preferred), displacement, k).tolist()
    if within and set(range(len(wanted) - displacement)) <= set(wanted):
        assert order == wanted
    else:
        assert order != wanted


@given(data=st.data(), n=st.integers(1, 10), quotas=st.integers(0, 3), pins=st.integers(0, 3))
def test_constrained_order(data: st.DataObject, n: int, quotas: int, pins: int) -> None:
    """As its definition; different documents, and too many of a group only where all that were left were too many."""
    preferred = data.draw(st.permutations(range(n)))
    k = data.draw(st.integers(1, n)) + pins
    slots = sorted(data.draw(st.permutations(range(k)))[: k - pins])
    groups = data.draw(st.lists(st.lists(st.integers(-1, 3), min_size=n, max_size=n), min_size=quotas, max_size=quotas))
    numbers = st.lists(st.integers(1, 6), min_size=quotas, max_size=quotas)
    most, within = data.draw(numbers), data.draw(numbers)
    taken = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=quotas, max_size=quotas))
    order, broken = ranking.constrained_order(
        positions(preferred),
        positions(groups).reshape(quotas, n),
        positions(most),
        positions(within),
        positions(taken).reshape(quotas, 4),
        positions(slots),
    )
    assert (order.tolist(), broken.tolist()) == naive.constrained_order(preferred, groups, most, within, taken, slots)
    assert len(set(order.tolist())) == len(slots)


@given(
    scores=st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.0]), min_size=1, max_size=4),
    k=st.integers(1, 4),
    epsilon=st.sampled_from([Fraction(0), Fraction(1, 5), Fraction(1)]),
)
def test_epsilon_greedy_log_probability(scores: list[float], k: int, epsilon: Fraction) -> None:
    """Every list there is, ties and all, against the law written out."""
    law = naive.epsilon_greedy_law(scores, epsilon, k)
    assert sum(law.values()) == 1
    for order in permutations(range(len(scores)), min(k, len(scores))):
        found = ranking.epsilon_greedy_log_probability(frozen(scores), positions(order), float(epsilon))
        assert exp(found) == pytest.approx(float(law.get(order, 0)), rel=1e-12)


@pytest.mark.parametrize("n", [ranking.SORTED_FROM, ranking.SORTED_FROM + 1, 900])
def test_long_lists_are_sorted_alike(n: int) -> None:
    """Scores and ties that are often equal, cut where the buffer ends, where sorting begins, and not at all."""
    rng = np.random.default_rng(n)
    scores, ties = rng.integers(0, 9, n).astype(float), rng.integers(0, 9, n).astype(float)
    for k in (5, ranking.SORTED_FROM, ranking.SORTED_FROM + 1, n, n + 3):
        expected = naive.top_k(scores.tolist(), ties.tolist(), k)
        assert ranking.top_k(frozen(scores), frozen(ties), k).tolist() == expected


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), SEEDS)
def test_many_rankers_score_as_each_alone(R: int, n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rankers, features = frozen(rng.normal(size=(R, d))), frozen(rng.normal(size=(n, d)))
    expected = [ranking.linear_scores(features, ranker).tolist() for ranker in rankers]
    assert ranking.rankers_scores(rankers, features).tolist() == expected
