"""Pairs by their rules, and pairwise logistic regression against whole matrices."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import pairwise, preferences
from tests.kernels.inputs import SEEDS, frozen, pair_rows, spd
from tests.reference import pairwise as naive

VALUES = st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), max_size=9)
DIMENSIONS = st.integers(1, 9)


@given(values=VALUES, examine_next=st.booleans(), seen=st.integers(-1, 9))
def test_examined_count(values: list[float], examine_next: bool, seen: int) -> None:
    assert preferences.examined_count(frozen(values), examine_next, seen) == naive.examined_count(
        values, examine_next, seen
    )


@given(values=VALUES, examine_next=st.booleans(), seen=st.integers(-1, 9), seed=SEEDS)
def test_click_pairs(values: list[float], examine_next: bool, seen: int, seed: int) -> None:
    keys = np.random.default_rng(seed).random(len(values)).tolist()
    expected = {
        preferences.ADJACENT: naive.adjacent_pairs(values, examine_next, seen),
        preferences.MATCHED: naive.matched_pairs(values, examine_next, keys, seen),
        preferences.ALL: naive.all_pairs(values, examine_next, seen),
    }
    for rule, pairs in expected.items():
        found = preferences.click_pairs(frozen(values), examine_next, seen, rule, frozen(keys))
        assert found.shape == (len(pairs), 2)
        assert sorted(map(tuple, found.tolist())) == sorted(pairs)
        better = preferences.differences(frozen(values), found)
        assert better.tolist() == [values[a] - values[b] for a, b in found.tolist()]


@given(clicks=st.lists(st.sampled_from([0.0, 1.0]), max_size=9), examine_next=st.booleans(), seed=SEEDS)
def test_plain_clicks_pair_as_clicked_and_unclicked(clicks: list[float], examine_next: bool, seed: int) -> None:
    """In the order that states which are learned already hang on: the clicked from the top, then the unclicked."""
    keys = np.random.default_rng(seed).random(len(clicks))
    clicked, unclicked = naive.split(clicks, examine_next)
    whole = preferences.click_pairs(frozen(clicks), examine_next, -1, preferences.ALL, frozen(keys))
    assert list(map(tuple, whole.tolist())) == [(a, b) for a in clicked for b in unclicked]
    matched = preferences.click_pairs(frozen(clicks), examine_next, -1, preferences.MATCHED, frozen(keys))
    sides = [sorted(side, key=lambda i: keys[i]) for side in (clicked, unclicked)]
    assert list(map(tuple, matched.tolist())) == list(zip(*sides, strict=False))


@pytest.mark.parametrize("clicks", list(product([0.0, 1.0], repeat=5)))
def test_matched_pairs_are_uniform(clicks: tuple[float, ...]) -> None:
    """Over all orders of the keys, every way to match comes up equally often."""
    seen = Counter(
        frozenset(
            map(tuple, preferences.click_pairs(frozen(clicks), True, -1, preferences.MATCHED, frozen(keys)).tolist())
        )
        for keys in permutations(range(5))
    )
    assert set(seen) == naive.matchings(clicks, True)
    assert len(set(seen.values())) == 1


@given(x=st.floats(-1e3, 1e3))
def test_sigmoid(x: float) -> None:
    assert pairwise.sigmoid(x) == pytest.approx(naive.sigmoid(x), rel=1e-14, abs=0.0)


@given(k=st.integers(0, 6), d=DIMENSIONS, seed=SEEDS)
def test_linear_algebra(k: int, d: int, seed: int) -> None:
    """Every remainder of the unrolled loops, and no rows at all."""
    rng = np.random.default_rng(seed)
    rows, matrix, scale, target = (rng.normal(size=size) for size in ((k, d), (d, d), k, d))
    assert pairwise.some_rows_times(frozen(rows), frozen(matrix), np.arange(len(rows))) == pytest.approx(
        rows @ matrix, abs=1e-12
    )
    assert pairwise.dot(frozen(matrix[0]), frozen(target)) == pytest.approx(matrix[0] @ target, abs=1e-12)
    expected = target + scale @ rows
    pairwise.add_scaled(target, frozen(scale), frozen(rows))
    assert target == pytest.approx(expected, abs=1e-12)


@given(d=DIMENSIONS, weight=st.sampled_from([0.0, 0.05, 1.0, 20.0]), seed=SEEDS)
def test_rank_one_update(d: int, weight: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, x = spd(d, rng), rng.normal(size=d)
    updated, inverse = matrix + weight * np.outer(x, x), np.linalg.inv(matrix)
    gain = pairwise.rank_one_update(inverse, frozen(x), weight)
    assert inverse == pytest.approx(np.linalg.inv(updated), abs=1e-10)
    assert gain == pytest.approx(np.linalg.slogdet(updated)[1] - np.linalg.slogdet(matrix)[1], abs=1e-10)


@given(
    data=st.data(),
    k=st.integers(1, 6),
    d=DIMENSIONS,
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    seed=SEEDS,
)
def test_onepass(data: st.DataObject, k: int, d: int, scale: float, seed: int) -> None:
    """More rows than features and fewer, copies among the rows, pairs that come again, weights of 0, no pairs."""
    rng = np.random.default_rng(seed)
    features, matrix, theta = scale * rng.normal(size=(k, d)), spd(d, rng), rng.normal(size=d)
    features[k // 2] = features[0]
    position = st.integers(0, k - 1)
    pairs = data.draw(
        st.lists(st.tuples(position, position).filter(lambda pair: pair[0] != pair[1]), max_size=8)
        if k > 1
        else st.just([])
    )
    weights = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=len(pairs), max_size=len(pairs)))
    expected, updated = naive.onepass(theta, matrix, features, pairs, weights)
    inverse = np.linalg.inv(matrix)
    gain = pairwise.onepass(theta, inverse, frozen(features), pair_rows(pairs), frozen(weights))
    assert theta == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert inverse == pytest.approx(np.linalg.inv(updated), rel=1e-8, abs=1e-8)
    assert gain == pytest.approx(np.linalg.slogdet(updated)[1] - np.linalg.slogdet(matrix)[1], abs=1e-8)


@given(data=st.data(), k=st.integers(2, 6), d=DIMENSIONS, seed=SEEDS)
def test_longest_pair(data: st.DataObject, k: int, d: int, seed: int) -> None:
    features = frozen(np.random.default_rng(seed).normal(size=(k, d)))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), max_size=6))
    found = pairwise.longest_pair(features, pair_rows(pairs))
    assert found == pytest.approx(naive.longest_pair(features, pairs), rel=1e-12)


@given(d=DIMENSIONS, seed=SEEDS, ridge=st.sampled_from([1e-3, 1.0, 50.0]))
def test_inverses_from_scratch(d: int, seed: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    matrix, rows, curvature = spd(d, rng), rng.normal(size=(4, d)), rng.random(4) / 4
    assert pairwise.spd_inverse(frozen(matrix)) == pytest.approx(np.linalg.inv(matrix), rel=1e-9, abs=1e-9)
    summed = ridge * np.eye(d) + sum(c * np.outer(x, x) for c, x in zip(curvature, rows, strict=True))
    found = pairwise.hessian_inverse(frozen(rows), frozen(curvature), ridge)
    assert found @ summed == pytest.approx(np.eye(d), abs=1e-9)


@given(m=st.integers(0, 6), d=DIMENSIONS, scale=st.sampled_from([0.1, 1.0, 300.0]), seed=SEEDS)
def test_logistic_gradient(m: int, d: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    theta, rows, weights = rng.normal(size=d), scale * rng.normal(size=(m, d)), rng.random(m)
    gradient, curvature = pairwise.logistic_gradient(frozen(theta), frozen(rows), frozen(weights), 0.7)
    assert gradient == pytest.approx(naive.gradient(theta, rows, weights, 0.7), rel=1e-10, abs=1e-10)
    summed = 0.7 * np.eye(d) + (rows.T * curvature) @ rows
    assert summed == pytest.approx(naive.hessian(theta, rows, weights, 0.7), rel=1e-10, abs=1e-10)


def test_drift_of_rank_one_updates() -> None:
    """Below 1e-12 over 6,000 updates at d = 136 (ALGORITHMS.md section 8), log determinant below 1e-9."""
    rng, d, prior = np.random.default_rng(8), 136, 1.0
    matrix, inverse, gain = prior * np.eye(d), np.eye(d) / prior, 0.0
    for _ in range(6000):
        x = rng.random(d) - rng.random(d)
        matrix += np.outer(x, x)
        gain += pairwise.rank_one_update(inverse, frozen(x), 1.0)
    assert np.abs(inverse - np.linalg.inv(matrix)).max() < 1e-12
    assert gain == pytest.approx(np.linalg.slogdet(matrix)[1] - d * np.log(prior), rel=1e-12)


def test_drift_of_onepass() -> None:
    """Also 6,000 pairs at d = 136, 24 a call and one a call; the latter's θ gives each pair's curvature to sum up."""
    rng, d, prior, k = np.random.default_rng(9), 136, 1.0, 10
    theta, inverse, gain = np.zeros(d), np.eye(d) / prior, 0.0
    single_theta, single_inverse, matrix = np.zeros(d), np.eye(d) / prior, prior * np.eye(d)
    pairs = [(a, b) for a in range(4) for b in range(4, k)]
    for _ in range(6000 // len(pairs)):
        features, weights = frozen(rng.random((k, d))), frozen(rng.random(len(pairs)))
        gain += pairwise.onepass(theta, inverse, features, pair_rows(pairs), weights)
        for (a, b), rho in zip(pairs, weights, strict=True):
            pairwise.onepass(single_theta, single_inverse, features, pair_rows([(a, b)]), frozen([rho]))
            x = features[a] - features[b]
            p = naive.sigmoid(float(x @ single_theta))
            matrix += rho * p * (1 - p) * np.outer(x, x)
    direct = np.linalg.inv(matrix)
    assert np.abs(inverse - direct).max() < 1e-12
    assert np.abs(single_inverse - direct).max() < 1e-12
    assert np.abs(theta - single_theta).max() < 1e-10
    assert gain == pytest.approx(np.linalg.slogdet(matrix)[1] - d * np.log(prior), rel=1e-12)
