"""Ranking metrics and losses against their twins."""

from __future__ import annotations

from itertools import pairwise
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import metrics
from rankloop.kernels.metrics import kendall_regret
from tests.kernels.inputs import GRADES, SCORES, SEEDS, frozen, positions
from tests.reference import metrics as naive
from tests.reference.ranking import top_k

LISTS = st.lists(GRADES, min_size=1, max_size=12)
CUTS = st.integers(1, 15)
GRADED = [2.0, 0.0, 1.0, 0.0]


def test_by_hand() -> None:
    grades = frozen(GRADED)
    assert metrics.dcg(grades, 4) == pytest.approx(3 / log2(1 + 1) + 1 / log2(1 + 3))
    assert metrics.dcg(grades, 2) == pytest.approx(3 / log2(1 + 1))
    assert metrics.dcg(frozen([0.0, 1.0, 1.0]), 10) == pytest.approx(1 / log2(1 + 2) + 1 / log2(1 + 3))
    assert metrics.ideal_dcg(frozen([0.0, 1.0, 4.0]), 2) == pytest.approx(15 / log2(1 + 1) + 1 / log2(1 + 2))
    assert metrics.precision(grades, 2) == 1 / 2
    assert metrics.precision(grades, 8) == 2 / 8
    assert metrics.average_precision(grades) == pytest.approx((1 / 1 + 2 / 3) / 2)
    # Pairs (relevant, irrelevant): positions (1,2) (1,4) (3,4) are right, (3,2) is not.
    assert metrics.auc(grades) == 3 / 4
    assert metrics.misordered_pairs(grades) == 1
    assert metrics.misordered_pairs(frozen([0.0, 1.0, 2.0, 2.0])) == 3 + 2


def test_nothing_relevant() -> None:
    grades = frozen([0.0, 0.0])
    assert metrics.dcg(grades, 2) == metrics.ideal_dcg(grades, 2) == metrics.average_precision(grades) == 0.0
    assert metrics.auc(grades) == 1.0
    assert metrics.misordered_pairs(grades) == 0


@given(grades=LISTS, k=CUTS)
def test_cut_metrics(grades: list[float], k: int) -> None:
    assert metrics.dcg(frozen(grades), k) == pytest.approx(naive.dcg(grades, k), rel=1e-12)
    assert metrics.ideal_dcg(frozen(grades), k) == pytest.approx(naive.ideal_dcg(grades, k), rel=1e-12)
    assert metrics.precision(frozen(grades), k) == pytest.approx(naive.precision(grades, k), rel=1e-12)


@given(grades=LISTS, k=CUTS, p=st.sampled_from([0.0, 0.5, 0.95]))
def test_metrics_of_users_who_stop(grades: list[float], k: int, p: float) -> None:
    ranked, top = frozen(grades), max(4.0, *grades)
    assert metrics.reciprocal_rank(ranked, k) == pytest.approx(naive.reciprocal_rank(grades, k), rel=1e-12)
    assert metrics.rank_biased_precision(ranked, p) == pytest.approx(naive.rank_biased_precision(grades, p), rel=1e-12)
    expected = naive.expected_reciprocal_rank(grades, k, top)
    assert metrics.expected_reciprocal_rank(ranked, k, top) == pytest.approx(expected, rel=1e-12)
    assert metrics.discounted_sum(ranked, k) == pytest.approx(naive.discounted_sum(grades, k), rel=1e-12)
    more = [*grades, 1.0]
    assert metrics.recall(ranked, frozen(more), k) == pytest.approx(naive.recall(grades, more, k), rel=1e-12)
    assert np.isnan(metrics.recall(frozen([0.0]), frozen([0.0, 0.0]), k))


@given(grades=LISTS)
def test_whole_list_metrics(grades: list[float]) -> None:
    assert metrics.average_precision(frozen(grades)) == pytest.approx(naive.average_precision(grades), rel=1e-12)
    assert metrics.auc(frozen(grades)) == pytest.approx(naive.auc(grades), rel=1e-12)
    assert metrics.misordered_pairs(frozen(grades)) == naive.misordered_pairs(grades)


@given(data=st.data(), sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), k=CUTS, seed=SEEDS)
def test_ragged(data: st.DataObject, sizes: list[int], k: int, seed: int) -> None:
    """Queries of 0, 1 and more documents, with equal scores and cuts beyond the list."""
    offsets, n = np.cumsum([0, *sizes]).tolist(), sum(sizes)
    scores = data.draw(st.lists(SCORES, min_size=n, max_size=n))
    grades = data.draw(st.lists(GRADES, min_size=n, max_size=n))
    ties = np.random.default_rng(seed).random(n).tolist()
    ideal = metrics.ragged_ideal_dcg(frozen(grades), positions(offsets), k)
    found = metrics.ragged_dcg(frozen(scores), frozen(ties), frozen(grades), positions(offsets), k)
    pairs = metrics.ragged_pairs(frozen(scores), frozen(grades), positions(offsets))
    for q, (start, end) in enumerate(pairwise(offsets)):
        assert tuple(pairs[q]) == naive.pairs(scores[start:end], grades[start:end])
    ranked = metrics.ranked(frozen(scores), frozen(ties), frozen(grades), positions(offsets))
    for start, end in pairwise(offsets):
        order = top_k(scores[start:end], ties[start:end], end - start)
        assert ranked[start:end].tolist() == [grades[start + i] for i in order]
    assert ideal == pytest.approx(naive.ragged_ideal_dcg(grades, offsets, k), rel=1e-12)
    assert found == pytest.approx(naive.ragged_dcg(scores, ties, grades, offsets, k), rel=1e-12)


@given(SEEDS, st.integers(1, 9), st.integers(1, 9))
def test_kendall_regret(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    grades, order = rng.integers(0, 4, n).astype(float), rng.permutation(n)[:k]
    assert kendall_regret(frozen(grades), positions(order)) == naive.kendall_regret(grades.tolist(), order.tolist())
