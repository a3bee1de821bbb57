"""PDGD: a round worked by hand, and unbiasedness."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.learners.pairwise.pdgd import PDGD


def test_a_round_by_hand() -> None:
    """Two documents with equal scores: ρ = 1/2 and σ' = 1/4, so θ moves by rate/8 · (x_clicked - x_unclicked)."""
    learner = PDGD(rate=0.4, decay=0.5)
    candidates = Candidates(features=[[1.0, 0.0], [0.0, 3.0]])
    shown = learner.rank(candidates, 2, np.random.default_rng(0))
    clicked = int(shown.order[0])
    learner.learn(shown, Feedback.clicks([1, 0]), np.random.default_rng(0))
    assert candidates.features is not None
    step = 0.4 / 8 * (candidates.features[clicked] - candidates.features[1 - clicked])
    assert learner.theta_ == pytest.approx(step)
    assert learner.model_.rate_[0] == 0.2


def test_no_pair_no_step() -> None:
    learner = PDGD()
    shown = learner.rank(Candidates(features=np.eye(3)), 3, np.random.default_rng(0))
    for clicks in ([0, 0, 0], [1, 1, 1]):
        learner.learn(shown, Feedback.clicks(clicks), np.random.default_rng(0))
    assert learner.theta_.size == 0
    assert learner.model_.rate_[0] == learner.rate


def test_the_document_below_the_last_click_counts_as_seen() -> None:
    shown = PDGD().rank(Candidates(features=np.eye(3)), 3, np.random.default_rng(0))
    moved: dict[bool, Any] = {}
    for examine_next in (True, False):
        learner = PDGD(examine_next=examine_next)
        learner.learn(shown, Feedback.clicks([1, 0, 0]), np.random.default_rng(0))
        moved[examine_next] = learner.theta_.size and learner.theta_[shown.order]
    assert moved[True][1] < 0 == moved[True][2]
    assert moved[False] == 0


def test_equal_documents_do_not_move_apart_whatever_the_position_bias() -> None:
    """Theorem of the paper: documents that users like equally get no preference in expectation, at any scores.

    Summed exactly: over every list of the policy and every click pattern of a user who clicks everything he sees with
    probability 1/2 and stops after a click, so that upper positions get more clicks.
    """
    scores = np.array([1.0, 0.2, -0.7])
    theta = PDGD()
    theta.theta_ = scores.copy()  # features are the unit vectors, so θ are the scores
    expected = np.zeros(3)
    for order in permutations(range(3)):
        probability = np.exp(_log_probability(scores, order))
        for clicks, chance in ((np.eye(3)[p], 0.5 ** (p + 1)) for p in range(3)):
            learner = PDGD(rate=1.0)
            learner.theta_ = scores.copy()
            shown = Impression(
                "q",
                np.array(order),
                np.array(order),
                np.eye(3)[list(order)],
                {"scores": scores[list(order)], "rest": np.array([-np.inf])},
            )
            learner.learn(shown, Feedback.clicks(clicks), np.random.default_rng(0))
            expected += probability * chance * (learner.theta_ - scores)
    assert expected == pytest.approx(np.zeros(3), abs=1e-15)


def _log_probability(scores: Array, order: tuple[int, ...]) -> float:
    left, total = list(order), 0.0
    for document in order:
        total += float(scores[document] - np.log(np.exp(scores[left]).sum()))
        left.remove(document)
    return total
