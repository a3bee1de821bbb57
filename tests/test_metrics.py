"""The public metrics check what they are given; their values are held to twins in tests/kernels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from rankloop.core.errors import InvalidInput
from rankloop.evaluation import metrics


def test_kendall_tau_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        grades = rng.permutation(8)  # without ties, where the definitions agree
        expected = kendalltau(-np.arange(8), grades).statistic
        assert metrics.kendall_tau(grades) == pytest.approx(expected)
    assert metrics.kendall_tau([1, 1]) == 1.0


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
    assert found["mrr"] == pytest.approx(np.mean([metrics.reciprocal_rank(ranked) for ranked in some]))
    assert found["recall@3"] == pytest.approx(np.mean([metrics.recall(ranked, 3) for ranked in some]))
    assert found["err@3"] == pytest.approx(np.mean([metrics.err(ranked, 3, highest=2) for ranked in lists]))
    assert found["rbp"] == pytest.approx(np.mean([metrics.rbp(ranked) for ranked in lists]))
    linear = metrics.evaluate(scores, grades, offsets, k=3, gain="linear")["ndcg@3"]
    assert linear == pytest.approx(np.mean([metrics.ndcg(ranked, 3, gain="linear") for ranked in some]))
    assert metrics.mean_ndcg(scores, grades, offsets, k=3) == pytest.approx(found["ndcg@3"])


@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_equal_to_trec_eval(gain: metrics.Gain) -> None:
    pytrec_eval: Any = pytest.importorskip("pytrec_eval", reason="pip install pytrec-eval-terrier to compare")
    rng = np.random.default_rng(8)
    sizes = rng.integers(1, 40, 30)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    grades, scores = rng.integers(0, 4, offsets[-1]), rng.permutation(offsets[-1]).astype(float)
    grades[offsets[:-1]] = 1 + grades[offsets[:-1]] % 3  # trec_eval leaves out queries with nothing relevant
    worth = grades if gain == "linear" else 2**grades - 1  # its gain is what the judge wrote
    queries = [range(a, b) for a, b in pairwise(offsets.tolist())]
    judged = {f"q{q}": {f"d{i}": int(worth[i]) for i in own} for q, own in enumerate(queries)}
    run = {f"q{q}": {f"d{i}": float(scores[i]) for i in own} for q, own in enumerate(queries)}
    measures = {"ndcg_cut.5", "map", "P.5", "recall.5", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(run)
    ours = metrics.per_query(scores, grades, offsets, k=5, gain=gain)
    for name, other in (
        ("ndcg@5", "ndcg_cut_5"),
        ("ap", "map"),
        ("precision@5", "P_5"),
        ("recall@5", "recall_5"),
        ("rr", "recip_rank"),
    ):
        assert ours[name].tolist() == pytest.approx([theirs[f"q{q}"][other] for q in range(30)], abs=1e-9), name


@pytest.mark.parametrize("function", [metrics.evaluate, metrics.per_query, metrics.mean_ndcg])
def test_what_cannot_be_evaluated_is_named(function: Any) -> None:
    nan = float("nan")
    with pytest.raises(InvalidInput, match=r"score 3 \(document 1 of query 1\) is not a number"):
        function([1.0, 2.0, 3.0, nan], [0, 1, 0, 1], [0, 2, 4])
    with pytest.raises(InvalidInput, match=r"tie 0 \(document 0 of query 1\)"):
        function([1.0, 2.0], [0, 1], [0, 0, 2], ties=[nan, 1.0])
    with pytest.raises(InvalidInput, match="k is 0"):
        function([1.0, 2.0], [0, 1], [0, 2], k=0)
    with pytest.raises(InvalidInput, match="a grade is 5000; above 1000"):
        function([1.0, 2.0], [5000, 1], [0, 2])
    for offsets in ([], [1, 2], [0, 3, 2], [0.0, 2.0]):
        with pytest.raises(InvalidInput, match="offsets are"):
            function([1.0, 2.0], [0, 1], offsets)
    with pytest.raises(InvalidInput, match="ties have shape"):
        function([1.0, 2.0], [0, 1], [0, 2], ties=[1.0])
