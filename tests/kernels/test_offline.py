"""Kendall regret against its twin, and where it must agree with what is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels.metrics import kendall_regret, misordered_pairs
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import offline as naive


@given(SEEDS, st.integers(1, 9), st.integers(1, 9))
def test_kendall_regret(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    grades, order = rng.integers(0, 4, n).astype(float), rng.permutation(n)[:k]
    assert kendall_regret(frozen(grades), positions(order)) == naive.kendall_regret(grades.tolist(), order.tolist())


@given(SEEDS, st.integers(1, 9))
def test_of_a_whole_list_it_is_the_number_of_misordered_pairs(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    grades, order = rng.integers(0, 3, n).astype(float), rng.permutation(n)
    assert kendall_regret(frozen(grades), positions(order)) == misordered_pairs(frozen(grades[order]))


def test_ties_never_count_and_what_is_left_out_does() -> None:
    grades = frozen([2.0, 0.0, 2.0, 1.0])
    assert kendall_regret(grades, positions([2, 0, 3, 1])) == kendall_regret(grades, positions([0, 2])) == 0
    assert kendall_regret(grades, positions([1])) == 3  # all three that are better stand below it
    assert kendall_regret(grades, positions([3, 0])) == 2  # 3 above 0 and above 2
