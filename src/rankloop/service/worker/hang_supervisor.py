"""Daemon threads for work that may hang: a pool, a queue with one thread, a call with a time limit, a counter."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from rankloop.service.errors import TooSlow

T = TypeVar("T")
STEP = 0.25  # seconds of a wait at a time, to notice that the whole process was stopped
MOST_HANGING = 3  # threads that may hang in a learner before it is no longer called
logger = logging.getLogger("rankloop")


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.work, self.loop = work, loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.state = "queued"  # then running, then done or abandoned


class SupervisedPool:
    """Threads that are replaced when a job outlasts its time limit.

    They are daemons: `concurrent.futures` would wait for a hanging thread when the process ends.
    """

    def __init__(self, size: int, name: str = "rankloop-rank") -> None:
        self._size, self._name = size, name
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        for _ in range(size):
            self._start()

    async def run(self, work: Callable[[], T], timeout: float) -> T:
        """Return `work()`, run in a thread; raise TimeoutError after `timeout` seconds, time in the queue included."""
        job = _Job(work, asyncio.get_running_loop())
        self._jobs.put(job)
        timer = job.loop.call_later(timeout, self._expire, job)
        result = await job.future  # on cancellation the timer stays: the thread may hang all the same
        timer.cancel()
        return result

    def close(self) -> None:
        """End the idle threads."""
        for _ in range(self._size):
            self._jobs.put(None)

    def _start(self) -> None:
        threading.Thread(target=self._serve, name=self._name, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.state == "abandoned":
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
                replaced = job.state == "abandoned"
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
            hangs, job.state = job.state == "running", "abandoned"
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


class JobQueue:
    """Runs jobs one after another in one thread, which ends when no job is left. A job that never returns costs one
    thread, and the jobs after it wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._jobs: deque[tuple[str, Callable[[], None]]] = deque()
        self._running: str | None = None  # the kind of the job under way
        self._since = 0.0  # when it began, monotonic
        self._alive = False  # whether there is a thread; changes only together with the check for more jobs

    def add(self, kind: str, job: Callable[[], None], alone: bool = False) -> None:
        """Run `job` after those that wait. With `alone` it replaces the waiting jobs of its kind."""
        with self._changed:
            if alone:
                self.drop(kind)
            self._jobs.append((kind, job))
            if self._alive:
                return
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._alive = True

    def drop(self, kind: str) -> None:
        """Forget the waiting jobs of a kind."""
        with self._changed:
            self._jobs = deque(one for one in self._jobs if one[0] != kind)

    def count(self, kind: str) -> int:
        """Jobs of a kind that wait or run."""
        with self._changed:
            return (self._running == kind) + sum(one[0] == kind for one in self._jobs)

    def wait(self, kind: str, seconds: float) -> bool:
        """Wait until no job of a kind is left; False if that takes longer than `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.count(kind), seconds)

    @property
    def seconds(self) -> float:
        """How long the job under way has been running; 0 if there is none."""
        with self._changed:
            return 0.0 if self._running is None else time.monotonic() - self._since

    def _run(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.notify_all()
                if not self._jobs:
                    self._alive = False
                    return
                self._running, job = self._jobs.popleft()
                self._since = time.monotonic()
            try:
                job()
            except BaseException:  # SystemExit, too: the jobs after this one are not to blame
                logger.exception("%s: a job failed", self._name)


def run_bounded(work: Callable[[], T], seconds: float, name: str) -> T:
    """Return `work()`, run in a thread of its own; raise TooSlow after `seconds`, and leave the thread behind.

    Time during which the whole process was stopped (SIGSTOP, a paused machine) does not count.
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


class HangCounter:
    """Counts the threads that hang in a learner: those still inside after their caller stopped waiting."""

    def __init__(self) -> None:
        self._inside: set[int] = set()  # impressions whose thread is in the learner
        self._abandoned: set[int] = set()  # those of them whose caller stopped waiting
        self._counting = threading.Lock()

    @contextmanager
    def inside(self, number: int) -> Iterator[None]:
        """While a thread calls the learner for impression `number`."""
        with self._counting:
            self._inside.add(number)
        try:
            yield
        finally:
            with self._counting:
                self._inside.discard(number)
                self._abandoned.discard(number)

    def abandon(self, number: int) -> None:
        """Stop waiting for impression `number`. A thread that has not begun, or has come back, does not hang."""
        with self._counting:
            if number in self._inside:
                self._abandoned.add(number)

    @property
    def hanging(self) -> int:
        """How many threads hang in the learner."""
        return len(self._abandoned)
