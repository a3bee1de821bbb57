"""Impression ids: plain, sorted by time, never the same."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rankloop.service.store.ids import new_id

TIMES = st.floats(0, 2**47 / 1000, allow_nan=False)


def test_ids_are_plain_and_unique() -> None:
    ids = [new_id() for _ in range(5000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", one) for one in ids)


@given(TIMES, TIMES)
def test_later_ids_sort_later(one: float, other: float) -> None:
    if int(one * 1000) != int(other * 1000):
        assert (new_id(one) < new_id(other)) == (one < other)


def test_at_one_moment_only_chance_tells_them_apart() -> None:
    same = [new_id(1_700_000_000.0) for _ in range(100)]
    assert len({one[:9] for one in same}) == 1
    assert len({one[10:] for one in same}) == 100


def test_a_clock_beyond_the_range_gives_an_id_all_the_same() -> None:
    assert len(new_id(-5.0)) == len(new_id(1e15)) == 26
