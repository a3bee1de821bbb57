"""A ranker as one process knows it: its row in the store, the model that learns, the one that is served."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rankloop import registry
from rankloop.service.ranking.features import Schema
from rankloop.service.ranking.model import Model
from rankloop.service.store.admin import Ranker

if TYPE_CHECKING:
    from rankloop.service.experiments.mixing import Trials

HANGING = 3  # threads that may hang in a ranker's learner before it is not asked any more


class InFlight:
    """Who is in a learner now, and who hangs in it."""

    def __init__(self) -> None:
        self._asked: set[int] = set()  # impressions whose thread is in the learner
        self._given_up: set[int] = set()  # those of them that nobody waits for any more
        self._asking = threading.Lock()

    @contextmanager
    def asked(self, number: int) -> Iterator[None]:
        """While a thread asks the learner to rank for impression `number`."""
        with self._asking:
            self._asked.add(number)
        try:
            yield
        finally:
            with self._asking:
                self._asked.discard(number)
                self._given_up.discard(number)

    def given_up(self, number: int) -> None:
        """Nobody waits for impression `number`; a thread that has not begun, or has come back, does not hang."""
        with self._asking:
            if number in self._asked:
                self._given_up.add(number)

    @property
    def hanging(self) -> int:
        """How many threads hang in the learner."""
        return len(self._given_up)


class LiveRanker(InFlight):
    """What is needed to answer for a ranker without asking the store."""

    def __init__(self, row: Ranker, model: Model) -> None:
        super().__init__()
        self.row, self.model = row, model
        self.schema = Schema(row.spec)
        self.kind: str = registry.learner_class(row.spec.learner).feedback
        self.pinned: Model | None = None  # the promoted version, if one is served
        self.held = False  # whether this process holds the lease and learns
        self.warm = False
        self.turn = threading.Lock()  # one fold at a time: the learning thread's, or an operation's that needs the last
        self.trials: Trials | None = None  # experiments and guardrail, if there are any
        self.counts: Counter[str] = Counter()
        self.snapshot_seq = model.learned
        self.last_snapshot = self.last_version = self.last_count = 0.0  # monotonic seconds
        self.version_seq = model.learned
        self.counted_seq = -1  # outcomes that experiments have counted
        self.snapshot_cost = 0.0
        self._numbers: range = range(0)
        self._next = 0

    @property
    def serving(self) -> Model:
        """The model that ranks."""
        return self.pinned or self.model

    def version(self, learned: int) -> str:
        """What ranked, as answers say it."""
        return f"live@{learned}" if self.row.serving is None else f"v{self.row.serving}"

    def number(self) -> int | None:
        """The next impression's number, None if a new block must be reserved."""
        if self._next >= len(self._numbers):
            return None
        self._next += 1
        return self._numbers[self._next - 1]

    def refill(self, first: int, count: int) -> None:
        """Numbers `first` … belong to this process."""
        self._numbers, self._next = range(first, first + count), 0
