"""Something to write, and how whoever waits for it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")
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
