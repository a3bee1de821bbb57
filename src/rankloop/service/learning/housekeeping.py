"""The thread that keeps house: leases, news from other processes, windows that close, what is old."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rankloop.errors import RankloopError
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.learning.leases import Leases
from rankloop.service.learning.retention import sweep
from rankloop.service.learning.windows import close_windows
from rankloop.service.ranking import model as models
from rankloop.service.store import admin, keys, log
from rankloop.service.store.database import Connection
from rankloop.service.store.size import size
from rankloop.service.telemetry import movement

if TYPE_CHECKING:
    from rankloop.service.engine import Engine

TICK = 0.2  # seconds between looks for windows that end
REMEMBER_EVERY = 2.0  # seconds between additions to the curves
COUNT_EVERY = 5.0  # seconds between counts of open impressions
SWEEP_EVERY = 30.0  # seconds between deletions
logger = logging.getLogger("rankloop")


class Housekeeping:
    """Runs `cycle` every second and closes windows in between."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.leases = Leases(engine)
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="rankloop-housekeeping", daemon=True)
        self._alarms: dict[str, int] = {}  # ranker -> changes of users that were told of
        self._swept = self._remembered = time.monotonic()
        self._counted = float("-inf")  # at once: what is told of the store must not be missing at first

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the cycle under way."""
        self._stopping.set()
        self._thread.join(timeout=10.0)

    def _work(self) -> None:
        every = min(self.engine.settings.refresh_seconds, self.engine.settings.lease_seconds / 3)
        last = time.monotonic()
        while not self._stopping.wait(TICK):
            try:
                close_windows(self.engine)
                if time.monotonic() - last >= every:
                    last = time.monotonic()
                    self.cycle()
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("the store does not answer: %s", error)
            except Exception:
                logger.exception("housekeeping failed; it goes on in a moment")
        self.engine.database.forget()

    def cycle(self) -> None:
        """One round: beat, news, leases, refresh, and now and then counting and sweeping."""
        with self._turn:
            self._cycle()

    def _cycle(self) -> None:
        engine = self.engine
        mine = engine.writer.do(
            lambda c: admin.beat(c, engine.worker, engine.machine, engine.settings.learn, engine.report())
        )
        engine.keys.refresh(engine.database.read(keys.known))
        engine.sync()
        workers = engine.database.read(admin.workers)
        self.leases.look_around(workers)
        if engine.settings.learn:
            mine = self.leases.taken(mine)
        self._refresh()  # also what is learned here from now on: the log before its snapshot may have been deleted
        for name, live in list(engine.rankers.items()):
            if live.held != (name in mine):
                logger.info("ranker %s: this process %s", name, "learns" if name in mine else "no longer learns")
            live.held = name in mine
            engine.metrics.gauge("lease_held", int(live.held), ranker=name)
            if not live.held:
                engine.metrics.drop("learner_lag", ranker=name)  # whoever learns it tells; this one's would stand still
        engine.learning.peers = len(self.leases.alive) > 1
        now = time.monotonic()
        if now - self._remembered > REMEMBER_EVERY:
            self._remembered = now
            engine.history.store(engine)
        if now - self._counted > COUNT_EVERY:
            self._counted = now
            self._count()
            self._tell_of_drift()
        if now - self._swept > SWEEP_EVERY:
            self._swept = now
            sweep(engine, self._stopping.is_set)

    def _count(self) -> None:
        """What is told of the store: also that a ranker has no open list any more, and nothing of one that is gone."""
        engine = self.engine
        opened = engine.database.read(log.open_counts)
        for name in list(engine.rankers):
            engine.metrics.gauge("open_impressions", opened[name], ranker=name)
        engine.metrics.keep_rankers(engine.rankers)
        found = size(engine.database)
        engine.metrics.gauge("store_bytes", found.used)
        if found.free is not None:
            engine.metrics.gauge("store_free_disk_bytes", found.free)

    def _tell_of_drift(self) -> None:
        """What learners notice of their users and remember, for those who are to be told."""
        for name, live in list(self.engine.rankers.items()):
            if not live.held:
                continue
            with suppress(TooSlow):  # the next time
                movement.count(name, live.model, self.engine.metrics, self._alarms)

    def _refresh(self) -> None:
        """Load newer snapshots of rankers that another process learns."""
        engine = self.engine
        newest = engine.database.read(admin.snapshot_seqs)
        for name, live in list(engine.rankers.items()):
            generation, seq = newest.get(name, (-1, -1))
            # A state of another generation belongs to another row, too: `sync` loads both.
            if live.held or generation != live.model.generation or seq <= live.model.learned:
                continue

            def stored(c: Connection, name: str = name) -> admin.Snapshot | None:
                return admin.snapshot(c, name)

            found = engine.database.read(stored)
            if found is None or found.generation != generation:
                continue
            try:
                what = f"ranker {name!r}, snapshot {found.seq}"
                live.model = models.load_model(live.row.spec, found.generation, found.seq, found.state, what)
                live.snapshot_seq = found.seq
            except RankloopError as error:
                logger.warning("ranker %s: its new snapshot cannot be used yet: %s", name, error)
