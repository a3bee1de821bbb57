"""Greedy, ε-greedy, random, base and the offline ceiling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from rankloop.core.types import Candidates, Feedback
from rankloop.kernels.metrics import ranknet_loss
from rankloop.lab.runs.trial import Trial, run
from rankloop.learners.baselines.base_order import BaseOrder
from rankloop.learners.baselines.random_order import RandomOrder
from rankloop.learners.pairwise.epsilon_greedy import EpsilonGreedy
from rankloop.learners.pairwise.greedy import Greedy
from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet


def test_sgd_takes_the_gradient_step_on_the_rounds_pairs() -> None:
    """Zero start: σ(0) = 1/2, so each pair pulls by rate/2 · (x_clicked - x_unclicked)."""
    learner = Greedy(rate=0.2)
    shown = learner.rank(Candidates(features=np.eye(4)), 4, np.random.default_rng(0))
    learner.learn(shown, Feedback.clicks([0, 1, 0, 0]), np.random.default_rng(0))
    assert learner.theta_[shown.order] == pytest.approx([-0.1, 0.2, -0.1, 0.0])


def test_epsilon_is_the_share_of_positions_explored() -> None:
    """ε = 0 is greedy, ε = 1 uniform; between, the top is the best with probability 1 - ε + ε/n."""
    candidates = Candidates(features=np.diag([4.0, 3.0, 2.0, 1.0]))

    def top_share(epsilon: float) -> float:
        learner, rng = EpsilonGreedy(epsilon=epsilon), np.random.default_rng(3)
        learner.theta_ = np.ones(4)
        return float(np.mean([learner.rank(candidates, 2, rng).order[0] == 0 for _ in range(4000)]))

    assert top_share(0.0) == 1.0
    assert top_share(0.4) == pytest.approx(1 - 0.4 + 0.4 / 4, abs=0.03)
    assert top_share(1.0) == pytest.approx(1 / 4, abs=0.03)


def test_random_is_uniform_and_base_stays() -> None:
    candidates = Candidates(items=["a", "b", "c"])
    lists = ["".join(RandomOrder().rank(candidates, 3, np.random.default_rng(s)).items) for s in range(3000)]
    counts = np.array([lists.count(order) for order in ("abc", "acb", "bac", "bca", "cab", "cba")])
    assert counts.sum() == 3000
    assert ((counts - 500) ** 2 / 500).sum() < 20.5  # chi-square, 5 degrees of freedom, p = .001
    assert BaseOrder().rank(candidates, 2, np.random.default_rng(0)).items.tolist() == ["a", "b"]


def test_ranknet_slopes_are_the_derivative_of_its_loss() -> None:
    rng = np.random.default_rng(2)
    grades, offsets = rng.integers(0, 3, 12), np.array([0, 5, 5, 12])
    error = check_grad(
        lambda s: ranknet_loss(s, grades, offsets)[0],
        lambda s: ranknet_loss(s, grades, offsets)[1],
        rng.normal(size=12),
    )
    assert error < 1e-6


def test_ranknet_loss_by_hand() -> None:
    """One query, one pair at equal scores: log 2; a query without a pair does not count."""
    loss, slopes = ranknet_loss(np.zeros(3), np.array([1, 0, 2]), np.array([0, 2, 3]))
    assert loss == pytest.approx(np.log(2))
    assert slopes == pytest.approx([-0.5, 0.5, 0.0])


def test_offline_ranknet_finds_a_linear_truth() -> None:
    rng = np.random.default_rng(4)
    truth = np.array([1.0, -2.0, 0.5])
    features = rng.random((400, 3))
    scores = features @ truth
    learner = OfflineRankNet()
    learner.fit(features, np.digitize(scores, np.quantile(scores, [0.5, 0.8])), np.arange(0, 401, 20))
    cosine = learner.theta_ @ truth / (np.linalg.norm(learner.theta_) * np.linalg.norm(truth))
    assert cosine > 0.99


@pytest.mark.slow
def test_the_order_of_the_paper() -> None:
    """Figure 4 in small: offline above pairrank above pdgd and ε-greedy above random online; held-out all learn."""
    data, user = "synthetic:mq2007?queries=150&seed=2", "navigational"
    found = {
        name: np.mean(
            [
                [record.last("online.cndcg"), record.last("offline.ndcg@10")]
                for record in (run(Trial(name, data, user, rounds=1500, seed=s, evaluations=1)) for s in range(3))
            ],
            axis=0,
        )
        for name in ("offline-ranknet", "pairrank", "pdgd", "greedy", "epsilon-greedy", "random")
    }
    online = {name: float(scores[0]) for name, scores in found.items()}
    assert online["offline-ranknet"] > online["pairrank"] > max(online["pdgd"], online["epsilon-greedy"])
    assert min(online["pdgd"], online["greedy"], online["epsilon-greedy"]) > online["random"]
    for name in ("offline-ranknet", "pairrank", "pdgd", "greedy"):
        assert found[name][1] > found["random"][1] + 0.1
