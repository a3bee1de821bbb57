"""Facts of the dueling papers: a round by hand, the numbers of Theorem 2, what tracks a change."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.interleaving import rankings
from rankloop.learners.dueling.dbgd import DBGD
from rankloop.learners.dueling.meta import Meta, experts_for, first_weights, rates_for
from rankloop.learners.dueling.mgd import MGD
from rankloop.learners.dueling.nsgd import NSGD
from tests.reference.interleaving import posterior


def candidates(seed: int = 0, n: int = 8, d: int = 5) -> Candidates:
    return Candidates(features=np.random.default_rng(seed).normal(size=(n, d)))


def test_theorem_2_for_a_thousand_rounds() -> None:
    assert experts_for(1000) == 6
    assert rates_for(1000, 1.0) == pytest.approx(0.0707 * 2.0 ** np.arange(6), rel=1e-3)
    assert first_weights(6) == pytest.approx([0.583, 0.194, 0.097, 0.058, 0.039, 0.028], abs=5e-4)
    assert first_weights(6).sum() == pytest.approx(1.0)
    assert 4 / np.sqrt(1000) == pytest.approx(0.1265, abs=1e-4)


@pytest.mark.parametrize("name", ["dbgd", "mgd", "nsgd"])
def test_exploring_rankers_are_at_distance_delta(name: str) -> None:
    learner = make(name)
    shown = learner.rank(candidates(), 4, np.random.default_rng(1))
    directions = shown.memo["directions"]
    assert (directions**2).sum(axis=1) == pytest.approx(np.ones(len(directions)))
    assert shown.memo["credit"].sum(axis=1) == pytest.approx(np.ones(4))


def test_a_round_of_dbgd_by_hand() -> None:
    """The step is taken exactly when, over all assignments of the clicks, the change owns more of them more often."""
    steps = stays = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        learner, query = DBGD(rate=0.1), candidates(seed)
        learner.theta_ = np.random.default_rng(seed + 100).normal(size=5)
        before, shown = learner.theta_.copy(), learner.rank(query, 5, rng)
        clicks = (rng.random(5) < 0.4).astype(float)
        u = shown.memo["directions"][0]
        assert query.features is not None
        scores = np.stack([query.features @ before, query.features @ (before + u)])
        exact = posterior(rankings(scores, np.zeros(8)).tolist(), shown.order.tolist(), 3)
        credit = np.array([[float(share) for share in row] for row in exact])
        assert shown.memo["credit"] == pytest.approx(credit)
        score = by_enumeration(credit, clicks)
        learner.learn(shown, Feedback.clicks(clicks), rng)
        if score > 1e-12:
            steps += 1
            assert learner.theta_ == pytest.approx(before + 0.1 * u)
        else:
            stays += 1
            assert learner.theta_.tolist() == before.tolist()
    assert steps > 5
    assert stays > 5


def by_enumeration(credit: Array, clicks: Array) -> float:
    """P(the change owns more clicks) - P(it owns fewer), over all assignments."""
    clicked = np.flatnonzero(clicks)
    score = 0.0
    for owners in product((0, 1), repeat=len(clicked)):
        chance = float(np.prod([credit[p, owner] for p, owner in zip(clicked, owners, strict=True)]))
        score += chance * np.sign(sum(owners) - (len(owners) - sum(owners)))
    return score


def test_mgd_goes_to_the_mean_of_the_winners() -> None:
    learner, rng = MGD(rate=1.0, candidates=4, mixing="team-draft"), np.random.default_rng(3)
    for t in range(30):
        shown = learner.rank(candidates(t), 6, rng)
        clicks = (rng.random(6) < 0.5).astype(float)
        owned = clicks @ shown.memo["credit"]
        winners = np.flatnonzero(owned[1:] > owned[0])
        before = learner.theta_ if learner.theta_.size else np.zeros(5)
        learner.learn(shown, Feedback.clicks(clicks), rng)
        step = shown.memo["directions"][winners].mean(axis=0) if winners.size else np.zeros(5)
        after = learner.theta_ if learner.theta_.size else np.zeros(5)
        assert after - before == pytest.approx(step, abs=1e-12)


def test_document_space_projection_leaves_alone_what_no_shown_document_could_tell() -> None:
    learner, rng = DBGD(dsp=True, rate=1.0), np.random.default_rng(5)
    for t in range(20):
        rows = np.random.default_rng(t).normal(size=(8, 6))
        rows[:, 4:] = 0.0  # two features that are always 0
        shown = learner.rank(Candidates(features=rows), 5, rng)
        learner.learn(shown, Feedback.clicks([1.0, 0, 1, 0, 0]), rng)
    assert learner.theta_[:4].any()
    assert learner.theta_[4:].tolist() == [0.0, 0.0]


def test_nsgd_does_not_try_again_what_lost() -> None:
    learner, rng = NSGD(avoided=3, memory=6), np.random.default_rng(2)
    for t in range(20):
        shown = learner.rank(candidates(t, d=9), 5, rng)
        learner.learn(shown, Feedback.clicks((rng.random(5) < 0.5) * 1.0), rng)
    assert len(learner.bad_) == 6
    worst = learner.bad_[np.argsort(-learner.deficits_, kind="stable")[:3]]
    shown = learner.rank(candidates(99, d=9), 5, rng)
    assert np.abs(shown.memo["directions"] @ worst.T).max() < 1e-9


@pytest.mark.parametrize(("radius", "smallest_step"), [(1.0, 1.0), (0.7, 0.5)])
def test_meta_experts_share_the_direction_and_stay_in_the_ball(radius: float, smallest_step: float) -> None:
    learner, rng = Meta(horizon=1000, radius=radius, smallest_step=smallest_step), np.random.default_rng(4)
    for t in range(50):
        shown = learner.rank(candidates(t), 5, rng)
        before, weights = learner.experts_.copy(), learner.weights_.copy()
        theta = learner.theta_.copy()
        learner.learn(shown, Feedback.clicks((rng.random(5) < 0.4) * 1.0), rng)
        if before.size and not np.array_equal(before, learner.experts_):
            u = shown.memo["directions"][0]
            free = (learner.experts_**2).sum(axis=1) < radius**2 - 1e-9
            steps = smallest_step * rates_for(1000, radius)
            assert (learner.experts_ - before)[free] == pytest.approx(np.outer(steps, u)[free])
            assert weights @ ((before - theta) @ u) == pytest.approx(0.0, abs=1e-12)  # losses relative to the mean
    assert (learner.experts_**2).sum(axis=1).max() == pytest.approx(radius**2)
    assert learner.theta_ == pytest.approx(learner.weights_ @ learner.experts_)
    assert learner.weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("losses", "size"), [("paper", 1 / 5), ("bound", 2 * 3.0), ("typical", 2 * 3.0 / np.sqrt(5.0))]
)
def test_hedge_divides_its_losses_as_told(losses: Literal["typical", "bound", "paper"], size: float) -> None:
    """δ/d makes them the paper's d/δ ⟨u, w_i - w⟩, 2R is the most that ⟨u, w_i - w⟩ can be, 1/√d its usual share."""
    learner, rng = Meta(horizon=1000, radius=3.0, loss_scale=losses), np.random.default_rng(4)
    moves = 0
    for t in range(60):
        shown = learner.rank(candidates(t), 5, rng)
        before, weights, theta = learner.experts_.copy(), learner.weights_.copy(), learner.theta_.copy()
        learner.learn(shown, Feedback.clicks((rng.random(5) < 0.4) * 1.0), rng)
        if before.size and not np.array_equal(before, learner.experts_):
            moves += 1
            raw = weights * np.exp(4 / np.sqrt(1000) * (before - theta) @ shown.memo["directions"][0] / size)
            assert learner.weights_ == pytest.approx(raw / raw.sum())
    assert moves > 10


def test_the_papers_losses_stay_finite_with_many_features() -> None:
    """Unnormalized they reach thousands at 700 features, and exp of that is no number."""
    learner, rng = make("pm2l", loss_scale="paper", horizon=200), np.random.default_rng(4)
    for t in range(200):
        shown = learner.rank(candidates(t, n=20, d=700), 10, rng)
        learner.learn(shown, Feedback.clicks((rng.random(10) < 0.4) * 1.0), rng)
    assert isinstance(learner, Meta)
    assert all(np.isfinite(value).all() for value in learner.state().values())
    assert learner.weights_.sum() == pytest.approx(1.0)
    assert learner.theta_ == pytest.approx(learner.weights_ @ learner.experts_)


def test_an_unknown_horizon_doubles_and_the_experts_start_together() -> None:
    learner, rng = Meta(base="pdgd"), np.random.default_rng(4)
    for t in range(1024):
        shown = learner.rank(candidates(t % 7), 3, rng)
        learner.learn(shown, Feedback.clicks([0.0, 1.0, 0.0]), rng)
    assert learner.horizon_.tolist() == [2048.0]
    assert learner.weights_ == pytest.approx(first_weights(experts_for(2048)))
    assert learner.experts_ == pytest.approx(np.tile(learner.theta_, (experts_for(2048), 1)))


def test_bad_base_parameters_are_named() -> None:
    with pytest.raises(InvalidParameter, match="speed"):
        Meta(base="mgd", base_parameters={"speed": 3})
    with pytest.raises(InvalidParameter, match="candidates is 0"):
        Meta(base="mgd", base_parameters={"candidates": 0})
