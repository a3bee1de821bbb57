"""The thread that learns: it folds `learn` over the outcomes of every ranker whose lease this process holds."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from rankloop.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.experiments import count_evidence
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import admin, log
from rankloop.service.store.database import Connection

if TYPE_CHECKING:
    from rankloop.service.engine import Engine

GATHER = 0.005  # seconds in which outcomes gather, so that one look at the log finds several
POLL = 0.2  # seconds between looks for feedback that another process has taken
SNAPSHOT_EVENTS = 2000  # a snapshot is due after so many outcomes, whatever the clock says
SHARE = 20  # a snapshot may take at most one part in so many of the time
logger = logging.getLogger("rankloop")


class Learning:
    """Learns in sequence order, and saves now and then. Recovery is nothing else: load a snapshot and learn on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.wake = threading.Event()
        self.peers = False  # whether other processes rank from our snapshots
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rankloop-learning", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float = 10.0) -> None:
        """Learn what is left, save it, end."""
        self._stopping.set()
        self.wake.set()
        self._thread.join(timeout=patience)

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self.wake.wait(POLL):
                time.sleep(GATHER)
            self.wake.clear()
            self.catch_up()
        self.catch_up()
        for live in list(self.engine.rankers.values()):
            if live.held:
                self._guarded(live, save=True)
                self._count(live, live.model.learned, force=True)
        self.engine.database.forget()

    def catch_up(self) -> None:
        """Learn all that is logged, of every ranker held here."""
        held = [live for live in list(self.engine.rankers.values()) if live.held]
        if not held:
            return
        try:
            heads = self.engine.database.read(log.heads)
        except StoreUnavailable:
            return  # the log will still be there
        for live in held:
            behind = heads.get(live.row.name, 0) - live.model.learned
            self.engine.metrics.gauge("learner_lag", max(0, behind), ranker=live.row.name)
            if behind > 0 or live.model.learned > live.snapshot_seq:
                self._guarded(live)
            self._count(live, heads.get(live.row.name, 0))

    def _guarded(self, live: LiveRanker, save: bool = False) -> None:
        """One ranker's trouble is not another's."""
        try:
            with live.turn:
                self.advance(live)
            self.save(live, force=save)
        except StoreUnavailable as error:
            logger.warning("ranker %s: learning waits for the store: %s", live.row.name, error)
        except Exception:
            logger.exception("ranker %s: learning stopped at outcome %d", live.row.name, live.model.learned)

    def _count(self, live: LiveRanker, head: int, force: bool = False) -> None:
        """Count what mixed lists came to, also of a ranker that fails to learn."""
        try:
            count_evidence.count(self.engine, live, head, force)
        except StoreUnavailable as error:
            logger.warning("ranker %s: counting waits for the store: %s", live.row.name, error)
        except Exception:
            logger.exception("ranker %s: its experiments could not be counted", live.row.name)

    def advance(self, live: LiveRanker) -> None:
        """Fold the outcomes that are there into the model."""
        name, model, metrics = live.row.name, live.model, self.engine.metrics
        while True:
            start = model.learned
            outcomes = self.engine.database.read(lambda c, at=start: log.outcomes_from(c, name, at))  # type: ignore[misc]
            for outcome in outcomes:
                began = time.perf_counter()
                try:
                    if model.learn(outcome, live.row.epoch):
                        metrics.count("learned_total", ranker=name)
                        metrics.observe("learn_seconds", time.perf_counter() - began, ranker=name)
                except MemoryError:
                    raise
                except BaseException as error:  # SystemExit, too: no learner may end the thread that learns for all
                    live.counts["learn_errors"] += 1
                    metrics.count("learn_errors_total", ranker=name)
                    logger.warning("ranker %s: outcome %d was not learned: %s", name, outcome.seq, error)
            if outcomes:
                metrics.gauge("learner_lag", 0, ranker=name)
            if len(outcomes) < 256 or (self._due(live) and not self._stopping.is_set()):
                return

    def save(self, live: LiveRanker, force: bool = False) -> None:
        """Keep a snapshot if one is due, and a version now and then."""
        if live.model.learned <= live.snapshot_seq or not (force or self._due(live)):
            return
        began, engine, name, generation = time.perf_counter(), self.engine, live.row.name, live.model.generation
        learned, state = live.model.state()
        now = engine.clock()
        engine.writer.do(lambda c: admin.save_snapshot(c, name, generation, learned, state, now))
        live.snapshot_seq, live.last_snapshot = learned, time.monotonic()
        live.snapshot_cost = time.perf_counter() - began
        engine.metrics.count("snapshots_total", ranker=name)
        engine.metrics.observe("snapshot_seconds", live.snapshot_cost)
        self._version(live, learned, state, now)

    def _due(self, live: LiveRanker) -> bool:
        settings = self.engine.settings
        every = settings.refresh_seconds if self.peers else settings.snapshot_seconds
        waited = time.monotonic() - live.last_snapshot
        if waited < SHARE * live.snapshot_cost:
            return False
        return waited >= every or live.model.learned - live.snapshot_seq >= SNAPSHOT_EVENTS

    def _version(self, live: LiveRanker, learned: int, state: bytes, now: float) -> None:
        settings, name, generation = self.engine.settings, live.row.name, live.model.generation
        if live.last_version == 0.0:
            live.last_version = time.monotonic()  # the first version is due an hour after the start, not at it
        if time.monotonic() - live.last_version < settings.version_seconds or learned == live.version_seq:
            return

        def keep(connection: Connection) -> None:
            admin.keep_version(connection, name, learned, state, "kept by the clock", now, True, generation)
            admin.drop_old_versions(connection, name, settings.keep_versions)

        self.engine.writer.do(keep)
        live.last_version, live.version_seq = time.monotonic(), learned

    def current(self, live: LiveRanker) -> tuple[int, bytes]:
        """The newest state there is: learned up to this moment if this process learns, else the last snapshot."""
        if live.held:
            with live.turn:
                self.advance(live)
            return live.model.state()
        found = self.engine.database.read(lambda c: admin.snapshot(c, live.row.name))
        if found is None:
            raise RankloopError(f"ranker {live.row.name!r} has been deleted")
        return found.seq, found.state
