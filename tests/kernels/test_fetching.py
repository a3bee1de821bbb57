"""Numbers of a table for the candidates of a list."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels.matching import fetch
from tests.kernels.inputs import frozen, positions
from tests.reference import fetching as naive

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
