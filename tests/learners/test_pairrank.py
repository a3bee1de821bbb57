"""PairRank: the facts of the paper and of our resolution of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.evaluation.metrics import misordered_pairs
from rankloop.kernels import certainty, pairwise
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.world import Stationary
from rankloop.learners.click_pairs import ClickPairs, tempered
from rankloop.learners.models.refit import RefitModel
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.pairwise.pairrank_paper import PairRankPaper


def paper(**parameters: Any) -> PairRankPaper:
    """The paper's algorithm: Eq. (1) refitted after every click."""
    learner = make("pairrank@paper", **parameters)
    assert isinstance(learner, PairRankPaper)
    return learner


def told(
    learner: PairRank | PairRankPaper, rounds: int, truth: Array, rng: np.random.Generator, n: int = 8, k: int = 8
) -> None:
    """Rounds with users whose preferences are exactly logistic in a linear truth: Proposition 1 holds."""
    for _ in range(rounds):
        shown = learner.rank(Candidates(features=rng.normal(size=(n, truth.size)) / np.sqrt(truth.size)), k, rng)
        assert shown.features is not None
        clicks = np.zeros(k)
        for p in range(0, k - 1, 2):  # one click in each disjoint pair of neighbors, by the true preference
            better = rng.random() < pairwise.sigmoid(float((shown.features[p] - shown.features[p + 1]) @ truth))
            clicks[p if better else p + 1] = 1.0
        learner.learn(shown, Feedback.clicks(clicks), rng)


def test_lemma_1_covers() -> None:
    """|σ(xθ̂) - σ(xθ*)| ≤ α_t ‖x‖ at every round for every pair tried, in at least 1 - δ of the runs."""
    delta, runs, failures = 0.1, 30, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=4)
        truth /= np.linalg.norm(truth)  # Q = 1 is what the learner is told
        learner = paper(alpha="theory", prior=1.0, ridge=1.0)
        covered = True
        for _ in range(10):
            told(learner, 10, truth, rng)
            pairs = rng.normal(size=(200, 4)) / 2
            width = learner._alpha * np.sqrt(np.einsum("ij,jk,ik->i", pairs, learner.inverse_, pairs))
            gap = [pairwise.sigmoid(float(x @ learner.theta_)) - pairwise.sigmoid(float(x @ truth)) for x in pairs]
            covered &= bool((np.abs(gap) <= width).all())
        failures += not covered
    assert failures <= delta * runs


def test_regret_flattens_under_linear_truth_and_full_examination() -> None:
    """The log-log slope of the mis-ordered pairs falls towards 0, with the paper's rules."""
    rng = np.random.default_rng(5)
    truth, learner = np.array([3.0, -2.0, 1.0, 0.5]), paper(prior=1.0, ridge=1.0)
    regret = []
    for _ in range(2000):
        features = rng.random((8, 4))
        shown = learner.rank(Candidates(features=features), 8, rng)
        utilities = features @ truth
        grades = (np.argsort(np.argsort(utilities)) >= 5).astype(float)  # the three best are relevant, and clicked
        regret.append(misordered_pairs(grades[shown.order]))
        learner.learn(shown, Feedback.clicks(grades[shown.order]), rng)
    total = np.cumsum(regret)
    middle = np.log(total[499] / total[99]) / np.log(5)
    late = np.log(total[1999] / total[499]) / np.log(4)
    assert late < middle < 1
    assert late < 0.3
    assert np.mean(regret[-500:]) < 0.02 * np.mean(regret[:10])


@pytest.mark.parametrize("user", ["perfect", "navigational", "informational"])
@pytest.mark.slow
def test_conservative_beats_blocks_online_at_alpha_a_tenth(user: str) -> None:
    """Figure 4: PairRank_C above PairRank_R (`blocks`), the paper's settings."""
    data = "synthetic:mq2007?queries=100&seed=1"
    scores = {
        explore: np.mean(
            [
                run(Trial("pairrank@paper", data, user, {"explore": explore}, 1000, seed=seed)).last("online.cndcg")
                for seed in range(3)
            ]
        )
        for explore in ("conservative", "blocks")
    }
    assert scores["conservative"] > scores["blocks"]


@pytest.mark.parametrize("user", ["perfect", "navigational", "informational"])
@pytest.mark.slow
def test_blocks_shrink_fastest_at_the_top(user: str) -> None:
    """Figures 6 and 7: one block of everything at first, then ever smaller ones, at rank 1 before rank 10."""
    data = "synthetic:mq2007?queries=100&seed=1"
    spec = f"{user}?stop_requires_click=false"
    record = run(Trial("pairrank@paper", data, spec, {}, 2000, probes=("blocks",)))
    sizes = record.measures["block_size@1"]
    assert sizes[-1] < 0.5 * sizes[0]
    assert record.last("blocks") > record.measures["blocks"][0]
    assert record.last("block_size@1") <= record.last("block_size@10")


def test_kendall_regret_falls_behind_that_of_random_lists() -> None:
    """The regret of Theorem 1: pairs in the wrong order, round by round."""
    data = "synthetic:mq2007?queries=50&vali=5&test=5"
    found = {
        name: run(Trial(name, data, rounds=300, evaluations=5, probes=("misordered",))).measures["online.misordered"]
        for name in ("pairrank@paper", "random")
    }
    assert (np.diff(found["random"]) > 0).all()
    assert found["pairrank@paper"][-1] < 0.8 * found["random"][-1]


def _linear_world(seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    features = rng.random((60 * 20, 5))
    scores = features @ np.array([2.0, -1.0, 1.0, 0.0, 0.5]) + 0.1 * rng.normal(size=len(features))
    grades = np.digitize(scores, np.quantile(scores, [0.6, 0.9]))
    return Dataset("linear", features, grades, np.arange(0, 1201, 20), np.arange(60).astype(str))


@pytest.mark.parametrize("clicked", [[5], [1, 3], [0, 1, 2, 4, 5]])
def test_pairs_of_a_list_tell_what_its_clicks_tell(clicked: list[int]) -> None:
    """2/m: the pairs' curvature is then the information of m answers "clicked or not" with a level of their own."""
    rng, m = np.random.default_rng(3), 8
    rows = rng.normal(size=(m, 3))
    hits = np.isin(np.arange(m), clicked)
    pairs = np.array([(a, b) for a in np.flatnonzero(hits) for b in np.flatnonzero(~hits)])
    share = len(clicked) / m
    of_answers = m * share * (1 - share) * np.cov(rows.T)
    of_pairs = np.zeros((3, 3))  # on average over who is clicked; each has curvature 1/4 while nothing is known
    for _ in range(4000):
        mixed = rng.permutation(rows)
        apart = mixed[pairs[:, 0]] - mixed[pairs[:, 1]]
        of_pairs += 2 / m * 0.25 * apart.T @ apart / 4000
    np.testing.assert_allclose(of_pairs, of_answers, atol=0.1 * np.abs(of_answers).max())
    found = tempered(ClickPairs(pairs, np.ones(len(pairs))), m)
    assert found.weights.tolist() == [2 / m] * len(pairs)


def test_one_pass_ends_close_to_the_exact_refit() -> None:
    """Same impressions, same clicks: the one-pass θ points where the exact minimizer does."""
    world, user = Stationary(_linear_world(2)), DependentClickUser.named("navigational", 2)
    onepass, refit = (paper(prior=1.0, ridge=1.0, pairs="all", update=update) for update in ("onepass", "refit"))
    rng = np.random.default_rng(0)
    for step in simulate(onepass, world, user, 1500, seed=4):
        refit.learn(step.impression, step.feedback, rng)
    cosine = onepass.theta_ @ refit.theta_ / (np.linalg.norm(onepass.theta_) * np.linalg.norm(refit.theta_))
    assert cosine > 0.995


def test_refit_is_the_minimizer() -> None:
    learner = PairRankPaper(ridge=0.5, pairs="all", prior=10.0)
    told(learner, 40, np.array([1.0, -1.0, 0.5]), np.random.default_rng(3))
    model = learner.model_
    assert isinstance(model, RefitModel)
    gradient, _ = pairwise.logistic_gradient(model.theta_, model.rows_, model.weights_, 0.5)
    assert np.abs(gradient).max() <= 1e-6
    direct = np.linalg.inv(learner.prior * np.eye(3) + model.rows_.T @ (model.weights_[:, None] * model.rows_))
    assert np.abs(model.inverse_ - direct).max() < 1e-12
    assert model.log_det_[0] == pytest.approx(-np.linalg.slogdet(direct)[1] - 3 * np.log(learner.prior), rel=1e-9)


def test_the_released_code_minimizes_the_mean_loss() -> None:
    """Mean of log(1 + exp(-xᵀθ)) + λ‖θ‖², by SciPy from another start; the same pairs summed leave θ much longer."""
    lengths = {}
    for name in ("pairrank@code", "pairrank@paper"):
        learner = make(name, prior=0.5, ridge=1.0)
        assert isinstance(learner, PairRankPaper)
        told(learner, 150, np.array([4.0, -3.0, 2.0]), np.random.default_rng(3))
        lengths[name] = np.linalg.norm(learner.theta_)
        rows = learner.state()["rows_"]

        def objective(theta: Array, rows: Array = rows, name: str = name) -> float:
            losses = np.logaddexp(0.0, -rows @ theta)
            return float(
                losses.mean() + 0.5 * theta @ theta if name == "pairrank@code" else losses.sum() + 0.5 * theta @ theta
            )

        direct = minimize(objective, np.ones(3), tol=1e-12).x
        assert learner.theta_ == pytest.approx(direct, abs=1e-5)
    assert lengths["pairrank@code"] < 0.2 * lengths["pairrank@paper"]


def test_leaving_out_hopeless_documents_changes_nothing() -> None:
    """The bound that spares long lists their Gram matrix gives the very lists that the whole matrix gives."""
    rng = np.random.default_rng(9)
    learner = PairRank(prior=1.0)
    told(learner, 60, rng.normal(size=5) * 3, rng)
    spared = 0
    for seed in range(50):
        candidates = Candidates(features=rng.random((80, 5)))
        assert candidates.features is not None
        scores = candidates.features @ learner.theta_
        uniforms = np.random.default_rng(seed).random(6)
        whole = certainty.random_topological(
            learner.model_.confidence(candidates, learner.alpha).certain(), uniforms, 6
        )
        shown = learner.rank(candidates, 6, np.random.default_rng(seed))
        assert shown.order.tolist() == whole.tolist()
        norms = np.sqrt(np.einsum("ij,jk,ik->i", candidates.features, learner.inverse_, candidates.features))
        spared += 80 - certainty.contenders(scores, norms, np.zeros(0), 0.3, 6).size
    assert spared > 0


def test_scale_of_the_features_does_not_matter() -> None:
    """prior is in units of the data: features a thousand times as large give the same lists."""
    small, large = PairRank(), PairRank()
    for t in range(40):
        features = np.random.default_rng(t).random((8, 3))
        rngs = [np.random.default_rng(100 + t) for _ in range(2)]
        one = small.rank(Candidates(features=features), 5, rngs[0])
        other = large.rank(Candidates(features=1024.0 * features), 5, rngs[1])
        assert one.order.tolist() == other.order.tolist()
        clicks = Feedback.clicks((features[one.order, 0] > 0.5).astype(float))
        small.learn(one, clicks, rngs[0])
        large.learn(other, clicks, rngs[1])


def test_forgetting_follows_a_change_of_taste() -> None:
    """After the truth turns round, the forgetful learner's lists recover, the other's lag behind."""
    found = {}
    for forget in (1.0, 0.98):
        rng = np.random.default_rng(0)
        learner = PairRank(forget=forget, prior=1.0)
        truth = np.array([4.0, 0.0, -4.0])
        told(learner, 400, truth, rng)
        told(learner, 60, -truth, rng)
        found[forget] = float(learner.theta_ @ -truth) / np.linalg.norm(learner.theta_)
    assert found[0.98] > found[1.0]


@pytest.mark.parametrize("pairs", ["adjacent", "matched"])
def test_lemma_1_is_taken_with_independent_pairs(pairs: str) -> None:
    assert paper(alpha="theory", pairs=pairs).alpha == "theory"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"alpha": "big"}, "alpha is 'big'; it must be a number or \"theory\""),
        ({"alpha": "theory", "update": "onepass"}, "needs update='refit'"),
        ({"alpha": "theory", "loss": "mean"}, "needs loss='sum'"),
        ({"alpha": "theory", "pairs": "all"}, "needs independent pairs"),
        ({"alpha": "theory", "prior": 2.0}, "needs prior = ridge"),
        ({"loss": "mean", "update": "onepass"}, "loss is 'mean'; it needs update='refit'"),
    ],
)
def test_parameters_that_contradict_each_other_are_rejected(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        PairRankPaper(**parameters)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "parameters",
    [
        {"alpha": -1},
        {"explore": "wild"},
        {"prior": 0},
        {"forget": 1.1},
        {"prior": float("inf")},
        {"examine_next": "maybe"},
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters: dict[str, Any]) -> None:
    name, value = next(iter(parameters.items()))
    with pytest.raises(InvalidParameter, match=f"{name} is {value!r}"):
        PairRank(**parameters)
