"""A fold's state and its place in the log belong together, whoever asks and whenever."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.errors import RankloopError
from rankloop.core.learner import make_impression
from rankloop.core.types import Array, Candidates, FeedbackKind, Impression
from rankloop.service.storage import Outcome
from rankloop.service.storage.rankers import Ranker
from rankloop.service.training.fold import Fold
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Service, names, teach, until

ROW = Ranker("shop", Spec(), 0.0, 0, 0, 0, True, None)


@dataclass
class Counting:
    """Counts what it has learned; every fifth outcome it cannot learn."""

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.count_: Array = np.zeros(1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:  # noqa: ARG002
        return make_impression(candidates, np.arange(k))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return make_impression(candidates, order)

    def best(self, candidates: Candidates, k: int) -> Array:  # noqa: ARG002
        return np.arange(k)

    def learn(self, impression: Impression, feedback: Any, rng: Any) -> None:  # noqa: ARG002
        if self.count_[0] % 5 == 4:
            self.count_ = self.count_ + 1
            raise ValueError("every fifth")
        self.count_ = self.count_ + 1

    def state(self) -> dict[str, Array]:
        return {"count_": self.count_.copy()}

    def load(self, state: Any) -> None:
        self.count_ = state["count_"]


class Dawdling(Fold):
    """Takes its time between learning an outcome and saying so."""

    @property
    def learned(self) -> int:
        return self._learned

    @learned.setter
    def learned(self, value: int) -> None:
        time.sleep(0.0005)
        self._learned = value


def outcome(seq: int) -> Outcome:
    shown = make_impression(Candidates("", ["a", "b"]), np.arange(2))
    return Outcome(seq, True, 0, codec.dump_impression(shown), [0.0, 1.0])


def test_a_state_taken_while_learning_is_of_the_place_it_says() -> None:
    """A snapshot one outcome ahead of its number would learn that outcome twice after a crash."""
    fold, ended = Dawdling(ROW, Counting(), 0), threading.Event()
    wrong: list[tuple[int, float]] = []

    def look() -> None:
        while not ended.is_set():
            learned, state = fold.state()
            count = codec.loads(state)[0]["count_"][0]
            if count != learned:
                wrong.append((learned, count))

    watchers = [threading.Thread(target=look) for _ in range(3)]
    try:
        for watcher in watchers:
            watcher.start()
        for seq in range(200):
            try:
                fold.learn(outcome(seq))
            except ValueError:
                assert seq % 5 == 4
    finally:
        ended.set()
        for watcher in watchers:
            watcher.join()
    assert not wrong
    assert fold.learned == 200


def test_what_cannot_be_learned_is_passed_over_once() -> None:
    fold = Fold(ROW, Counting(), 0)
    assert not fold.learn(outcome(0)._replace(learn=False))
    assert not fold.learn(outcome(1)._replace(body=None))
    with pytest.raises(RankloopError):
        fold.learn(outcome(2)._replace(body=b"rubbish"))
    assert fold.learn(outcome(3))
    assert fold.learned == 4
    with pytest.raises(RankloopError):
        fold.learn(outcome(9))
    assert fold.learned == 4


def test_a_large_state_is_saved_in_parts_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.snapshots.LARGE", 100)
    monkeypatch.setattr("rankloop.service.training.snapshots.PART", 64)
    with Service(tmp_path / "a.db", snapshot_seconds=0.01) as one:
        one.ready().put("shop", learner="pairrank", features=names(3), exposure="full")
        teach(one, "shop", 20)
        until(lambda: one.status("shop")["snapshot_impressions"] == 20, "a snapshot")
        before = one.state("shop")

        def kept() -> list[tuple[int, bool]]:
            rows = one.engine.database.read(lambda c: c.rows("SELECT seq, COUNT(*) FROM snapshot_chunks GROUP BY seq"))
            return [(int(seq), count > 5) for seq, count in rows]

        until(lambda: kept() == [(20, True)], "only those of the last one to be left")
    with Service(tmp_path / "a.db") as again:
        again.ready()
        assert again.state("shop") == before
