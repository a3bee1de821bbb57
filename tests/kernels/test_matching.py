"""Feature columns of items against their twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import matching
from rankloop.kernels.matching import fetch
from tests.kernels.inputs import frozen, positions
from tests.reference import matching as naive
from tests.reference.counting import offsets_of

OWN = st.lists(st.integers(0, 9), max_size=4, unique=True)
LISTS = st.lists(OWN, min_size=1, max_size=6)


@given(LISTS, OWN, st.booleans())
def test_overlap_and_jaccard(lists: list[list[int]], wanted: list[int], jaccard: bool) -> None:
    offsets, codes = offsets_of(lists)
    found = matching.overlap(positions(offsets), frozen(codes, np.uint64), frozen(wanted, np.uint64), jaccard)
    assert found.tolist() == pytest.approx([naive.overlap(own, wanted, jaccard) for own in lists])


@given(LISTS, OWN)
def test_values_that_are_given_have_columns_and_others_are_counted(lists: list[list[int]], values: list[int]) -> None:
    offsets, codes = offsets_of(lists)
    found = np.zeros((len(lists), len(values)))
    strange = matching.one_hot(positions(offsets), frozen(codes, np.uint64), frozen(values, np.uint64), found)
    assert found.tolist() == [naive.one_hot(own, values) for own in lists]
    assert strange == sum(code not in values for own in lists for code in own)
    counts = np.zeros((len(lists), 10))
    matching.scatter(positions(offsets), positions(codes), counts)
    assert counts.tolist() == [[float(own.count(v)) for v in range(10)] for own in lists]


@given(LISTS, OWN, st.booleans())
def test_crosses_are_all_pairs(lists: list[list[int]], same: list[int], turned: bool) -> None:
    sides = [offsets_of(lists), offsets_of([same])]
    pairs = [naive.crossed(same, own) if turned else naive.crossed(own, same) for own in lists]
    at = np.append(0, np.cumsum([len(one) for one in pairs]))
    (a, left), (b, right) = sides[::-1] if turned else sides
    found = matching.crossed_lists(a, left, b, right, at)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == [pair for one in pairs for pair in one]


@given(
    st.lists(st.none() | OWN, min_size=1, max_size=6),
    st.lists(st.integers(-1, 9), max_size=4, unique=True),
    st.booleans(),
)
def test_words(texts: list[list[int] | None], words: list[int], bm25: bool) -> None:
    offsets, pool = offsets_of([text or [] for text in texts])
    starts = np.where([text is None for text in texts], -1, offsets[:-1])
    idf = np.linspace(0.5, 2.0, len(words))
    found = matching.word_match(
        positions(range(len(texts))),
        positions(starts),
        frozen(np.diff(offsets), np.int32),
        frozen(pool, np.int32),
        frozen(words, np.int32),
        frozen(idf),
        3.0,
        bm25,
    )
    assert found.tolist() == pytest.approx([naive.word_match(one, words, idf.tolist(), 3.0, bm25) for one in texts])


VALUES = st.floats(-9, 9) | st.just(math.nan)
BLOCKS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(BLOCKS, st.data())
def test_what_is_fetched_stands_in_its_column(block: list[list[float]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(-1, len(block) - 1), min_size=1, max_size=6))
    places = data.draw(st.lists(st.integers(-1, len(block[0]) - 1), max_size=5))
    columns = data.draw(st.permutations(range(len(places) + 2)))[: len(places)]
    found = np.full((len(rows), len(places) + 2), 77.0)
    gaps = fetch(frozen(block), positions(rows), positions(places), positions(columns), found)
    wanted = naive.fetch(block, rows, places)
    np.testing.assert_array_equal(found[:, columns], np.array(wanted).reshape(len(rows), len(places)))
    others = [j for j in range(len(places) + 2) if j not in columns]
    assert (found[:, others] == 77.0).all()
    assert gaps == sum(math.isnan(value) for row in wanted for value in row)
