"""Hashed categories: the same column everywhere and for ever, spread evenly, and crosses that depend on their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput
from rankloop.features import hashing
from tests.reference import hashing as naive

TEXTS = st.lists(st.text(max_size=8) | st.sampled_from(["né", "日本", "\ud800", "a\0b"]), max_size=6)


@given(TEXTS)
def test_a_text_has_the_code_of_its_utf8(texts: list[str]) -> None:
    wanted = [naive.text_code(text.encode("utf-8", "surrogatepass")) for text in texts]
    assert hashing.text_codes(texts).tolist() == wanted


def test_a_category_a_number_and_a_flag_of_one_name_are_three_features() -> None:
    codes, counts = hashing.codes_of(["x"] * 5, ["3", 3.0, 4.0, True, "true"])
    assert len(set(codes[:4].tolist())) == 3
    assert codes[1] == codes[2] == hashing.number_code("x")[0]
    assert codes[3] == codes[4], 'a flag is the category "true"'
    assert counts.tolist() == [1.0, 3.0, 4.0, 1.0, 1.0]


def test_crosses_depend_on_their_order_and_do_not_meet() -> None:
    left, right = hashing.category_codes("a", list("xyz")), hashing.category_codes("b", list("xyz"))
    one, other = hashing.crossed(left, right), hashing.crossed(right, left)
    assert one.shape == (3, 3)
    assert len({*one.ravel().tolist(), *other.ravel().tolist(), *left.tolist(), *right.tolist()}) == 24


def test_what_cannot_be_hashed_is_named() -> None:
    with pytest.raises(InvalidInput, match="1 names for 2 values"):
        hashing.hashed(["a"], ["x", "y"], 10)
    with pytest.raises(InvalidInput, match="width of 0 is not in 1"):
        hashing.hashed(["a"], ["x"], 0)
    with pytest.raises(InvalidInput, match="uint64"):
        hashing.columns(np.array([1, 2]), 10)
