"""What learners tell of themselves: beliefs and doubts about a list, and how sure they are of their weights."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from rankloop.core.capabilities import LinearScores, Observable
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import Learner
from rankloop.core.registry import LEARNERS, make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.learners.bandits.bubblerank import BubbleRank
from rankloop.learners.pairwise.pairrank import PairRank


def shelf(rng: np.random.Generator, n: int = 8, d: int = 4) -> Candidates:
    return Candidates("q", np.arange(n), rng.random((n, d)))


def taught(learner: Any, rounds: int, seed: int = 0, k: int = 5) -> Any:
    """A learner whose users like feature 0."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        candidates = shelf(rng)
        shown = learner.rank(candidates, k, rng)
        liked = shown.features[:, 0] > 0.6
        learner.learn(shown, Feedback.clicks(liked.astype(float)), rng)
    return learner


def explains(name: str) -> bool:
    learner = make(name)
    candidates = shelf(np.random.default_rng(0))
    return isinstance(learner, Observable) and learner.explain(learner.adopt(candidates, np.arange(3))) is not None


EXPLAINING = [name for name in LEARNERS if name != "offline-ranknet" and explains(name)]


@pytest.mark.parametrize("name", EXPLAINING)
def test_an_explanation_is_of_the_list_shown_and_changes_nothing(name: str) -> None:
    learner: Any = make(name)
    rng = np.random.default_rng(1)
    for rounds in (0, 20):
        taught(learner, rounds)
        before = learner.state()
        candidates = shelf(rng)
        for shown in (learner.rank(candidates, 5, rng), learner.adopt(candidates, np.array([4, 0, 7, 2, 1]))):
            best, uncertain, pairs = learner.explain(shown)
            assert len(uncertain) <= pairs <= 10
            assert sorted(best.tolist()) == [0, 1, 2, 3, 4]
            assert uncertain.shape[1:] == (2,)
            assert all(0 <= upper < lower < 5 for upper, lower in uncertain.tolist())
            assert len({tuple(pair) for pair in uncertain.tolist()}) == len(uncertain)
        after = learner.state()
        assert all(np.array_equal(before[key], after[key]) for key in before)


def test_pairrank_explains_itself() -> None:
    assert "pairrank" in EXPLAINING
    assert isinstance(make("pairrank"), LinearScores)


def test_a_cold_learner_is_sure_of_nothing_and_believes_in_the_base_order() -> None:
    learner, rng = PairRank(), np.random.default_rng(0)
    shown = learner.rank(shelf(rng), 4, rng)
    best, uncertain, pairs = learner.explain(shown)
    assert pairs == 6
    assert shown.order[best].tolist() == sorted(shown.order.tolist())
    assert uncertain.tolist() == [list(pair) for pair in combinations(range(4), 2)]
    adopted = learner.adopt(shelf(rng), np.arange(4))
    assert len(learner.explain(adopted).uncertain) == 6


def allowed(certain: Array, order: list[int]) -> bool:
    """Whether a list stands with every certain pair: nobody comes before someone certainly better."""
    n = len(certain)
    return not any(certain[j, i] for at, i in enumerate(order) for j in range(n) if j not in order[: at + 1])


@pytest.mark.parametrize("seed", range(12))
def test_uncertain_pairs_of_an_own_list_are_those_that_could_stand_swapped(seed: int) -> None:
    learner, rng = taught(PairRank(alpha=0.4), 25, seed), np.random.default_rng(seed)
    candidates = shelf(rng)
    shown = learner.rank(candidates, 5, rng)
    certain = learner.model_.confidence(candidates, learner.alpha).certain()
    order = shown.order.tolist()
    assert allowed(certain, order)
    expected = []
    for p, q in combinations(range(5), 2):
        swapped = order.copy()
        swapped[p], swapped[q] = swapped[q], swapped[p]
        if allowed(certain, swapped):
            expected.append([p, q])
    assert learner.explain(shown).uncertain.tolist() == expected


@pytest.mark.parametrize("learner", [PairRank(alpha=0.4), PairRank(alpha=0.4, explore="blocks")])
def test_of_a_list_that_was_adopted_it_says_what_it_is_not_sure_of_now(learner: PairRank) -> None:
    taught(learner, 25)
    candidates = shelf(np.random.default_rng(3))
    order = np.array([6, 1, 3, 0])
    certain = learner.model_.confidence(candidates, learner.alpha).certain()
    expected = [
        [p, q]
        for p, q in combinations(range(4), 2)
        if not certain[order[p], order[q]] and not certain[order[q], order[p]]
    ]
    assert 0 < len(expected) < 6
    best, uncertain, _ = learner.explain(learner.adopt(candidates, order))
    assert uncertain.tolist() == expected
    believed = [item for item in learner.best(candidates, 8).tolist() if item in order]
    assert order[best].tolist() == believed


def test_confidence_is_the_weight_from_which_on_a_feature_alone_decides() -> None:
    learner = taught(PairRank(alpha=0.5), 60)
    width = learner.half_widths()
    assert width == pytest.approx(0.5 * np.sqrt(np.diagonal(learner.inverse_)))
    decided = []
    for j in range(4):
        pair = Candidates("", None, np.eye(4)[[j, j]] * [[1.0], [0.0]])
        decided.append(len(learner.blocks(pair)) == 2)
    assert decided == (np.abs(learner.theta_) > width).tolist()
    assert any(decided)
    assert PairRank().half_widths().size == 0


def test_confidence_narrows_with_what_is_learned() -> None:
    few, many = (taught(PairRank(), rounds).half_widths() for rounds in (5, 100))
    assert (many < few).all()


@pytest.mark.parametrize("k", [1, 5, 6, 8])
def test_bubblerank_tells_which_neighbors_had_their_turn_and_which_were_left_to_a_coin(k: int) -> None:
    learner, rng = BubbleRank(horizon=100), np.random.default_rng(2)
    candidates = Candidates("q", np.arange(8))
    swapped = 0
    met = 0
    for _ in range(300):
        shown = learner.rank(candidates, k, rng)
        best, uncertain, pairs = learner.explain(shown)
        believed = [item for item in learner.best(candidates, 8).tolist() if item in shown.order]
        assert shown.order[best].tolist() == believed
        parity = int(shown.memo["parity"][0])
        neighbors = [[p, p + 1] for p in range(parity, k - 1, 2)]
        assert pairs == len(neighbors)
        # Users click 0, at the top, and nothing else: of its one neighbor it is sure after 74 > 16 log 100 leads.
        assert uncertain.tolist() == (neighbors[1:] if met >= 74 and parity == 0 else neighbors)
        met += parity == 0
        swapped += sum(best.tolist().index(p) > best.tolist().index(q) for p, q in uncertain.tolist())
        learner.learn(shown, Feedback.clicks((shown.items == 0).astype(float)), rng)
    assert swapped > 0 or k == 1


def test_bubblerank_knows_nothing_of_a_list_that_was_adopted_but_what_it_would_show() -> None:
    learner, rng = BubbleRank(), np.random.default_rng(2)
    shown = learner.rank(Candidates("q", ["a", "b", "c"]), 3, rng)
    learner.learn(shown, Feedback.clicks(np.zeros(3)), rng)
    adopted = learner.adopt(Candidates("q", ["c", "a", "b"]), np.array([0, 1, 2]))
    best, uncertain, pairs = learner.explain(adopted)
    assert adopted.items[best].tolist() == ["a", "b", "c"]
    assert (len(uncertain), pairs) == (0, 0)
    with pytest.raises(InvalidInput, match="parity"):  # of another learner, before a reset
        learner.explain(make("pdgd").adopt(shelf(rng), np.array([1, 0])))


def test_a_learner_need_not_explain_itself() -> None:
    plain: Learner = make("pdgd")
    assert not isinstance(plain, Observable)
