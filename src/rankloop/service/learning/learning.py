"""The thread that learns: it folds `learn` over the outcomes of every ranker whose lease this process holds.

Runs in a process of its own, beside those that rank (`learning/standalone.py`), or in one that also ranks. What it
learns reaches the rankers of this machine by `publish`, at once, and those of others by snapshots in the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from rankloop.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.learning import count_evidence
from rankloop.service.learning.fold import Fold, Publication
from rankloop.service.learning.heartbeat import Heartbeat
from rankloop.service.learning.housekeeping import Housekeeping
from rankloop.service.learning.loading import load_folds
from rankloop.service.learning.notices import Notices
from rankloop.service.learning.watch import Watch
from rankloop.service.process import Process
from rankloop.service.ranking.warm_up import WarmUp
from rankloop.service.store import admin, log
from rankloop.service.store.database import Connection

GATHER = 0.004  # seconds in which outcomes gather, so that one look at the log finds several
POLL = 0.2  # seconds between looks for feedback that another machine has taken
PORTION = 256  # outcomes that are read at a time
SNAPSHOT_EVENTS = 2000  # a snapshot is due after so many outcomes, whatever the clock says
SHARE = 20  # a snapshot may take at most one part in so many of the time, publishing as much
LARGE = 4 * 2**20  # bytes of a state that are stored in parts
PART = 2**20  # bytes of a part: some milliseconds, in which nobody else writes
SOME = 4  # parts that are deleted at a time
logger = logging.getLogger("rankloop")


class Learning:
    """Learns in sequence order, publishes, and saves now and then. Recovery is nothing else: load a snapshot and learn
    on.

    Parameters
    ----------
    process
        The store, the settings, the counts.
    publish
        Called with what was learned; False if it could not be passed on and the whole state should come next.
    warming
        Of a process that also ranks: kernels are compiled once for both.
    """

    def __init__(self, process: Process, publish: Callable[[Publication], bool], warming: WarmUp | None = None) -> None:
        self.process, self._publish = process, publish
        self.folds: dict[str, Fold] = {}
        self.wake = threading.Event()
        self.on_change: Callable[[], None] = lambda: None  # told when a ranker was changed from here
        self.peers = False  # whether other machines rank from our snapshots
        self.watch = Watch(process)
        self.heartbeat = Heartbeat(process, self.watch)
        self.housekeeping = Housekeeping(self)
        self.notices = Notices(process, self.folds)
        self._loading = threading.RLock()
        self._warming = warming or WarmUp(self.folds)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rankloop-learning", daemon=True)

    def start(self) -> None:
        """Take leases and begin."""
        self.heartbeat.beat()
        self.heartbeat.start()
        self.housekeeping.cycle()
        self._thread.start()
        self.housekeeping.start()
        self.notices.start()

    def stop(self, patience: float = 10.0) -> None:
        """Learn what is left, save it, give the leases back."""
        self.notices.stop()
        self.housekeeping.stop()
        self._stopping.set()
        self.wake.set()
        self._thread.join(timeout=patience)
        self.heartbeat.stop()
        process = self.process
        try:
            process.writer.do(lambda connection: admin.release(connection, process.worker))
        except (RankloopError, TimeoutError) as error:
            logger.warning("leases could not be given back: %s", error)

    def sync(self) -> None:
        """Load the folds of rankers that are new or have changed in the store, drop those that are gone."""
        with self._loading:
            load_folds(self.process, self.folds, self.watch)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self.wake.wait(POLL):
                time.sleep(GATHER)
            self.wake.clear()
            self.catch_up()
        self.catch_up()
        for fold in list(self.folds.values()):
            if fold.held:
                self._guarded(fold, save=True)
                self._count(fold, fold.learned, force=True)
        self.process.database.forget()

    def catch_up(self) -> None:
        """Learn all that is logged, of every ranker held here."""
        held = [fold for fold in list(self.folds.values()) if fold.held]
        if not held:
            return
        try:
            heads, wanted = self.process.database.read(lambda c: (log.heads(c), log.wanted(c)))
        except StoreUnavailable:
            return  # the log will still be there
        for fold in held:
            if not fold.warm and self._warming.begin(fold) is not None:
                continue  # its kernels are on their way: the others are learned meanwhile, and it does not seem to hang
            name = fold.row.name
            head = heads.get(name, 0)
            self._tell_lag(fold, head)
            asked = wanted.get(name, 0) > fold.snapshot_seq
            if head > fold.learned or fold.learned > min(fold.snapshot_seq, fold.published) or asked:
                self._guarded(fold, asked, head)
            self._count(fold, head)

    def learn_now(self, name: str) -> bool:
        """Learn and publish all that is logged of a ranker, before this returns; False if it is not learned here."""
        fold = self.folds.get(name)
        if fold is None or not fold.held:
            return False
        fold.warm = True  # whoever asks for this waits
        with fold.turn:
            self.advance(fold)
        self.publish(fold, at_once=True)
        return True

    def _guarded(self, fold: Fold, save: bool = False, head: int = 0) -> None:
        """One ranker's trouble is not another's."""
        try:
            with fold.turn:
                self.advance(fold, head)
            self.publish(fold)
            self.save(fold, force=save)
        except StoreUnavailable as error:
            logger.warning("ranker %s: learning waits for the store: %s", fold.row.name, error)
        except Exception:
            logger.exception("ranker %s: learning stopped at outcome %d", fold.row.name, fold.learned)

    def _count(self, fold: Fold, head: int, force: bool = False) -> None:
        """Count what mixed lists came to, also of a ranker that fails to learn."""
        try:
            if count_evidence.count(self.process, fold, head, force):
                self.sync()
                self.on_change()  # those who rank must not show for another second what users like less
        except StoreUnavailable as error:
            logger.warning("ranker %s: counting waits for the store: %s", fold.row.name, error)
        except Exception:
            logger.exception("ranker %s: its experiments could not be counted", fold.row.name)

    def advance(self, fold: Fold, head: int = 0) -> None:
        """Fold the outcomes that are there into the learner; up to `head`, as far as is known."""
        name, process = fold.row.name, self.process
        while True:
            start = fold.learned
            outcomes = process.database.read(lambda c, at=start: log.outcomes_from(c, name, at, PORTION))  # type: ignore[misc]
            for outcome in outcomes:
                began = time.perf_counter()
                try:
                    with self.watch.of(fold.row, "learn", outcome.seq):
                        learned = fold.learn(outcome)
                    if learned:
                        process.metrics.count("learned_total", ranker=name)
                        process.metrics.observe("learn_seconds", time.perf_counter() - began, ranker=name)
                except MemoryError:
                    raise
                except BaseException as error:  # SystemExit, too: no learner may end the thread that learns for all
                    process.metrics.count("learn_errors_total", ranker=name)
                    logger.warning("ranker %s: outcome %d was not learned: %s", name, outcome.seq, error)
            if outcomes:
                self._tell_lag(fold, head)
                self.publish(fold)
            if len(outcomes) < PORTION or (self._due(fold) and not self._stopping.is_set()):
                return

    def _tell_lag(self, fold: Fold, head: int) -> None:
        self.process.metrics.gauge("learner_lag", max(0, head - fold.learned), ranker=fold.row.name)

    # -- passing it on ---------------------------------------------------------------------------------------------

    def publish(self, fold: Fold, at_once: bool = False, whole: bool = False) -> None:
        """Let those who rank on this machine have it. What is large is published less often."""
        if fold.learned <= fold.published and not whole:
            return
        now = time.monotonic()
        if not (at_once or whole) and now - fold.last_published < SHARE * fold.publish_cost:
            return  # the next look, in a fifth of a second at most, will do it
        began = time.perf_counter()
        with self.watch.of(fold.row, "state", fold.learned):
            made = fold.news(whole)
        if not self._publish(made):
            fold.published = -1  # whatever comes next must be whole
        fold.last_published, fold.publish_cost = now, time.perf_counter() - began

    def publish_all(self) -> None:
        """Someone who ranks has just come: everything, whole."""
        for fold in list(self.folds.values()):
            if fold.held:
                self.publish(fold, whole=True)

    def save(self, fold: Fold, force: bool = False) -> None:
        """Keep a snapshot if one is due, and a version now and then."""
        if fold.learned <= fold.snapshot_seq or not (force or self._due(fold)):
            return
        began, process, name = time.perf_counter(), self.process, fold.row.name
        with self.watch.of(fold.row, "state", fold.learned):
            learned, state = fold.state()
        now = process.clock()
        parts = [state[at : at + PART] for at in range(0, len(state), PART)] if len(state) > LARGE else []
        for number, part in enumerate(parts):
            process.writer.do(partial(_save_part, name, fold.generation, learned, number, part))
        whole = b"" if parts else state
        process.writer.do(lambda c: admin.save_snapshot(c, name, fold.generation, learned, whole, now, len(parts)))
        left = len(parts)
        while left:
            left = process.writer.do(lambda c: admin.drop_parts(c, name, SOME))
        fold.snapshot_seq, fold.last_snapshot = learned, time.monotonic()
        fold.snapshot_cost = time.perf_counter() - began
        process.metrics.count("snapshots_total", ranker=name)
        process.metrics.observe("snapshot_seconds", fold.snapshot_cost)
        self._version(fold, learned, state, now)

    def _due(self, fold: Fold) -> bool:
        settings = self.process.settings
        every = settings.refresh_seconds if self.peers else settings.snapshot_seconds
        waited = time.monotonic() - fold.last_snapshot
        if waited < SHARE * fold.snapshot_cost:
            return False
        return waited >= every or fold.learned - fold.snapshot_seq >= SNAPSHOT_EVENTS

    def _version(self, fold: Fold, learned: int, state: bytes, now: float) -> None:
        settings, name, generation = self.process.settings, fold.row.name, fold.generation
        if fold.last_version == 0.0:
            fold.last_version = time.monotonic()  # the first version is due an hour after the start, not at it
        if time.monotonic() - fold.last_version < settings.version_seconds or learned == fold.version_seq:
            return

        def keep(connection: Connection) -> None:
            admin.keep_version(connection, name, learned, state, "kept by the clock", now, True, generation)
            admin.drop_old_versions(connection, name, settings.keep_versions)

        self.process.writer.do(keep)
        fold.last_version, fold.version_seq = time.monotonic(), learned


def _save_part(name: str, generation: int, seq: int, number: int, part: bytes, connection: Connection) -> None:
    admin.save_part(connection, name, generation, seq, number, part)
