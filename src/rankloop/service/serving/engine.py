"""The engine of a process that ranks, without HTTP.

rank: candidates -> the published model, on the event loop -> impression to the writer -> answer, once it is committed.
A slow learner, or one of a plugin, ranks in threads of its own, with a deadline.

feedback: events joined and committed -> answer. Learning happens in another process or thread, and
comes back by `LiveRankers.take`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

import msgspec

from rankloop.core.errors import InvalidInput, RankloopError
from rankloop.service.access import Keys
from rankloop.service.errors import Busy, Conflict, StoreUnavailable, TooSlow, UnknownRanker
from rankloop.service.maintenance.housekeeping import Maintenance
from rankloop.service.ranking.exposure import Interleaving
from rankloop.service.ranking.kernel_compilation import KernelCompiler, compile_shared_kernels, freeze
from rankloop.service.ranking.model import Ranked
from rankloop.service.serving import experiments
from rankloop.service.serving.follower import Follower
from rankloop.service.serving.live_ranker import BLOCK, Answered, LiveRanker, PendingRanking
from rankloop.service.serving.live_rankers import LiveRankers
from rankloop.service.serving.schema import RankCall
from rankloop.service.settings import Settings
from rankloop.service.storage import NewEvent, impressions, leases, outcomes, rankers, snapshots
from rankloop.service.storage.events import Receipts
from rankloop.service.storage.impressions import StoredAnswer
from rankloop.service.storage.notifications import Notification
from rankloop.service.storage.writer import Write
from rankloop.service.training import evidence
from rankloop.service.training.learning import Learning
from rankloop.service.training.publication import OUTCOMES_LOGGED, SEND_WHOLE, STARTED, STORE_CHANGED, Subscriber
from rankloop.service.worker.hang_supervisor import MOST_HANGING
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import BoundedExecutor
from rankloop.wire.calls import RankAnswer, Receipt

SWITCH = 0.0005  # seconds a busy thread may keep the interpreter from one that answers; Python waits 5 ms
CURRENT_SECONDS = 5.0  # that an operation waits for a snapshot, or for the next part of one
WARN_EVERY = 60.0  # seconds between warnings of a ranker's rejected events
_INLINE = nullcontext()
logger = logging.getLogger("rankloop")


class Engine(Process):
    """A process that ranks. `inbox` receives from the learning worker of this machine; without one, this process learns
    itself, unless the setting `learn` is off."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float] | None = None, inbox: Subscriber | None = None
    ) -> None:
        super().__init__(settings, clock)
        self.keys = Keys(settings, self.clock)
        self.rankers = LiveRankers(self)
        self.compiler = KernelCompiler(self.rankers)
        self.draining = False
        self.kernels_ready = threading.Event()
        self.inbox = inbox
        self.learning = Learning(self, self.rankers.take, self.compiler) if inbox is None and settings.learn else None
        self.maintenance = Maintenance(self, self.learning, self.wake_learner, self.changed)
        self.follower = Follower(self, self.keys, self.rankers, self.compiler, self.learning)
        self.refresh = self.follower.refresh
        if self.learning is not None:
            self.learning.on_change = self.refresh
        self.answers: Counter[tuple[str, int]] = Counter()  # (route, status) of the calls past the framework
        self._reserving: dict[str, Write[int | None]] = {}
        self._unlogged: Counter[str] = Counter()  # rejected events by ranker since the last warning
        self._warned: dict[str, float] = {}  # when that was, monotonic
        self.operations = BoundedExecutor("changes by operators", threads=8, waiting=32)
        self.reads = BoundedExecutor("reads by operators", threads=4, waiting=64)
        self.lookups = BoundedExecutor("looking up rankers and impressions", threads=4, waiting=256)
        self.bodies = BoundedExecutor("reading large bodies", threads=2, waiting=64)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Upgrade the store, load every ranker, begin to learn; kernels are compiled in the background."""
        sys.setswitchinterval(SWITCH)
        compile_shared_kernels()
        self.open()
        self.refresh()
        if self.learning is not None:
            self.learning.start()
        self.follower.start()
        self.maintenance.start()
        threading.Thread(target=self._compile, name="rankloop-compile-all", daemon=True).start()

    def stop(self) -> None:
        """Learn what is logged, if that happens here; save it and release the leases."""
        self.draining = True
        self.maintenance.stop()
        self.follower.stop()
        self.rankers.catalogs.stop()
        self.rankers.counted.stop()
        if self.learning is not None:
            self.learning.stop()
        try:
            self.count_answered()
            self.history.store(self.writer, self.clock())
            self.writer.do(lambda connection: leases.release_all(connection, self.worker))
        except (RankloopError, TimeoutError) as error:
            logger.warning("the last counts could not be stored: %s", error)
        for live in list(self.rankers.values()):
            live.close()
        self.close()  # before the pools: their threads' connections are closed here
        for pool in (self.operations, self.reads, self.lookups, self.bodies):
            pool.close()

    def dead_threads(self) -> list[str]:
        """The names of necessary threads that have ended unexpectedly."""
        learning = [] if self.learning is None else self.learning.dead_threads()
        others = (self.maintenance, self.follower, self.writer)
        return [*learning, *(name for one in others for name in one.dead_threads())]

    def cycle(self) -> None:
        """Look at the store now rather than at the next heartbeat."""
        self.refresh()
        if self.learning is not None:
            self.learning.heartbeat()
            self.learning.keep_leases()
            self.learning.wake.set()
        elif self.inbox is not None:
            self.inbox.request(STORE_CHANGED)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive from the learning worker, in this event loop."""
        if self.inbox is not None:
            inbox, take = self.inbox, self.rankers.take
            self.rankers.behind = lambda: inbox.request(SEND_WHOLE)
            loop.add_reader(inbox.fileno(), lambda: inbox.read(take, self.follower.refresh_soon))
            inbox.request(STARTED)

    def wake_learner(self, names: Iterable[str]) -> None:
        """Announce outcomes of these rankers, or a snapshot wanted, to those who learn."""
        if self.learning is not None:
            self.learning.outcomes_logged()
        elif self.inbox is not None:
            self.inbox.request(OUTCOMES_LOGGED)
        else:
            for name in names:
                self.notify(Notification("outcomes", name))

    def _compile(self) -> None:
        evidence.compile_kernels()
        for live in list(self.rankers.values()):  # each has its own thread
            thread = self.compiler.begin(live)
            if thread is not None:
                thread.join(self.settings.compile_seconds)
        self.rankers.wait()
        freeze()
        self.kernels_ready.set()
        logger.info("ready: kernels are compiled")

    def load(self, name: str) -> LiveRanker | None:
        """Load a ranker from the store; its kernels are compiled in the background."""
        live = self.rankers.load(name)
        if live is not None and not live.compiled:
            self.compiler.begin(live)
        return live

    def changed(self, name: str) -> None:
        """Reload a ranker that was changed here, and notify those who learn and other machines."""
        self.load(name)
        self.notify(Notification("changed", name))
        if self.learning is not None:
            self.learning.sync()
        elif self.inbox is not None:
            self.inbox.request(STORE_CHANGED)

    async def find(self, name: str) -> LiveRanker:
        """The ranker called `name`, from the store if this process has not loaded it yet."""
        live = self.rankers.get(name)
        if live is None and await self._revision(name) is not None:
            live = await self.lookups.run(self.load, name)
        if live is None:
            raise UnknownRanker.among("ranker", name, sorted(self.rankers) or ["none yet; make one with PUT"])
        return live

    async def _revision(self, name: str) -> int | None:
        """A ranker's revision in the store: one number, so that an unknown name costs little."""
        return await self.lookups.run(self.database.read, lambda connection: rankers.revision(connection, name))

    async def _changed(self, live: LiveRanker) -> LiveRanker | None:
        """The ranker as it is in the store, if it has changed there."""
        try:
            if await self._revision(live.row.name) == live.row.revision:
                return None
            return await self.lookups.run(self.load, live.row.name)
        except (StoreUnavailable, Busy):
            return None

    # -- ranking ---------------------------------------------------------------------------------------------------

    async def rank(self, name: str, body: bytes, explain: bool = False) -> bytes:
        """The answer to a request, as JSON: stored before it is returned."""
        start = time.perf_counter()
        live = self.rankers.get(name) or await self.find(name)
        try:
            call = await self._read(live, body)
        except InvalidInput:
            # Another process may just have changed the ranker: look before refusing what fits its new features.
            newer = await self._changed(live)
            if newer is None:
                raise
            live = newer
            call = await self._read(live, body)
        answer = await self.answer(live, call, explain, start)
        # The token is no part of what is stored: it ends, and the secret that it is signed with may be replaced.
        return self.keys.tokens.added(answer, live.row.spec.window_seconds) if call.token else answer

    async def _read(self, live: LiveRanker, body: bytes) -> RankCall:
        """The request in a body; a large one is decoded in a thread, so that others need not wait for it."""
        schema, most = live.schema, self.settings.max_candidates
        small, read = len(body) <= schema.body.most_inline, schema.body.read
        return schema.call(read(body, most) if small else await self.bodies.run(read, body, most))

    async def answer(self, live: LiveRanker, call: RankCall, explain: bool, start: float) -> bytes:
        """The answer to a request that has been read, in whatever words it came; `start` is when it did."""
        constraints = None
        if live.has_rules or call.wishes is not None:
            call, constraints = live.schema.constrain(call, live.row.spec)
        candidates = live.schema.candidates(call)
        number = live.numbers.take()
        if number is None or live.numbers.low:
            number = await self._reserved(live, number)
        pending = PendingRanking(live, call, candidates, number, self.clock, constraints)
        return await self._stored(pending, explain, start)

    async def _stored(self, pending: PendingRanking, explain: bool, start: float) -> bytes:
        """The answer to a stored ranking, or the baseline ranking if it cannot be stored."""
        live, call = pending.live, pending.call
        if pending.number is None:  # not even a number could be had
            return self._unstored(live, pending)
        ranked, rival, reason = await self._ranked(pending, live.schema.names if explain else None)
        write = self.writer.impression(pending.impression(ranked, rival, reason), asyncio.get_running_loop())
        try:
            stored: StoredAnswer = await write.done(self.settings.store_timeout_ms / 1e3)
        except (TimeoutError, StoreUnavailable):
            write.abandoned = True
            return self._unstored(live, pending)
        if not stored.fresh:
            if not stored.same_request:
                raise Conflict(
                    f"request_id {call.request_id!r} was used for another query, k or candidates; "
                    "give every request its own"
                )
            return stored.answer
        seconds = time.perf_counter() - start
        choice = ranked.choice
        live.answered.append(Answered(pending.spec.exposure, choice.decided, choice.explored, reason, seconds))
        return stored.answer

    async def _ranked(
        self, pending: PendingRanking, names: Sequence[str] | None
    ) -> tuple[Ranked, Interleaving | None, str | None]:
        """A ranking, what it is interleaved with, and why it is the baseline ranking, if it is."""
        live, spec, number = pending.live, pending.spec, pending.number
        served = live.serving
        assert number is not None
        reason = "damaged" if served is None else None if live.compiled else "compiling"
        if not live.inline and live.hanging >= MOST_HANGING:
            reason = "hanging"
        if pending.constraints is not None and pending.constraints.fixed:
            reason = "pinned"
        if served is None or reason is not None:
            return pending.baseline(), None, reason
        running = None if pending.call.as_shown else self.rankers.experiments.get(live.row.name)
        assigned = None if running is None else running.assign(number, pending.k, pending.row)

        def work(inside: AbstractContextManager[None]) -> tuple[Ranked, Interleaving | None]:
            rival = None if assigned is None else experiments.prepare(assigned, pending, self.rankers, self.metrics)
            with inside:
                began = time.perf_counter()
                ranked = served.rank(pending.candidates, pending.k, number, spec, names, rival, pending.constraints)
                if pending.call.chances:
                    ranked = ranked._replace(chances=served.chances(pending.candidates, spec))
                live.record(time.perf_counter() - began)
            return ranked, rival

        try:
            if live.inline and (assigned is None or assigned.experiment.inline(self.rankers)):
                return *work(_INLINE), None
            return *await live.pool.run(lambda: work(live.inside(number)), spec.timeout_ms / 1e3), None
        except (TimeoutError, TooSlow):
            live.abandon(number)
            if assigned is not None:
                assigned.experiment.abandon(number)
            return pending.baseline(), None, "timeout"
        except Exception as error:
            logger.warning("ranker %s: the learner failed to rank: %s", live.row.name, error)
            return pending.baseline(), None, "error"

    async def _reserved(self, live: LiveRanker, number: int | None) -> int | None:
        """Reserve more numbers, once for all requests; wait for them only if none is left."""
        name, loop = live.row.name, asyncio.get_running_loop()
        write = self._reserving.get(name)
        if write is None or write.loop is not loop:
            write = self.writer.run(lambda connection: impressions.reserve_numbers(connection, name, BLOCK), loop)
            self._reserving[name] = write
            assert write.waiter is not None
            write.waiter.add_done_callback(lambda done: self._refill(live, write, done))
        if number is not None:
            return number
        assert write.waiter is not None
        try:
            first = await asyncio.wait_for(asyncio.shield(write.waiter), self.settings.store_timeout_ms / 1e3)
        except (TimeoutError, StoreUnavailable):
            return None
        if first is None:
            raise UnknownRanker(f"ranker {name!r} has been deleted")
        return live.numbers.take()

    def _refill(self, live: LiveRanker, write: Write[int | None], done: asyncio.Future[int | None]) -> None:
        if self._reserving.get(live.row.name) is write:
            del self._reserving[live.row.name]
        if not done.cancelled() and done.exception() is None and (first := done.result()) is not None:
            live.numbers.refill(first)

    def _unstored(self, live: LiveRanker, pending: PendingRanking) -> bytes:
        """The baseline ranking, without an impression, because the store is unavailable."""
        live.answered.append(Answered(pending.spec.exposure, 0, 0, "store", None))
        return pending.unstored()

    def withdraw(self, answer: bytes) -> None:
        """Discard the impression of an answer whose client has disconnected: nobody saw it."""
        own = msgspec.json.decode(answer, type=RankAnswer).impression_id
        if own is not None:
            with suppress(Busy, StoreUnavailable):
                self.writer.run(lambda connection: impressions.discard_impressions(connection, [own]))

    def count_answered(self) -> None:
        """Count what was answered since the last call."""
        for (route, status), count in [(key, self.answers.pop(key)) for key in list(self.answers)]:
            self.metrics.count("http_requests_total", count, route=route, status=status)
        for live in list(self.rankers.values()):
            name, answered, metrics = live.row.name, live.answered, self.metrics
            while answered:
                exposure, decided, explored, reason, seconds = answered.popleft()
                metrics.count("rank_requests_total", ranker=name, exposure=exposure)
                self.history.ranked(name, decided, explored, reason is not None)
                if seconds is not None:
                    metrics.observe("rank_seconds", seconds, ranker=name)
                    metrics.count("ranked_positions_total", decided, ranker=name)
                    metrics.count("explored_positions_total", explored, ranker=name)
                if reason is not None:
                    metrics.count("rank_fallbacks_total", ranker=name, reason=reason)
            self.rankers.count_missing(live)

    # -- feedback --------------------------------------------------------------------------------------------------

    async def feedback(self, events: Sequence[NewEvent]) -> Receipts:
        """Join events to their impressions; when this returns they are durable."""
        start = time.perf_counter()
        write = self.writer.events(events, asyncio.get_running_loop())
        try:
            found = await write.done(self.settings.feedback_timeout_ms / 1e3)
        except TimeoutError:
            write.abandoned = True  # if it is stored after all, a retry is a duplicate
            self._store_error("timeout")
            raise StoreUnavailable("the store does not answer; send the same events again in a moment") from None
        for receipt, name in zip(found.receipts, found.rankers, strict=True):
            self.metrics.count("feedback_events_total", ranker=name, status=receipt.status)
            if receipt.status == "rejected":
                self._warn_of(name, receipt)
        if found.closings:
            self.count_closed(found.closings)
            self.wake_learner({closing.ranker for closing in found.closings})
        self.metrics.observe("feedback_seconds", time.perf_counter() - start)
        return found

    def _warn_of(self, ranker: str, receipt: Receipt) -> None:
        """Log a rejected event: one line per ranker in `WARN_EVERY` seconds, with the number since the last."""
        self._unlogged[ranker] += 1
        now = time.monotonic()
        if now - self._warned.get(ranker, -WARN_EVERY) >= WARN_EVERY:
            self._warned[ranker], count = now, self._unlogged.pop(ranker)
            logger.warning(
                "ranker %s: %d feedback events were rejected; the last is %r: %s",
                ranker or "unknown",
                count,
                receipt.event_id,
                receipt.reason,
            )

    def collect(self) -> None:
        """Bring the metrics up to date with what is counted elsewhere."""
        self.count_answered()
        self.rankers.measure()
        super().collect()

    def save_now(self, name: str) -> int:
        """Request a snapshot of all outcomes acknowledged so far and wait for it; returns the number of outcomes.

        Gives up after `CURRENT_SECONDS` without progress, so the caller must check what the last snapshot covers, in
        the transaction that uses it. Blocking: call in a thread.
        """
        wanted = self.writer.do(lambda connection: outcomes.request_snapshot(connection, name))
        self.wake_learner([name])
        end, seen, pause = time.monotonic() + CURRENT_SECONDS, None, 0.005
        while True:
            found, reached = self.database.read(
                lambda c: (snapshots.snapshot_position(c, name), snapshots.newest_chunk(c, name))
            )
            if wanted is None or found is None:
                raise UnknownRanker(f"ranker {name!r} has been deleted")
            now = time.monotonic()
            if reached != seen:
                end, seen = now + CURRENT_SECONDS, reached
            if found[1] >= wanted or now > end or self.draining:
                return wanted
            time.sleep(pause)
            pause = min(1.2 * pause, 0.1)
