"""A network beside a linear model: PairRank while the network has proved nothing, and a gate that opens for news."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.checks.helpers import same_state
from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import InvalidInput
from rankloop.core.registry import make
from rankloop.core.types import Candidates, Feedback
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.world import Stationary
from rankloop.learners.models.gate import CELLS, DISCOUNT, GATES, SCALES, Evidence
from rankloop.learners.models.linear_network import VALIDATE
from rankloop.learners.neural.olranknet import LINE_ALPHA, OLRankNet
from rankloop.learners.neural.olranknet_paper import OLRankNetPaper
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.query_table import query_hash
from tests.learners.neural_rounds import M, crossed, evidence, lists, one_round, taught

NETS = ["olranknet", "ollambdarank"]


def training_queries(count: int) -> list[Candidates]:
    """Candidates of queries that train the network."""
    return [c for c in lists(3 * count) if query_hash(c.query) % VALIDATE][:count]


@pytest.mark.parametrize("init", ["zero", "base", [1.0, 0.0, -2.0, 0.5]])
@pytest.mark.parametrize("name", NETS)
def test_a_closed_gate_gives_pairrank_bit_for_bit(name: str, init: Any) -> None:
    """Rankings, their probabilities, memos, the weights and the confidence matrix."""
    learner: Any = make(name, width=M, init=init)
    linear = PairRank(init=init)
    for t, candidates in enumerate(lists(60)):
        learner.model_.evidence = evidence(0.0)
        one, _ = one_round(learner, candidates, t)
        other, _ = one_round(linear, candidates, t)
        assert one.order.tolist() == other.order.tolist()
        memos = [{key: value.tolist() for key, value in made.memo.items()} for made in (one, other)]
        assert memos[0] == memos[1]
    state = learner.state()
    assert all((state[f"line_{key}"] == value).all() for key, value in linear.state().items())
    assert state["events_"][0] > 30, "the network has learned meanwhile"
    again = lists(61)[-1]
    assert learner.best(again, 8).tolist() == linear.best(again, 8).tolist()
    order = linear.rank(again, 4, 0).order
    assert learner.log_propensity(again, order) == linear.log_propensity(again, order)


def test_scores_are_the_linear_ones_and_the_gates_share_of_the_networks() -> None:
    learner = taught(OLRankNet(width=M, rate=1.0))
    candidates = lists(30)[-1]
    line, net = learner.model_.line.scores(candidates), learner.model_.network.member_scores(candidates)[0]
    for gate in GATES.tolist():
        learner.model_.evidence = evidence(gate)
        assert learner.gate(candidates.query) == gate
        assert learner.score(candidates) == pytest.approx(line + gate * net, abs=1e-12)
    assert np.abs(net).max() > 0.1


def test_one_confidence_over_both() -> None:
    """s_i - s_j > √(α_line²‖x_ij‖² + (4gα)²‖g_ij/√m‖²), from matrices written out."""
    learner = taught(OLRankNet(width=M, alpha=0.05, rate=1.0), 40)
    learner.model_.evidence = evidence(0.5)
    network, sure = learner.model_.network, 0
    for candidates in lists(8):
        rows = candidates.features
        assert rows is not None
        tangents, scores = network.forward(network.rows(candidates))[0].tangents(), learner.score(candidates)
        gaps = scores[:, None] - scores
        x, g = rows[:, None] - rows, tangents[:, None] - tangents
        squared = LINE_ALPHA**2 * np.einsum("ijc,cd,ijd->ij", x, learner.model_.line.inverse_, x)
        squared += (4 * 0.5 * 0.05) ** 2 * np.einsum("ijc,c,ijc->ij", g, 1.0 / network.spread_[0], g)
        margin = gaps - np.sqrt(squared)
        found = learner.certain(candidates, np.arange(candidates.n))
        clear = np.abs(margin) > 1e-5
        assert (found == (margin > 0.0))[clear].all()
        sure += int(found.sum())
    assert 10 < sure < 8 * 28


def test_long_lists_are_drawn_by_the_linear_width() -> None:
    learner = taught(OLRankNet(width=M, rate=1.0), 40)
    learner.model_.evidence = evidence(0.5)
    candidates = lists(1, n=600)[0]
    shown = learner.rank(candidates, 5, 0)
    assert shown.memo["log_propensity"][0] == learner.log_propensity(candidates, shown.order)
    assert shown.memo["scores"].tolist() == learner.score(candidates)[shown.order].tolist()
    assert set(shown.order.tolist()) <= set(learner.best(candidates, 200).tolist())


def test_some_queries_never_train_the_network() -> None:
    learner, trains, validates = OLRankNet(width=M), 0, 0
    model = learner.model_
    for t, candidates in enumerate(lists(160)):
        before, events = model.evidence, int(model.network.events_[0])
        one_round(learner, candidates, t)
        held_back = query_hash(candidates.query) % VALIDATE == 0
        trains += model.network.events_[0] > events
        validates += held_back and (model.evidence.gains[0] != before.gains[0]).any()
        assert not held_back or model.network.events_[0] == events
        assert (model.evidence.gains[1] == before.gains[1]).all(), "the network does not know a query that is new"
    assert trains > 100
    assert validates > 5
    assert all(query_hash(c.query) % VALIDATE for c in lists(160) if model.network.knows(query_hash(c.query)))


def test_evidence_is_of_before_the_impression_was_learned() -> None:
    """By hand: what each gate at each scale gains from the scores before, and its square; old evidence counts less."""
    learner = taught(OLRankNet(width=M), 20)
    model, candidates = learner.model_, training_queries(30)[-1]
    shown = learner.adopt(candidates, np.array([2, 0, 1]))
    line = model.line.scores(candidates)[shown.order]
    net = model.network.member_scores(candidates)[0][shown.order]
    before, kind = model.evidence, int(model.network.knows(query_hash(candidates.query)))
    learner.learn(shown, Feedback.clicks([0, 1, 0]), 0)
    gains = np.array(
        [
            sum(0.5 * (_log_sigmoid(c * (line[1] - line[b]) + g * (net[1] - net[b])) + np.log(2.0)) for b in (0, 2))
            for g in GATES
            for c in SCALES
        ]
    )
    assert model.evidence.gains[kind] == pytest.approx(DISCOUNT * before.gains[kind] + gains, abs=1e-6)
    expected = DISCOUNT * before.products[kind] + np.outer(gains, gains)
    assert model.evidence.products[kind] == pytest.approx(expected, abs=1e-6)


def test_a_network_that_repeats_a_modest_linear_model_gains_nothing() -> None:
    """Only what is better than the linear model at its best scale counts."""
    rng, same, news = np.random.default_rng(0), Evidence.none(), Evidence.none()
    pairs, weights = np.array([[0, 1]]), np.ones(1)
    for _ in range(200):
        line, rest = 0.1 * rng.normal(size=2), rng.normal(size=2)
        truth = 1.0 / (1.0 + np.exp(-20.0 * (line[0] - line[1]) - (rest[0] - rest[1])))
        order = [0, 1] if rng.random() < truth else [1, 0]
        same = same.after(False, line[order], 10.0 * line[order], pairs, weights)
        news = news.after(False, line[order], rest[order], pairs, weights)
    assert same.share(False) == 0.0
    assert 0.02 < news.share(False) < 0.13  # 1/20 is the truth
    assert news.share(True) == news.share(False), "a network that helps with unknown queries helps with known ones"
    swapped = Evidence(news.gains[::-1], news.products[::-1])
    assert (swapped.share(True), swapped.share(False)) == (news.share(False), 0.0), "but not the other way round"
    assert news.gains.shape == (2, CELLS)


def _log_sigmoid(x: float) -> float:
    return -float(np.logaddexp(0.0, -x))


def test_the_network_learns_as_if_it_were_alone() -> None:
    """The same impressions and clicks move it as they move one without a linear model."""
    beside = OLRankNet(width=M)
    alone = OLRankNetPaper(width=M, update="replay", rate=0.1, prior=100.0)
    for t, candidates in enumerate(training_queries(20)):
        shown = alone.rank(candidates, 4, t)
        clicks = Feedback.clicks(np.random.default_rng([2, t]).integers(0, 2, 4))
        beside.learn(shown, clicks, np.random.default_rng([3, t]))
        rng = np.random.default_rng([3, t])
        rng.random(4)
        alone.learn(shown, clicks, rng)
    assert (beside.model_.network.weights_ == alone.model_.weights_).all()
    assert beside.model_.network.events_[0] > 10


def test_the_network_counts_only_where_a_linear_model_is_not_enough() -> None:
    user, found = DependentClickUser.named("perfect", 1), []
    for straight in (True, False):
        train, test = (crossed(60, seed, straight) for seed in (0, 1))
        learner, linear = OLRankNet(width=20), PairRank()
        for each in (learner, linear):
            for _ in simulate(each, Stationary(train), user, 300):
                pass
        probe = held_out(test)
        found.append(probe(learner)["offline.ndcg@10"] - probe(linear)["offline.ndcg@10"])
        if not straight:
            assert learner.gate("never seen") > 0.0
    assert found[0] > -0.01
    assert found[1] > 0.1


def test_a_state_whose_linear_model_does_not_fit_is_refused() -> None:
    learner, other = taught(OLRankNet(width=M)), OLRankNet(width=M, init="base")
    before = other.state()
    with pytest.raises(InvalidInput, match=r"state 'line_theta_' has 4 weights, but the network has 4 features"):
        other.load(learner.state())
    assert all((other.state()[name] == value).all() for name, value in before.items())
    with pytest.raises(InvalidInput, match="state has"):
        OLRankNetPaper(width=M).load(learner.state())
    again = OLRankNet(width=M)
    again.load(learner.state())
    for t, candidates in enumerate(lists(30)):
        for one in (again, learner):
            one_round(one, candidates, t)
    assert same_state(again, learner)
