"""Threads that a process needs for as long as it runs, and bounded thread pools for blocking calls."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from rankloop.service.errors import Busy, StoreUnavailable
from rankloop.service.storage.database import Database

P = ParamSpec("P")
T = TypeVar("T")
PAUSE = 1.0  # seconds before work that failed unexpectedly begins again
logger = logging.getLogger("rankloop")


def _uncounted(name: str) -> None:
    """Nobody counts the failures of this thread; they are in the log."""


class EssentialThread:
    """A daemon thread that runs `work` until `stopping`.

    If `work` raises (also `SystemExit`, of a learner) or returns although nobody stopped it, that is logged and
    counted, and `work` begins again.

    Parameters
    ----------
    name
        The thread's name is `rankloop-NAME`.
    work
        Runs until `stopping` is set or `replaced` is true.
    stopping
        Set by the owner before it expects `work` to return.
    failed
        Called with `name` at each failure, to count it.
    """

    def __init__(
        self, name: str, work: Callable[[], None], stopping: threading.Event, failed: Callable[[str], None] = _uncounted
    ) -> None:
        self.name = name
        self._work, self._stopping, self._failed = work, stopping, failed
        self._thread = self._new()
        self._left: set[threading.Thread] = set()

    @property
    def dead(self) -> bool:
        """Whether it was started and has ended without having been stopped."""
        return self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end; at once if it was never started."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def ident(self) -> int | None:
        """The identifier of the thread that does the work now."""
        return self._thread.ident

    @property
    def replaced(self) -> bool:
        """Whether another thread has taken over the work of the calling one, which should end."""
        return threading.current_thread() in self._left

    def replace(self) -> None:
        """Let another thread go on: this one hangs in a learner. It ends when the learner returns."""
        self._left.add(self._thread)
        self._thread = self._new()
        self._thread.start()

    def _new(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"rankloop-{self.name}", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                self._work()
                if self._stopping.is_set() or self.replaced:
                    break
                logger.error("thread %s ended without having been stopped; it begins again", self.name)
            except BaseException:
                logger.exception("thread %s failed; it begins again", self.name)
                if self.replaced:
                    break
            self._failed(self.name)
            if self._stopping.wait(PAUSE):
                break
        self._left.discard(threading.current_thread())


class RepeatingThread(EssentialThread):
    """Calls `call` every `seconds` from `start` to `stop`; a call that fails is logged and counted, and it goes on."""

    def __init__(
        self,
        name: str,
        seconds: float,
        call: Callable[[], object],
        database: Database,
        failed: Callable[[str], None] = _uncounted,
    ) -> None:
        super().__init__(name, self._repeat, threading.Event(), failed)
        self._seconds, self._call, self._database = seconds, call, database

    def stop(self, patience: float = 10.0) -> None:
        """End after the call under way."""
        self._stopping.set()
        self.join(patience)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: for calls that take long."""
        return self._stopping.is_set()

    def _repeat(self) -> None:
        while not self._stopping.wait(self._seconds) and not self.replaced:
            try:
                self._call()
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("%s: the store does not answer: %s", self.name, error)
            except BaseException:  # SystemExit, too: it would end the thread without a line in the log
                logger.exception("%s failed; it goes on in a moment", self.name)
                self._failed(self.name)
        self._database.close_thread()


class BoundedExecutor:
    """A pool of threads for one kind of work, which refuses calls once `waiting` of them are queued.

    asyncio's default executor is one pool with an unbounded queue: a few slow calls would delay all others. Ruff's
    `banned-api` list therefore forbids `asyncio.to_thread`.

    Parameters
    ----------
    name
        Of the work, for threads and the error message.
    threads
        Calls that run at a time. Threads start on demand.
    waiting
        Calls that may wait for a thread.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.name, self.limit = name, threads + waiting
        self._free = threading.BoundedSemaphore(self.limit)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"rankloop-{name}")

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `function` in a thread, with the caller's context variables; raise `Busy` if the queue is full."""
        if not self._free.acquire(blocking=False):
            raise Busy(f"{self.limit} calls for {self.name} run or wait, as many as this process takes; try again")
        call = partial(copy_context().run, _without_stop_iteration, partial(function, *arguments, **named))
        try:
            future = self._threads.submit(call)
        except BaseException:
            self._free.release()
            raise
        # When the work ends, not when its caller stops waiting: a call that nobody waits for still holds its thread.
        future.add_done_callback(lambda _: self._free.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Take no more calls; those that wait are canceled, those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _without_stop_iteration(call: Callable[[], T]) -> Any:
    """The result of a call. No future can carry a StopIteration: its caller would wait forever."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the call raised StopIteration") from error
