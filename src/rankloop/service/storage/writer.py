"""One thread that writes, and commits whatever has gathered since the last commit in one transaction.

A request waits for its commit, so what was answered stays; many requests share a commit, so waiting is short. What
must be on the disk before it is answered and what need not be are committed apart, the latter first: a list does not
wait for somebody's feedback to reach the disk. Errors are sorted here: what passes by itself is tried again, what does
not is told to those who wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreSlow, StoreUnavailable
from rankloop.service.storage import log
from rankloop.service.storage.database import Connection, Contended, Database, Retryable
from rankloop.service.storage.log import NewEvent, NewImpression, Receipts, Stored

T = TypeVar("T")
BATCH = 256  # requests a commit at most
PAUSE = 0.02  # seconds between tries
PATIENCE = 3.0  # seconds of trouble for which everyone waits; feedback has a little more
TEND_EVERY = 0.25  # seconds between looks at what the database wants seen to
MOST = 4096  # writes that may wait
KEPT = 100_000  # commits that nobody has counted yet
MOST_BYTES = 64 * 2**20  # what they may hold together
SLOW = 0.02  # seconds of a commit in the event loop after which the thread writes
LONGER = 10.0  # for so many seconds
OVERHEAD = 1024  # bytes that a write takes beside what it carries


class Write(Generic[T]):
    """Something to write, and the future that tells when it is done: of threads, or of an event loop."""

    def __init__(self, kind: str, payload: Any, loop: asyncio.AbstractEventLoop | None = None, size: int = 0) -> None:
        self.kind, self.payload, self.loop, self.size = kind, payload, loop, size + OVERHEAD
        self.future: Future[T] = _NOBODY if loop else Future()
        self.waiter: asyncio.Future[T] | None = loop.create_future() if loop else None
        self.begun = False  # the writer has it
        self.abandoned = False  # whoever waited has gone: do not write, or take it back

    @property
    def hasty(self) -> bool:
        """Whether somebody looks at a page that is not there yet: a list, or what one needs, but not feedback."""
        return self.kind == "impression" or (self.kind == "work" and self.loop is not None)

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


def tell(writes: Sequence[Write[Any]], results: Sequence[Any], error: BaseException | None = None) -> None:
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
    on_error
        Called with a word for each failure of the store; what a caller is refused for is none.
    clock
        Time of day, in seconds; tests move it.
    all_durable
        Whether an impression, too, is on the disk before it is answered. Everything else always is.
    stalled_after
        Seconds after which a commit that does not end, or does not succeed, shows that the store is away: impressions,
        and what else an event loop waits for, are refused at once then, except for one that finds out whether it is
        back. So lists are late once, not for as long as that lasts.
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
        self.commits: deque[tuple[int, float]] = deque(maxlen=KEPT)  # (writes, seconds), for whoever counts them
        self._queue: queue.SimpleQueue[Write[Any] | None] = queue.SimpleQueue()
        self._waiting, self._bytes, self._counting = 0, 0, threading.Lock()
        self._connection: Connection | None = None
        self._here: Connection | None = None  # of the event loop
        self._gathered: dict[asyncio.AbstractEventLoop, list[Write[Stored]]] = {}
        self._slow_until = 0.0  # monotonic
        self._stalled_after, self._since = stalled_after, math.inf  # when the commit under way began, monotonic
        self._trouble = math.inf  # since when nothing could be written, monotonic
        self._committed = time.monotonic()  # when something last was
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rankloop-writer", daemon=True)
        self._thread.start()
        self._tending = threading.Thread(target=self._tend, name="rankloop-tend", daemon=True)
        self._tending.start()

    def impression(self, new: NewImpression, loop: asyncio.AbstractEventLoop | None = None) -> Write[Stored]:
        """Append an impression."""
        write: Write[Stored] = Write("impression", new, loop, len(new.body) + len(new.answer) + len(new.shown))
        if loop is None or self.all_durable or not self.database.at_once or time.monotonic() < self._slow_until:
            return self._put(write)
        gathered = self._gathered.get(loop)
        if gathered is None:
            self._gathered = {loop: [write]}  # those of a loop that has closed wait for nothing any more
            loop.call_soon(self._write_here, loop)
        else:
            gathered.append(write)
        return write

    def events(self, new: Sequence[NewEvent], loop: asyncio.AbstractEventLoop | None = None) -> Write[Receipts]:
        """Append events, all of one request."""
        return self._put(Write("events", list(new), loop, sum(len(one.body) for one in new)))

    def run(self, work: Callable[[Connection], T], loop: asyncio.AbstractEventLoop | None = None) -> Write[T]:
        """Do anything else in a transaction. An error that `work` raises undoes what it did and is its answer.

        `work` may be carried out more than once: if a COMMIT is not acknowledged, nobody knows whether it took place,
        and `work` is run again. So it must find out what an earlier run has done (`operations._shared.Action`), or do
        no harm if it is done twice.
        """
        return self._put(Write("work", work, loop))

    def do(self, work: Callable[[Connection], T], timeout: float = 30.0) -> T:
        """The same, and wait for it."""
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
                    f"the store has not answered for {timeout:g} seconds; what was asked for may still happen: "
                    "look before you ask again"
                ) from None
            raise StoreUnavailable(f"the store has been busy for {timeout:g} seconds; try again") from None

    @property
    def silence(self) -> float:
        """Seconds since the store last took something. Every process writes its heartbeat once per second or so."""
        return time.monotonic() - self._committed

    def dead_threads(self) -> list[str]:
        """The names of its threads that have ended though it was not closed."""
        threads = [] if self._closing.is_set() else [self._thread, self._tending]
        return [thread.name for thread in threads if not thread.is_alive()]

    def close(self) -> None:
        """Commit what waits, then stop."""
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)
        self._thread.join(timeout=30.0)
        self._tending.join(timeout=30.0)
        if self._here is not None:
            self._here.close()

    def _put(self, write: Write[T]) -> Write[T]:
        if self._closing.is_set():
            tell([write], [None], StoreUnavailable("the service is stopping; send it again to one that runs"))
            return write
        if self._waiting and write.hasty and time.monotonic() - min(self._since, self._trouble) > self._stalled_after:
            tell([write], [None], StoreUnavailable("the store does not answer; try again"))
            return write
        with self._counting:  # without a bound a store that hangs would fill the memory
            full = self._waiting >= MOST or self._bytes + write.size > MOST_BYTES
            if not full:
                self._waiting += 1
                self._bytes += write.size
        if full:
            self._on_error("full")
            tell([write], [None], StoreUnavailable(f"{self._waiting} writes wait for the store; try again"))
        else:
            self._queue.put(write)
        return write

    # -- in the event loop -----------------------------------------------------------------------------------------

    def _write_here(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit the impressions that have gathered in a round of the loop, without the thread.

        To hand them over costs more than to write them, where a commit does not wait for the disk: the thread would
        have to ask for the interpreter again after each statement, and the loop is busy with the next requests. What is
        not plain sailing (someone else writes, an error, a disk that is slow today) is left to the thread.
        """
        writes = [write for write in self._gathered.pop(loop, []) if not write.abandoned]
        if self._closing.is_set() or not writes:
            for write in writes:
                self._put(write)
            return
        start = time.perf_counter()
        try:
            if self._here is None:
                self._here = self.database.connect()
            with self._here.transaction(durable=False, wait=False):
                results = log.add_impressions(self._here, [write.payload for write in writes])
        except Exception as error:
            if not isinstance(error, Contended) and self._here is not None:
                self._here.close()
                self._here = None
            for write in writes:
                self._put(write)
            return
        seconds = time.perf_counter() - start
        if seconds > SLOW:
            self._slow_until = time.monotonic() + LONGER
        self.commits.append((len(writes), seconds))
        for write, result in zip(writes, results, strict=True):
            assert write.waiter is not None
            _settle(write.waiter, result, None)

    # -- the threads -----------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        while not self._closing.wait(TEND_EVERY):
            self.database.tend()
        while self._thread.is_alive():  # what is left may hang, too
            self._thread.join(TEND_EVERY)
            self.database.tend()

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
                self._trouble, self._committed = math.inf, time.monotonic()
                break
            except Retryable as error:
                if not isinstance(error, Contended):
                    self._on_error("passing")
                    self._disconnect()
                # Counted from the first failure on, over all batches: once it is clear that the store is away, nobody
                # waits for it any more, and everyone who asks is one more try.
                self._trouble = min(self._trouble, time.monotonic())
                writes = [write for write in writes if not write.abandoned]
                if time.monotonic() - self._trouble > PATIENCE:
                    return _fail(writes, StoreUnavailable(f"the store cannot be reached ({error}); try again"))
                time.sleep(PAUSE)
            except StoreUnavailable as error:
                self._on_error("unavailable")
                self._disconnect()
                return _fail(writes, error)
            except _Answered as answer:  # it was rolled back with the others: they go without it
                _fail([answer.write], answer.error)
                writes = [write for write in writes if write is not answer.write]
            except Exception as error:  # one of them is at fault: let the others pass
                self._on_error("unexpected")
                self._disconnect()
                if len(writes) == 1:
                    return _fail(writes, error)
                for write in writes:
                    self._commit([write], durable)
                return None
        if writes:
            self.commits.append((len(writes), time.perf_counter() - start))
            tell(writes, results)
            self._take_back([write.payload.id for write in writes if write.abandoned and write.kind == "impression"])
        return None

    def _take_back(self, lost: list[str]) -> None:
        """Impressions whose answer was given up on while they were written."""
        if lost:
            with contextlib.suppress(Exception), self._connect().transaction(durable=False):
                log.discard_impressions(self._connect(), lost)

    def _try(self, writes: list[Write[Any]], durable: bool) -> list[Any]:
        connection = self._connect()
        results: dict[int, Any] = {}
        with connection.transaction(durable):
            impressions = [write for write in writes if write.kind == "impression"]
            if impressions:
                stored = log.add_impressions(connection, [write.payload for write in impressions])
                results.update({id(write): result for write, result in zip(impressions, stored, strict=True)})
            events = [write for write in writes if write.kind == "events"]
            if events:
                self._add_events(connection, events, results)
            for write in writes:
                if write.kind == "work":
                    results[id(write)] = _answer(write, connection)
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


class _Answered(Exception):
    """A piece of work has answered with an error: there is no such ranker, it contradicts what is there, …"""

    def __init__(self, write: Write[Any], error: RankloopError) -> None:
        super().__init__(str(error))
        self.write, self.error = write, error


def _answer(write: Write[Any], connection: Connection) -> Any:
    try:
        return write.payload(connection)
    except StoreUnavailable:
        raise
    except RankloopError as error:
        raise _Answered(write, error) from error


def _fail(writes: list[Write[Any]], error: BaseException) -> None:
    tell(writes, [None] * len(writes), error)
