"""Kernels that follow the perturbed leader, against their twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import ftpl
from rankloop.learners.grades.rtopk_items import COLUMNS, MEASURES
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import ftpl as naive


def board_of(m: int) -> ftpl.Board:
    sizes = {"query": 1, "item": m}
    return ftpl.Board(*(np.full(sizes[column.per], column.initial, column.dtype) for column in COLUMNS.values()))


@given(
    SEEDS,
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from(sorted(MEASURES)),
    st.sampled_from([(0, 0), (60, 0), (60, 7), (5, 0)]),
    st.booleans(),
)
def test_a_run_is_that_of_the_twin(
    seed: int, m: int, top: int, measure: str, plan: tuple[int, int], random_below: bool
) -> None:
    """Sixty rounds, some with grades that come late, some that never come."""
    rng = np.random.default_rng(seed)
    horizon, blocks = plan
    rule = ftpl.ItemRule(MEASURES[measure], 2.0, top, horizon, blocks, 0.0, random_below)
    twin = naive.Items(top, measure, 2.0, horizon, blocks, random_below=random_below)
    board, names, late = board_of(m), [chr(97 + i) for i in range(m)], []
    for _ in range(60):
        coins, k = rng.random(2 * m + 1), int(rng.integers(1, m + 1))
        order, explored, length = ftpl.arrange(board, positions(range(m)), frozen(coins), k, rule)
        shown, chosen = twin.arrange(names, coins.tolist(), k)
        assert [names[i] for i in order] == shown
        assert sorted(names[i] for i in order[:explored]) == sorted(chosen)
        assert length == twin.start(m)[2]
        late.append((order[:explored], int(board.block[0]), length))
        if rng.random() < 0.2:
            continue  # nobody answers, for now
        while late and (rng.random() < 0.7 or len(late) > 3):
            numbers, block, then = late.pop(int(rng.integers(len(late))))
            if rng.random() < 0.1:
                continue  # nor ever
            grades = rng.integers(0, 3, numbers.size).astype(float)
            ftpl.observe(board, positions(numbers), frozen(grades), block, then, m, rule)
            twin.observe({names[i]: g for i, g in zip(numbers, grades, strict=True)}, block, then, m)
        assert board.block[0] == twin.block
        assert board.place[0] == twin.place
        assert (board.past[0], board.blocks[0], board.length[0]) == (twin.past, twin.count, twin.length)
        assert board.horizon[0] == twin.planned
        mean = ftpl.means(positions(range(m)), board.sums, board.weights)
        assert mean == pytest.approx(twin.estimates(names))


def test_how_many_blocks() -> None:
    """K = m^(1/3) T^(2/3) / ⌈m/k⌉^(2/3): 171 for m = 20, T = 10,000, k = 1."""
    assert ftpl.plan(20, 1, 10_000, 0) == (171, 58)
    for m, top, horizon in ((20, 5, 10_000), (7, 2, 3000), (50, 1, 10**6)):
        cells = math.ceil(m / top)
        assert ftpl.plan(m, top, horizon, 0)[0] == round(m ** (1 / 3) * horizon ** (2 / 3) / cells ** (2 / 3))
    assert ftpl.plan(20, 1, 10_000, 200) == (200, 50)


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 10**6), st.integers(0, 500))
def test_a_block_has_room_to_explore_and_the_horizon_has_room_for_the_blocks(
    m: int, top: int, horizon: int, blocks: int
) -> None:
    count, length = ftpl.plan(m, top, horizon, blocks)
    assert (count, length) == naive.plan(m, top, horizon, blocks)
    cells = math.ceil(m / top)
    assert length >= cells
    assert count >= 1
    assert count * length <= max(horizon, cells)


@given(SEEDS, st.integers(1, 6))
def test_full_information_sorts_perturbed_sums(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    rule = ftpl.ItemRule(ftpl.DCG, 2.0, 1, 1000, 0, 0.0, False)
    sums, weights, truth = np.zeros(m), np.zeros(m), np.zeros(m)
    for t in range(20):
        coins = frozen(rng.random(m))
        order = ftpl.follow(positions(range(m)), sums, weights, t, coins, m, rule)
        scores = truth + 3 * math.sqrt(m * 1000) * coins
        assert order.tolist() == np.argsort(-scores).tolist()
        grades = rng.integers(0, 3, m).astype(float)
        ftpl.count_in(sums, weights, positions(order), frozen(grades[order]), ftpl.DCG)
        truth += 2.0**grades - 1.0
        assert sums == pytest.approx(truth)


def test_corruption_changes_to_every_other_grade_alike() -> None:
    drawn = frozen(np.linspace(0, 1, 40_000, endpoint=False).reshape(1, -1))
    vectors = np.full((1, 40_000), 2.0)
    ftpl.corrupt(vectors, drawn, 0.3, 3.0)
    assert np.bincount(vectors[0].astype(int)).tolist() == [4000, 4000, 28_000, 4000]
    untouched = np.ones((1, 40_000))
    ftpl.corrupt(untouched, drawn, 0.0, 1.0)
    assert (untouched == 1).all()
