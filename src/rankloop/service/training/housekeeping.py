"""The threads that keep leases, delete what is old, and report about rankers that are learned here."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rankloop.core import codec
from rankloop.core.capabilities import Explains
from rankloop.service.maintenance.archiving import Archive
from rankloop.service.maintenance.retention import sweep
from rankloop.service.maintenance.upgrading import Upgrading
from rankloop.service.ranking import movement
from rankloop.service.storage import admin, attention, log, published, shown
from rankloop.service.storage.size import size
from rankloop.service.training.fold import Fold
from rankloop.service.training.leases import Leases
from rankloop.service.worker.background_threads import Repeating

if TYPE_CHECKING:
    from rankloop.service.training.learning import Learning

TICK = 0.2  # seconds between looks whether a round is due, and that a report waits for a learner at most
REMEMBER_EVERY = 2.0  # seconds between additions to the curves
COUNT_EVERY = 5.0  # seconds between counts of open impressions
SWEEP_EVERY = 30.0  # seconds between deletions
LOOKED_AT = 8  # lists at most, of a ranker and an addition to the curves, that the learner is asked about
QUIET_ONES = 32  # rankers with nothing new to learn whose lists are looked at, in turn, for an addition to the curves
logger = logging.getLogger("rankloop")


class Housekeeping:
    """Runs `cycle` every beat."""

    def __init__(self, learning: Learning) -> None:
        self.learning, self.process = learning, learning.process
        self.leases = Leases(learning.process)
        self._upgrading = Upgrading(learning.process)
        self._turn = threading.Lock()
        process = learning.process
        self._thread = Repeating("housekeeping", TICK, self._tick, process.database, process.thread_failed)
        self._sweeping = Repeating("sweeping", SWEEP_EVERY, self._sweep, process.database, process.thread_failed)
        self.archive = Archive(learning.process) if learning.process.settings.archive else None
        self._alarms: dict[str, int] = {}  # ranker -> changes of users that were told of
        self._watched: dict[str, int] = {}  # ranker -> outcomes learned when its lag was last told
        self._quiet = 0  # where the turn of those with nothing new to learn is
        self._looked: dict[str, float] = {}  # ranker -> when the newest list was made that the learner was asked about
        self._last = self._remembered = self._asked = time.monotonic()
        self._counted = float("-inf")  # at once: what is told of the store must not be missing at first

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._sweeping.start()
        if self.archive:
            self.archive.start()

    def stop(self) -> None:
        """End after the round under way."""
        self._thread.stop()
        self._sweeping.stop()
        if self.archive:
            self.archive.stop()

    @property
    def threads(self) -> list[Repeating]:
        """All of them."""
        return [self._thread, self._sweeping, *([self.archive.thread] if self.archive else [])]

    def _sweep(self) -> None:
        """What a large ranker leaves takes hours to delete; leases are kept meanwhile."""
        sweep(self.process, lambda: self._sweeping.stopping, self.archive)

    def _tick(self) -> None:
        if time.monotonic() - self._last >= self.process.settings.beat_seconds:
            self._last = time.monotonic()
            self.cycle()
            self._report()

    def hasten(self) -> None:
        """Do the next round at the next tick: something has changed in the store."""
        self._last = float("-inf")

    def cycle(self) -> None:
        """One round: news, leases, and now and then counting."""
        with self._turn:
            self._cycle()

    def _cycle(self) -> None:
        process, learning = self.process, self.learning
        known = learning.learnable()
        self.leases.look_around(process.database.read(admin.workers))
        turn = self.leases.turn(known)
        learning.hold(turn.mine, turn.fresh, turn.loads, known)
        learning.saving.peers = self.leases.strangers
        for name in turn.spare:
            self._give_back(name)
        self._tell_loads()
        for name in process.database.read(admin.revisions):  # also those that nobody can learn now
            process.metrics.gauge("lease_held", int(name in turn.mine), ranker=name)
            if name not in turn.mine:
                process.metrics.drop("learner_lag", ranker=name)  # whoever learns it tells
        if time.monotonic() - self._counted > COUNT_EVERY:
            self._counted = time.monotonic()
            self._upgrading.look()
            self._count()

    def _report(self) -> None:
        """Ask learners, now and then. Without the lock of `cycle`: one that does not return holds up no lease."""
        now = time.monotonic()
        if now - self._remembered > REMEMBER_EVERY:
            self._remembered = now
            self._watch_lag()
            self.process.history.store(self.process.writer, self.process.clock())
        if now - self._asked > COUNT_EVERY:
            self._asked = now
            self._tell_of_drift()

    def _give_back(self, name: str) -> None:
        """Another process has less to do. What is learned is saved before it takes the lease, so that it goes on from
        there; nothing is learned here meanwhile."""
        process, fold = self.process, self.learning.folds.get(name)

        def release() -> None:
            process.writer.do(lambda c: admin.release_lease(c, name, process.worker))

        if fold is None:
            release()
        elif fold.held:
            logger.info("ranker %s: this process gives its lease back", name)
            fold.held = False
            self.learning.saving.order(fold, then=release)

    def _tell_loads(self) -> None:
        """What rankers that are learned here take, where that has changed: others decide by it what they take."""
        folds = {name: fold for name, fold in list(self.learning.folds.items()) if fold.held}
        news = {name: load for name, fold in folds.items() if (load := fold.work.news()) is not None}
        if news:
            self.process.writer.do(lambda c: published.note_loads(c, news))
            for name, load in news.items():
                folds[name].work.told = load

    def _count(self) -> None:
        """What is told of the store: also that a ranker has no open list any more, and nothing of one that is gone."""
        process = self.process
        opened, marked, names = process.database.read(
            lambda c: (log.open_counts(c), attention.counts(c), admin.revisions(c))
        )
        for name in names:
            process.metrics.gauge("open_impressions", opened[name], ranker=name)
            process.metrics.gauge("attention_impressions", marked[name], ranker=name)
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
                    with self.learning.watch.of(fold.row, "explain", fold.learned):
                        movement.set_gauges(name, fold.learner, self.process.metrics, self._alarms)
                except BaseException as error:  # SystemExit, too: the other rankers are reported
                    logger.warning("ranker %s: its learner does not report: %r", name, error)
                finally:
                    fold.turn.release()

    def _watch_lag(self) -> None:
        """Lag and doubts of what is learned here, for the curves."""
        process = self.process
        heads = process.database.read(log.heads)
        folds = [fold for fold in list(self.learning.folds.values()) if fold.held]
        quiet = [fold.row.name for fold in folds if fold.learned == self._watched.get(fold.row.name)]
        turn = set((quiet[self._quiet :] + quiet[: self._quiet])[:QUIET_ONES])
        self._quiet = (self._quiet + QUIET_ONES) % max(1, len(quiet))
        for fold in folds:
            name = fold.row.name
            lag = max(0, heads.get(name, 0) - fold.learned)
            looked = name in turn or fold.learned != self._watched.get(name)
            pairs, uncertain = self._uncertain(fold) if looked else (0, 0)
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
                # Of other features, or of before a reset; or SystemExit of a learner.
                with suppress(BaseException), self.learning.watch.of(fold.row, "explain", fold.learned):
                    found = learner.explain(codec.load_impression(body))
                    pairs += found.pairs
                    uncertain += len(found.uncertain)
            finally:
                fold.turn.release()
        return pairs, uncertain
