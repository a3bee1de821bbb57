"""The thread that keeps house: leases, news from other processes, windows that close, what is old.

Leases are counted, not timed. A holder adds one to its beat every second; whoever sees a beat stand still for
`lease_seconds` on its own monotonic clock may take the lease, so no clock that is wrong or moved can give a lease to
two or to nobody. (Two would do no harm: both fold the same log into the same bits.)
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rankloop.errors import RankloopError
from rankloop.service.ranking import model as models
from rankloop.service.store import StoreUnavailable, admin, log, series
from rankloop.service.store.database import Connection
from rankloop.service.telemetry import movement

if TYPE_CHECKING:
    from rankloop.service.engine import Engine

TICK = 0.2  # seconds between looks for windows that end
REMEMBER_EVERY = 2.0  # seconds between additions to the curves
COUNT_EVERY = 5.0  # seconds between counts of open impressions
SWEEP_EVERY = 30.0  # seconds between deletions
logger = logging.getLogger("rankloop")


class Keeper:
    """Runs `cycle` every second and closes windows in between."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.alive: set[str] = {engine.worker}
        self._seen: dict[str, tuple[object, float]] = {}  # lease or worker -> what it was, since when (monotonic)
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="rankloop-keeper", daemon=True)
        self._alarms: dict[str, int] = {}  # ranker -> changes of users that were told of
        self._counted = self._swept = self._remembered = time.monotonic()

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
                self.close_windows()
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
        engine.keys.refresh(engine.database.read(admin.keys))
        engine.sync()
        workers = engine.database.read(admin.workers)
        self._look_around(workers)
        if engine.settings.learn:
            mine = self._leases(mine)
        self._refresh()  # also what is learned here from now on: the log before its snapshot may have been deleted
        for name, live in list(engine.rankers.items()):
            if live.held != (name in mine):
                logger.info("ranker %s: this process %s", name, "learns" if name in mine else "no longer learns")
            live.held = name in mine
            engine.metrics.gauge("lease_held", int(live.held), ranker=name)
        engine.learning.peers = len(self.alive) > 1
        now = time.monotonic()
        if now - self._remembered > REMEMBER_EVERY:
            self._remembered = now
            engine.history.store(engine)
        if now - self._counted > COUNT_EVERY:
            self._counted = now
            for name, count in engine.database.read(log.open_counts).items():
                engine.metrics.gauge("open_impressions", count, ranker=name)
            self._tell_of_drift()
        if now - self._swept > SWEEP_EVERY:
            self._swept = now
            self.sweep()

    def _tell_of_drift(self) -> None:
        """What learners notice of their users and remember, for those who are to be told."""
        for name, live in list(self.engine.rankers.items()):
            if not live.held:
                continue
            with suppress(models.TooSlow):  # the next time
                movement.count(name, live.model, self.engine.metrics, self._alarms)

    def close_windows(self) -> None:
        """Turn impressions whose time is up into outcomes, of rankers that are learned here."""
        engine = self.engine
        now = engine.clock()
        for name in engine.database.read(lambda c: log.due(c, now)):
            live = engine.rankers.get(name)
            if live is None or not live.held:
                continue

            def close(c: Connection, ranker: str = name) -> list[log.Closing]:
                # Asked again where lists are written: had the clock gone back since, new ones would seem an hour old.
                return log.close_windows(c, ranker, min(now, engine.clock()), engine.writer.kinds)

            while closings := engine.writer.do(close):
                engine.closed(closings)

    def sweep(self) -> None:
        """Delete what is past retention or to be erased, as far as snapshots cover it."""
        days = self.engine.settings.retention_days
        before = self.engine.clock() - days * 86400 if days else None
        while self.engine.writer.do(lambda c: admin.sweep(c, before)) and not self._stopping.is_set():
            pass
        self.engine.writer.do(lambda c: series.sweep(c, self.engine.clock()))

    # -- who lives, who learns -------------------------------------------------------------------------------------

    def _stands_still(self, key: str, value: object) -> bool:
        """Whether `value` has not changed for `lease_seconds`, as far as this process has seen."""
        now = time.monotonic()
        known, since = self._seen.get(key, (None, now))
        if known != value:
            self._seen[key] = (value, now)
            return False
        return now - since > self.engine.settings.lease_seconds

    def _gone(self, worker: str) -> bool:
        """Whether a worker is a process of this machine that does not run any more."""
        machine, _, rest = worker.partition(":")
        process = rest.partition(":")[0]
        if machine != self.engine.machine or not process.isdigit():
            return False
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def _look_around(self, workers: dict[str, tuple[str, int, bool]]) -> None:
        alive = {self.engine.worker}
        for name, (_, beat, learns) in workers.items():
            if name == self.engine.worker:
                continue
            if self._gone(name) or self._stands_still(f"worker {name}", beat):
                self.engine.writer.do(lambda c, n=name, b=beat: admin.forget_worker(c, n, b))  # type: ignore[misc]
            elif learns:
                alive.add(name)
        self.alive = alive

    def _leases(self, mine: set[str]) -> set[str]:
        """Take leases that nobody keeps, as many as is fair; give back what is too much."""
        engine = self.engine
        names = sorted(engine.rankers)
        fair = -(-len(names) // len(self.alive))
        held = engine.database.read(admin.leases)
        for name in names:
            if len(mine) >= fair:
                break
            before = held.get(name)
            if before is not None:
                dead = before[0] not in self.alive and self._gone(before[0])
                if before[0] == engine.worker or not (dead or self._stands_still(f"lease {name}", before)):
                    continue
            if engine.writer.do(lambda c, n=name, b=before: admin.take_lease(c, n, engine.worker, b)):  # type: ignore[misc]
                mine = mine | {name}
        if len(mine) > fair and len(self.alive) > 1:
            name = max(mine)  # one a cycle: the others need time to take it
            live = engine.rankers.get(name)
            if live is not None:
                live.held = False
                engine.learning.save(live, force=True)
            engine.writer.do(lambda c: admin.release_lease(c, name, engine.worker))
            mine = mine - {name}
        return mine

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
