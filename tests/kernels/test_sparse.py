"""Kernels of sparse rows and of variances give what the same rows give as a table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import diagonal, pairwise, sparse
from rankloop.kernels.products import row_products
from tests.kernels.inputs import SEEDS, frozen, pair_rows, positions
from tests.reference import sparse as naive

WIDTH = 9


def some_rows(seed: int, n: int = 5) -> tuple[Array, Array, Array, Array]:
    """indptr, indices, values, and the same as a table; some rows are empty, some full."""
    rng = np.random.default_rng(seed)
    held = rng.random((n, WIDTH)) < rng.choice([0.0, 0.3, 1.0], size=(n, 1), p=[0.1, 0.7, 0.2])
    indptr = positions([0, *held.sum(axis=1).cumsum()])
    indices, values = frozen(np.nonzero(held)[1], np.int32), frozen(rng.normal(size=held.sum()))
    return indptr, indices, values, np.array(naive.table(indptr, indices, values, WIDTH))


@given(st.lists(st.integers(0, 2**31 - 2), max_size=40))
def test_columns_are_numbered_as_they_first_come(columns: list[int]) -> None:
    local, found = sparse.numbered(frozen(columns, np.int32))
    assert found.tolist() == list(dict.fromkeys(columns))
    assert found[local].tolist() == columns


@given(SEEDS)
def test_scores_norms_and_distances(seed: int) -> None:
    indptr, indices, values, table = some_rows(seed)
    rng = np.random.default_rng(seed)
    theta, spread = frozen(rng.normal(size=WIDTH)), frozen(rng.random(WIDTH) + 0.1)
    local, columns = sparse.numbered(indices)
    here, wide = frozen(theta[columns]), frozen(spread[columns])
    scores = sparse.sparse_scores(indptr, positions(local), values, here)
    assert (scores == row_products(table, theta)).all(), "to the bit"
    norms = sparse.sparse_norms(indptr, positions(local), values, wide)
    assert norms == pytest.approx(naive.norms(table, spread), abs=1e-7)
    some = positions([3, 0, 4])
    gram = sparse.sparse_gram(indptr, positions(local), values, wide, some)
    assert gram == pytest.approx((table * spread)[some] @ table[some].T, abs=1e-12)
    distance = sparse.sparse_mean_squared_distance(indptr, positions(local), values, columns.size)
    assert distance == pytest.approx(naive.mean_squared_distance(table))


def test_the_distance_of_equal_rows_is_the_unit() -> None:
    indptr, local, values = positions([0, 2, 4, 6]), positions([0, 1] * 3), frozen([0.1, 0.7] * 3)
    assert sparse.sparse_mean_squared_distance(indptr, local, values, 2) == 1.0
    assert sparse.sparse_mean_squared_distance(indptr[:2], local[:2], values[:2], 2) == 1.0, "one row"


@given(SEEDS)
def test_the_base_order_is_one_column_more(seed: int) -> None:
    indptr, indices, values, table = some_rows(seed)
    places = [3, 1, 4, 0, 2]
    found = sparse.sparse_with_places(indptr, indices, values, positions(places), WIDTH)
    assert np.array(naive.table(*found, WIDTH + 1)) == pytest.approx(naive.with_places(table, places), abs=1e-15)
    assert found[1].dtype == np.int32


def test_equal_rows_have_equal_marks_and_others_do_not() -> None:
    indptr, indices = positions([0, 2, 4, 6, 8]), frozen([1, 5, 1, 5, 1, 6, 1, 5], np.int32)
    values = frozen([1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 0.5, 1.0])
    marks = sparse.sparse_row_marks(indptr, indices, values)
    assert marks[0] == marks[1]
    assert len(set(marks.tolist())) == 3


@given(SEEDS, st.sampled_from([1e-3, 1.0, 30.0]), st.sampled_from([-1, 2, WIDTH - 1]))
def test_a_pair_is_a_newton_step_and_its_curvature_a_diagonal_above_it(seed: int, scale: float, alone: int) -> None:
    indptr, indices, values, table = some_rows(seed)
    rng = np.random.default_rng(seed)
    theta, variance = rng.normal(size=WIDTH), scale * (rng.random(WIDTH) + 0.1)
    pairs, weights = pair_rows([(0, 1), (2, 0), (4, 3), (0, 1)]), frozen(rng.random(4))
    wanted = naive.diagonal_onepass(
        theta, variance, table, [tuple(pair) for pair in pairs.tolist()], weights.tolist(), alone
    )
    one, other = (theta.copy(), variance.copy()), (theta.copy(), variance.copy())
    diagonal.diagonal_onepass(*one, frozen(table), pairs, weights, alone)
    assert one[0] == pytest.approx(wanted[0], rel=1e-8, abs=1e-10)
    assert one[1] == pytest.approx(wanted[1], rel=1e-8)
    local, columns = sparse.numbered(indices)
    here = other[0][columns], other[1][columns]
    diagonal.sparse_diagonal_onepass(*here, indptr, indices, positions(local), values, pairs, weights, alone)
    other[0][columns], other[1][columns] = here
    assert (other[0] == one[0]).all(), "to the bit"
    assert (other[1] == one[1]).all(), "to the bit"
    assert (one[1] <= variance).all(), "variances never grow by learning"
    full, inverse = theta.copy(), np.diag(variance)
    pairwise.onepass(full, inverse, frozen(table), pairs[:1], weights[:1])
    first = variance.copy()
    diagonal.diagonal_onepass(theta.copy(), first, frozen(table), pairs[:1], weights[:1], -1)
    above = np.diag(1 / first) - np.linalg.inv(inverse)
    assert np.linalg.eigvalsh(above).min() > -1e-7 * np.abs(above).max() - 1e-9, "above the full matrix"


@given(SEEDS)
def test_one_feature_alone_is_the_full_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, pairs, weights = frozen(rng.normal(size=(4, 1))), pair_rows([(0, 1), (2, 3), (1, 2)]), frozen(rng.random(3))
    theta, variance = np.zeros(1), np.array([0.5])
    full, inverse = np.zeros(1), np.array([[0.5]])
    diagonal.diagonal_onepass(theta, variance, rows, pairs, weights, -1)
    pairwise.onepass(full, inverse, rows, pairs, weights)
    assert theta == pytest.approx(full)
    assert variance == pytest.approx(inverse[0])


@given(st.floats(0.01, 10.0), st.floats(0.5, 0.999), st.integers(0, 30))
def test_many_fadings_are_one_formula(variance: float, keep: float, age: int) -> None:
    found = diagonal.discounted_variances(frozen([variance]), keep, 2.0, positions([age]))
    assert found == pytest.approx([naive.discounted_variances(variance, keep, 2.0, age)], rel=1e-9)
