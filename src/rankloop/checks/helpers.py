"""Candidates, feedback and trained learners for the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import Learner
from rankloop.core.types import Candidates, Feedback, Impression

Factory = Callable[[], Learner]
WIDTH = 6


def some_candidates(seed: int, n: int = 12, query: str = "q") -> Candidates:
    """n items with random features."""
    return Candidates(query, np.arange(n) + 100, np.random.default_rng(seed).random((n, WIDTH)))


def some_feedback(learner: Learner, impression: Impression, seed: int) -> Feedback:
    """Random clicks or grades for every position."""
    values = np.random.default_rng(seed).integers(0, 2, impression.k)
    return Feedback(learner.feedback, values.astype(np.float64))


def trained(factory: Factory, events: int = 15) -> Learner:
    """A learner that has learned from some events (and some grades, if it is fitted on those)."""
    learner, rng = factory(), np.random.default_rng(0)
    if hasattr(learner, "fit"):
        learner.fit(rng.random((12, WIDTH)), rng.integers(0, 3, 12), np.array([0, 6, 12]))
    if hasattr(learner, "label"):
        rng = np.random.default_rng(0)
        for t in range(events):
            learner.label(some_candidates(t, query=f"q{t % 3}"), rng.integers(0, 3, 12), np.random.default_rng(t))
    for t in range(events):
        play_round(learner, t)
    return learner


def fresh_and_trained(factory: Factory) -> Iterator[Learner]:
    """A learner that has learned nothing, and one that has learned from some events."""
    yield factory()
    yield trained(factory)


def play_round(learner: Learner, t: int, n: int = 12) -> None:
    """Rank and learn once."""
    rng = np.random.default_rng([7, t])
    shown = learner.rank(some_candidates(t, n, f"q{t % 3}"), 5, rng)
    learner.learn(shown, some_feedback(learner, shown, t), rng)


def learn_partial(learner: Learner, shown: Impression, whole: Feedback, m: int, rng: np.random.Generator) -> None:
    """Learn from the first m positions; a learner of grades may need `top` of them, and must then reject fewer."""
    feedback = Feedback(whole.kind, whole.values[:m])
    needed = min(getattr(learner, "top", 0), shown.k) if learner.feedback == "grades" else 0
    if feedback.values.size >= needed:
        learner.learn(shown, feedback, rng)
    else:
        assert_rejected(learner, "too few grades", f"{m} grades", lambda: learner.learn(shown, feedback, rng))


def assert_rejected(learner: Learner, what: str, text: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises `InvalidInput` with `text` in its message and leaves the state as it was."""
    before = {name: value.tobytes() for name, value in learner.state().items()}
    try:
        call()
        message = None
    except InvalidInput as error:
        message = str(error)
    assert message is not None, f"{what} was accepted"
    assert text in message, f"{what}: the message {message!r} does not contain {text!r}"
    assert {name: value.tobytes() for name, value in learner.state().items()} == before, f"{what} changed the state"


def snapshot(learner: Learner) -> dict[str, bytes | str]:
    """All values of a learner, learned or hidden, in a form that can be compared."""
    values = {f"state {name}": array.tobytes() for name, array in learner.state().items()}
    return values | {
        name: value.tobytes() if isinstance(value, np.ndarray) else repr(value) for name, value in vars(learner).items()
    }


def assert_unchanged(learner: Learner, before: dict[str, bytes | str], what: str) -> None:
    """Assert that a learner has the values of a snapshot."""
    changed = [name for name, value in snapshot(learner).items() if before.get(name) != value]
    assert not changed, f"{what} changed {', '.join(changed)}"


def same_state(a: Learner, b: Learner) -> bool:
    """Whether two learners have the same state, bit for bit."""
    one, other = a.state(), b.state()
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def same_impression(a: Impression, b: Impression) -> bool:
    """Whether two impressions are the same, bit for bit."""
    return codec.dump_impression(a) == codec.dump_impression(b)


def assert_finite(learner: Learner) -> None:
    """Assert that all numbers of the state are finite."""
    for name, array in learner.state().items():
        assert array.dtype.kind != "f" or np.isfinite(array).all(), f"state {name!r} is no longer finite"
