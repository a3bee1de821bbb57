"""Counters in the memory of a process that ranks: a fold over the log of each ranker whose features count.

Every ranking worker folds for itself, twice a second. Counters are stored with their place in the log now and then, so
a restart continues from there and each outcome is counted once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rankloop.core import codec
from rankloop.core.errors import CodecError
from rankloop.features.counters import CountedOutcome, Counters
from rankloop.features.declarations import Declaration
from rankloop.service.storage import Writer, outcomes
from rankloop.service.storage import counters as stored_counters
from rankloop.service.storage.counters import SavedCounters
from rankloop.service.storage.database import Database
from rankloop.service.worker.threads import RepeatingThread

LOOK_EVERY = 0.5  # seconds
PORTION = 500  # outcomes read at a time
SAVE_SECONDS = 30.0  # age of stored counters before newer ones are stored
logger = logging.getLogger("rankloop")


class RankerCounters:
    """The counters of one ranker and how far in its log they are."""

    def __init__(self, name: str, counters: Counters) -> None:
        self.name, self.counters = name, counters
        self.seq = 0  # of the next outcome
        self.head = 0  # of the log at the last look
        self.forgotten: set[str] = set()  # ids of erasures that were applied
        self.saved = -1
        self.last_saved = time.monotonic()
        self.replace = False  # whether the stored counters are of other declarations, or include an erased user

    @property
    def behind(self) -> int:
        """Outcomes not counted yet."""
        return max(0, self.head - self.seq)

    def fold(self, noted: Iterable[stored_counters.CounterInput]) -> None:
        """Count outcomes."""
        for one in noted:
            if one.notes is not None:
                try:
                    notes = codec.loads(one.notes, f"the notes of outcome {one.seq}")[0]
                    self.counters.fold(CountedOutcome(one.created, np.array(one.values, np.float64), notes, one.viewed))
                except (CodecError, ValueError, KeyError, IndexError) as error:  # as in any rebuild
                    logger.error("ranker %s: outcome %d cannot be counted: %s", self.name, one.seq, error)
            self.seq = one.seq + 1


class CounterCache(dict[str, RankerCounters]):
    """Name of a ranker -> its counters, if its features count."""

    def __init__(
        self, database: Database, writer: Callable[[], Writer], clock: Callable[[], float], capacity: int
    ) -> None:
        super().__init__()
        self._database, self._writer, self._clock, self._capacity = database, writer, clock, capacity
        self._folding = threading.Lock()
        self._thread: RepeatingThread | None = None

    def want(self, name: str, declarations: Sequence[Declaration]) -> Counters:
        """The counters of a ranker, up to the end of its log; the same object until its declarations change."""
        with self._folding:
            fresh = Counters(declarations, self._capacity)
            found = self.get(name)
            if found is None or found.counters.counted != fresh.counted:
                found = RankerCounters(name, fresh)
                self._load(found)
                self._catch_up(found)
                self[name] = found
            if self._thread is None:
                self._thread = RepeatingThread("counters", LOOK_EVERY, self.follow, self._database)
                self._thread.start()
        return found.counters

    def keep(self, names: Iterable[str]) -> None:
        """Drop the counters of other rankers."""
        with self._folding:
            for name in set(self).difference(names):
                del self[name]

    def follow(self) -> None:
        """Count new outcomes."""
        with self._folding:
            for one in list(self.values()):
                self._catch_up(one)
                self._save(one)

    def stop(self) -> None:
        """Stop following, and store the counters."""
        if self._thread is not None:
            self._thread.stop()
        with self._folding:
            for one in self.values():
                self._save(one, always=True)

    def _load(self, one: RankerCounters) -> None:
        found = self._database.read(lambda connection: stored_counters.saved(connection, one.name))
        if found is None:
            return
        try:
            one.counters.loads(found.state)
        except CodecError as error:
            one.replace = True
            logger.warning("ranker %s: its counters are rebuilt from the log: %s", one.name, error)
            return
        one.seq, one.forgotten, one.saved = found.seq, set(found.erased), found.seq

    def _catch_up(self, one: RankerCounters) -> None:
        while True:
            forgotten, one.head, noted = self._database.read(
                lambda c: (
                    stored_counters.erasures(c),
                    outcomes.log_offset(c, one.name) or 0,
                    stored_counters.counter_inputs(c, one.name, one.seq, PORTION),
                )
            )
            # Erasures come first: what is counted afterwards is newer, or has no notes.
            for mark, code in forgotten:
                if mark not in one.forgotten:
                    one.forgotten.add(mark)
                    one.replace = bool(one.counters.forget_code(int(code, 16))) or one.replace
            one.forgotten.intersection_update(mark for mark, _ in forgotten)
            one.fold(noted)
            if len(noted) < PORTION:
                one.seq = max(one.seq, one.head)
                return

    def _save(self, one: RankerCounters, always: bool = False) -> None:
        due = one.replace or always or time.monotonic() - one.last_saved > SAVE_SECONDS
        if not due or (one.seq == one.saved and not one.replace):
            return
        one.last_saved = time.monotonic()
        stored = self._database.read(lambda connection: stored_counters.saved_seq(connection, one.name))
        if one.replace or stored < one.seq:
            made, replace, now = (
                SavedCounters(one.seq, one.counters.dumps(), frozenset(one.forgotten)),
                one.replace,
                self._clock(),
            )
            self._writer().do(lambda connection: stored_counters.save(connection, one.name, made, now, replace))
        one.saved, one.replace = one.seq, False
