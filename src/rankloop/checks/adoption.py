"""The rules of `adopt`: a learner takes a list that someone else ordered, and learns from its clicks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankloop.checks.rules import rule
from rankloop.checks.world import (
    WIDTH,
    Factory,
    assert_finite,
    everything,
    learns_from_a_cut,
    same_impression,
    same_state,
    some_candidates,
    some_feedback,
    taught,
)
from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array, Candidates, Feedback


def an_order(seed: int, k: int = 5, n: int = 12) -> Array:
    """k of n positions in a random order; seed 0 is the base order, which shadow mode shows."""
    return np.random.default_rng(seed).permutation(n)[:k] if seed else np.arange(k)


@rule
def adopt_shows_what_it_is_told(factory: Factory) -> None:
    """adopt shows exactly the order it is given, with the query and copies of the ids and rows that stand there."""
    for learner in (factory(), taught(factory)):
        for seed, k in ((0, 5), (1, 5), (2, 1), (3, 12)):
            candidates, order = some_candidates(seed), an_order(seed, k)
            assert candidates.features is not None
            shown = learner.adopt(candidates, order)
            assert shown.order.dtype == np.int64, f"order has type {shown.order.dtype}, not int64"
            assert shown.order.tolist() == order.tolist(), f"{shown.order.tolist()} shown, not {order.tolist()}"
            assert shown.query == candidates.query, f"query {shown.query!r} shown, not {candidates.query!r}"
            assert (shown.items == candidates.items[order]).all(), "items are not those at the positions told"
            if shown.features is not None:
                assert (shown.features == candidates.features[order]).all(), "features are not the rows told"
                assert not np.shares_memory(shown.features, candidates.features), "features are not copied"
            assert not np.shares_memory(shown.order, order), "the order is not copied: it may change before learn"


@rule
def adopt_is_pure(factory: Factory) -> None:
    """adopt changes neither the learner nor what it is given, and gives the same impression every time."""
    for learner in (factory(), taught(factory)):
        candidates, order = some_candidates(1), an_order(1)
        assert candidates.features is not None
        for array in (candidates.items, candidates.features, order):
            array.flags.writeable = False
        before = everything(learner)
        given = [array.tobytes() for array in (candidates.items, candidates.features, order)]
        one, other = (learner.adopt(candidates, order) for _ in range(2))
        changed = [name for name, value in everything(learner).items() if before.get(name) != value]
        assert not changed, f"{', '.join(changed)} changed while adopting"
        assert [array.tobytes() for array in (candidates.items, candidates.features, order)] == given, "inputs changed"
        assert same_impression(one, other), "the same order gave two different impressions"


@rule
def adopted_lists_teach(factory: Factory) -> None:
    """An adopted impression, through bytes and back, is learned from with feedback on the first m positions, any m."""
    for learner in (factory(), taught(factory)):
        for seed in range(3):
            for m in range(6):
                adopted = learner.adopt(some_candidates(seed), an_order(seed))
                shown = codec.load_impression(codec.dump_impression(adopted))
                whole = some_feedback(learner, shown, 10 * seed + m)
                learns_from_a_cut(learner, shown, Feedback(whole.kind, whole.values[:m]), np.random.default_rng(m))
        assert_finite(learner)


@rule
def adopted_lists_repeat(factory: Factory) -> None:
    """Two equal learners that adopt the same lists and hear the same feedback end in the same bits."""
    for one, other in ((factory(), factory()), (taught(factory), taught(factory))):
        for t in range(8):
            for learner in (one, other):
                shown = learner.adopt(some_candidates(t), an_order(t))
                learner.learn(shown, some_feedback(learner, shown, t), np.random.default_rng(t))
        assert same_state(one, other), "the same adopted lists and feedback ended in two different states"


@rule
def its_own_list_can_be_adopted(factory: Factory) -> None:
    """The list that rank made can be adopted, by a learner that has gone on since too, and learned from."""
    for learner in (factory(), taught(factory)):
        for seed in range(5):
            candidates = some_candidates(seed)
            ranked = learner.rank(candidates, 5, np.random.default_rng(seed))
            learner.learn(ranked, some_feedback(learner, ranked, seed), np.random.default_rng(seed))
            shown = learner.adopt(candidates, ranked.order)
            assert (shown.items == ranked.items).all(), "the adopted list is not the one that was ranked"
            learner.learn(shown, some_feedback(learner, shown, seed), np.random.default_rng(seed))
        assert_finite(learner)


@rule
def a_bad_order_is_named(factory: Factory) -> None:
    """An order that is empty, a table, not integers, too long, out of range or doubled is named; so are features."""
    learner = taught(factory)
    rows = np.random.default_rng(0).random((3, WIDTH))
    good = Candidates("q", features=rows)
    cases: list[tuple[str, str, Candidates, Any]] = [
        ("an empty order", "at least one position", good, np.zeros(0, np.int64)),
        ("a table", "shape (1, 2)", good, np.array([[0, 1]])),
        ("positions that are not whole", "whole numbers", good, np.array([0.0, 1.5])),
        ("flags", "whole numbers", good, np.array([True, False])),
        ("too many positions", "4 positions for 3 candidates", good, np.array([0, 1, 2, 0])),
        ("a position beyond the list", "order[1] is 3", good, np.array([0, 3])),
        ("a position below 0", "order[0] is -1", good, np.array([-1, 0])),
        ("a doubled position", "position 2 stands twice", good, np.array([2, 0, 2])),
    ]
    if learner.contextual:
        cases.append(("wrong width", f"learned with {WIDTH}", Candidates("q", features=rows[:, :2]), np.arange(2)))
        cases.append(("no features", "needs features", Candidates("q", [1, 2]), np.arange(2)))
    before = everything(learner)
    for what, words, candidates, order in cases:
        try:
            learner.adopt(candidates, order)
            message = None
        except InvalidInput as error:
            message = str(error)
        assert message is not None, f"{what} was accepted"
        assert words in message, f"{what}: the message {message!r} does not say {words!r}"
    assert everything(learner) == before, "a bad order changed the learner"
