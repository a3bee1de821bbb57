"""A small world for the checks to live in: candidates, feedback, a learner that has seen some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import Learner
from rankloop.core.types import Array, Candidates, Feedback, Impression

Factory = Callable[[], Learner]
WIDTH = 6


def some_candidates(seed: int, n: int = 12, query: str = "q") -> Candidates:
    """n items with random features."""
    return Candidates(query, np.arange(n) + 100, np.random.default_rng(seed).random((n, WIDTH)))


def some_feedback(learner: Learner, impression: Impression, seed: int) -> Feedback:
    """Random clicks or grades for every slot."""
    values = np.random.default_rng(seed).integers(0, 2, impression.k)
    return Feedback(learner.feedback, values.astype(np.float64))


def learns_from_a_cut(learner: Learner, shown: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
    """Learn from feedback that was cut off; a learner of grades may want `top` of them, and must then refuse fewer."""
    wanted = min(getattr(learner, "top", 0), shown.k) if learner.feedback == "grades" else 0
    if feedback.values.size >= wanted:
        learner.learn(shown, feedback, rng)
        return
    before = everything(learner)
    try:
        learner.learn(shown, feedback, rng)
        message = None
    except InvalidInput as error:
        message = str(error)
    assert message is not None, f"{feedback.values.size} grades were taken where the learner asks for {wanted}"
    assert f"{feedback.values.size} grades" in message, f"the message {message!r} does not say how many came"
    assert everything(learner) == before, "too few grades changed the learner"


def taught(factory: Factory, events: int = 15) -> Learner:
    """A learner that has seen some events (and some grades, if it is fitted on those)."""
    learner = factory()
    if hasattr(learner, "fit"):
        rng = np.random.default_rng(0)
        learner.fit(rng.random((12, WIDTH)), rng.integers(0, 3, 12), np.array([0, 6, 12]))
    if hasattr(learner, "label"):
        rng = np.random.default_rng(0)
        for t in range(events):
            learner.label(some_candidates(t, query=f"q{t % 3}"), rng.integers(0, 3, 12), np.random.default_rng(t))
    for t in range(events):
        one_round(learner, t)
    return learner


def one_round(learner: Learner, t: int, n: int = 12) -> None:
    """Rank and learn once."""
    rng = np.random.default_rng([7, t])
    shown = learner.rank(some_candidates(t, n, f"q{t % 3}"), 5, rng)
    learner.learn(shown, some_feedback(learner, shown, t), rng)


def everything(learner: Learner) -> dict[str, bytes | str]:
    """All that an object holds, learned or hidden, as values that can be compared."""
    held = {f"state {name}": array.tobytes() for name, array in learner.state().items()}
    return held | {
        name: value.tobytes() if isinstance(value, np.ndarray) else repr(value) for name, value in vars(learner).items()
    }


def same_state(a: Learner, b: Learner) -> bool:
    """Whether two learners know the same, bit for bit."""
    one, other = a.state(), b.state()
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def same_impression(a: Impression, b: Impression) -> bool:
    """Whether two lists are the same, bit for bit."""
    return codec.dump_impression(a) == codec.dump_impression(b)


def relevant_items(candidates: Candidates, truth: Array) -> Array:
    """The three items with the highest true scores have grade 1."""
    assert candidates.features is not None
    scores = candidates.features @ truth
    return np.asarray(scores >= np.sort(scores)[-3], dtype=np.int64)


def docstrings(learner: Learner) -> str:
    """What the docstrings of a learner's class and of those it builds on say."""
    return "\n".join(cls.__doc__ or "" for cls in type(learner).__mro__[:-1])


def assert_finite(learner: Learner) -> None:
    """No number of the state has run away."""
    for name, array in learner.state().items():
        assert array.dtype.kind != "f" or np.isfinite(array).all(), f"state {name!r} is no longer finite"
