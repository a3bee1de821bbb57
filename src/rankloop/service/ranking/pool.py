"""Threads that can be given up on: a call that does not come back in time is left behind and its thread replaced."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rankloop.service.errors import TooSlow

T = TypeVar("T")
STEP = 0.25  # seconds of a wait at a time, to notice that the whole process stood still


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.work, self.loop = work, loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.state = "queued"  # then running, then done or left


class Pool:
    """Daemon threads for work that may hang.

    `concurrent.futures` would wait for a hanging thread when the process ends; these are left behind.
    """

    def __init__(self, size: int, name: str = "rankloop-rank") -> None:
        self._size, self._name = size, name
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        for _ in range(size):
            self._start()

    async def run(self, work: Callable[[], T], timeout: float) -> T:
        """`work()` in a thread; TimeoutError if it takes longer than `timeout` seconds, waiting included."""
        job = _Job(work, asyncio.get_running_loop())
        self._jobs.put(job)
        watch = job.loop.call_later(timeout, self._expire, job)
        result = await job.future  # on cancellation the watch stays: the thread may hang all the same
        watch.cancel()
        return result

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._size):
            self._jobs.put(None)

    def _start(self) -> None:
        threading.Thread(target=self._serve, name=self._name, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.state == "left":
                    continue
                job.state = "running"
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.work()
            except BaseException as caught:
                # No learner may end the service (SystemExit), and no future can carry a StopIteration.
                plain = isinstance(caught, Exception) and not isinstance(caught, StopIteration)
                error = caught if plain else RuntimeError(f"it raised {caught!r}")
            with self._lock:
                replaced = job.state == "left"
                job.state = "done"
            try:
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            except RuntimeError:  # the loop has closed
                return
            if replaced:  # another thread has taken this one's place
                return

    def _expire(self, job: _Job[Any]) -> None:
        with self._lock:
            if job.state == "done":
                return  # its result is on the way
            hangs, job.state = job.state == "running", "left"
        if hangs:
            self._start()
        _settle(job.future, None, TimeoutError())


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def bounded(work: Callable[[], T], seconds: float, name: str) -> T:
    """`work()` in a thread of its own, which is left behind if it takes longer: TooSlow.

    Time in which the whole process stood still (SIGSTOP, a paused machine) does not count.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # SystemExit, too
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    left = seconds
    while left > 0 and thread.is_alive():
        began = time.monotonic()
        thread.join(min(STEP, left))
        left -= min(time.monotonic() - began, 2 * STEP)
    if failed:
        error = failed[0]
        raise error if isinstance(error, Exception) else RuntimeError(f"it raised {error!r}") from error
    if not found:
        raise TooSlow(f"it takes longer than {seconds:g} s")
    return found[0]
