"""Sparse rows: well formed or refused with their place, the same through scipy, the codec and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core import codec
from rankloop.core.errors import CodecError, InvalidInput
from rankloop.core.types import Candidates, Impression, SparseRows

ROWS = st.lists(st.lists(st.tuples(st.integers(0, 6), st.floats(-5, 5)), max_size=6), min_size=1, max_size=5)


def of(rows: list[list[tuple[int, float]]]) -> SparseRows:
    return SparseRows.of([([j for j, _ in row], [v for _, v in row]) for row in rows], 7)


@given(ROWS)
def test_columns_ascend_and_what_comes_twice_adds_up(rows: list[list[tuple[int, float]]]) -> None:
    made, wanted = of(rows), np.zeros((len(rows), 7))
    for i, row in enumerate(rows):
        for j, value in row:
            wanted[i, j] += value
    assert made.dense() == pytest.approx(wanted)
    for i in range(len(made)):
        columns = made.indices[made.indptr[i] : made.indptr[i + 1]]
        assert (np.diff(columns) > 0).all()
    again = SparseRows.from_scipy(scipy.sparse.csr_matrix(wanted))
    assert again.dense() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (([0, 1], [5], [1.0], 5), "row 0 has column 5"),
        (([0, 0, 1], [-1], [1.0], 5), "row 1 has column -1"),
        (([0, 1], [2], [np.nan], 5), r"features\[0, 2\] is nan"),
        (([0, 1, 2], [2, 3], [1.0, 1e300], 5), r"features\[1, 3\] is 1e\+300"),
        (([0, 2], [2], [1.0], 5), "indptr is"),
        (([1, 1], [2], [1.0], 5), "indptr is"),
        (([0, 2, 1, 3], [0, 1, 2], [1.0] * 3, 5), "indptr is"),
        (([0], [], [], 5), "indptr is"),
        (([0, 1], [0.5], [1.0], 5), "indices has shape"),
        (([0, 1], [0], [1.0, 2.0], 5), "1 indices for values of shape"),
        (([0, 1], [0], ["a"], 5), "values are not numbers"),
        (([0, 1], [0], [1.0], 0), "width is 0"),
        (([0, 1], [0], [1.0], 2**31), "width is 2147483648"),
    ],
)
def test_what_is_no_sparse_row_is_named(parts: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        SparseRows(*parts)


def test_candidates_take_them_as_they_come() -> None:
    matrix = scipy.sparse.coo_array(([1.0, 2.0], ([0, 2], [4, 1])), shape=(3, 100_000))
    made = Candidates("q", ["a", "b", "c"], matrix)
    assert isinstance(made.features, SparseRows)
    assert made.features.shape == (3, 100_000)
    assert not made.unscaled
    assert made.head(2).features.shape == (2, 100_000)
    assert Candidates(features=SparseRows([0, 1], [3], [500.0], 9)).unscaled
    with pytest.raises(InvalidInput, match="2 items but 3 feature rows"):
        Candidates("q", ["a", "b"], matrix)


@given(ROWS)
def test_an_impression_with_sparse_rows_survives_the_codec(rows: list[list[tuple[int, float]]]) -> None:
    made = of(rows)
    shown = Impression("q", np.arange(len(rows)), np.arange(len(rows)), made, {"scores": np.zeros(len(rows))})
    data = codec.dump_impression(shown)
    back = codec.load_impression(data)
    assert isinstance(back.features, SparseRows)
    for name in ("indptr", "indices", "values"):
        assert getattr(back.features, name).tobytes() == getattr(made, name).tobytes()
        assert getattr(back.features, name).dtype == getattr(made, name).dtype
    assert back.features.width == 7
    assert int.from_bytes(data[8:12], "little") == codec.SPARSE, "an older release refuses it"
    assert codec.dump_impression(back) == data


def test_a_table_is_stored_as_it_always_was_and_broken_rows_are_named() -> None:
    shown = Impression("q", np.arange(2), np.arange(2), np.eye(2), {})
    assert int.from_bytes(codec.dump_impression(shown)[8:12], "little") == 1
    arrays = {"order": np.arange(1), "items": np.arange(1), "features/indptr": np.array([0, 1])}
    with pytest.raises(CodecError, match="sparse rows cannot be read"):
        codec.load_impression(codec.dumps(arrays, {"query": "q", "width": 7}, codec.SPARSE))
    arrays |= {"features/indices": np.array([7]), "features/values": np.array([1.0])}
    with pytest.raises(CodecError, match="row 0 has column 7"):
        codec.load_impression(codec.dumps(arrays, {"query": "q", "width": 7}, codec.SPARSE))
