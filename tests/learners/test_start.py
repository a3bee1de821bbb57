"""Learners that start as the caller's ranker: his order, or his weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rankloop.core import batch, registry
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner, params
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.pairwise import mean_squared_distance
from rankloop.kernels.ranking import with_places
from rankloop.learners.pairwise.pairrank import PairRank

FROM_BASE = ["pairrank", "hybrid", "pdgd", "greedy", "epsilon-greedy", "olranknet", "ollambdarank"]


def shelf(seed: int, n: int = 20, d: int = 4) -> Candidates:
    return Candidates(f"q{seed}", features=np.random.default_rng(seed).random((n, d)))


def test_places_are_one_feature_more() -> None:
    rows = np.random.default_rng(0).random((5, 3))
    found = with_places(rows, np.array([0, 7, 1, 2, 3]))
    assert (found[:, :3] == rows).all()
    np.testing.assert_allclose(found[:, 3], -np.log1p([0, 7, 1, 2, 3]), rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_mean_squared_distance_is_that_of_all_pairs(n: int) -> None:
    rows = np.random.default_rng(n).normal(5.0, 1.0, size=(n, 6))
    pairs = [float(((rows[i] - rows[j]) ** 2).sum()) for i in range(n) for j in range(i)]
    assert mean_squared_distance(rows) == pytest.approx(np.mean(pairs) if pairs else 1.0, rel=1e-12)
    assert mean_squared_distance(np.full((n, 3), 0.1)) == 1.0


@pytest.mark.parametrize("name", FROM_BASE)
def test_before_anything_is_learned_the_best_list_is_the_callers(name: str) -> None:
    learner = make(name, init="base")
    for seed in range(5):
        assert learner.best(shelf(seed), 20).tolist() == list(range(20))
        scores = batch.score(learner, shelf(seed))
        assert (np.diff(scores) < 0).all()


@pytest.mark.parametrize("name", ["pairrank", "hybrid", "olranknet", "ollambdarank"])
def test_at_first_neighbors_far_down_may_change_places_and_the_top_may_not(name: str) -> None:
    """The gap of neighbors falls as 1 / position, and what is uncertain by the features stays the same."""
    learner, rng = make(name, init="base"), np.random.default_rng(0)
    moved = np.zeros(60)
    for t in range(100):
        moved += np.abs(learner.rank(shelf(t, n=60), 60, rng).order - np.arange(60))
    moved /= 100
    assert moved[:8].max() == 0.0
    assert moved[40:].mean() > 1.0
    assert moved.max() < 15.0


@pytest.mark.parametrize("name", FROM_BASE)
def test_clicks_overturn_a_base_order_that_is_wrong(name: str) -> None:
    """Users want what has much of feature 0; the caller puts it last."""
    parameters: dict[str, Any] = {"rate": 0.1} if "greedy" in name else {}
    learner, rng = make(name, init="base", **parameters), np.random.default_rng(3)
    for t in range(600):
        rows = rng.random((10, 3))
        rows = rows[np.argsort(rows[:, 0])]
        shown = learner.rank(Candidates(f"q{t}", features=rows), 10, rng)
        assert shown.features is not None
        liked = (shown.features[:, 0] > 0.7).astype(float)
        learner.learn(shown, Feedback("clicks", liked * (rng.random(10) < 0.9)), rng)
    rows = np.sort(np.random.default_rng(9).random((10, 3)), axis=0)
    best = learner.best(Candidates("new", features=rows), 3)
    assert best.min() >= 6, best


@pytest.mark.parametrize("name", FROM_BASE)
def test_what_a_base_order_is_worth_is_learned_from_it(name: str) -> None:
    """Features tell nothing, the caller's order does: its weight stays above 0 and the rest near it."""
    learner, rng = make(name, init="base"), np.random.default_rng(4)
    for t in range(400):
        shown = learner.adopt(Candidates(f"q{t}", features=rng.random((10, 3))), np.arange(10))
        learner.learn(shown, Feedback("clicks", (rng.random(10) < np.linspace(0.8, 0.05, 10)).astype(float)), rng)
    state = learner.state()
    theta: Array = state["line_theta_" if "line_theta_" in state else "theta_"]
    assert theta.size == 4
    assert theta[-1] > 2 * np.abs(theta[:3]).max()


def test_given_weights_are_the_first_order_whatever_their_size() -> None:
    candidates = shelf(1)
    assert candidates.features is not None
    weights = [3.0, -1.0, 0.5, 0.0]
    expected = np.argsort(-(candidates.features @ weights)).tolist()
    for name in FROM_BASE:
        for size in (1e-6, 1.0, 1e6):
            learner = make(name, init=[size * w for w in weights])
            assert learner.best(candidates, 20).tolist() == expected
    scores = batch.score(PairRank(init=weights), candidates)
    apart = [(scores[i] - scores[j]) ** 2 for i in range(20) for j in range(i)]
    assert np.mean(apart) == pytest.approx(1.0)


@pytest.mark.parametrize("start", ["base", [1.0, 0.0, 0.0, 0.0]])
def test_more_trust_is_overturned_later(start: Any) -> None:
    """The same clicks against the start move it less where more clicks' worth of trust lies on it."""
    moved = []
    for trust in (1.0, 100.0, 10_000.0):
        learner, rng = PairRank(init=start, prior_strength=trust), np.random.default_rng(1)
        for t in range(30):
            shown = learner.adopt(shelf(t), np.arange(10))
            if t == 1:
                first = learner.theta_.copy()
            learner.learn(shown, Feedback("clicks", np.eye(10)[9]), rng)
        place = -1 if start == "base" else 0
        moved.append(float(abs(learner.theta_[place] - first[place])))
    assert moved[0] > moved[1] > moved[2]


@pytest.mark.parametrize("start", ["middle", [], [0.0, 0.0], [1.0, float("nan")], ["a"], [True], 3.0, None, {"a": 1.0}])
@pytest.mark.parametrize("name", FROM_BASE)
def test_what_is_no_start_is_refused(name: str, start: Any) -> None:
    with pytest.raises(InvalidParameter, match="init"):
        make(name, init=start)


def test_weights_of_another_width_are_refused() -> None:
    for name in FROM_BASE:
        with pytest.raises(InvalidInput, match="init has 2 weights, but the candidates have 4 features"):
            make(name, init=[1.0, 2.0]).rank(shelf(0), 5, np.random.default_rng(0))


@pytest.mark.parametrize("start", ["base", [1.0, 2.0, 0.0, -1.0]])
@pytest.mark.parametrize("name", FROM_BASE)
def test_parameters_and_state_survive_a_file(name: str, start: Any, tmp_path: Any) -> None:
    learner, rng = make(name, init=start), np.random.default_rng(2)
    _teach(learner, rng)
    registry.save(learner, tmp_path / "one")
    other = registry.load(tmp_path / "one")
    assert params(other) == json.loads(json.dumps(params(learner)))
    assert batch.score(other, shelf(7)).tolist() == batch.score(learner, shelf(7)).tolist()


def _teach(learner: Learner, rng: np.random.Generator, rounds: int = 20) -> None:
    for t in range(rounds):
        shown = learner.rank(shelf(t), 5, rng)
        learner.learn(shown, Feedback("clicks", (rng.random(5) < 0.4).astype(float)), rng)
