"""PairRank with a variance a feature: what it shares with the full matrix, sparse rows, and evidence that fades."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback, SparseRows
from rankloop.learners.pairwise.hybrid import Hybrid
from rankloop.learners.pairwise.pairrank import PairRank

WIDE = 100_000
PLACES = np.random.default_rng(0).permutation(WIDE)[:200]


def hashed(t: int, n: int = 30, each: int = 8) -> Candidates:
    """n items with `each` of 200 columns that lie anywhere."""
    rng = np.random.default_rng(t)
    columns = np.concatenate([rng.permutation(PLACES)[:each] for _ in range(n)])
    rows = SparseRows(np.arange(n + 1) * each, columns, np.ones(n * each), WIDE)
    return Candidates(f"q{t}", np.arange(n), rows)


def rounds(learner: Learner, count: int, truth: Array, first: int = 0) -> list[float]:
    """Serve users who click what is better than most; how good the lists shown were, as a share of the best."""
    found = []
    for t in range(first, first + count):
        given = hashed(t)
        worth = np.add.reduceat(truth[given.features.indices], given.features.indptr[:-1])
        shown = learner.rank(given, 10, np.random.default_rng([1, t]))
        clicks = worth[shown.order] > np.quantile(worth, 0.8)
        learner.learn(shown, Feedback.clicks(clicks.astype(float)), np.random.default_rng([2, t]))
        found.append(float(np.sort(worth)[-10:].sum() and worth[shown.order].sum() / np.sort(worth)[-10:].sum()))
    return found


@pytest.mark.parametrize("kind", [PairRank, Hybrid])
def test_a_hundred_thousand_columns_are_learned(kind: type[PairRank | Hybrid]) -> None:
    truth = np.random.default_rng(5).normal(size=WIDE)
    learner = kind(confidence="diagonal")
    served = rounds(learner, 150, truth)
    assert np.mean(served[-50:]) > np.mean(served[:20]) + 0.3
    assert learner.theta_.shape == (WIDE,)
    assert (learner.theta_ != 0.0).sum() <= 200, "only what was shown has a weight"
    assert learner.half_widths().shape == (WIDE,)


def test_only_the_columns_of_the_list_are_written() -> None:
    learner = PairRank(confidence="diagonal", forget=0.9)
    rounds(learner, 3, np.random.default_rng(5).normal(size=WIDE))
    theta, variance = learner.theta_.copy(), learner.inverse_.copy()
    shown = learner.rank(hashed(9), 10, np.random.default_rng(0))
    learner.learn(shown, Feedback.clicks([0, 1, 0, 1, 0, 0, 0, 0, 0, 1]), np.random.default_rng(0))
    changed = np.flatnonzero((theta != learner.theta_) | (variance != learner.inverse_))
    assert changed.size
    assert set(changed.tolist()) <= set(shown.features.indices.tolist())


def test_evidence_fades_without_being_touched() -> None:
    """What nobody looks at fades to the prior as fast as if every event had gone through all d."""
    learner = PairRank(confidence="diagonal", forget=0.5, prior=2.0)  # rows are √2 apart: a unit of 2
    table = np.eye(3)
    one = learner.adopt(Candidates("q", features=SparseRows([0, 1, 2], [0, 1], [1.0, 1.0], 3)), np.arange(2))
    learner.learn(one, Feedback.clicks([1, 0]), np.random.default_rng(0))
    known = (0.2 / learner.half_widths()[0]) ** 2
    assert known > 4.0
    two = learner.adopt(Candidates("q", features=SparseRows([0, 1, 2], [1, 2], [1.0, 1.0], 3)), np.arange(2))
    for _ in range(5):
        learner.learn(two, Feedback.clicks([1, 0]), np.random.default_rng(0))
    assert learner.inverse_[0] == pytest.approx(1.0 / known), "as it was"
    now = (0.2 / learner.half_widths()[0]) ** 2
    assert now == pytest.approx(4.0 + 0.5**5 * (known - 4.0))
    width = learner.model_.confidence(Candidates("q", features=table), 0.2).inverse
    assert width[0] == pytest.approx(1.0 / now), "and who ranks sees the same"
    some = learner.model_.confidence(Candidates("q", features=SparseRows([0, 1, 1], [0], [1.0], 3)), 0.2).inverse
    assert some == pytest.approx([1.0 / now])


def test_independent_features_are_learned_as_by_the_full_matrix() -> None:
    """Lists in which each pair differs in one feature alone: there the matrix is diagonal, too."""
    full, diagonal = PairRank(), PairRank(confidence="diagonal")
    for t in range(40):
        rng = np.random.default_rng(t)
        rows = np.zeros((2, 4))
        rows[0, t % 4] = rng.random()
        given = Candidates("q", features=rows)
        for learner in (full, diagonal):
            learner.learn(learner.adopt(given, np.arange(2)), Feedback.clicks([t % 3 == 0, t % 3 != 0]), rng)
    assert diagonal.theta_ == pytest.approx(full.theta_, rel=1e-9)
    assert diagonal.inverse_ == pytest.approx(np.diagonal(full.inverse_), rel=1e-9)
    assert full.inverse_ == pytest.approx(np.diag(diagonal.inverse_), abs=1e-12)


def test_long_lists_are_drawn_as_short_ones_are() -> None:
    """Beyond 500 documents a table is compared pair by pair, sparse rows by their matrix: the same list, and chance."""
    learner = PairRank(confidence="diagonal")
    rng = np.random.default_rng(0)
    for t in range(60):
        given = Candidates("q", features=rng.random((12, 5)) * (rng.random((12, 5)) < 0.6))
        shown = learner.rank(given, 10, np.random.default_rng(t))
        learner.learn(shown, Feedback.clicks(given.features[shown.order, 0] > 0.5), np.random.default_rng(t))
    table = rng.random((600, 5)) * (rng.random((600, 5)) < 0.6)
    at = np.nonzero(table)
    rows = SparseRows(np.concatenate(([0], np.bincount(at[0], minlength=600).cumsum())), at[1], table[at], 5)
    one, other = (Candidates("q", features=features) for features in (table, rows))
    for seed in range(5):
        a, b = (learner.rank(given, 10, np.random.default_rng(seed)) for given in (one, other))
        assert a.order.tolist() == b.order.tolist()
        assert a.memo["log_propensity"] == pytest.approx(b.memo["log_propensity"])
        assert a.memo["shares"] == pytest.approx(b.memo["shares"])
    assert learner.blocks(one).tolist() == learner.blocks(other).tolist()


def test_parts_and_explanations_of_sparse_lists() -> None:
    learner = Hybrid(confidence="diagonal", init="base")
    rounds(learner, 20, np.random.default_rng(5).normal(size=WIDE))
    shown = learner.rank(hashed(3), 10, np.random.default_rng(0))
    rows, weights, own = learner.score_terms(shown)
    assert isinstance(rows, SparseRows)
    assert rows.shape == (10, WIDE + 1) == (10, weights.size)
    assert own is not None
    told = [float(weights[rows.take(np.array([i])).indices] @ rows.take(np.array([i])).values) for i in range(10)]
    assert told + own == pytest.approx(shown.memo["scores"])
    assert learner.explain(shown).pairs == 45


def test_what_cannot_be_is_named() -> None:
    sparse = hashed(1)
    with pytest.raises(InvalidInput, match=r"sparse, 30 x 100000, .* confidence='diagonal'"):
        PairRank().rank(sparse, 10, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="sparse"):
        make("pdgd").best(sparse, 10)
    with pytest.raises(InvalidParameter, match="confidence is 'block'"):
        PairRank(confidence="block")  # type: ignore[arg-type]
    learner = PairRank(confidence="diagonal")
    rounds(learner, 2, np.zeros(WIDE) + np.arange(WIDE) % 7)
    with pytest.raises(InvalidInput, match="have 9 features, but this learner has learned with 100000"):
        learner.rank(Candidates(features=SparseRows([0, 1], [3], [1.0], 9)), 1, np.random.default_rng(0))
