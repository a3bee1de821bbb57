"""Codes of strings are those that other languages compute, and crosses are as good as categories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import hashing
from tests.kernels.inputs import frozen, positions
from tests.reference import hashing as naive

CODES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("text", "code"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_a_string_has_the_code_that_the_authors_of_the_hash_publish(text: bytes, code: int) -> None:
    found = hashing.text_codes(frozen(list(text), np.uint8), positions([0, len(text)]))
    assert found.tolist() == [code] == [naive.text_code(text)]


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_strings_lie_one_after_the_other(texts: list[bytes]) -> None:
    offsets = positions([0, *np.cumsum([len(text) for text in texts], dtype=np.int64)])
    found = hashing.text_codes(frozen(list(b"".join(texts)), np.uint8), offsets)
    assert found.tolist() == [naive.text_code(text) for text in texts]


@given(CODES, CODES)
def test_each_left_is_crossed_with_each_right(left: list[int], right: list[int]) -> None:
    found = hashing.crossed(frozen(left, np.uint64), frozen(right, np.uint64))
    assert found.tolist() == [[naive.crossed(a, b) for b in right] for a in left]
    both = min(len(left), len(right))
    joined = hashing.joined(frozen(left[:both], np.uint64), frozen(right[:both], np.uint64))
    assert joined.tolist() == [naive.crossed(a, b) for a, b in zip(left, right, strict=False)]
    assert hashing.spread(np.uint64(left[0])) == naive.spread(left[0])


@given(CODES, st.integers(1, 2**31 - 1), st.booleans())
def test_columns_and_signs(codes: list[int], width: int, signed: bool) -> None:
    found, signs = hashing.columns(frozen(codes, np.uint64), width, signed)
    wanted = [naive.column(code, width, signed) for code in codes]
    assert list(zip(found.tolist(), signs.tolist(), strict=True)) == wanted
