"""The public metrics check what they are given; their values are held to twins in tests/kernels."""

from __future__ import annotations

from itertools import pairwise
from math import log2

import numpy as np
import pytest
from scipy.stats import kendalltau

from rankloop import metrics
from rankloop.errors import InvalidInput


def test_ndcg_cuts_the_ideal_too() -> None:
    assert metrics.ndcg([1, 2, 0, 2], k=2) == pytest.approx((1 + 3 / log2(3)) / (3 + 3 / log2(3)))


def test_ndcg_against_all_candidates() -> None:
    assert metrics.ndcg([1], k=1, candidates=[0, 4, 1]) == pytest.approx(1 / 15)


def test_kendall_tau_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        grades = rng.permutation(8)  # without ties, where the definitions agree
        expected = kendalltau(-np.arange(8), grades).statistic
        assert metrics.kendall_tau(grades) == pytest.approx(expected)
    assert metrics.kendall_tau([1, 1]) == 1.0


@pytest.mark.parametrize("grades", [[-1, 0], [float("nan")], [[1, 2]]])
def test_bad_grades_are_named(grades: list[float]) -> None:
    with pytest.raises(InvalidInput, match="grades are"):
        metrics.dcg(grades)


def test_k_of_zero_is_named() -> None:
    for metric in (metrics.dcg, metrics.ndcg, metrics.precision):
        with pytest.raises(InvalidInput, match="k is 0"):
            metric([1, 0], k=0)


def test_mean_over_ragged_lists() -> None:
    scores, grades = np.array([0.1, 0.9, 0.5, 0.2, 0.3]), np.array([1, 0, 0, 0, 2])
    offsets = np.array([0, 2, 3, 5])
    assert metrics.mean_ndcg(scores, grades, offsets) == pytest.approx((1 / log2(3) + 1) / 2)
    assert metrics.mean_ndcg(scores, grades, offsets, empty="0") == pytest.approx((1 / log2(3) + 1) / 3)
    assert metrics.mean_ndcg(scores, grades, offsets, empty="1") == pytest.approx((1 / log2(3) + 2) / 3)


def test_evaluate_is_the_mean_of_the_single_lists() -> None:
    rng = np.random.default_rng(3)
    sizes = np.array([4, 1, 9, 6])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    scores, grades = rng.permutation(20).astype(float), rng.integers(0, 3, 20)
    lists = [grades[a:b][np.argsort(-scores[a:b])] for a, b in pairwise(offsets)]
    found = metrics.evaluate(scores, grades, offsets, k=3)
    some = [ranked for ranked in lists if ranked.any()]
    assert found["ndcg@3"] == pytest.approx(np.mean([metrics.ndcg(ranked, 3) for ranked in some]))
    assert found["dcg@3"] == pytest.approx(np.mean([metrics.dcg(ranked, 3) for ranked in lists]))
    assert found["ap"] == pytest.approx(np.mean([metrics.average_precision(ranked) for ranked in some]))
    assert found["precision@3"] == pytest.approx(np.mean([metrics.precision(ranked, 3) for ranked in lists]))
    assert found["auc"] == pytest.approx(np.mean([metrics.auc(ranked) for ranked in some]))
    wrong = sum(metrics.misordered_pairs(ranked) for ranked in lists)
    right = sum(metrics.misordered_pairs(ranked[::-1]) for ranked in lists)
    assert found["misordered"] == wrong
    assert found["tau"] == pytest.approx((right - wrong) / (right + wrong))


def test_lengths_that_disagree_are_named() -> None:
    for function in (metrics.evaluate, metrics.mean_ndcg):
        with pytest.raises(InvalidInput, match="3 scores, 2 grades and offsets up to 2"):
            function(np.zeros(3), np.zeros(2, np.int64), np.array([0, 2]))
    with pytest.raises(InvalidInput, match="empty is 'none'"):
        metrics.ndcg([0], empty="none")  # type: ignore[arg-type]
