"""Batches of pairs: kernels against their twins, and what is proved of a step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import batches, pairwise
from tests.kernels.inputs import SEEDS, frozen, pair_rows, positions, spd
from tests.reference import batches as naive
from tests.reference.pairwise import loss

DIMENSIONS = st.integers(1, 11)


@given(z=st.floats(-600, 600) | st.floats(-2e-3, 2e-3))
def test_bend(z: float) -> None:
    assert batches.bend(z) == pytest.approx(naive.bend(z), rel=1e-11)


@given(
    data=st.data(),
    k=st.integers(2, 6),
    d=DIMENSIONS,
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    keep=st.sampled_from([1.0, 0.9]),
    seed=SEEDS,
)
def test_gather(data: st.DataObject, k: int, d: int, scale: float, keep: float, seed: int) -> None:
    """Rows that no pair names, copies among the rows, pairs that come again, weights of 0, no pairs."""
    rng = np.random.default_rng(seed)
    features, matrix, theta = scale * rng.normal(size=(k, d)), spd(d, rng), rng.normal(size=d)
    features[k // 2] = features[0]
    position = st.integers(0, k - 1)
    pairs = data.draw(st.lists(st.tuples(position, position).filter(lambda pair: pair[0] != pair[1]), max_size=8))
    weights = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=len(pairs), max_size=len(pairs)))
    before = keep * matrix + (1 - keep) * 2.0 * np.eye(d) if pairs else matrix
    expected, gradient = naive.gather(theta, before, features, pairs, weights)
    precision, push = np.tril(matrix), np.ones(d)
    batches.gather(precision, push, frozen(theta), frozen(features), pair_rows(pairs), frozen(weights), keep, 2.0)
    size = max(1.0, scale**2)
    assert precision == pytest.approx(np.tril(expected), rel=1e-9, abs=1e-9 * size)
    assert push == pytest.approx(1.0 + gradient, rel=1e-9, abs=1e-9 * size)


@given(d=DIMENSIONS, seed=SEEDS)
def test_half_inverse(d: int, seed: int) -> None:
    """Panels of four and what is left over; symmetric to the bit."""
    matrix = spd(d, np.random.default_rng(seed))
    found = batches.half_inverse(frozen(np.tril(matrix)))
    assert found == pytest.approx(np.linalg.inv(matrix), rel=1e-8, abs=1e-9)
    assert (found == found.T).all()


@given(d=DIMENSIONS, k=st.integers(0, 6), seed=SEEDS)
def test_products(d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, left, right = (rng.normal(size=size) for size in ((d, d), (k, d), (k, d)))
    some = positions(np.flatnonzero(rng.random(k) < 0.6))
    half, whole = matrix.copy(), matrix.copy()
    batches.add_half_products(half, frozen(left), frozen(right), -2.0)
    assert np.tril(half) == pytest.approx(np.tril(matrix - 2.0 * left.T @ right), abs=1e-12)
    assert (np.triu(half, 1) == np.triu(matrix, 1)).all()
    pairwise.subtract_products(whole, frozen(left), frozen(right), some)
    assert whole == pytest.approx(matrix - left[some].T @ right[some], abs=1e-12)
    found = pairwise.some_rows_times(frozen(left), frozen(matrix), some)
    expected = np.zeros((k, d))
    expected[some] = left[some] @ matrix
    assert found == pytest.approx(expected, abs=1e-12)


@given(lists=st.integers(1, 40), d=DIMENSIONS, scale=st.sampled_from([0.3, 3.0, 30.0]), seed=SEEDS)
def test_a_step_never_goes_too_far(lists: int, d: int, scale: float, seed: int) -> None:
    """However many lists contradict what is known: the loss of the batch, with what H says of before, goes down."""
    rng = np.random.default_rng(seed)
    theta, prior = scale * rng.normal(size=d), 0.1
    pairs, weights = pair_rows([(0, 1), (0, 2), (3, 1)]), frozen([1.0, 0.5, 1.0])
    precision, push, rows = prior * np.eye(d), np.zeros(d), []
    for _ in range(lists):
        shown = rng.normal(size=(4, d))
        batches.gather(precision, push, frozen(theta), frozen(shown), pairs, weights, 1.0, prior)
        rows += [shown[a] - shown[b] for a, b in pairs]
    after = batches.stepped(theta, batches.half_inverse(precision), push)

    def objective(at: np.ndarray) -> float:
        moved = at - theta
        return loss(at, np.array(rows), np.tile(weights, lists), 0.0) + prior / 2 * float(moved @ moved)

    assert objective(after) <= objective(theta) * (1 + 1e-9)
