"""One thread that writes, and commits whatever has gathered since the last commit in one transaction.

A request waits for its commit, so what was answered is on the disk; many requests share one fsync, so waiting is
short. Errors are sorted here: what passes by itself is tried again, what does not is told to those who wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from rankloop.service.errors import StoreUnavailable
from rankloop.service.store import log
from rankloop.service.store.database import Connection, Database, Retryable
from rankloop.service.store.log import NewEvent, NewImpression, Receipts, Stored

T = TypeVar("T")
BATCH = 256  # requests a commit at most
BUSY = 0.002  # seconds since the last commit within which the next one waits for company
GATHER = 0.001  # for so long: a commit costs as much for ten as for one
TIDY_EVERY = 5.0  # seconds between looks at the database files
PATIENCE = 5.0  # seconds for which a lost connection or a lock is tried again


class Write(Generic[T]):
    """Something to write, and the future that tells when it is durable: of threads, or of an event loop."""

    def __init__(self, kind: str, payload: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.kind, self.payload, self.loop = kind, payload, loop
        self.future: Future[T] = _NOBODY if loop else Future()
        self.waiter: asyncio.Future[T] | None = loop.create_future() if loop else None
        self.abandoned = False  # whoever waited has gone: do not write, or take it back

    async def done(self, timeout: float | None = None) -> T:
        """Wait for it in the event loop it was made for; TimeoutError after `timeout` seconds."""
        assert self.loop is not None
        assert self.waiter is not None
        watch = None if timeout is None else self.loop.call_later(timeout, _settle, self.waiter, None, TimeoutError())
        try:
            return await self.waiter
        finally:
            if watch is not None:
                watch.cancel()


_NOBODY: Future[Any] = Future()


def _settle(waiter: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(error)


def _settle_all(settled: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for waiter, result, error in settled:
        _settle(waiter, result, error)


def _tell(writes: Sequence[Write[Any]], results: Sequence[Any], error: BaseException | None = None) -> None:
    """Tell everyone who waits; an event loop is woken once for all of its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
    for write, result in zip(writes, results, strict=True):
        if write.loop is not None and write.waiter is not None:
            by_loop.setdefault(write.loop, []).append((write.waiter, result, error))
        elif error is None:
            write.future.set_result(result)
        else:
            write.future.set_exception(error)
    for loop, settled in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(_settle_all, settled)


class Writer:
    """The writing end of a store.

    Parameters
    ----------
    database
        Where to.
    kinds
        Learner name -> "clicks" or "grades".
    on_commit
        Called after a commit with (writes in it, seconds it took).
    on_error
        Called with a word for each error.
    clock
        Time of day, in seconds; tests move it.
    """

    def __init__(
        self,
        database: Database,
        kinds: dict[str, str],
        on_commit: Callable[[int, float], None] = lambda _count, _seconds: None,
        on_error: Callable[[str], None] = lambda _kind: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.database, self.kinds, self.clock = database, kinds, clock
        self._on_commit, self._on_error = on_commit, on_error
        self._queue: queue.SimpleQueue[Write[Any] | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="rankloop-writer", daemon=True)
        self._thread.start()

    def impression(self, new: NewImpression, loop: asyncio.AbstractEventLoop | None = None) -> Write[Stored]:
        """Append an impression."""
        return self._put(Write("impression", new, loop))

    def events(self, new: Sequence[NewEvent], loop: asyncio.AbstractEventLoop | None = None) -> Write[Receipts]:
        """Append events, all of one request."""
        return self._put(Write("events", list(new), loop))

    def run(self, work: Callable[[Connection], T], loop: asyncio.AbstractEventLoop | None = None) -> Write[T]:
        """Do anything else in a transaction."""
        return self._put(Write("work", work, loop))

    def do(self, work: Callable[[Connection], T], timeout: float | None = 30.0) -> T:
        """The same, and wait for it."""
        return self.run(work).future.result(timeout)

    def close(self) -> None:
        """Commit what waits, then stop."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        self._thread.join(timeout=30.0)

    def _put(self, write: Write[T]) -> Write[T]:
        if self._closing:
            _tell([write], [None], StoreUnavailable("the service is stopping; send it again to one that runs"))
        else:
            self._queue.put(write)
        return write

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        last, tidied, committed = False, time.monotonic(), 0.0
        while not last:
            batch = [self._queue.get()]
            if time.monotonic() - committed < BUSY:
                time.sleep(GATHER)
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH:
                    batch.append(self._queue.get_nowait())
            last = None in batch
            writes = [write for write in batch if write is not None and not write.abandoned]
            if writes:
                self._commit(writes)
                committed = time.monotonic()
            if self._connection is not None and time.monotonic() - tidied > TIDY_EVERY:
                tidied = time.monotonic()
                self._connection.tidy()
        self._disconnect()

    def _commit(self, writes: list[Write[Any]]) -> None:
        start, first_failure = time.perf_counter(), None
        while True:
            try:
                results = self._try(writes)
                break
            except Retryable as error:
                self._on_error("passing")
                self._disconnect()
                first_failure = first_failure or time.monotonic()
                writes = [write for write in writes if not write.abandoned]
                if time.monotonic() - first_failure > PATIENCE or not writes:
                    return self._fail(writes, StoreUnavailable(f"the store cannot be reached ({error}); try again"))
                time.sleep(0.02)
            except StoreUnavailable as error:
                self._on_error("unavailable")
                self._disconnect()
                return self._fail(writes, error)
            except Exception as error:  # one of them is at fault: let the others pass
                self._on_error("unexpected")
                self._disconnect()
                if len(writes) == 1:
                    return self._fail(writes, error)
                for write in writes:
                    self._commit([write])
                return None
        self._on_commit(len(writes), time.perf_counter() - start)
        _tell(writes, results)
        lost = [write.payload.id for write in writes if write.abandoned and write.kind == "impression"]
        if lost:
            with contextlib.suppress(Exception):
                self._try([Write("work", lambda connection: log.discard_impressions(connection, lost))])
        return None

    def _try(self, writes: list[Write[Any]]) -> list[Any]:
        connection = self._connect()
        results: dict[int, Any] = {}
        with connection.transaction():
            impressions = [write for write in writes if write.kind == "impression"]
            if impressions:
                stored = log.add_impressions(connection, [write.payload for write in impressions])
                results.update({id(write): result for write, result in zip(impressions, stored, strict=True)})
            events = [write for write in writes if write.kind == "events"]
            if events:
                self._add_events(connection, events, results)
            for write in writes:
                if write.kind == "work":
                    results[id(write)] = write.payload(connection)
        return [results[id(write)] for write in writes]

    def _add_events(self, connection: Connection, writes: list[Write[Any]], results: dict[int, Any]) -> None:
        """All events of the batch at once; each request gets the part that is about its own."""
        together = [event for write in writes for event in write.payload]
        found = log.add_events(connection, together, self.clock(), self.kinds)
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

    @staticmethod
    def _fail(writes: list[Write[Any]], error: BaseException) -> None:
        _tell(writes, [None] * len(writes), error)
