"""A contextual bandit's kernels against their twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import inverse_gap_weighting
from tests.kernels.inputs import SCORES, SEEDS, frozen, positions
from tests.reference import gap_weighting as twin

GAMMAS, EPSILONS = st.sampled_from([0.0, 1.0, 50.0, 1e6]), st.sampled_from([0.0, 0.2, 1.0])


@given(st.lists(SCORES, min_size=1, max_size=7), SEEDS, GAMMAS, EPSILONS)
def test_chances_are_the_twins_and_add_up_to_one(scores: list[float], seed: int, gamma: float, epsilon: float) -> None:
    left = np.random.default_rng(seed).random(len(scores)) < 0.7
    left[seed % len(scores)] = True
    found = inverse_gap_weighting.chances(frozen(scores), frozen(left, np.bool_), gamma, epsilon)
    assert found.tolist() == pytest.approx(twin.chances(scores, left.tolist(), gamma, epsilon))
    assert found.sum() == pytest.approx(1.0)
    assert (found >= -1e-12).all()
    assert not found[~left].any()


@given(st.lists(SCORES, min_size=1, max_size=6), SEEDS, GAMMAS, EPSILONS)
def test_a_drawn_list_knows_its_probability(scores: list[float], seed: int, gamma: float, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, len(scores) + 1))
    order, chance = inverse_gap_weighting.drawn_order(frozen(scores), frozen(rng.random(k)), gamma, epsilon)
    assert len(set(order.tolist())) == k
    assert chance == pytest.approx(twin.order_log_probability(scores, order.tolist(), gamma, epsilon))
    other = positions(rng.permutation(len(scores))[:k])
    found = inverse_gap_weighting.order_log_probability(frozen(scores), other, gamma, epsilon)
    expected = twin.order_log_probability(scores, other.tolist(), gamma, epsilon)
    assert found == expected if math.isinf(expected) else found == pytest.approx(expected)


@given(SEEDS, st.integers(0, 4), st.integers(1, 6))
def test_the_regression_is_the_twins(seed: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    theta, variance, level = rng.normal(size=d), rng.random(d) + 0.1, np.array([0.2, 0.5])
    rows, rewards = frozen(rng.normal(size=(m, d)).round(1)), frozen(rng.random(m))
    means, widths = twin.regress(
        theta.tolist(), variance.tolist(), level.tolist(), rows.tolist(), rewards.tolist(), 0.3
    )
    inverse_gap_weighting.regress(theta, variance, level, rows, rewards, 0.3)
    assert [*theta, level[0]] == pytest.approx(means)
    assert [*variance, level[1]] == pytest.approx(widths)
    assert (variance > 0).all()


@given(SEEDS, st.integers(1, 4), st.integers(1, 6))
def test_sparse_rows_give_the_same_bits(seed: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((m, d)) < 0.5, rng.normal(size=(m, d)).round(1), 0.0)
    there = rows != 0.0
    indptr, indices = positions([0, *there.sum(axis=1).cumsum()]), frozen(np.nonzero(there)[1], np.int32)
    found = []
    for sparse in (False, True):
        theta, variance, level = np.linspace(-1, 1, d), np.linspace(0.2, 1, d), np.array([0.2, 0.5])
        rewards = frozen(np.linspace(0, 1, m))
        if sparse:
            values = frozen(rows[there])
            inverse_gap_weighting.regress_sparse(theta, variance, level, indptr, indices, values, rewards, 0.3)
        else:
            inverse_gap_weighting.regress(theta, variance, level, frozen(rows), rewards, 0.3)
        found.append((theta.tobytes(), variance.tobytes(), level.tobytes()))
    assert found[0] == found[1]
