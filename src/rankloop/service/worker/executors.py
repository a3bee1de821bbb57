"""Thread pools for blocking calls: one per kind of work, each with a bounded queue.

asyncio's default executor is one pool for everything, with an unbounded queue: a few slow operator calls would delay
every other caller of `asyncio.to_thread`. Ruff's `banned-api` list therefore forbids `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from rankloop.service.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")


class BoundedExecutor:
    """A pool of threads that refuses calls once `waiting` of them are queued.

    Parameters
    ----------
    name
        Of the work, for the names of the threads and for the error message.
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
