"""The thread that keeps house where rankers are learned: leases, windows that close, what is old, what is told."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rankloop import codec
from rankloop.service.learning.archiving import Archive
from rankloop.service.learning.fold import Fold
from rankloop.service.learning.leases import Leases
from rankloop.service.learning.loading import newer
from rankloop.service.learning.retention import sweep
from rankloop.service.learning.windows import close_windows
from rankloop.service.repeating import Repeating
from rankloop.service.store import admin, log, shown
from rankloop.service.store.size import size
from rankloop.service.telemetry import movement
from rankloop.telling import Explains

if TYPE_CHECKING:
    from rankloop.service.learning.learning import Learning

TICK = 0.2  # seconds between looks for windows that end
REMEMBER_EVERY = 2.0  # seconds between additions to the curves
COUNT_EVERY = 5.0  # seconds between counts of open impressions
SWEEP_EVERY = 30.0  # seconds between deletions
LOOKED_AT = 8  # lists at most, of a ranker and an addition to the curves, that the learner is asked about
logger = logging.getLogger("rankloop")


class Housekeeping:
    """Runs `cycle` every second and closes windows in between."""

    def __init__(self, learning: Learning) -> None:
        self.learning, self.process = learning, learning.process
        self.leases = Leases(learning.process)
        self._turn = threading.Lock()
        self._thread = Repeating("housekeeping", TICK, self._tick, learning.process.database)
        self.archive = Archive(learning.process) if learning.process.settings.archive else None
        self._alarms: dict[str, int] = {}  # ranker -> changes of users that were told of
        self._watched: dict[str, int] = {}  # ranker -> outcomes learned when its lag was last told
        self._looked: dict[str, float] = {}  # ranker -> when the newest list was made that the learner was asked about
        self._last = self._swept = self._remembered = time.monotonic()
        self._counted = float("-inf")  # at once: what is told of the store must not be missing at first

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        if self.archive:
            self.archive.start()

    def stop(self) -> None:
        """End after the round under way."""
        self._thread.stop()
        if self.archive:
            self.archive.stop()

    def _tick(self) -> None:
        if close_windows(self.process, self.learning.folds):
            self.learning.wake.set()
        if time.monotonic() - self._last >= self.process.settings.beat_seconds:
            self._last = time.monotonic()
            self.cycle()

    def cycle(self) -> None:
        """One round: news, leases, and now and then counting and sweeping."""
        with self._turn:
            self._cycle()

    def _cycle(self) -> None:
        process, learning = self.process, self.learning
        newer(process, learning.folds)
        learning.sync()
        workers = process.database.read(admin.workers)
        self.leases.look_around(workers)
        mine = self.leases.taken(learning.heartbeat.mine, learning)
        learning.heartbeat.mine = mine
        for name, fold in list(learning.folds.items()):
            held = name in mine
            if fold.held != held:
                logger.info("ranker %s: this process %s", name, "learns" if held else "no longer learns")
                fold.published = -1
                fold.held = held
                learning.wake.set()
            process.metrics.gauge("lease_held", int(held), ranker=name)
            if not held:
                process.metrics.drop("learner_lag", ranker=name)  # whoever learns it tells
        learning.peers = self.leases.strangers
        now = time.monotonic()
        if now - self._remembered > REMEMBER_EVERY:
            self._remembered = now
            self._watch_lag()
            process.history.store(process.writer, process.clock())
        if now - self._counted > COUNT_EVERY:
            self._counted = now
            self._count()
            self._tell_of_drift()
        if now - self._swept > SWEEP_EVERY:
            self._swept = now
            sweep(process, lambda: self._thread.stopping, self.archive)

    def _count(self) -> None:
        """What is told of the store: also that a ranker has no open list any more, and nothing of one that is gone."""
        process = self.process
        opened, names = process.database.read(lambda c: (log.open_counts(c), admin.revisions(c)))
        for name in names:
            process.metrics.gauge("open_impressions", opened[name], ranker=name)
        process.metrics.keep_rankers(names)
        found = size(process.database)
        process.metrics.gauge("store_bytes", found.used)
        if found.free is not None:
            process.metrics.gauge("store_free_disk_bytes", found.free)

    def _tell_of_drift(self) -> None:
        """What learners notice of their users and remember, for those who are to be told."""
        for name, fold in list(self.learning.folds.items()):
            if fold.held and fold.turn.acquire(timeout=TICK):  # else the next time
                try:
                    movement.count(name, fold.learner, self.process.metrics, self._alarms)
                finally:
                    fold.turn.release()

    def _watch_lag(self) -> None:
        """Lag and doubts of what is learned here, for the curves."""
        process = self.process
        heads = process.database.read(log.heads)
        for name, fold in list(self.learning.folds.items()):
            lag = max(0, heads.get(name, 0) - fold.learned)
            if not fold.held:
                continue
            pairs, uncertain = self._uncertain(fold)
            # Of a ranker with nothing to do nothing is written; lists of which none is learned yet are something.
            if lag or pairs or fold.learned != self._watched.get(name):
                self._watched[name] = fold.learned
                process.history.watched(name, lag, pairs, uncertain)

    def _uncertain(self, fold: Fold) -> tuple[int, int]:
        """(pairs, uncertain ones) of the newest lists that were not looked at yet."""
        name, learner = fold.row.name, fold.learner
        if not isinstance(learner, Explains):
            return 0, 0
        since = self._looked.get(name, 0.0)
        bodies = self.process.database.read(lambda c: shown.newest_bodies(c, name, fold.row.epoch, since, LOOKED_AT))
        pairs = uncertain = 0
        for created, body in bodies:
            self._looked[name] = max(self._looked.get(name, 0.0), created)
            if not fold.turn.acquire(timeout=TICK):
                break
            try:
                with suppress(Exception):  # of other features, or of before a reset
                    found = learner.explain(codec.load_impression(body))
                    pairs += found.pairs
                    uncertain += len(found.uncertain)
            finally:
                fold.turn.release()
        return pairs, uncertain
