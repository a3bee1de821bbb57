"""A copy that follows a learner by parts ranks as the learner does, bit for bit, whatever was evicted or moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.core import registry
from rankloop.core.capabilities import StateDeltas
from rankloop.core.learner import Learner
from rankloop.core.types import Candidates, Feedback, Impression

IN_PARTS = ["hybrid", "bubblerank", "batchrank", "toprank", "cascade-ucb1", "cascade-klucb", "rtopk-items", "ftpl-full"]


def made(name: str, **more: Any) -> Learner:
    most = {"max_queries": 5} if name == "hybrid" else {"max_queries": 5, "max_items": 6}
    return registry.make(name, **{**most, **more})


def test_the_list_of_learners_is_whole() -> None:
    found = []
    for name, entry in registry.LEARNERS.items():
        if entry.family != "neural" and entry.learns and isinstance(registry.make(name), StateDeltas):
            found.append(name)
    assert sorted(found) == sorted(IN_PARTS)


def asked(rng: np.random.Generator) -> Candidates:
    """Of eight queries, more than are kept, with items of ten, more than are kept of a query."""
    items = rng.permutation(10)[: rng.integers(2, 9)]
    return Candidates(f"q{rng.integers(8)}", items, np.sin(np.outer(items + 1, [1.0, 2.0, 3.0])))


def answered(learner: Learner, shown: Impression, rng: np.random.Generator) -> Feedback:
    values = (rng.random(shown.k) < 0.4).astype(float)
    return Feedback(learner.feedback, values * 2 if learner.feedback == "grades" else values)


def same(one: Impression, two: Impression) -> None:
    assert np.array_equal(one.order, two.order)
    assert one.memo.keys() == two.memo.keys()
    for name, value in one.memo.items():
        assert np.array_equal(value, two.memo[name]), name


@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("portion", [1, 3, 17])
def test_a_copy_follows(name: str, portion: int) -> None:
    rng = np.random.default_rng(portion)
    learner, copy = made(name), made(name)
    assert isinstance(learner, StateDeltas)
    assert isinstance(copy, StateDeltas)
    changed: set[str] = set()
    for t in range(150):
        shown = learner.rank(asked(rng), 5, np.random.default_rng(t))
        learner.learn(shown, answered(learner, shown, rng), np.random.default_rng(t))
        changed.add(shown.query)
        if t % portion == portion - 1:
            copy.apply_delta(learner.state_delta(len(changed)))
            changed = set()
            for q in range(8):
                again = asked(rng)
                again = Candidates(f"q{q}", again.items, again.features)
                same(learner.rank(again, 4, np.random.default_rng(q)), copy.rank(again, 4, np.random.default_rng(q)))
                assert np.array_equal(learner.best(again, 3), copy.best(again, 3))


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_copy_that_was_loaded_follows(name: str) -> None:
    rng = np.random.default_rng(9)
    learner, copy = made(name), made(name)
    assert isinstance(learner, StateDeltas)
    assert isinstance(copy, StateDeltas)
    for t in range(60):
        if t == 40:
            copy.load(learner.state())
        shown = learner.rank(asked(rng), 5, np.random.default_rng(t))
        learner.learn(shown, answered(learner, shown, rng), np.random.default_rng(t))
        if t >= 40:
            copy.apply_delta(learner.state_delta(1))
    for q in range(8):
        again = asked(rng)
        again = Candidates(f"q{q}", again.items, again.features)
        same(learner.rank(again, 4, np.random.default_rng(q)), copy.rank(again, 4, np.random.default_rng(q)))


@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("known", [40, 47, 60])
def test_a_copy_that_knows_some_of_a_part_takes_it(name: str, known: int) -> None:
    """Who has loaded a snapshot of the middle of a part, on another machine, follows from there."""
    rng = np.random.default_rng(known)
    learner, copy = made(name), made(name)
    assert isinstance(learner, StateDeltas)
    assert isinstance(copy, StateDeltas)
    changed: set[str] = set()
    for t in range(61):
        if t == known:
            copy.load(learner.state())
        shown = learner.rank(asked(rng), 5, np.random.default_rng(t))
        learner.learn(shown, answered(learner, shown, rng), np.random.default_rng(t))
        if t >= 40:
            changed.add(shown.query)
    copy.apply_delta(learner.state_delta(len(changed)))
    for q in range(8):
        again = asked(rng)
        again = Candidates(f"q{q}", again.items, again.features)
        same(learner.rank(again, 4, np.random.default_rng(q)), copy.rank(again, 4, np.random.default_rng(q)))
