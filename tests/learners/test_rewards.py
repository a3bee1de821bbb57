"""Rewards between 0 and 1, and lists of which is known how far down they were seen: what learners make of them."""

from __future__ import annotations

import numpy as np
import pytest

import rankloop
from rankloop.core import codec, registry
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import bernoulli_clicks
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels import preferences

CLICKS = sorted(name for name in registry.LEARNERS if registry.learner_class(name).feedback == "clicks")
OWN = ["pairrank", "pdgd", "greedy", "hybrid"]  # pairwise, quick


def world(n: int = 6) -> Candidates:
    return Candidates("shoes", [f"item{i}" for i in range(n)], np.eye(n))


def taught(name: str, worth: Array, rounds: int, seen: int | None = None) -> rankloop.Learner:
    """A learner after lists of the same six items, of which item i is clicked now and then and worth `worth[i]`."""
    learner, items = rankloop.make(name), world()
    for t in range(rounds):
        shown = learner.rank(items, 6, np.random.default_rng([1, t]))
        coins = np.random.default_rng([2, t]).random(6)
        clicked = coins[shown.order] < 0.5
        values = np.where(clicked, worth[shown.order], 0.0)
        learner.learn(shown, Feedback.clicks(values, seen), np.random.default_rng([3, t]))
    return learner


@pytest.mark.parametrize("name", OWN)
def test_what_is_worth_more_comes_first_though_it_is_clicked_as_often(name: str) -> None:
    """Every item is clicked half of the time; only what a click is worth differs."""
    worth = np.array([0.1, 0.9, 0.1, 0.5, 0.1, 0.1])
    order = taught(name, worth, 300).best(world(), 2)
    assert order.tolist() == [1, 3]


@pytest.mark.parametrize("name", ["cascade-klucb", "toprank", "bubblerank", "batchrank"])
def test_bandits_that_count_learn_rewards_by_a_coin(name: str) -> None:
    worth = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 1.0])
    learner = taught(name, worth, 1500)
    assert learner.best(world(), 1).tolist() == [5]


def test_the_sign_of_a_preference_is_that_of_the_mean_rewards() -> None:
    """An item that is clicked rarely but bought then is worth more than one that is clicked twice as often.

    Counted without their differences, the pairs would say the opposite.
    """
    rng = np.random.default_rng(5)
    rare, often = (rng.random(20_000) < 0.3) * 1.0, (rng.random(20_000) < 0.6) * 0.3
    pairs, weights = [], []
    for values in np.stack([rare, often], axis=1):
        found = preferences.click_pairs(values, False, 2, preferences.ALL, values)
        pairs += found[:, 0].tolist()
        weights += preferences.differences(values, found).tolist()
    first = np.array(pairs) == 0
    assert first.mean() < 0.5
    assert np.average(first, weights=weights) > 0.5


@pytest.mark.parametrize("name", CLICKS)
def test_plain_clicks_teach_what_they_always_did(name: str) -> None:
    """1.0 as a reward is a click, and to have seen just what is taken as seen changes nothing."""
    try:
        learner, again = rankloop.make(name), rankloop.make(name)
    except ImportError as error:
        pytest.skip(f"{name} needs a library that is not here: {error}")
    items = world()
    for t in range(5):
        shown = learner.rank(items, 4, np.random.default_rng([1, t]))
        clicks = Feedback.clicked(shown, [shown.items[1]])
        rewards = Feedback.rewards(shown, {shown.items[1]: 1.0})
        learner.learn(shown, clicks, np.random.default_rng([2, t]))
        again.learn(shown, rewards, np.random.default_rng([2, t]))
    assert codec.dumps(learner.state()) == codec.dumps(again.state())


@pytest.mark.parametrize("name", OWN)
def test_what_was_not_seen_was_not_skipped(name: str) -> None:
    """A click on the first and nothing else in view: nobody preferred it to what is below."""
    learner, items = rankloop.make(name), world()
    fresh = codec.dumps(learner.state())
    shown = learner.rank(items, 6, np.random.default_rng(1))
    learner.learn(shown, Feedback.clicks([1, 0, 0], seen=1), np.random.default_rng(2))
    assert codec.dumps(learner.state()) == fresh
    learner.learn(shown, Feedback.clicks([1, 0, 0], seen=6), np.random.default_rng(2))
    assert codec.dumps(learner.state()) != fresh


def test_a_cascading_bandit_counts_what_was_seen() -> None:
    learner, items = rankloop.make("cascade-klucb"), Candidates("q", ["a", "b", "c", "d"])
    shown = learner.adopt(items, np.arange(4))
    learner.learn(shown, Feedback.clicks([], seen=2), np.random.default_rng(0))
    assert sorted(learner.state()["shows_"].tolist()) == [1, 1]


@pytest.mark.parametrize(("values", "seen", "wrong"), [([2.0], None, "from 0 to 1"), ([1.0], 9, "seen is 9")])
def test_bad_rewards_and_views_are_named(values: list[float], seen: int | None, wrong: str) -> None:
    learner, items = rankloop.make("pairrank"), world()
    shown = learner.rank(items, 3, np.random.default_rng(1))
    with pytest.raises(InvalidInput, match=wrong):
        learner.learn(shown, Feedback.clicks(values, seen), np.random.default_rng(2))


def test_a_coin_is_fair_and_plain_clicks_need_none() -> None:
    values = np.array([0.0, 0.3, 1.0])
    rng = np.random.default_rng(3)
    means = np.mean([bernoulli_clicks(values, rng) for _ in range(4000)], axis=0)
    assert means == pytest.approx(values, abs=4 * (0.3 * 0.7 / 4000) ** 0.5)
    before = rng.bit_generator.state
    assert bernoulli_clicks(np.array([0.0, 1.0]), rng).tolist() == [0.0, 1.0]
    assert rng.bit_generator.state == before
