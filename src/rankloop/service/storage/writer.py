"""The writer of a process: one thread that commits all waiting writes in one transaction (group commit).

A request waits for its commit, so acknowledged data stays. Impressions, which need not be on the disk before they are
answered, are committed first and apart from feedback, which must be. Temporary errors are retried here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreSlow, StoreUnavailable
from rankloop.service.storage import events, impressions
from rankloop.service.storage.database import Connection, Contended, Database, Retryable
from rankloop.service.storage.events import NewEvent, Receipts
from rankloop.service.storage.impressions import NewImpression, StoredAnswer

T = TypeVar("T")
BATCH = 256  # requests per commit at most
PAUSE = 0.02  # seconds between attempts
PATIENCE = 3.0  # seconds of failed attempts after which writes fail
MAINTAIN_EVERY = 0.25  # seconds
MAX_WAITING = 4096  # writes
MAX_BYTES = 64 * 2**20  # of waiting writes
KEPT = 100_000  # commits that the metrics have not counted yet
SLOW = 0.02  # seconds of a commit in the event loop after which the thread writes
SLOW_FOR = 10.0  # for so many seconds
OVERHEAD = 1024  # bytes that a write takes beside its payload
BATCH_SECONDS = 0.02  # per transaction of `in_batches`
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 50, 200, 5000  # per transaction of `in_batches`


class Write(Generic[T]):
    """A write with the future of its result: of threads, or of an event loop."""

    def __init__(self, kind: str, payload: Any, loop: asyncio.AbstractEventLoop | None = None, size: int = 0) -> None:
        self.kind, self.payload, self.loop, self.size = kind, payload, loop, size + OVERHEAD
        self.future: Future[T] = _NO_FUTURE if loop else Future()
        self.waiter: asyncio.Future[T] | None = loop.create_future() if loop else None
        self.begun = False  # the writer has started it
        self.abandoned = False  # the caller has given up: do not write, or undo it

    @property
    def latency_sensitive(self) -> bool:
        """Whether a user waits for a page: for an impression or another request, not for feedback."""
        return self.kind == "impression" or (self.kind == "work" and self.loop is not None)

    async def done(self, timeout: float | None = None) -> T:
        """Wait for the result in its event loop; TimeoutError after `timeout` seconds."""
        assert self.loop is not None
        assert self.waiter is not None
        timer = None if timeout is None else self.loop.call_later(timeout, _resolve, self.waiter, None, TimeoutError())
        try:
            return await self.waiter
        finally:
            if timer is not None:
                timer.cancel()


_NO_FUTURE: Future[Any] = Future()


def _resolve(waiter: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(error)


def _resolve_all(resolved: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for waiter, result, error in resolved:
        _resolve(waiter, result, error)


def complete(writes: Sequence[Write[Any]], results: Sequence[Any], error: BaseException | None = None) -> None:
    """Set the results of writes; an event loop is woken once for all of its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
    for write, result in zip(writes, results, strict=True):
        if write.loop is not None and write.waiter is not None:
            by_loop.setdefault(write.loop, []).append((write.waiter, result, error))
        elif error is None:
            write.future.set_result(result)
        else:
            write.future.set_exception(error)
    for loop, resolved in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(_resolve_all, resolved)


class Writer:
    """The writing end of a store.

    Parameters
    ----------
    database
        The store.
    kinds
        Learner name -> "clicks" or "grades".
    on_error
        Called with the kind of each failure of the store; refused requests are not failures.
    clock
        Time in seconds; tests replace it.
    all_durable
        Whether impressions, too, are on the disk before they are answered. Everything else always is.
    stalled_after
        Seconds without a successful commit after which latency-sensitive writes are refused at once, except for one
        that tests whether the store is back.
    """

    def __init__(
        self,
        database: Database,
        kinds: dict[str, str],
        on_error: Callable[[str], None] = lambda _kind: None,
        clock: Callable[[], float] = time.time,
        all_durable: bool = True,
        stalled_after: float = math.inf,
    ) -> None:
        self.database, self.kinds, self.clock, self.all_durable = database, kinds, clock, all_durable
        self._on_error = on_error
        self.commits: deque[tuple[int, float]] = deque(maxlen=KEPT)  # (writes, seconds), for the metrics
        self._queue: queue.SimpleQueue[Write[Any] | None] = queue.SimpleQueue()
        self._waiting, self._bytes, self._counting = 0, 0, threading.Lock()
        self._connection: Connection | None = None
        self._loop_connection: Connection | None = None
        self._gathered: dict[asyncio.AbstractEventLoop, list[Write[StoredAnswer]]] = {}
        self._slow_until = 0.0  # monotonic
        self._stalled_after, self._since = stalled_after, math.inf  # when the commit under way began, monotonic
        self._failing_since = math.inf  # monotonic
        self._committed = time.monotonic()  # of the last commit
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rankloop-writer", daemon=True)
        self._thread.start()
        self._maintaining = threading.Thread(target=self._maintain, name="rankloop-store", daemon=True)
        self._maintaining.start()

    def impression(self, new: NewImpression, loop: asyncio.AbstractEventLoop | None = None) -> Write[StoredAnswer]:
        """Append an impression."""
        write: Write[StoredAnswer] = Write("impression", new, loop, len(new.body) + len(new.answer) + len(new.shown))
        if loop is None or self.all_durable or not self.database.fast_commits or time.monotonic() < self._slow_until:
            return self._put(write)
        gathered = self._gathered.get(loop)
        if gathered is None:
            self._gathered = {loop: [write]}  # writes of a closed loop are dropped
            loop.call_soon(self._write_in_loop, loop)
        else:
            gathered.append(write)
        return write

    def events(self, new: Sequence[NewEvent], loop: asyncio.AbstractEventLoop | None = None) -> Write[Receipts]:
        """Append the events of one request."""
        return self._put(Write("events", list(new), loop, sum(len(one.body) for one in new)))

    def run(self, work: Callable[[Connection], T], loop: asyncio.AbstractEventLoop | None = None) -> Write[T]:
        """Run `work` in a transaction. An error that it raises undoes its changes and is its result.

        `work` must be idempotent: if a COMMIT is not acknowledged, it is run again.
        """
        return self._put(Write("work", work, loop))

    def do(self, work: Callable[[Connection], T], timeout: float = 30.0) -> T:
        """Run `work` in a transaction, as `run` does, and wait for its result."""
        write = self.run(work)
        found: Future[T] = write.future
        try:
            return found.result(timeout)
        except TimeoutError:
            if found.done():  # the work's own
                raise
            write.abandoned = True
            if write.begun:
                raise StoreSlow(
                    f"the store has not answered for {timeout:g} seconds; the change may still happen: "
                    "check before you repeat it"
                ) from None
            raise StoreUnavailable(f"the store has been busy for {timeout:g} seconds; try again") from None

    @property
    def silence(self) -> float:
        """Seconds since the last commit. Every process writes its heartbeat about once per second."""
        return time.monotonic() - self._committed

    def dead_threads(self) -> list[str]:
        """Return the names of threads that have ended though the writer was not closed."""
        threads = [] if self._closing.is_set() else [self._thread, self._maintaining]
        return [thread.name for thread in threads if not thread.is_alive()]

    def close(self) -> None:
        """Commit what waits, then stop."""
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)
        self._thread.join(timeout=30.0)
        self._maintaining.join(timeout=30.0)
        if self._loop_connection is not None:
            self._loop_connection.close()

    def _put(self, write: Write[T]) -> Write[T]:
        if self._closing.is_set():
            complete([write], [None], StoreUnavailable("the service is stopping; send it again to one that runs"))
            return write
        if (
            self._waiting
            and write.latency_sensitive
            and time.monotonic() - min(self._since, self._failing_since) > self._stalled_after
        ):
            complete([write], [None], StoreUnavailable("the store does not answer; try again"))
            return write
        with self._counting:  # bounds memory while the store hangs
            full = self._waiting >= MAX_WAITING or self._bytes + write.size > MAX_BYTES
            if not full:
                self._waiting += 1
                self._bytes += write.size
        if full:
            self._on_error("full")
            complete([write], [None], StoreUnavailable(f"{self._waiting} writes wait for the store; try again"))
        else:
            self._queue.put(write)
        return write

    # -- in the event loop -----------------------------------------------------------------------------------------

    def _write_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit the impressions gathered in one iteration of the loop, without the thread.

        A commit that does not wait for the disk takes less time than to hand it over to a thread. If another process
        writes, after an error and while the disk is slow, the thread writes.
        """
        writes = [write for write in self._gathered.pop(loop, []) if not write.abandoned]
        if self._closing.is_set() or not writes:
            for write in writes:
                self._put(write)
            return
        start = time.perf_counter()
        try:
            if self._loop_connection is None:
                self._loop_connection = self.database.connect()
            with self._loop_connection.transaction(durable=False, wait=False):
                results = impressions.add_impressions(self._loop_connection, [write.payload for write in writes])
        except Exception as error:
            if not isinstance(error, Contended) and self._loop_connection is not None:
                self._loop_connection.close()
                self._loop_connection = None
            for write in writes:
                self._put(write)
            return
        seconds = time.perf_counter() - start
        if seconds > SLOW:
            self._slow_until = time.monotonic() + SLOW_FOR
        self.commits.append((len(writes), seconds))
        for write, result in zip(writes, results, strict=True):
            assert write.waiter is not None
            _resolve(write.waiter, result, None)

    # -- the threads -----------------------------------------------------------------------------------------------

    def _maintain(self) -> None:
        while not self._closing.wait(MAINTAIN_EVERY):
            self.database.maintain()
        while self._thread.is_alive():  # the last writes may hang, too
            self._thread.join(MAINTAIN_EVERY)
            self.database.maintain()

    def _work(self) -> None:
        last = False
        while not last:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH:
                    batch.append(self._queue.get_nowait())
            last = None in batch
            writes = [write for write in batch if write is not None]
            self._since = time.monotonic()
            self._write([write for write in writes if not write.abandoned])
            self._since = math.inf
            with self._counting:
                self._waiting -= len(writes)
                self._bytes -= sum(write.size for write in writes)
        self._disconnect()

    def _write(self, writes: list[Write[Any]]) -> None:
        for write in writes:
            write.begun = True
        if self.all_durable:
            self._commit(writes, durable=True)
        else:
            self._commit([write for write in writes if write.kind == "impression"], durable=False)
            self._commit([write for write in writes if write.kind != "impression"], durable=True)

    def _commit(self, writes: list[Write[Any]], durable: bool) -> None:
        start = time.perf_counter()
        while writes:
            try:
                results = self._try(writes, durable)
                self._failing_since, self._committed = math.inf, time.monotonic()
                break
            except Retryable as error:
                if not isinstance(error, Contended):
                    self._on_error("passing")
                    self._disconnect()
                # Counted over all batches: while the store is away, each request is one attempt, without waiting.
                self._failing_since = min(self._failing_since, time.monotonic())
                writes = [write for write in writes if not write.abandoned]
                if time.monotonic() - self._failing_since > PATIENCE:
                    return _fail(writes, StoreUnavailable(f"the store cannot be reached ({error}); try again"))
                time.sleep(PAUSE)
            except StoreUnavailable as error:
                self._on_error("unavailable")
                self._disconnect()
                return _fail(writes, error)
            except _Refused as refused:  # rolled back with the others, which are repeated without it
                _fail([refused.write], refused.error)
                writes = [write for write in writes if write is not refused.write]
            except Exception as error:  # commit one by one, so that only the faulty one fails
                self._on_error("unexpected")
                self._disconnect()
                if len(writes) == 1:
                    return _fail(writes, error)
                for write in writes:
                    self._commit([write], durable)
                return None
        if writes:
            self.commits.append((len(writes), time.perf_counter() - start))
            complete(writes, results)
            self._discard([write.payload.id for write in writes if write.abandoned and write.kind == "impression"])
        return None

    def _discard(self, lost: list[str]) -> None:
        """Delete impressions whose callers gave up while they were written."""
        if lost:
            with contextlib.suppress(Exception), self._connect().transaction(durable=False):
                impressions.discard_impressions(self._connect(), lost)

    def _try(self, writes: list[Write[Any]], durable: bool) -> list[Any]:
        connection = self._connect()
        results: dict[int, Any] = {}
        with connection.transaction(durable):
            new = [write for write in writes if write.kind == "impression"]
            if new:
                stored = impressions.add_impressions(connection, [write.payload for write in new])
                results.update({id(write): result for write, result in zip(new, stored, strict=True)})
            feedback = [write for write in writes if write.kind == "events"]
            if feedback:
                self._add_events(connection, feedback, results)
            for write in writes:
                if write.kind == "work":
                    results[id(write)] = _run(write, connection)
        return [results[id(write)] for write in writes]

    def _add_events(self, connection: Connection, writes: list[Write[Any]], results: dict[int, Any]) -> None:
        """Add all events of the batch at once; each request gets the receipts of its own."""
        together = [event for write in writes for event in write.payload]
        found = events.add_events(connection, together, self.clock(), self.kinds)
        at = 0
        for write in writes:
            part = slice(at, at + len(write.payload))
            # Closings are counted once, with the first request of the batch.
            results[id(write)] = Receipts(found.receipts[part], found.rankers[part], [] if at else found.closings)
            at = part.stop

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self.database.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None


class _Refused(Exception):
    """Work has raised an error that is its result: an unknown ranker, a conflict, …"""

    def __init__(self, write: Write[Any], error: RankloopError) -> None:
        super().__init__(str(error))
        self.write, self.error = write, error


def _run(write: Write[Any], connection: Connection) -> Any:
    try:
        return write.payload(connection)
    except StoreUnavailable:
        raise
    except RankloopError as error:
        raise _Refused(write, error) from error


def _fail(writes: list[Write[Any]], error: BaseException) -> None:
    complete(writes, [None] * len(writes), error)


def in_batches(
    writer: Writer, work: Callable[[Connection, int], T | None], stopping: Callable[[], bool] = lambda: False
) -> Iterator[T]:
    """Call `work` with a number of rows, each time in a transaction of its own, until its result is false; yield its
    results. Transactions are short, with pauses as long, so that other writes get in between."""
    rows = FIRST_ROWS

    def timed(connection: Connection) -> tuple[T | None, float]:
        began = time.perf_counter()
        return work(connection, rows), began

    while not stopping():
        done, began = writer.do(timed)
        took = time.perf_counter() - began  # with the commit, which writes what was deleted
        if not done:
            return
        yield done
        if took > 2 * BATCH_SECONDS:
            rows = max(LEAST_ROWS, rows // 2)
        elif took < BATCH_SECONDS / 2:
            rows = min(MOST_ROWS, 2 * rows)
        time.sleep(took)
