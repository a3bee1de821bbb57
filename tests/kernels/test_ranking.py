"""Scores and orders against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import ranking
from tests.kernels.inputs import SCORES, SEEDS, frozen
from tests.reference import ranking as naive


@given(n=st.integers(1, 12), d=st.integers(1, 9), seed=SEEDS)
def test_linear_scores(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, theta = frozen(rng.normal(size=(n, d))), frozen(rng.normal(size=d))
    expected = naive.linear_scores(features.tolist(), theta.tolist())
    assert ranking.linear_scores(features, theta) == pytest.approx(expected, abs=1e-12)


def test_nothing_learned_scores_zero() -> None:
    assert ranking.linear_scores(frozen([[1.0, 2.0], [3.0, 4.0]]), frozen([])).tolist() == [0.0, 0.0]


@given(data=st.data(), scores=st.lists(SCORES, min_size=1, max_size=15), k=st.integers(1, 20))
def test_top_k(data: st.DataObject, scores: list[float], k: int) -> None:
    ties = data.draw(st.permutations(range(len(scores))))
    assert ranking.top_k(frozen(scores), frozen(ties), k).tolist() == naive.top_k(scores, ties, k)


@given(scores=st.lists(SCORES, min_size=1, max_size=15), k=st.integers(1, 20))
def test_top_k_keeps_the_base_order_where_nothing_decides(scores: list[float], k: int) -> None:
    ties = [0.0] * len(scores)
    assert ranking.top_k(frozen(scores), frozen(ties), k).tolist() == naive.top_k(scores, ties, k)
