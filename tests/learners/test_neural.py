"""The neural learners: exact starts, confidence as in the paper, replay that stays bounded, divergence caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rankloop.clicks.users import DependentClickUser
from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels import dueling, listwise, preferences
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.world import Stationary
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.network import PairNetwork, Schedule
from rankloop.learners.models.networks import network
from rankloop.learners.neural.lambdarank_labels import LambdaRankLabels
from rankloop.learners.neural.neural_dbgd import NeuralDBGD
from rankloop.learners.neural.neural_pdgd import NeuralPDGD
from rankloop.learners.neural.ollambdarank import OLLambdaRank
from rankloop.learners.neural.olranknet import OLRankNet
from rankloop.learners.neural.olranknet_paper import OLRankNetPaper
from rankloop.learners.neural.perturbed_ensemble import PerturbedEnsemble
from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.query_table import query_hash
from tests.learners.neural_rounds import D, M, crossed, evidence, lists, one_round, taught
from tests.reference import neural as naive


def doubled(weights: Array) -> Array:
    """The weights of the paper's doubled network, of which the learner keeps the mean of the copies."""
    hidden = weights[:-M].reshape(M, 1, D)
    return np.concatenate([np.broadcast_to(hidden, (M, 2, D)).ravel(), weights[-M:]])


def alone(**given: Any) -> OLRankNetPaper:
    """A small network that replays."""
    return OLRankNetPaper(width=M, **{"prior": 100.0, "rate": 0.1, "update": "replay", **given})


# -- initial weights --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 2), (7, 3, 10), (100, 136, 100), (33, 700, 64)])
@pytest.mark.parametrize("name", ["olranknet", "ollambdarank", "neural-pdgd", "neural-dbgd", "lambdarank-labels"])
def test_scores_at_the_start_are_exactly_zero(name: str, n: int, d: int, m: int) -> None:
    learner: Any = make(name, width=m, seed=n)
    candidates = Candidates(features=np.random.default_rng(0).normal(size=(n, d)))
    assert (learner.score(candidates) == 0.0).all()


def test_the_start_is_the_papers() -> None:
    """Blocks (W, 0; 0, W) of variance 4/m, whose copies have the mean W/2, and (w, -w) of variance 2/m."""
    m, d = 400, 3000
    start = network("two-layer", d, m, 1).start()
    hidden, output = start[:-m].reshape(m, d), start[-m:]
    assert (hidden[: m // 2] == hidden[m // 2 :]).all()
    assert (output[: m // 2] == -output[m // 2 :]).all()
    assert (2 * hidden).var() == pytest.approx(4 / m, rel=0.01)
    assert output.var() == pytest.approx(2 / m, rel=0.15)
    assert (start != network("two-layer", d, m, 2).start()).any()


# -- confidence ------------------------------------------------------------------------------------------------------


def test_certain_pairs_are_definition_3_4() -> None:
    """A from explicit gradients of the doubled network at the weights of each moment; certain pairs from it."""
    learner = OLRankNetPaper(width=M, alpha=0.05, prior=0.05, rate=0.05)
    net, matrix, sure, unsure = naive.Doubled(D, M), np.zeros((0, 0)), 0, 0
    for t, candidates in enumerate(lists(12)):
        weights = learner.model_.weights_
        before = weights[0] if weights.size else network("two-layer", D, M, 0).start()
        shown, clicks = one_round(learner, candidates, t)
        assert shown.features is not None
        pairs = preferences.click_pairs(clicks, True, -1, preferences.ADJACENT, clicks)
        if len(pairs) == 0:
            continue
        g = [net.tangent(doubled(before), x) for x in shown.features]
        matrix = 0.05 * np.eye(net.size) if matrix.size == 0 else matrix
        matrix += naive.covariance([(g[a], g[b]) for a, b in pairs], np.ones(len(pairs)), 0.0, M)
    for candidates in lists(6, n=6):
        assert candidates.features is not None
        theta = doubled(learner.model_.weights_[0])
        g = [net.tangent(theta, x) for x in candidates.features]
        scores = [net.score(theta, x) for x in candidates.features]
        widths = [[naive.width_of(a, b, matrix, M, True) for b in g] for a in g]
        expected = naive.certain(scores, lambda i, j, table=widths: table[i][j], 0.05)  # type: ignore[misc]
        found = learner.certain(candidates, np.arange(6))
        assert found.tolist() == expected
        sure, unsure = sure + found.sum(), unsure + (15 - found.sum())
    assert sure > 5
    assert unsure > 5


NETWORKS: dict[str, Callable[[], Any]] = {
    "alone": lambda: OLRankNetPaper(width=20, alpha=0.05, prior=100.0, rate=1.0, update="replay"),
    "beside a linear model": lambda: OLRankNet(width=20, alpha=0.05, rate=1.0),
    "ensemble": lambda: PerturbedEnsemble(width=20, rate=1.0, nets=3),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_rankings_respect_the_certain_order_which_has_no_cycle(kind: str) -> None:
    """Certain means a higher score; and no document is above one that is certainly better, shown or not."""
    learner, found = taught(NETWORKS[kind](), 40), 0
    if isinstance(learner, OLRankNet):
        learner.model_.evidence = evidence(1.0)
    for t, candidates in enumerate(lists(30, n=15)):
        relation = learner.certain(candidates, np.arange(15))
        scores = learner.score(candidates)
        assert (scores[:, None] > scores)[relation].all()
        order = learner.rank(candidates, 6, t).order.tolist()
        for place, document in enumerate(order):
            assert set(np.flatnonzero(relation[:, document]).tolist()) <= set(order[:place])
        found += int(relation.sum())
    assert 0 < found <= 30 * 105


def test_greedy_limits() -> None:
    """alpha = 0 is certain of every gap and shows the best; a huge alpha is certain of nothing and shows anything."""
    candidates = lists(1, n=10)[0]
    sure, unsure = (taught(alone(alpha=alpha)) for alpha in (0.0, 1e6))
    best = sure.best(candidates, 5).tolist()
    assert all(sure.rank(candidates, 5, np.random.default_rng(t)).order.tolist() == best for t in range(5))
    tops = {int(unsure.rank(candidates, 1, np.random.default_rng(t)).order[0]) for t in range(200)}
    assert tops == set(range(10))


def test_more_evidence_makes_more_pairs_certain() -> None:
    """The diagonal of A never shrinks; with nothing learned of the order, widths can only fall."""
    learner, before = alone(), np.zeros(1)
    for t, candidates in enumerate(lists(15)):
        one_round(learner, candidates, t)
        if learner.model_.spread_.size:
            assert (learner.model_.spread_[0] >= before).all()
            before = learner.model_.spread_[0]


# -- learning --------------------------------------------------------------------------------------------------------


def model(schedule: Schedule, **given: Any) -> PairNetwork:
    """A network alone."""
    more = {"rate": 0.1, "ridge": 0.0, "prior": 100.0, "pair_rule": listwise.EQUAL, **given}
    return PairNetwork("two-layer", M, 0, schedule=schedule, **more)


def learn(one: PairNetwork, rows: Array, clicks: Sequence[float], t: int = 0) -> None:
    """One impression, whose pairs count 1."""
    values = np.array(clicks, np.float64)
    pairs = preferences.click_pairs(values, True, -1, preferences.ALL, values)
    size = preferences.examined_count(values, True, -1)
    given = ClickPairs(pairs, np.ones(len(pairs)))
    one.update(rows.astype(np.float32), values, given, size, t, np.random.default_rng(t), "network")


def test_the_first_step_of_adam_by_hand() -> None:
    """One impression, one step: every weight with a slope moves by the rate, against the sign of the slope."""
    one, rows = model(Schedule(1, 1, 10), rate=0.3), np.random.default_rng(4).random((3, D))
    learn(one, rows, [0, 1, 0])
    start, net = network("two-layer", D, M, 0).start(), naive.Doubled(D, M)
    g = [net.tangent(doubled(start), x) for x in rows]
    slope = -0.5 * ((g[1] - g[0]) + (g[1] - g[2])) / 2  # two pairs with σ = 1/2, averaged
    unit = np.mean([((g[i] - g[j]) ** 2).sum() / M for i in range(3) for j in range(3) if i != j])
    rate = 0.3 / np.sqrt(net.size * M * unit)
    expected = doubled(start) - rate * np.sign(np.where(np.abs(slope) < 1e-6, 0.0, slope))
    assert doubled(one.weights_[0]) == pytest.approx(expected, abs=1e-5 * rate + 1e-7)
    assert one.unit_[0] == pytest.approx(unit, rel=1e-5)


def test_replay_keeps_the_last_impressions_and_no_more() -> None:
    learner, kept, sizes = OLRankNet(width=M, replay_size=20), [], []
    network_ = learner.model_.network
    for t, candidates in enumerate(lists(80)):
        shown, clicks = one_round(learner, candidates, t)
        size = preferences.examined_count(clicks, True, -1)
        if 0 < clicks[:size].sum() < size and network_.knows(query_hash(candidates.query)):
            kept.append(shown.features[:size].astype(np.float32).tobytes())
        sizes.append(sum(array.nbytes for array in learner.state().values()))
    found = [network_.rows_[slot, : network_.sizes_[slot]].tobytes() for slot in range(20)]
    assert sorted(found) == sorted(kept[-20:])
    assert len(set(sizes[-20:])) == 1
    assert network_.events_[0] == len(kept) > 40


def test_every_step_of_replay_uses_the_newest_impression() -> None:
    drawn = list(model(Schedule(3, 8, 50))._batches(50, 7, np.random.default_rng(0)))
    assert [chosen[0] for chosen in drawn] == [7, 7, 7]
    assert len({int(slot) for chosen in drawn for slot in chosen}) > 10


def test_refits_keep_everything_and_may_restart() -> None:
    """With `restart` what a refit finds does not depend on where the weights were before."""
    rows = [np.random.default_rng(t).random((4, D)) for t in range(26)]

    def fitted(restart: bool) -> PairNetwork:
        one = model(Schedule(2, 4, 1, refit=True, restart=restart))
        for t in range(25):
            learn(one, rows[t], [0, 1, 0, 1], t)
        return one

    one, other, warm = fitted(True), fitted(True), fitted(False)
    assert one.events_[0] == (one.sizes_ > 0).sum() == 25
    other.weights_, other.first_ = other.weights_ + 5.0, other.first_ + 1.0
    for each in (one, other, warm):
        learn(each, rows[25], [1, 0, 1, 0], 0)
    assert (one.weights_ == other.weights_).all()
    assert (warm.weights_ != one.weights_).any()


def test_longer_lists_make_room() -> None:
    one = model(Schedule(1, 1, 100))
    for t, k in enumerate((2, 7, 3, 8)):
        rows = np.random.default_rng(0).random((k, D))
        learn(one, rows, ([0, 1] * k)[: k - k % 2], t)
    assert one.rows_.shape[1] == 8
    assert one.sizes_[:4].tolist() == [2, 6, 2, 8]
    assert one.rows_[3].tolist() == rows.astype(np.float32).tolist()


def test_an_ensemble_has_its_own_initial_weights_and_labels() -> None:
    learner = taught(PerturbedEnsemble(width=M, nets=3, noise=0.5), 30)
    assert learner.model_.weights_.shape[0] == 3
    noise = learner.model_.targets_[:, :16].ravel()
    noise = noise[noise != 0.0] - 1.0
    assert noise.std() == pytest.approx(0.5, rel=0.15)
    scores = learner.model_.member_scores(lists(1)[0])
    assert np.abs(np.diff(scores, axis=0)).min() > 0.0
    assert learner.best(lists(1)[0], 8).tolist() == np.argsort(-scores.mean(0), kind="stable").tolist()


def test_the_memo_stays_small() -> None:
    """100 documents of 136 features and 13,700 weights: what travels is the rows shown and little more."""
    candidates = Candidates(features=np.random.default_rng(0).random((100, 136)))
    for name in ("olranknet", "ollambdarank", "neural-pdgd", "neural-dbgd"):
        shown = make(name).rank(candidates, 10, np.random.default_rng(0))
        assert shown.features is not None
        assert len(codec.dump_impression(shown)) < shown.features.nbytes + 2500


def test_lambdarank_differs_by_its_weights_only() -> None:
    one, other = (model(Schedule(1, 1, 10), pair_rule=rule) for rule in (listwise.EQUAL, listwise.RAW))
    rows = np.random.default_rng(0).random((5, D))
    for each in (one, other):
        learn(each, rows[:2], [0, 1])  # one pair: Adam does not see a factor that all slopes have
    assert other.weights_ == pytest.approx(one.weights_, abs=1e-6)
    for each in (one, other):
        learn(each, rows, [0, 1, 0, 1, 0], 1)
    assert np.abs(other.weights_ - one.weights_).max() > 1e-5


def test_the_papers_own_units() -> None:
    """A = λI at first, and Adam steps of the plain rate."""
    learner = OLRankNetPaper(width=M, rate=0.01, prior=0.3)
    rows = np.random.default_rng(4).random((3, D))
    assert (learner.model_.spread(rows) == 0.3).all()
    shown = learner.adopt(Candidates(features=rows), np.arange(3))
    learner.learn(shown, Feedback.clicks([0, 1, 0]), 0)
    start = network("two-layer", D, M, 0).start()
    assert learner.model_.unit_[0] == 1.0
    assert learner.model_.steps_[0] == 20
    assert np.abs(learner.model_.weights_[0] - start).max() == pytest.approx(0.2, rel=0.2)


# -- the baselines ---------------------------------------------------------------------------------------------------


def test_neural_pdgd_by_hand() -> None:
    """At the start all scores are 0: ρ = 1/2, σ' = 1/4, so the weights move by rate/(8 m unit) (g_a - g_b)."""
    learner, rows = NeuralPDGD(width=M, rate=0.7, decay=0.5), np.random.default_rng(1).random((2, D))
    shown = learner.adopt(Candidates(features=rows), np.arange(2))
    learner.learn(shown, Feedback.clicks([0, 1]), np.random.default_rng(0))
    net, start = naive.Doubled(D, M), network("two-layer", D, M, 0).start()
    g = [net.tangent(doubled(start), x) for x in rows]
    unit = ((g[1] - g[0]) ** 2).sum() / M
    expected = doubled(start) + 0.7 / (8 * M * unit) * (g[1] - g[0])
    assert doubled(learner.model_.weights_[0]) == pytest.approx(expected, abs=1e-6)
    assert learner.model_.rate_[0] == 0.35


def test_neural_dbgd_goes_towards_a_winner_only() -> None:
    """The step is the exploring network's own direction, drawn again from its number, or nothing."""
    learner, start, steps = NeuralDBGD(width=M, rate=0.25), network("two-layer", D, M, 0).start(), 0
    for t, candidates in enumerate(lists(30)):
        before = learner.model_.weights_[0] if learner.model_.weights_.size else start
        shown = learner.rank(candidates, 4, np.random.default_rng(t))
        credit = shown.memo["credit"]
        clicks = (credit[:, 1] == credit[:, 1].max()).astype(np.float64)
        learner.learn(shown, Feedback.clicks(clicks), np.random.default_rng(t))
        after = learner.model_.weights_[0] if learner.model_.weights_.size else start
        if (after != before).any():
            steps += 1
            assert np.linalg.norm(after - before) == pytest.approx(0.25)
    assert steps > 10
    state = learner.state()
    shown = learner.adopt(lists(1)[0], np.arange(4))
    learner.learn(shown, Feedback.clicks([1, 0, 0, 0]), np.random.default_rng(0))
    assert all((learner.state()[name] == value).all() for name, value in state.items())
    with pytest.raises(InvalidInput, match="5 as 'source'"):
        learner.learn(shown._replace(memo={**shown.memo, "source": np.array([0.5])}), Feedback.clicks([1]), _rng())
    assert dueling.unit_rows(np.ones((1, 4)))[0] @ np.ones(4) == pytest.approx(2.0)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


# -- what no linear ranker can see -----------------------------------------------------------------------------------


def test_neural_learners_see_what_linear_ones_cannot() -> None:
    train, probe = crossed(60, 0), held_out(crossed(100, 1))
    linear = OfflineRankNet()
    linear.fit(train.features, train.grades, train.offsets)
    found = {"offline": probe(linear)["offline.ndcg@10"]}
    user = DependentClickUser.named("perfect", 1)
    for learner in (PairRank(), OLRankNet(width=20, rate=1.0), OLLambdaRank(width=20, rate=1.0)):
        for _ in simulate(learner, Stationary(train), user, 250):
            pass
        found[type(learner).__name__] = probe(learner)["offline.ndcg@10"]
    assert max(found["offline"], found["PairRank"]) < 0.85
    assert min(found["OLRankNet"], found["OLLambdaRank"]) > 0.93, found


def test_the_oracle_is_given_every_grade() -> None:
    """By the loop, after each round; clicks teach it nothing."""
    train, probe, learner = crossed(60, 0), held_out(crossed(100, 1)), LambdaRankLabels(width=20)
    for step in simulate(learner, Stationary(train), DependentClickUser.named("almost-random", 1), 80):
        assert step.round.candidates.query in learner.model_.queries_
    assert probe(learner)["offline.ndcg@10"] > 0.95
    assert learner.model_.counts_.sum() == 80
    assert len(learner.model_.queries_) == len(set(learner.model_.queries_)) <= 60
    before = learner.state()
    shown = learner.rank(train.candidates(0), 5, _rng())
    learner.learn(shown, Feedback.clicks([1, 0, 0, 0, 0]), _rng())
    assert all((learner.state()[name] == value).all() for name, value in before.items())


def test_the_oracle_keeps_all_queries_and_counts_them() -> None:
    learner, names = LambdaRankLabels(width=M, passes=1), [0, 1, 2, 1, 1, 3]
    for t, name in enumerate(names):
        learner.label(lists(4)[name], np.arange(8) % 3, np.random.default_rng(t))
    assert learner.model_.queries_.tolist() == ["q0", "q1", "q2", "q3"]
    assert learner.model_.counts_.tolist() == [1.0, 3.0, 1.0, 1.0]
    assert learner.model_.offsets_.tolist() == [0, 8, 16, 24, 32]
    assert learner.model_.rows_.tolist() == np.concatenate([c.features for c in lists(4)]).astype(np.float32).tolist()
    with pytest.raises(InvalidInput, match="give a number of at least 0 for each candidate"):
        learner.label(lists(1)[0], np.array([1.0]), _rng())


def test_the_oracle_fits_again_after_ten_percent_more_rounds() -> None:
    """Every round up to ten, then whenever there are 10 % more; fits do not hang on those before."""
    learner, fits = LambdaRankLabels(width=M, passes=1), []
    for t in range(40):
        before = learner.model_.events_[0]
        learner.label(lists(8)[t % 8], np.arange(8) % 3, np.random.default_rng(t))
        if learner.model_.events_[0] > before:
            fits.append(t + 1)
    assert fits == [*range(1, 11), 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37]
    once = LambdaRankLabels(width=M, passes=1)
    for name in ("queries_", "counts_", "offsets_", "rows_", "grades_"):
        setattr(once.model_, name, getattr(learner.model_, name).copy())
    for fitted in (learner, once):
        fitted.model_.fitted_ = np.zeros(1)
        fitted.label(lists(8)[0], np.arange(8) % 3, np.random.default_rng(99))
    assert (learner.model_.weights_ == once.model_.weights_).all()
