"""Counts by key: an index of keys is a dictionary, rings of buckets are windows, and ranks are compared by swaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.evaluation.position_bias import examination_from_swaps
from rankloop.kernels import counting
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import counting as naive

KEYS = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), min_size=1, max_size=20)


@given(KEYS, KEYS)
def test_an_index_is_a_dictionary(first: list[int], second: list[int]) -> None:
    index, keys = np.full(128, -1, np.int32), np.zeros(64, np.uint64)
    rows, size = counting.find_or_add(index, keys, 0, frozen(first, np.uint64))
    rows_too, size = counting.find_or_add(index, keys, size, frozen(second, np.uint64))
    known = {key: row for row, key in enumerate(dict.fromkeys(first + second))}
    assert [*rows.tolist(), *rows_too.tolist()] == [known[key] for key in first + second]
    assert keys[:size].tolist() == list(known)
    wanted = [*second, 7, 2**63]
    found = counting.find(frozen(index, np.int32), frozen(keys, np.uint64), frozen(wanted, np.uint64))
    assert found.tolist() == [known.get(key, -1) for key in wanted]
    again = np.full(128, -1, np.int32)
    counting.build_index(again, frozen(keys, np.uint64), size)
    assert counting.find(again, keys, frozen(wanted, np.uint64)).tolist() == found.tolist()


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 4)), max_size=30)


@given(EVENTS, st.integers(1, 8), st.integers(0, 40))
def test_rings_are_windows(events: list[tuple[int, int, int]], parts: int, now: int) -> None:
    numbers, sums = np.zeros((4, parts), np.int64), np.zeros((4, parts, 2))
    twin, late = naive.Windowed(parts, 2), 0
    for key, bucket, amount in events:
        late += counting.add(positions([key]), frozen([[amount, 1.0]]), numbers, sums, bucket)
        twin.add(key, bucket, [amount, 1.0])
    rows = positions([0, 1, 2, 3, -1])
    found = counting.within(rows, frozen(numbers, np.int64), frozen(sums), now)
    assert found.tolist() == [*(twin.within(key, now) for key in range(4)), [0.0, 0.0]]
    assert late == twin.late


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 4), max_size=3)), max_size=8),
    st.lists(st.lists(st.integers(0, 5), max_size=3, unique=True), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(0, 9),
)
def test_last_clicks_are_those_of_the_ring(
    pushes: list[tuple[int, list[int]]], candidates: list[list[int]], last: int, since: int
) -> None:
    values, times, ends = np.zeros((1, 4), np.uint64), np.zeros((1, 4)), np.zeros(1, np.int64)
    entries = []
    for time, liked in sorted(pushes):
        counting.push(0, frozen(liked, np.uint64), float(time), values, times, ends)
        entries += [(float(time), code) for code in liked]
    offsets, codes = naive.offsets_of(candidates)
    found = counting.share_of_last(0, last, float(since), values, times, ends, offsets, codes)
    assert found.tolist() == pytest.approx(naive.share_of_last(entries, last, 4, since, candidates))
    nobody = counting.share_of_last(-1, last, float(since), values, times, ends, offsets, codes)
    assert nobody.tolist() == [0.0] * len(candidates)


def test_amounts_are_spread_over_the_codes_of_their_slot() -> None:
    found = counting.spread_amounts(positions([0, 2, 2, 3]), frozen([[1.0], [2.0], [3.0]]))
    assert found.tolist() == [[1.0], [1.0], [3.0]]


@given(SEEDS, st.integers(2, 5))
def test_strengths_climb_as_told_and_to_where_newton_gets(seed: int, ranks: int) -> None:
    rng = np.random.default_rng(seed)
    wins = frozen(np.where(np.eye(ranks), 0.0, rng.integers(1, 9, (ranks, ranks))))
    start = frozen(np.ones(ranks))
    assert counting.strengths(wins, start, 3) == pytest.approx(naive.strengths(wins, start, 3), rel=1e-12)
    assert counting.strengths(wins, start, 3000) == pytest.approx(examination_from_swaps(wins[None]).values, rel=1e-6)
