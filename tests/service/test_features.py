"""Candidates to array: by name, by list, normalised, and what is wrong said by name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.errors import InvalidInput
from rankloop.kernels.ragged import minmax_queries
from rankloop.service.errors import UnknownFeature
from rankloop.service.ranking.features import Schema
from rankloop.service.wire.calls import Candidate
from rankloop.service.wire.rankers import Spec

NUMBERS = st.floats(-1e100, 1e100)


def schema(*names: str, normalisation: Literal["query-minmax", "none"] = "none") -> Schema:
    return Schema(Spec(features=list(names), normalisation=normalisation))


@given(st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=1, max_size=6)))
def test_lists_and_names_make_the_same_array(rows: list[list[float]]) -> None:
    names = [f"f{j}" for j in range(len(rows[0]))]
    by_list = [Candidate(i, row) for i, row in enumerate(rows)]
    turned = [dict(reversed(list(zip(names, row, strict=True)))) for row in rows]
    by_name = [Candidate(i, row) for i, row in enumerate(turned)]
    one, other = schema(*names).read("q", by_list), schema(*names).read("q", by_name)
    assert one.features is not None
    assert other.features is not None
    assert np.array_equal(one.features, np.array(rows))
    assert one.features.tobytes() == other.features.tobytes()
    assert (one.query, one.items.tolist()) == ("q", list(range(len(rows))))


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=6))
def test_query_minmax_is_the_labs(rows: list[list[float]]) -> None:
    given = [Candidate(i, row) for i, row in enumerate(rows)]
    found = schema("a", "b", "c", normalisation="query-minmax").read("", given).features
    expected = np.array(rows)
    minmax_queries(expected, np.array([0, len(rows)]))
    assert found is not None
    assert found.tobytes() == expected.tobytes()
    assert ((found >= 0) & (found <= 1)).all()


def test_one_feature_and_none() -> None:
    assert schema("a").read("", [Candidate("x", {"a": 2.0})]).features.tolist() == [[2.0]]  # type: ignore[union-attr]
    assert schema().read("", [Candidate("x")]).features is None
    assert schema().read("", [Candidate("x", [1.0])]).features is None  # a learner that does not look at features


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, ["'x' has no features", "'a', 'b'"]),
        ([1.0], ["'x' has 1 features", "has 2"]),
        ([1.0, 2.0, 3.0], ["'x' has 3 features", "has 2"]),
        ({}, ["'x' lacks feature 'a', 'b'"]),
        ({"a": 1.0}, ["'x' lacks feature 'b'"]),
        ({"a": 1.0, "c": 1.0}, ["lacks feature 'b'", "unknown feature 'c'", "features are 'a', 'b'"]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, ["has unknown feature 'c'"]),
        ([1.0, float("nan")], ["'x'", "'b' is nan", "finite"]),
        ([float("-inf"), 1.0], ["'x'", "'a' is -inf"]),
        ([1.0, 1.0000001e100], ["'x'", "'b' is 1.0000001e+100", "1e+100"]),
    ],
)
def test_what_is_wrong_is_said_by_name(features: Any, words: list[str]) -> None:
    for normalisation in ("none", "query-minmax"):
        with pytest.raises(InvalidInput) as error:
            schema("a", "b", normalisation=normalisation).read(
                "", [Candidate("w", [0.0, 0.0]), Candidate("x", features)]
            )
        for word in words:
            assert word in str(error.value)
        assert isinstance(error.value, UnknownFeature) == isinstance(features, dict)


def test_a_message_does_not_grow_with_the_number_of_features() -> None:
    names = [f"feature-{j}" for j in range(4000)]
    for features in (None, {}, {f"other-{j}": 0.0 for j in range(4000)}):
        with pytest.raises(InvalidInput, match=r"and 39\d\d more") as error:
            schema(*names).read("", [Candidate("x", features)])
        assert len(str(error.value)) < 700


@pytest.mark.parametrize(
    ("ids", "word"), [(["a", "a"], "twice"), ([1, "1"], "integers"), (["a\0", "b"], "NUL"), (["a", "b\0c"], "NUL")]
)
def test_ids_are_checked(ids: list[Any], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        schema("a").read("", [Candidate(i, [1.0]) for i in ids])


def test_the_largest_numbers_pass() -> None:
    found = schema("a", "b").read("", [Candidate("x", [1e100, -1e100]), Candidate("y", [5e-324, -0.0])]).features
    assert found is not None
    assert found.tolist() == [[1e100, -1e100], [5e-324, -0.0]]
