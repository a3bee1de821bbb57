"""The fold of one ranker: a learner, its place in the log, and what of it has been saved and published."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rankloop.core import codec
from rankloop.core.capabilities import InParts
from rankloop.core.errors import RankloopError
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Feedback, Impression
from rankloop.service.ranking.model import fixed_part, state_bytes
from rankloop.service.ranking.placement import feedback_without_pins
from rankloop.service.ranking.spec_changes import CarriedImpressions
from rankloop.service.storage.admin import Ranker
from rankloop.service.storage.experiments import Trial
from rankloop.service.storage.lineage import Change
from rankloop.service.storage.log import Outcome
from rankloop.service.training.load_estimator import Work

MANY = 2000  # queries that have changed from which on the whole state is published


class Publication(NamedTuple):
    """What was learned, on its way to those who rank."""

    name: str
    generation: int
    learned: int
    base: int | None  # the place in the log that it goes on from, if it is a part; None: it is whole
    arrays: dict[str, Array]


class Fold:
    """A learner and how far in the log it has come. Place and state move together, under a lock that only those take
    who learn, save or publish: nobody ranks with this learner."""

    def __init__(
        self,
        row: Ranker,
        learner: Learner,
        learned: int,
        running: Sequence[Trial] = (),
        changes: Sequence[Change] = (),
    ) -> None:
        self.row, self.learner, self.learned = row, learner, learned
        self._changes = list(changes)  # of the spec, the oldest first
        self._carried: dict[int, CarriedImpressions] = {}  # by the number of changes since the impression was shown
        self.generation = row.generation
        self.running = list(running)  # its experiments and guardrail
        self.held = False  # whether this process holds the lease and learns
        self.quarantined = False  # whether it is tried again after a quarantine, and has not been learned yet
        self.failures, self.rests_until = 0, 0.0  # in a row; monotonic: when it is tried again after them
        self.compiled = False  # whether its kernels are compiled or loaded; before that it is not learned
        self.turn = threading.Lock()  # one at a time works through the log
        self.snapshot_seq = self.version_seq = learned
        self.last_snapshot = self.last_version = self.last_count = 0.0  # monotonic seconds
        self.snapshot_cost = 0.0
        self.saving = self.copying = False  # whether a snapshot is under way; whether the state is being copied for it
        self.large = False  # whether the last one was saved in parts
        self.work = Work()
        self.counted_seq = -1  # outcomes that experiments have counted
        self.published = -1  # outcomes in what was published last
        self.last_published = self.publish_cost = 0.0
        self.last_part = self.part_cost = 0.0  # of those for other machines
        self._changed: set[str] | None = set() if isinstance(learner, InParts) else None  # queries since then
        self._unsent: set[str] | None = None  # queries since the last part for other machines; None: they get none
        self._sent = learned  # outcomes in that
        self._lock = threading.Lock()
        self._streams = Rng(row.spec.seed)

    def learn(self, outcome: Outcome) -> bool:
        """The next step; whether something was learned. An outcome that cannot be learned is passed over, now as in any
        replay: `learn` is all or nothing."""
        if outcome.seq != self.learned:
            raise RankloopError(f"outcome {outcome.seq} came where {self.learned} was due; the log has a gap")
        # Place and state move under one lock: a snapshot taken in between would learn this outcome again after a crash.
        due = outcome.seq + 1
        with self._lock:
            try:
                if not outcome.learn or outcome.body is None:
                    return False
                body = outcome.body
                impression = body if isinstance(body, Impression) else codec.load_impression(body)
                if self._changes and outcome.epoch < self._changes[-1].epoch:
                    impression = self._carry(impression, outcome.epoch)
                values = np.array(outcome.values, dtype=np.float64)
                feedback = feedback_without_pins(impression, Feedback(self.learner.feedback, values, outcome.viewed))
                self.learner.learn(impression, feedback, self._streams.for_event("learn", outcome.seq))
                if self._changed is not None:
                    self._changed.add(impression.query)
                if self._unsent is not None:
                    self._unsent.add(impression.query)
                return True
            except MemoryError:
                due = outcome.seq  # not the outcome's fault: it will be tried again
                raise
            finally:
                self.learned = due

    def _carry(self, impression: Impression, epoch: int) -> Impression:
        """An impression that was shown before the spec changed, as the learner takes it now."""
        since = [one for one in self._changes if one.epoch > epoch]
        if len(since) not in self._carried:
            after = msgspec.to_builtins(fixed_part(self.row.spec))
            self._carried[len(since)] = CarriedImpressions(self.learner, after, since)
        return self._carried[len(since)].carried(impression)

    def state(self) -> tuple[int, bytes]:
        """How far it has come, and its bytes there."""
        with self._lock:
            learned, arrays = self.learned, self.learner.state()
        return learned, state_bytes(self.row.spec, arrays)

    def copy(self) -> tuple[int, dict[str, Array]]:
        """How far it has come, and what it knows there, to be saved."""
        with self._lock:
            return self.learned, self.learner.state()

    def send_parts(self, wanted: bool) -> None:
        """Whether other machines are to follow by parts. These lead on from here: call it where a snapshot is made."""
        with self._lock:
            if not wanted or self._changed is None:
                self._unsent = None
            elif self._unsent is None:
                self._sent, self._unsent = self.learned, set()

    def part(self) -> Publication | None:
        """What has changed since the last part for other machines; None if nothing has, or they get none."""
        with self._lock:
            if not self._unsent or self.learned == self._sent:
                return None
            assert isinstance(self.learner, InParts)
            made = Publication(
                self.row.name, self.generation, self.learned, self._sent, self.learner.part(len(self._unsent))
            )
            self._sent, self._unsent = self.learned, set()
            return made

    def news(self, whole: bool = False) -> Publication:
        """What those who rank need to follow: all, or what has changed since the last time."""
        with self._lock:
            base = None
            if whole or self.published < 0 or self._changed is None or len(self._changed) > MANY:
                arrays = self.learner.state()
            else:
                assert isinstance(self.learner, InParts)
                base, arrays = self.published, self.learner.part(len(self._changed))
            made = Publication(self.row.name, self.generation, self.learned, base, arrays)
            self.published = self.learned
            if self._changed is not None:
                self._changed = set()
            return made
