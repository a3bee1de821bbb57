"""The fold of one ranker: a learner, its place in the log, and what of it was saved and published."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rankloop.core import codec
from rankloop.core.capabilities import StateDeltas
from rankloop.core.errors import RankloopError
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Feedback, Impression
from rankloop.service.ranking.model import fixed_part, state_bytes
from rankloop.service.ranking.placement import feedback_without_pins
from rankloop.service.ranking.spec_changes import CarriedImpressions
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.outcomes import Outcome
from rankloop.service.storage.rankers import Ranker

MAX_CHANGED_QUERIES = 2000  # above it the whole state is published
RATE_SECONDS = 20.0  # over which the rate of outcomes is smoothed
COST_OUTCOMES = 200.0  # over which the time per outcome is smoothed
CHANGE, MIN_CHANGE = 0.1, 0.005  # of a load, relative and in cores: smaller ones are not reported to others


class Publication(NamedTuple):
    """What was learned, for the ranking processes."""

    name: str
    generation: int
    learned: int
    base: int | None  # of a delta: the outcomes that its receiver must know; None: a whole state
    arrays: dict[str, Array]


class Fold:
    """A learner and how far it is in the log; both change together under a lock. Nobody ranks with this learner."""

    def __init__(self, row: Ranker, learner: Learner, learned: int, changes: Sequence[RecordedChange] = ()) -> None:
        self.row, self.learner, self.learned = row, learner, learned
        self._changes = list(changes)  # of the spec, the oldest first
        self._carried: dict[int, CarriedImpressions] = {}  # by the number of changes since the impression was shown
        self.generation = row.generation
        self.held = False  # whether this process holds the lease and learns
        self.quarantined = False  # whether it is tried again after a quarantine, and has not learned yet
        self.failures, self.retry_at = 0, 0.0  # in a row; monotonic: when it is tried again
        self.compiled = False  # whether its kernels are compiled; before that it is not learned
        self.in_use = threading.Lock()  # held by the thread that calls the learner
        self.snapshot_seq = self.version_seq = learned
        self.last_snapshot = self.last_version = 0.0  # monotonic seconds
        self.snapshot_cost = 0.0
        self.saving = self.copying = False  # whether a snapshot is under way; whether the state is being copied for it
        self.large = False  # whether the last one was saved in parts
        self.load_estimator = LoadEstimator()
        self.published = -1  # outcomes in what was published last
        self.last_published = self.publish_cost = 0.0
        self.last_delta = self.delta_cost = 0.0  # of those for other machines
        self._changed: set[str] | None = set() if isinstance(learner, StateDeltas) else None  # queries since then
        self._unsent: set[str] | None = None  # queries since the last delta for other machines; None: they get none
        self._sent = learned  # outcomes in that
        self._lock = threading.Lock()
        self._streams = Rng(row.spec.seed)

    def learn(self, outcome: Outcome) -> bool:
        """The next step; whether something was learned. An outcome that raises is skipped, as in any replay: `learn` is
        all or nothing."""
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
                due = outcome.seq  # not the outcome's fault: it is tried again
                raise
            finally:
                self.learned = due

    def _carry(self, impression: Impression, epoch: int) -> Impression:
        """An impression that was shown before the spec changed, converted to the present spec."""
        since = [one for one in self._changes if one.epoch > epoch]
        if len(since) not in self._carried:
            after = msgspec.to_builtins(fixed_part(self.row.spec))
            self._carried[len(since)] = CarriedImpressions(self.learner, after, since)
        return self._carried[len(since)].carried(impression)

    def state(self) -> tuple[int, bytes]:
        """(outcomes, bytes of the state)."""
        with self._lock:
            learned, arrays = self.learned, self.learner.state()
        return learned, state_bytes(self.row.spec, arrays)

    def copy(self) -> tuple[int, dict[str, Array]]:
        """(outcomes, state), to be saved."""
        with self._lock:
            return self.learned, self.learner.state()

    def send_deltas(self, wanted: bool) -> None:
        """Whether other machines follow by deltas. These continue from here: call it when a snapshot is made."""
        with self._lock:
            if not wanted or self._changed is None:
                self._unsent = None
            elif self._unsent is None:
                self._sent, self._unsent = self.learned, set()

    def next_delta(self) -> Publication | None:
        """What has changed since the last delta for other machines; None if nothing has, or they get none."""
        with self._lock:
            if not self._unsent or self.learned == self._sent:
                return None
            assert isinstance(self.learner, StateDeltas)
            made = Publication(
                self.row.name, self.generation, self.learned, self._sent, self.learner.state_delta(len(self._unsent))
            )
            self._sent, self._unsent = self.learned, set()
            return made

    def next_publication(self, whole: bool = False) -> Publication:
        """For the ranking processes of this machine: the whole state, or what has changed since the last time."""
        with self._lock:
            base = None
            if whole or self.published < 0 or self._changed is None or len(self._changed) > MAX_CHANGED_QUERIES:
                arrays = self.learner.state()
            else:
                assert isinstance(self.learner, StateDeltas)
                base, arrays = self.published, self.learner.state_delta(len(self._changed))
            made = Publication(self.row.name, self.generation, self.learned, base, arrays)
            self.published = self.learned
            if self._changed is not None:
                self._changed = set()
            return made


class LoadEstimator:
    """What it takes to learn a ranker, as a share of a core: outcomes per second times seconds per outcome.

    Not the time that was spent: a process with too much to do spends all it has, whatever the backlog is.
    """

    def __init__(self) -> None:
        self._rate = self._cost = 0.0
        self._head, self._at, self._since = -1, 0.0, 0.0
        self._inherited = 0.0  # measured by whoever learned it before
        self.reported = 0.0  # what the other processes know

    def inherit(self, load: float) -> None:
        """Another process has measured it until now."""
        self._inherited = self.reported = load

    def logged(self, head: int, now: float) -> None:
        """So many outcomes are logged by now (monotonic)."""
        if self._head < 0:
            self._head, self._at, self._since = head, now, now
            return
        passed = now - self._at
        if passed <= 0:
            return
        share = 1.0 - math.exp(-passed / RATE_SECONDS)
        self._rate += share * ((head - self._head) / passed - self._rate)
        self._head, self._at = head, now

    def learned(self, outcomes: int, seconds: float) -> None:
        """So many outcomes were learned and published in so many seconds."""
        if outcomes > 0:
            share = 1.0 if self._cost == 0.0 else 1.0 - math.exp(-outcomes / COST_OUTCOMES)
            self._cost += share * (seconds / outcomes - self._cost)

    @property
    def load(self) -> float:
        """Share of a core. The inherited value counts until this process has measured for a while."""
        measured = self._rate * self._cost
        fresh = self._at - self._since < 2 * RATE_SECONDS
        return max(self._inherited, measured) if fresh else measured

    def to_report(self) -> float | None:
        """The load, if it differs enough from what the others know."""
        load = self.load
        return load if abs(load - self.reported) > max(MIN_CHANGE, CHANGE * self.reported) else None
