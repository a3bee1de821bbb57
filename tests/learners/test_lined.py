"""A network beside a line: PairRank while the network has proved nothing, and never a word on queries it was taught."""

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
from rankloop.learners.models.gate import CELLS, FADE, GATES, SCALES, Evidence
from rankloop.learners.neural.olranknet import OLRankNet
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.query_table import query_hash
from tests.learners.neural_rounds import M, crossed, evidence, lists, one_round, taught

NETS = ["olranknet", "ollambdarank"]


def trained(learner: Any, count: int) -> list[Candidates]:
    """Lists of queries that train the network."""
    return [c for c in lists(3 * count) if query_hash(c.query) % learner.validate][:count]


@pytest.mark.parametrize("start", ["zero", "base", [1.0, 0.0, -2.0, 0.5]])
@pytest.mark.parametrize("name", NETS)
def test_while_the_network_counts_for_nothing_all_is_pairranks_bit_for_bit(name: str, start: Any) -> None:
    """Lists, their probabilities, what travels in the memo, the weights and the confidence matrix."""
    learner, linear = make(name, width=M, init=start), PairRank(init=start)
    for t, candidates in enumerate(lists(60)):
        learner._set_evidence(evidence(0.0))  # type: ignore[attr-defined]
        one, _ = one_round(learner, candidates, t)
        other, _ = one_round(linear, candidates, t)
        assert one.order.tolist() == other.order.tolist()
        assert {key: value.tolist() for key, value in one.memo.items()} == {
            key: value.tolist() for key, value in other.memo.items()
        }
    state = learner.state()
    assert all((state[f"line_{key}"] == value).all() for key, value in linear.state().items())
    assert state["events_"][0] > 30, "the network has learned meanwhile"
    again = lists(61)[-1]
    assert learner.best(again, 8).tolist() == linear.best(again, 8).tolist()
    assert learner.adopt(again, np.arange(3)).memo["scores"].tolist() == linear.score(again)[:3].tolist()
    order = linear.rank(again, 4, np.random.default_rng(0)).order
    assert learner.log_propensity(again, order) == linear.log_propensity(again, order)  # type: ignore[attr-defined]


def test_scores_are_the_lines_and_the_gates_share_of_the_networks() -> None:
    learner = taught(OLRankNet(width=M, rate=1.0))
    candidates = lists(30)[-1]
    line, net = learner._line.score(candidates), learner._forward(learner._rows(candidates))[0].scores
    for gate in GATES.tolist():
        learner._set_evidence(evidence(gate))
        assert learner.gate(candidates.query) == gate
        assert learner.score(candidates) == pytest.approx(line + gate * net, abs=1e-12)
    assert np.abs(net).max() > 0.1


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_one_confidence_over_both(covariance: Any) -> None:
    """s_i - s_j > √(α_line²‖x_ij‖² + (4gα)²‖g_ij/√m‖²), from matrices written out."""
    learner = taught(OLRankNet(width=M, covariance=covariance, alpha=0.05, rate=1.0), 40)
    learner._set_evidence(evidence(0.5))
    sure = 0
    for candidates in lists(8):
        rows = candidates.features
        assert rows is not None
        tangents, scores = learner._forward(learner._rows(candidates))[0].tangents(), learner.score(candidates)
        inverse = learner.spread_ if covariance == "full" else np.diag(1.0 / learner.spread_[0])
        gaps = scores[:, None] - scores
        x, g = rows[:, None] - rows, tangents[:, None] - tangents
        squared = learner.line_alpha**2 * np.einsum("ijc,cd,ijd->ij", x, learner._line.inverse_, x)
        squared += (4 * 0.5 * 0.05) ** 2 * np.einsum("ijc,cd,ijd->ij", g, inverse, g)
        margin = gaps - np.sqrt(squared)
        found = learner.certain(candidates, np.arange(candidates.n))
        clear = np.abs(margin) > 1e-5
        assert (found == (margin > 0.0))[clear].all()
        some = np.array([5, 1, 6])
        assert (learner.certain(candidates, some) == found[np.ix_(some, some)]).all()
        sure += int(found.sum())
    assert 10 < sure < 8 * 28


def test_long_lists_are_drawn_as_pairranks_are() -> None:
    """Beyond 500 candidates: a list that respects what the line's width makes certain, and its exact probability."""
    learner = taught(OLRankNet(width=M, rate=1.0), 40)
    learner._set_evidence(evidence(0.5))
    candidates = lists(1, n=600)[0]
    shown = learner.rank(candidates, 5, np.random.default_rng(0))
    assert shown.memo["log_propensity"][0] == learner.log_propensity(candidates, shown.order)
    assert shown.memo["scores"].tolist() == learner.score(candidates)[shown.order].tolist()
    best = learner.best(candidates, 200).tolist()
    assert set(shown.order.tolist()) <= set(best)


def test_some_queries_never_train_the_network_and_tell_how_far_to_believe_it() -> None:
    learner, trains, tells = OLRankNet(width=M, validate=3), 0, 0
    for t, candidates in enumerate(lists(80)):
        before, events = learner._evidence(), int(learner.events_[0])
        one_round(learner, candidates, t)
        after, asked = learner._evidence(), query_hash(candidates.query) % 3 == 0
        trains, tells = trains + (learner.events_[0] > events), tells + (asked and (after[0] != before[0]).any())
        assert not asked or learner.events_[0] == events
        assert (after.gains[1] == before.gains[1]).all(), "a query that never came is not one that the network knows"
    assert 30 < trains < 70
    assert 10 < tells < 40
    assert all(query_hash(c.query) % 3 for c in lists(80) if learner._knows(query_hash(c.query)))


def test_queries_that_the_network_knows_have_a_gate_of_their_own() -> None:
    learner = taught(OLRankNet(width=M), 20)
    known = next(c for c in lists(20) if learner._knows(query_hash(c.query)))
    old = Evidence(np.stack([evidence(0.0).gains[0], evidence(1.0).gains[1]]), evidence(0.0).products)
    learner._set_evidence(old)
    assert (learner.gate(known.query), learner.gate("never seen")) == (1.0, 0.0)
    learner.learn(learner.adopt(known, np.arange(4)), Feedback.clicks([0, 1, 0, 1]), np.random.default_rng(0))
    assert (learner.gains_[0] == old.gains[0]).all()
    assert (learner.gains_[1] != old.gains[1]).all()


def test_evidence_is_of_before_the_list_was_learned() -> None:
    """By hand: what each gate at each scale gains from the scores that were, and its square; what was there fades."""
    learner = taught(OLRankNet(width=M, debias="none"), 20)
    candidates = trained(learner, 30)[-1]
    shown = learner.adopt(candidates, np.array([2, 0, 1]))
    line = learner._line.score(candidates)[shown.order]
    net = learner._forward(learner._rows(candidates))[0].scores[shown.order]
    before, kind = learner._evidence(), int(learner._knows(query_hash(candidates.query)))
    learner.learn(shown, Feedback.clicks([0, 1, 0]), np.random.default_rng(0))
    gains = np.array(
        [
            sum(_log_sigmoid(c * (line[1] - line[b]) + g * (net[1] - net[b])) + np.log(2.0) for b in (0, 2))
            for g in GATES
            for c in SCALES
        ]
    )
    assert learner.gains_[kind] == pytest.approx(FADE * before.gains[kind] + gains, abs=1e-6)
    expected = FADE * before.products[kind] + np.outer(gains, gains)
    assert learner.products_[kind] == pytest.approx(expected, abs=1e-6)


def test_a_network_that_says_what_a_modest_line_says_gains_nothing() -> None:
    """Only what is better than the line at its best scale counts, surely: a gate opens for news alone."""
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
    assert news.share(True) == news.share(False), "who helps with strangers helps with those it knows"
    friends = Evidence(news.gains[::-1], news.products[::-1])
    assert (friends.share(True), friends.share(False)) == (news.share(False), 0.0), "but not the other way round"
    assert news.gains.shape == (2, CELLS)


def _log_sigmoid(x: float) -> float:
    return -float(np.logaddexp(0.0, -x))


def test_the_network_learns_as_if_it_were_alone() -> None:
    """The same lists and clicks move it as they move one without a line."""
    beside, alone = OLRankNet(width=M), OLRankNet(width=M, line="none")
    for t, candidates in enumerate(trained(beside, 20)):
        shown = alone.rank(candidates, 4, np.random.default_rng(t))
        clicks = Feedback.clicks(np.random.default_rng([2, t]).integers(0, 2, 4))
        for learner in (beside, alone):
            rng = np.random.default_rng([3, t])
            if learner is alone:
                rng.random(4)  # the line has its own numbers for pairs that are matched at random
            learner.learn(shown, clicks, rng)
    assert (beside.weights_ == alone.weights_).all()
    assert beside.events_[0] > 10


def test_where_the_line_is_all_there_is_the_network_adds_little_and_elsewhere_it_counts() -> None:
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


def test_a_state_whose_line_does_not_fit_is_refused() -> None:
    learner, other = taught(OLRankNet(width=M)), OLRankNet(width=M, init="base")
    before = other.state()
    with pytest.raises(InvalidInput, match=r"state 'line_theta_' has 4 weights, but the network has 4 features"):
        other.load(learner.state())
    assert all((other.state()[name] == value).all() for name, value in before.items())
    with pytest.raises(InvalidInput, match=r"state has .*'line_theta_'"):
        OLRankNet(width=M, line="none").load(learner.state())
    again = OLRankNet(width=M)
    again.load(learner.state())
    for t, candidates in enumerate(lists(30)):
        for one in (again, learner):
            one_round(one, candidates, t)
    assert same_state(again, learner)
