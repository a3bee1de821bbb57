"""Stopping with notice: /readyz says no for a while before the listener closes, so that load goes elsewhere."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rankloop.service.serving.engine import Engine


@contextmanager
def noticed(engine: Engine) -> Iterator[None]:
    """From the first SIGTERM on the engine says that it stops; the server hears of it `notice_seconds` later.

    A second signal is passed on at once, and so is Ctrl-C: whoever presses it waits for it.
    """
    handler: Any = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # nobody hears signals here
        return
    loop, seconds = asyncio.get_running_loop(), engine.settings.notice_seconds

    def hear(number: int, frame: Any) -> None:
        told, engine.draining = engine.draining, True
        if told or not seconds:
            handler(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, seconds, handler, number, None)

    signal.signal(signal.SIGTERM, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
