"""The engine: ranks, takes feedback, and keeps what others learn in step. Knows nothing of HTTP.

A request to rank is: candidates -> array -> the learner in a thread, with a deadline -> impression appended and
committed -> answer. A feedback is: events joined and committed -> answer; learning happens behind it, in the one
process that holds the ranker's lease (`learning/`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from rankloop.errors import InvalidInput, RankloopError
from rankloop.service import identity
from rankloop.service.errors import Conflict, OverLimit, StoreUnavailable, TooSlow, UnknownRanker
from rankloop.service.experiments import evidence, mixing
from rankloop.service.keys import Keys
from rankloop.service.learning.fold import Learning
from rankloop.service.learning.housekeeping import Housekeeping
from rankloop.service.ranking import model as models
from rankloop.service.ranking.live_ranker import HANGING, LiveRanker
from rankloop.service.ranking.pending import PendingRanking
from rankloop.service.ranking.pool import Pool
from rankloop.service.settings import Settings
from rankloop.service.store import NewEvent, Writer, admin, keys, log, open_database, schema, trials
from rankloop.service.store.ids import new_id
from rankloop.service.store.log import Closing, Receipts
from rankloop.service.telemetry.history import History
from rankloop.service.telemetry.metrics import Metrics, process_memory
from rankloop.service.telemetry.position_counts import PositionCounts
from rankloop.service.wire.calls import RankRequest

SWITCH = 0.0005  # seconds a busy thread may keep the interpreter from one that answers; Python waits 5 ms
WARM_SECONDS = 60.0  # that one waits for a learner to warm up; until it is warm it is not asked
NUMBERS = 1024  # impression numbers a process reserves at a time
logger = logging.getLogger("rankloop")


class Engine:
    """One process's share of the service.

    Parameters
    ----------
    settings
        Where the store is, and the limits.
    clock
        Time of day; tests move it.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.clock = settings, clock
        self.machine = identity.machine()
        self.worker = f"{self.machine}:{os.getpid()}:{new_id()[-6:]}"
        self.metrics = Metrics()
        self.position_counts = PositionCounts()
        self.history = History()
        self.keys = Keys(settings, clock)
        self.rankers: dict[str, LiveRanker] = {}
        self.database = open_database(settings.store, hurried=True)
        self.pool = Pool(4)
        self.draining = False
        self.warm = threading.Event()
        self._loading = threading.RLock()
        self._warmed: set[bytes] = set()
        self._reserving: dict[str, asyncio.Lock] = {}
        self.writer: Writer
        self.learning: Learning
        self.housekeeping: Housekeeping

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring the store up to date, load every ranker, take leases, begin to learn; kernels warm up behind."""
        sys.setswitchinterval(SWITCH)
        schema.migrate(self.database)
        self.metrics.gauge("process_start_time_seconds", time.time())
        self.writer = Writer(
            self.database,
            identity.kinds(),
            self._committed,
            self._store_error,
            self.clock,
            all_durable=self.settings.durability == "everything",
            stalled_after=self.settings.store_timeout_ms / 1e3,
        )
        if self.settings.parsed_keys():
            self.writer.do(lambda connection: keys.remember(connection, self.clock()))
        self.learning, self.housekeeping = Learning(self), Housekeeping(self)
        self.housekeeping.cycle()
        self.learning.start()
        self.housekeeping.start()
        threading.Thread(target=self._warm_up, name="rankloop-warm-up", daemon=True).start()

    def stop(self) -> None:
        """Learn what is logged, save it, give the leases back."""
        self.draining = True
        self.housekeeping.stop()
        self.learning.stop()
        try:
            self.history.store(self)
            self.writer.do(lambda connection: admin.release(connection, self.worker))
        except (RankloopError, TimeoutError) as error:
            logger.warning("leases could not be given back: %s", error)
        self.writer.close()
        self.pool.close()
        self.database.close()

    @property
    def ready(self) -> str | None:
        """None if requests are welcome, else why not."""
        if self.draining:
            return "stopping"
        return None if self.warm.is_set() else "warming up: kernels are being compiled or loaded"

    def _warm_up(self) -> None:
        evidence.warm()
        for live in list(self.rankers.values()):
            self.warm_ranker(live)
        # numba leaves a million objects behind; looking through them again and again would stop requests for 100 ms.
        gc.collect()
        gc.freeze()
        self.warm.set()
        logger.info("ready: kernels are warm")
        for live in list(self.rankers.values()):  # those made meanwhile, which `load` left to this thread
            if not live.warm:
                self.warm_ranker(live)

    def warm_ranker(self, live: LiveRanker, patience: float | None = None) -> None:
        """Make sure that no request waits for a compiler. A learner may hang here, too: in a thread of its own."""
        thread = threading.Thread(target=self._warm_one, args=(live,), name="rankloop-warm-one", daemon=True)
        thread.start()
        thread.join(WARM_SECONDS if patience is None else patience)

    def _warm_one(self, live: LiveRanker) -> None:
        key = msgspec.json.encode([live.row.spec.learner, live.row.spec.parameters, bool(live.row.spec.features)])
        if key not in self._warmed:
            try:
                models.warm(live.row.spec)
            except BaseException:  # a learner that fails gives fallbacks, which say so; the service stands
                logger.exception("ranker %s: its learner failed while warming up", live.row.name)
            self._warmed.add(key)
        live.warm = True

    # -- loading ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Load rankers that are new or have changed in the store, drop those that are gone."""
        with self._loading:
            wanted = self.database.read(admin.revisions)
            for name in set(self.rankers).difference(wanted):
                del self.rankers[name]
            for name, revision in wanted.items():
                live = self.rankers.get(name)
                if live is None or live.row.revision != revision:
                    try:
                        self.load(name, patience=0.0)  # leases do not wait for a compiler
                    except StoreUnavailable:
                        raise
                    except RankloopError as error:  # one ranker's trouble is not another's
                        logger.error("ranker %s cannot be loaded: %s", name, error)

    def load(self, name: str, patience: float | None = None) -> LiveRanker | None:
        """Read a ranker and, if it has another state than the one in memory, its snapshot."""
        with self._loading:
            row, snapshot, version, found = self.database.read(lambda connection: _stored(connection, name))
            if row is None or snapshot is None:
                self.rankers.pop(name, None)
                return None
            live = self.rankers.get(name)
            fixed = models.fixed_part(row.spec)
            same = live is not None and live.model.generation == snapshot.generation
            if live is None or not same or models.fixed_part(live.row.spec) != fixed or live.row.created != row.created:
                what = f"ranker {name!r}, snapshot {snapshot.seq}"
                model = models.load_model(row.spec, snapshot.generation, snapshot.seq, snapshot.state, what)
                fresh = LiveRanker(row, model)
                if live is not None:
                    fresh.held, fresh.counts = live.held, live.counts
                    fresh.warm = live.warm and models.fixed_part(live.row.spec) == fixed
                live = fresh
            if row.serving is None:
                live.pinned = None
            elif version is not None and (live.pinned is None or live.row.serving != row.serving):
                live.pinned = models.load_model(row.spec, -1, version[0], version[1], f"{name!r}, v{row.serving}")
            live.row, live.trials = row, mixing.opened(self.database, live, row, found)
            self.rankers[name] = live
        if self.warm.is_set() and not live.warm:
            self.warm_ranker(live, patience)
        return live

    async def find(self, name: str) -> LiveRanker:
        """The ranker called `name`, looked up in the store if this process does not know it yet."""
        live = self.rankers.get(name)
        if live is None and await self._revision(name) is not None:
            live = await asyncio.to_thread(self.load, name)
        if live is None:
            raise UnknownRanker.among("ranker", name, sorted(self.rankers) or ["none yet; make one with PUT"])
        return live

    async def _revision(self, name: str) -> int | None:
        """A ranker's revision in the store: one number, so that nobody's mistakes cost others a snapshot."""
        return await asyncio.to_thread(self.database.read, lambda connection: admin.revision(connection, name))

    async def _changed(self, live: LiveRanker) -> LiveRanker | None:
        """The ranker as it is in the store, if that is another than is known here."""
        try:
            if await self._revision(live.row.name) == live.row.revision:
                return None
            return await asyncio.to_thread(self.load, live.row.name)
        except StoreUnavailable:  # what was sent breaks a rule as far as anybody can tell
            return None

    # -- ranking ---------------------------------------------------------------------------------------------------

    async def rank(self, name: str, request: RankRequest, explain: bool = False) -> bytes:
        """The answer to a request, as JSON: stored before it is returned."""
        start = time.perf_counter()
        live = await self.find(name)
        spec, row = live.row.spec, live.row
        if len(request.candidates) > self.settings.max_candidates:
            raise OverLimit(
                f"{len(request.candidates)} candidates; the limit max_candidates is {self.settings.max_candidates}: "
                "send the best of them"
            )
        for what in (request.query, request.user or "", request.request_id or ""):
            if "\0" in what:
                raise InvalidInput("query, user and request_id are text; one has the character NUL in it")
        try:
            candidates = live.schema.read(request.query, request.candidates)
        except InvalidInput:
            # Another process may just have changed the ranker: look before refusing what fits its new features.
            newer = await self._changed(live)
            if newer is None:
                raise
            live, spec, row = newer, newer.row.spec, newer.row
            candidates = live.schema.read(request.query, request.candidates)
        number = live.number()
        if number is None:
            number = await self._reserve(live)
        pending = PendingRanking(
            live, row, request, candidates, min(request.k or spec.k, candidates.n), number, self.clock
        )
        reason = "store" if number is None else None if live.warm else "warming-up"
        if live.hanging >= HANGING:
            reason = "hanging"
        if reason is None:
            reason = await self._ask(pending, live.schema.names if explain else None)
        if reason is not None:
            pending = pending.fall_back(reason)
        if number is None:  # not even a number could be had: the store is down
            return self._unstored(live, pending)
        write = pending.write or pending.store(self.writer)
        try:
            stored = await write.done(self.settings.store_timeout_ms / 1e3)
        except (TimeoutError, StoreUnavailable):
            write.abandoned = True
            return self._unstored(live, pending)
        if not stored.fresh:
            if not stored.same_request:
                raise Conflict(
                    f"request_id {request.request_id!r} was used for another query, k or candidates; "
                    "give every request its own"
                )
            return stored.answer
        self._count_ranked(live, pending.explored, pending.k, reason, time.perf_counter() - start)
        return stored.answer

    async def _ask(self, pending: PendingRanking, names: list[str] | None) -> str | None:
        """Let the learner rank in a thread; None if it has, else why not. The list is on its way to the store then."""
        live, spec, number = pending.live, pending.row.spec, pending.number
        served = live.serving
        assert number is not None
        drawn = None if live.trials is None else live.trials.draw(number, pending.k, pending.row)

        def work() -> None:
            mix = None if drawn is None else mixing.prepared(drawn, pending, self.rankers, self.metrics)
            with live.asked(number):
                pending.ranked(served.rank(pending.candidates, pending.k, number, spec, names, mix), mix)
                pending.store(self.writer)

        try:
            await self.pool.run(work, spec.timeout_ms / 1e3)
            return None
        except (TimeoutError, TooSlow):
            pending.give_up()
            live.given_up(number)
            served.abandon(number)
            if drawn is not None:
                drawn.trial.abandon(live.row.name, number)
            return "timeout"
        except Exception as error:
            pending.give_up()
            logger.warning("ranker %s: the learner failed to rank: %s", live.row.name, error)
            return "error"

    async def _reserve(self, live: LiveRanker) -> int | None:
        """Reserve impression numbers: one caller asks the store, the others wait for it."""
        name = live.row.name
        async with self._reserving.setdefault(name, asyncio.Lock()):
            number = live.number()
            if number is not None:
                return number
            loop = asyncio.get_running_loop()
            write = self.writer.run(lambda connection: log.reserve_numbers(connection, name, NUMBERS), loop)
            try:
                first = await write.done(self.settings.store_timeout_ms / 1e3)
            except (TimeoutError, StoreUnavailable):
                return None
            if first is None:
                raise UnknownRanker(f"ranker {name!r} has been deleted")
            live.refill(first, NUMBERS)
            return live.number()

    def _unstored(self, live: LiveRanker, pending: PendingRanking) -> bytes:
        """The base order, for showing only: the store is down, so there is no impression to report on."""
        live.counts["fallbacks"] += 1
        self.history.ranked(live.row.name, pending.k, 0, True)
        self.metrics.count("rank_requests_total", ranker=live.row.name, exposure=live.row.spec.exposure)
        self.metrics.count("rank_fallbacks_total", ranker=live.row.name, reason="store")
        return pending.unstored()

    def _count_ranked(self, live: LiveRanker, explored: int, k: int, reason: str | None, seconds: float) -> None:
        name, metrics = live.row.name, self.metrics
        live.counts["ranked"] += 1
        metrics.count("rank_requests_total", ranker=name, exposure=live.row.spec.exposure)
        metrics.observe("rank_seconds", seconds, ranker=name)
        metrics.count("ranked_positions_total", k, ranker=name)
        metrics.count("explored_positions_total", explored, ranker=name)
        self.history.ranked(name, k, explored, reason is not None)
        if reason is not None:
            live.counts["fallbacks"] += 1
            metrics.count("rank_fallbacks_total", ranker=name, reason=reason)

    # -- feedback --------------------------------------------------------------------------------------------------

    async def feedback(self, events: Sequence[NewEvent]) -> Receipts:
        """Join events to their impressions; when this returns they are durable."""
        start = time.perf_counter()
        write = self.writer.events(events, asyncio.get_running_loop())
        try:
            found = await write.done(self.settings.feedback_timeout_ms / 1e3)
        except TimeoutError:
            write.abandoned = True  # should it be stored after all, the same events sent again are duplicates
            self._store_error("timeout")
            raise StoreUnavailable("the store does not answer; send the same events again in a moment") from None
        for receipt, name in zip(found.receipts, found.rankers, strict=True):
            self.metrics.count("feedback_events_total", ranker=name, status=receipt.status)
            if name in self.rankers:
                self.rankers[name].counts[receipt.status] += 1
        self.closed(found.closings)
        self.metrics.observe("feedback_seconds", time.perf_counter() - start)
        return found

    def closed(self, closings: Sequence[Closing]) -> None:
        """Count outcomes and wake the learner."""
        for closing in closings:
            name, kind, values, length = closing
            self.metrics.count("outcomes_total", ranker=name, kind=kind)
            self.position_counts.add(name, values, length)
            self.history.closed(closing)
        if closings:
            self.learning.wake.set()

    # -- metrics ---------------------------------------------------------------------------------------------------

    def report(self) -> bytes:
        """This process's metrics."""
        self.position_counts.flush(self.metrics)
        self.metrics.gauge("process_resident_memory_bytes", process_memory())
        return self.metrics.report()

    def _committed(self, count: int, seconds: float) -> None:
        self.metrics.observe("store_commit_seconds", seconds)
        self.metrics.observe("store_batch_size", count)

    def _store_error(self, kind: str) -> None:
        self.metrics.count("store_errors_total", kind=kind)


class _Stored(NamedTuple):
    row: admin.Ranker | None
    snapshot: admin.Snapshot | None
    version: tuple[int, bytes] | None
    running: list[trials.Trial]


def _stored(connection: Any, name: str) -> _Stored:
    row = admin.ranker(connection, name)
    if row is None:
        return _Stored(None, None, None, [])
    version = None if row.serving is None else admin.version_state(connection, name, row.serving)
    return _Stored(row, admin.snapshot(connection, name), version, trials.running(connection, name))
