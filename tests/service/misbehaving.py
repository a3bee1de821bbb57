"""Learners that break their contract, each in one way. `install` puts them into the registry for a test."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from rankloop.core.learner import checked_values, load_state, make_impression, resolve_k, state_of
from rankloop.core.registry import LEARNERS, Entry
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from tests.service.running import PATIENCE


@dataclass
class Reverse:
    """Well behaved: the base order turned round; counts what it learned. The others break one thing of it."""

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.learned_: Array = np.zeros(1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:  # noqa: ARG002
        return make_impression(candidates, self.best(candidates, k))

    def adopt(self, candidates: Candidates, order: Array) -> Any:
        return make_impression(candidates, np.asarray(order))

    def best(self, candidates: Candidates, k: int) -> Any:
        return np.arange(candidates.n)[::-1][: resolve_k(candidates, k)].copy()

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        checked_values(self, impression, feedback)
        self.learned_ = self.learned_ + 1

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"learned_": (1,)})


@dataclass
class Grader(Reverse):
    """Well behaved, and learns from grades: it adds them up."""

    feedback: ClassVar[FeedbackKind] = "grades"

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        self.learned_ = self.learned_ + checked_values(self, impression, feedback).sum()


ERRORS: dict[str, type[BaseException]] = {
    "plain": ValueError,
    "memory": MemoryError,
    "stop": StopIteration,
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "timeout": TimeoutError,
}


@dataclass
class Raises(Reverse):
    """Raises in one of its methods."""

    where: str = "rank"
    what: str = "plain"

    def _raise(self, where: str) -> None:
        if self.where == where:
            raise ERRORS[self.what]("as it was told to")

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:
        self._raise("rank")
        return super().rank(candidates, k, rng)

    def adopt(self, candidates: Candidates, order: Array) -> Any:
        self._raise("adopt")
        return super().adopt(candidates, order)

    def best(self, candidates: Candidates, k: int) -> Any:
        self._raise("best")
        return super().best(candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        if impression.query == "poison":
            self._raise("learn")
        super().learn(impression, feedback, rng)


@dataclass
class Hangs(Reverse):
    """Does not come back from `rank` (or `best`) while it is held up, if the query says `hang`."""

    free: ClassVar[threading.Event] = threading.Event()
    always: bool = False
    where: str = "rank"

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:
        if self.always or (candidates.query == "hang" and self.where == "rank"):
            Hangs.free.wait(PATIENCE)
        return super().rank(candidates, k, rng)

    def best(self, candidates: Candidates, k: int) -> Any:
        if candidates.query == "hang" and self.where == "best":
            Hangs.free.wait(PATIENCE)
        return super().best(candidates, k)


@dataclass
class SlowToMake(Reverse):
    """Takes its time to be made, and with that to be loaded, while it is held up."""

    free: ClassVar[threading.Event] = threading.Event()
    waiting: ClassVar[threading.Semaphore] = threading.Semaphore(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not SlowToMake.free.is_set():
            SlowToMake.waiting.release()
            SlowToMake.free.wait(PATIENCE)


class Strange:
    """Something in the place of a list."""

    order = "abc"
    memo = None


def rubbish(kind: str, candidates: Candidates, k: int) -> Any:
    """What a broken learner might answer instead of a ranking of k candidates."""
    n, fine = candidates.n, np.arange(k)
    orders: dict[str, Any] = {
        "short": fine[:-1],
        "long": np.arange(k + 1),
        "empty": fine[:0],
        "high": np.where(fine == k - 1, n, fine),
        "negative": fine - 1,
        "twice": np.zeros(k, np.int64),
        "floats": fine.astype(np.float64),
        "flags": np.ones(k, np.bool_),
        "text": fine.astype(str),
        "table": fine.reshape(1, -1),
        "lists": fine.tolist(),
    }
    memos: dict[str, Any] = {
        "memo-none": None,
        "memo-list": {"scores": [1, 2]},
        "memo-object": {"scores": np.array([object()])},
        "memo-not-a-mapping": 7,
    }
    others: dict[str, Any] = {"none": None, "number": 3, "strange": Strange(), "tuple": (fine, fine)}
    if kind in orders:
        return Impression(candidates.query, orders[kind], candidates.items, None, {})
    if kind in memos:
        return Impression(candidates.query, fine, candidates.items[fine], None, memos[kind])
    if kind == "other-items":
        return Impression("another query", fine, np.array(["x"] * k), np.zeros((k, 2)), {})
    return others[kind]


RUBBISH: tuple[str, ...] = (
    *("short", "long", "empty", "high", "negative", "twice", "floats", "flags", "text", "table"),
    *("memo-object", "memo-not-a-mapping", "none", "number", "strange", "tuple"),
)
HARMLESS = (
    "lists",
    "memo-none",
    "memo-list",
    "other-items",
)  # a ranking all the same: what is shown is taken from the request


@dataclass
class Rubbish(Reverse):
    """Answers with something that is not a ranking."""

    kind: str = "none"
    where: str = "rank"

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:
        if self.where == "rank":
            return rubbish(self.kind, candidates, resolve_k(candidates, k))
        return super().rank(candidates, k, rng)

    def adopt(self, candidates: Candidates, order: Array) -> Any:
        if self.where == "adopt":
            return rubbish(self.kind, candidates, len(order))
        return super().adopt(candidates, order)

    def best(self, candidates: Candidates, k: int) -> Any:
        if self.where == "best":
            made = rubbish(self.kind, candidates, resolve_k(candidates, k))
            return getattr(made, "order", made)
        return super().best(candidates, k)


@dataclass
class Disobedient(Reverse):
    """Adopts another order than the one it is told."""

    in_place: bool = False

    def adopt(self, candidates: Candidates, order: Array) -> Any:
        turned = order[::-1].copy()
        if self.in_place:
            order[:] = turned
        return make_impression(candidates, turned)


@dataclass
class NotANumber(Reverse):
    """Has NaN for weights, so that every score is one."""

    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.theta_: Array = np.full(3, np.nan)

    def state(self) -> dict[str, Array]:
        return {"learned_": self.learned_.copy()}

    def load(self, state: Mapping[str, Array]) -> None:
        self.learned_ = np.array(state["learned_"])


@dataclass
class Vandal(Reverse):
    """Writes into the features it was given."""

    contextual: ClassVar[bool] = True

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:
        assert candidates.features is not None
        candidates.features[:] = np.nan
        return super().rank(candidates, k, rng)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register them all, under their names in small letters, until the test ends."""
    for cls in (Reverse, Grader, Raises, Hangs, SlowToMake, Rubbish, Disobedient, NotANumber, Vandal):
        entry = Entry(f"{__name__}:{cls.__name__}", "baselines", "for tests")
        monkeypatch.setitem(LEARNERS, cls.__name__.lower(), entry)
    assert __name__ in sys.modules
