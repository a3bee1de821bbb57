"""What learners keep when features are added, removed, renamed or reordered."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec, registry
from rankloop.core.capabilities import Remaps
from rankloop.core.errors import InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.scaling import standardized
from rankloop.core.types import Candidates, Feedback, SparseRows
from rankloop.learners.neural.olranknet import OLRankNet
from rankloop.learners.neural.olranknet_paper import OLRankNetPaper
from rankloop.learners.pairwise.adaptive import Adaptive
from rankloop.learners.pairwise.hybrid import Hybrid
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.pairwise.pairrank_paper import PairRankPaper
from rankloop.learners.pairwise.pdgd import PDGD

WIDTH = 4
NEURAL = ("olranknet", "ollambdarank", "olranknet-paper", "perturbed-ensemble")
SMALL: dict[str, dict[str, Any]] = {name: {"width": 8} for name in NEURAL}
CONTEXTUAL = [name for name in registry.LEARNERS if registry.learner_class(name).contextual]
LINEAR: dict[str, Any] = {
    "full": PairRank(),
    "base": PairRank(init="base"),
    "diagonal": PairRank(confidence="diagonal"),
    "forgets": PairRank(confidence="diagonal", forget=0.99),
    "refit": PairRankPaper(),
    "hybrid": Hybrid(init="base"),
    "adaptive": Adaptive(prior=1.0),
    "stream": standardized(PairRank()),
}


def linear_model(learner: Any) -> Any:
    """The model that ranks, behind scaling, memory and rivals."""
    model = getattr(learner, "inner", learner).model_
    return getattr(model, "shared", getattr(model, "model", model))


def _candidates(rng: np.random.Generator, n: int = 6, width: int = WIDTH) -> Candidates:
    return Candidates(f"q{rng.integers(5)}", [str(i) for i in range(n)], rng.random((n, width)))


def _taught(learner: Any, lists: int = 40, width: int = WIDTH, seed: int = 0) -> Any:
    """The learner after users who like the first feature and dislike the second."""
    rng = np.random.default_rng(seed)
    for _ in range(lists):
        candidates = _candidates(rng, width=width)
        shown = learner.rank(candidates, 4, rng)
        taste = shown.features[:, 0] - shown.features[:, 1]
        values = (taste >= taste.max()).astype(np.float64)
        if learner.feedback == "grades":
            values = np.round(2 * (taste - taste.min()))
        learner.learn(shown, Feedback(learner.feedback, values), rng)
    return learner


def _bytes(learner: Any) -> bytes:
    return codec.dumps(learner.state())


def _moved(columns: FeatureMap, rows: np.ndarray, new: float = 0.0) -> np.ndarray:
    made = np.full((len(rows), columns.source.size), new)
    known = columns.source >= 0
    made[:, known] = rows[:, columns.source[known]]
    return made


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_learner_that_ranks_by_features_says_what_carries_over(name: str) -> None:
    learner = registry.make(name)
    assert isinstance(learner, Remaps)
    assert learner.carries


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_identity_changes_no_bit(name: str) -> None:
    learner = _learned(name)
    before = _bytes(learner)
    learner.remap(FeatureMap.of(np.arange(WIDTH), WIDTH))
    assert _bytes(learner) == before


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_permutation_gives_the_same_best_ranking(name: str) -> None:
    learner, columns = _learned(name), FeatureMap.of([2, 0, 3, 1], WIDTH)
    candidates = _candidates(np.random.default_rng(9), 8)
    best = learner.best(candidates, 8)
    learner.remap(columns)
    moved = Candidates(candidates.query, candidates.items, _moved(columns, candidates.features))
    np.testing.assert_array_equal(learner.best(moved, 8), best)


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_new_feature_does_not_count_before_it_is_learned(name: str) -> None:
    learner, columns = _learned(name), FeatureMap.of([0, -1, 1, 2, 3], WIDTH)
    candidates = _candidates(np.random.default_rng(9), 8)
    best = learner.best(candidates, 8)
    learner.remap(columns)
    rows = _moved(columns, candidates.features)
    rows[:, 1] = np.random.default_rng(1).random(8)
    np.testing.assert_array_equal(learner.best(Candidates(candidates.query, candidates.items, rows), 8), best)


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_changed_learner_is_saved_loaded_and_learns_on(name: str) -> None:
    learner = _learned(name)
    learner.remap(FeatureMap.of([3, -1, 0], WIDTH))
    again = registry.make(name, **_parameters(name))
    again.load(learner.state())
    assert _bytes(again) == _bytes(learner)
    if not hasattr(learner, "fit") and not hasattr(learner, "label"):
        assert _bytes(_taught(again, 10, 3, seed=5)) == _bytes(_taught(learner, 10, 3, seed=5))


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_learner_to_which_nothing_carries_over_still_ranks_and_learns(name: str) -> None:
    learner = _learned(name)
    learner.remap(FeatureMap.of([-1, -1], WIDTH))
    if not hasattr(learner, "fit") and not hasattr(learner, "label"):
        _taught(learner, 10, 2, seed=5)
    assert learner.best(_candidates(np.random.default_rng(1), width=2), 3).size == 3


def _parameters(name: str) -> dict[str, Any]:
    return SMALL.get(name, {})


def _learned(name: str) -> Any:
    learner = registry.make(name, **_parameters(name))
    rng = np.random.default_rng(0)
    if hasattr(learner, "fit"):
        rows = rng.random((30, WIDTH))
        learner.fit(rows, np.round(2 * rows[:, 0]), np.array([0, 10, 20, 30]))
        return learner
    if hasattr(learner, "label"):
        for t in range(5):
            candidates = _candidates(rng)
            learner.label(candidates, np.round(2 * candidates.features[:, 0]), np.random.default_rng(t))
        return learner
    return _taught(learner)


# -- linear learners with confidence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LINEAR)
def test_a_removed_feature_is_marginalized_out(kind: str) -> None:
    learner = _taught(deepcopy(LINEAR[kind]))
    model = linear_model(learner)
    theta, inverse = model.theta_.copy(), model.inverse_.copy()
    learner.remap(FeatureMap.of([0, 1, 3], WIDTH))
    kept = [0, 1, 3, *range(WIDTH, theta.size)]
    np.testing.assert_array_equal(linear_model(learner).theta_, theta[kept])
    np.testing.assert_array_equal(
        linear_model(learner).inverse_, inverse[kept] if inverse.ndim == 1 else inverse[np.ix_(kept, kept)]
    )


@pytest.mark.parametrize("kind", LINEAR)
def test_a_new_feature_starts_with_its_prior(kind: str) -> None:
    learner = _taught(deepcopy(LINEAR[kind]))
    learner.remap(FeatureMap.of([-1, 0, 1, 2, 3], WIDTH))
    inner = linear_model(learner)
    prior = inner.prior * (1.0 if kind == "refit" else inner.unit_[0])
    assert inner.theta_[0] == 0.0
    if inner.inverse_.ndim == 1:
        assert inner.inverse_[0] == 1.0 / prior
    else:
        np.testing.assert_array_equal(inner.inverse_[0], [1.0 / prior, *np.zeros(inner.theta_.size - 1)])


def test_the_marginal_equals_the_schur_complement_of_the_precision() -> None:
    learner = _taught(PairRank())
    precision = np.linalg.inv(learner.inverse_)
    kept, gone = [0, 2, 3], [1]
    cross = precision[np.ix_(kept, gone)]
    schur = precision[np.ix_(kept, kept)] - cross @ np.linalg.inv(precision[np.ix_(gone, gone)]) @ cross.T
    learner.remap(FeatureMap.of(kept, WIDTH))
    np.testing.assert_allclose(np.linalg.inv(learner.inverse_), schur, rtol=1e-8)


def test_what_is_remembered_of_queries_stays() -> None:
    learner = _taught(Hybrid(init="base"))
    before = {name: array for name, array in learner.state().items() if name.startswith("memory_")}
    learner.remap(FeatureMap.of([-1, 1], WIDTH))
    for name, array in before.items():
        np.testing.assert_array_equal(learner.state()[name], array)


def test_the_weight_of_the_baseline_ranking_stays_last() -> None:
    learner = _taught(PDGD(init="base"))
    base = learner.theta_[-1]
    learner.remap(FeatureMap.of([1, -1, -1, 0, 2], WIDTH))
    assert learner.theta_[-1] == base
    assert learner.theta_.size == 6


def test_another_scale_gives_the_same_scores_and_certainty() -> None:
    learner = _taught(PairRank())
    candidates = _candidates(np.random.default_rng(9), 8)
    scores, blocks = learner.score(candidates), learner.blocks(candidates)
    learner.remap(FeatureMap.of(np.arange(WIDTH), WIDTH, 0.25))
    larger = Candidates(candidates.query, candidates.items, candidates.features * 4.0)
    np.testing.assert_allclose(learner.score(larger), scores)
    np.testing.assert_array_equal(learner.blocks(larger), blocks)


def test_a_network_scores_as_before_on_another_scale() -> None:
    learner = _taught(OLRankNetPaper(width=8, update="replay", rate=0.1, prior=100.0))
    candidates = _candidates(np.random.default_rng(9), 8)
    scores = learner.score(candidates)
    learner.remap(FeatureMap.of(np.arange(WIDTH), WIDTH, 0.5))
    doubled = Candidates(candidates.query, candidates.items, candidates.features * 2.0)
    np.testing.assert_allclose(learner.score(doubled), scores, rtol=1e-5, atol=1e-6)


def test_a_network_of_another_kind_is_refused_and_stays_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    learner = _taught(OLRankNet(net=lambda d: torch.nn.Sequential(torch.nn.Linear(d, 1), torch.nn.Flatten(0))), 3)
    before = _bytes(learner)
    with pytest.raises(InvalidParameter):
        learner.remap(FeatureMap.of([0, 1], WIDTH))
    assert _bytes(learner) == before


# -- stream scaling ------------------------------------------------------------------------------------------------


def test_a_new_column_has_a_scale_after_its_first_list() -> None:
    learner = _taught(standardized(PairRank()), 100)
    learner.remap(FeatureMap.of([0, 1, 2, 3, -1], WIDTH))
    known = learner.scaler.spread.copy()
    assert known[4] == 0.0
    rng = np.random.default_rng(3)
    shown = learner.rank(Candidates("q", list("abc"), rng.random((3, 5)) * 50.0), 3, rng)
    learner.learn(shown, Feedback.clicked(shown, ["a"]), rng)
    assert learner.scaler.spread[4] > 1.0
    np.testing.assert_array_equal(learner.scaler.spread[:4], known[:4])


def test_lists_that_lack_a_column_do_not_count_for_it() -> None:
    learner = _taught(standardized(PairRank()), 100)
    learner.remap(FeatureMap.of([0, 1, 2, 3, -1], WIDTH))
    sizes = np.full((2, 5), 0.5)
    sizes[:, 4] = np.nan
    after = learner.scaler.updated(*sizes).updated(*sizes)
    assert after.lists - after.since[4] == 0
    assert after.lists - after.since[0] == 102


def test_a_scaler_without_new_columns_has_the_same_state_as_ever() -> None:
    learner = _taught(standardized(PairRank()), 30)
    names = set(learner.scaler.state())
    learner.remap(FeatureMap.of([1, 0], WIDTH))
    assert set(learner.scaler.state()) == names


# -- the map itself --------------------------------------------------------------------------------------------------


def test_sparse_rows_are_mapped_as_full_ones() -> None:
    rng = np.random.default_rng(0)
    table = rng.random((5, 6)) * (rng.random((5, 6)) < 0.5)
    columns = FeatureMap.of([5, -1, 0, 2], 6)
    made = columns.sparse(_sparse(table))
    np.testing.assert_array_equal(made.dense(), _moved(columns, table))


def _sparse(table: np.ndarray) -> SparseRows:
    rows, columns = np.nonzero(table)
    indptr = np.searchsorted(rows, np.arange(len(table) + 1))
    return SparseRows(indptr, columns, table[rows, columns], table.shape[1])
