"""PairRank in batches: where they end is in the log alone, and whatever happens in between changes no bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from rankloop.learners.pairwise._batches import end_of

from rankloop.core import codec
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner, clone
from rankloop.core.registry import make
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import batches
from rankloop.learners import Hybrid, PairRank
from tests.reference import batches as naive

LIKED = np.array([1.0, -0.5, 0.25, 0.0, -1.0])


def lists(count: int, seed: int = 3) -> list[tuple[Impression, Feedback]]:
    """Of four, as a fresh learner shows them; one in six has no click, and teaches nothing."""
    streams, found = Rng(seed), []
    for t in range(count):
        world = streams.for_event("world", t)
        candidates = Candidates(f"q{t % 7}", None, world.integers(-8, 9, (6, LIKED.size)) / 8.0)
        shown = PairRank().rank(candidates, 4, streams.for_event("rank", t))
        clicks = (shown.features @ LIKED > 0.2).astype(np.float64) * (t % 6 != 2)
        found.append((shown, Feedback.clicks(clicks)))
    return found


def taught(learner: Any, seen: list[tuple[Impression, Feedback]], first: int = 0) -> Any:
    streams = Rng(5)
    for t, (shown, told) in enumerate(seen, first):
        learner.learn(shown, told, streams.for_event("learn", t))
    return learner


def pairs_of(told: Feedback) -> list[tuple[int, int]]:
    """Clicked and skipped, down to one below the last click."""
    clicks = told.values
    looked = min(int(np.flatnonzero(clicks)[-1]) + 2, clicks.size) if clicks.any() else 0
    return [(a, b) for a in range(looked) for b in range(looked) if clicks[a] > clicks[b]]


def same(one: Learner, other: Learner) -> bool:
    a, b = one.state(), other.state()
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def resumed(learner: Any) -> Any:
    """As it goes on after a crash: its state through bytes, into a fresh one."""
    fresh = clone(learner)
    fresh.load(codec.loads(codec.dumps(learner.state()))[0])
    return fresh


@pytest.mark.parametrize("batch", [2, 8, 64])
def test_the_model_moves_where_a_batch_ends_and_nowhere_else(batch: int) -> None:
    learner, seen, moved = PairRank(batch=batch), lists(150), []
    for t, (shown, told) in enumerate(seen):
        before = learner.theta_.tobytes(), learner.inverse_.tobytes()
        learner.learn(shown, told, np.random.default_rng(t))
        if (learner.theta_.tobytes(), learner.inverse_.tobytes()) != before:
            moved.append(t + 1)
    teach = [bool(pairs_of(told)) for _, told in seen]
    ends = naive.ends(150, batch)
    assert moved == [end for start, end in pairwise([0, *ends]) if any(teach[start:end])]


def test_batches_begin_small_and_grow_to_their_size() -> None:
    ends, at = [], 0
    while at < 2000:
        at = end_of(at, 64)
        ends.append(at)
    assert ends == [end for end in naive.ends(2000 + 64, 64) if end < 2000 + 64][: len(ends)]
    assert ends[:17] == [*range(1, 17), 18]
    assert ends[-1] - ends[-2] == 64


@pytest.mark.parametrize(
    "parameters",
    [{"batch": 16}, {"batch": 16, "init": "base"}, {"batch": 8, "forget": 0.95}, {"batch": 5, "pairs": "matched"}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["pairrank", "hybrid"])
def test_stopped_anywhere_it_goes_on_to_the_same_bits(kind: str, parameters: dict[str, Any]) -> None:
    seen = lists(60)
    whole = taught(make(kind, **parameters), seen)
    cut: Any = make(kind, **parameters)
    for t in range(60):  # killed after every single outcome
        cut = taught(resumed(cut), seen[t : t + 1], t)
    assert same(whole, cut)


def test_a_batch_is_the_sum_of_its_lists() -> None:
    """By the twin: H and gradient at the θ with which the batch began, then one solve."""
    learner, seen = PairRank(batch=4, debias="none", tempered=False), lists(80, seed=4)
    taught(learner, seen[:40])
    while learner.gathered_[0] != learner.gathered_[1]:
        taught(learner, seen[int(learner.gathered_[0]) :][:1])
    theta, precision, first = learner.theta_, np.linalg.inv(learner.inverse_), int(learner.gathered_[0])
    push, last = np.zeros(theta.size), end_of(first, 4)
    assert last == first + 4
    for shown, told in seen[first:last]:
        pairs = pairs_of(told)
        precision, more = naive.gather(theta, precision, shown.features, pairs, [1.0] * len(pairs))
        push = push + more
    taught(learner, seen[first:last])
    assert learner.inverse_ == pytest.approx(np.linalg.inv(precision), rel=1e-8, abs=1e-10)
    assert learner.theta_ == pytest.approx(theta + np.linalg.inv(precision) @ push, rel=1e-8, abs=1e-10)


def test_what_is_certain_between_ends_is_what_was_at_the_last() -> None:
    learner, seen = taught(PairRank(batch=64), lists(130)), lists(140)[130:]
    candidates = Candidates("q", None, np.arange(30).reshape(6, 5) % 7 / 7.0)
    before = learner.rank(candidates, 6, np.random.default_rng(1)), learner.blocks(candidates)
    taught(learner, seen)
    assert learner.gathered_[1] <= 130
    after = learner.rank(candidates, 6, np.random.default_rng(1)), learner.blocks(candidates)
    assert before[0].order.tolist() == after[0].order.tolist()
    assert before[1].tolist() == after[1].tolist()


def test_it_learns_what_a_step_a_list_learns() -> None:
    seen = lists(600)
    one, many = taught(PairRank(), seen), taught(PairRank(batch=64), seen)
    cosine = one.theta_ @ many.theta_ / np.sqrt((one.theta_ @ one.theta_) * (many.theta_ @ many.theta_))
    assert cosine > 0.99
    assert many.theta_ @ LIKED / np.sqrt((many.theta_ @ many.theta_) * (LIKED @ LIKED)) > 0.9


def test_memory_of_queries_does_not_wait() -> None:
    """What belongs to one query is learned at once: it costs next to nothing."""
    learner = taught(Hybrid(batch=64), lists(130))
    theta, known = learner.theta_.tobytes(), learner.state()["memory_own_"].tobytes()
    taught(learner, lists(133)[130:])
    assert learner.theta_.tobytes() == theta
    assert learner.state()["memory_own_"].tobytes() != known


def test_an_end_that_fails_is_as_if_nothing_had_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no memory for the step; the list comes again then, and must not count twice."""
    seen = lists(90)
    learner, whole = taught(PairRank(batch=8), seen[:5]), taught(PairRank(batch=8), seen)

    def full(_: Array) -> Array:
        raise MemoryError

    for t, (shown, told) in enumerate(seen[5:], 5):
        if end_of(int(learner.gathered_[1]), 8) == t + 1:
            with monkeypatch.context() as patch:
                patch.setattr(batches, "half_inverse", full)
                before = learner.state()
                try:
                    learner.learn(shown, told, Rng(5).for_event("learn", t))
                except MemoryError:
                    assert {name: array.tobytes() for name, array in learner.state().items()} == {
                        name: array.tobytes() for name, array in before.items()
                    }
                else:  # nothing had been gathered: no step was needed
                    continue
        learner.learn(shown, told, Rng(5).for_event("learn", t))
    assert same(learner, whole)


def test_features_of_another_size_change_nothing_of_the_order() -> None:
    growth = np.array([2.0, 0.5, 4.0, 1.0, 0.25])
    learner = taught(PairRank(batch=64), lists(130))
    push, theta = learner.push_, learner.theta_
    learner.rescale(growth)
    assert learner.push_ == pytest.approx(push / growth)
    assert learner.theta_ == pytest.approx(theta * growth)


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 2.5}, "batch is 2.5"),
        ({"batch": True}, "batch is True"),
        ({"batch": 2**21}, "at most 1048576"),
        ({"batch": 8, "update": "refit"}, "batch is 8"),
        ({"batch": 8, "confidence": "diagonal"}, "batch is 8"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(parameters: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidParameter, match=wrong):
        PairRank(**parameters)


def test_rivals_are_compared_list_by_list() -> None:
    with pytest.raises(InvalidParameter, match="batch is 8; it must be 1"):
        make("adaptive", batch=8)


def test_a_state_of_another_batch_is_refused() -> None:
    state = taught(PairRank(batch=64), lists(600)).state()
    with pytest.raises(InvalidInput, match="restore it with the batch it was learned with"):
        PairRank(batch=4).load(state)
    with pytest.raises(InvalidInput, match="PairRank learns"):
        PairRank().load(state)
