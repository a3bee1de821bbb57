"""Much to delete, in transactions that each take a moment, so that whoever wants to write gets in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rankloop.service.storage.database import Connection
from rankloop.service.storage.writer import Writer

T = TypeVar("T")
SECONDS = 0.02  # that a batch should take: lists and feedback wait no longer for it than for a slow disk
LEAST, FIRST, MOST = 50, 200, 5000  # rows; with fewer a batch is all beginning and end


def in_batches(
    writer: Writer, work: Callable[[Connection, int], T | None], stopping: Callable[[], bool] = lambda: False
) -> Iterator[T]:
    """What `work` gives, called with the number of rows it may deal with, each time in a transaction of its own, until
    it gives nothing. After each batch the store belongs to others for as long as that took."""
    rows = FIRST
    while not stopping():
        done, began = writer.do(lambda connection, most=rows: _begun(work, connection, most))  # type: ignore[misc]
        took = time.perf_counter() - began  # with its commit, which writes what was deleted
        if not done:
            return
        yield done
        if took > 2 * SECONDS:
            rows = max(LEAST, rows // 2)
        elif took < SECONDS / 2:
            rows = min(MOST, 2 * rows)
        time.sleep(took)


def _begun(work: Callable[[Connection, int], T], connection: Connection, rows: int) -> tuple[T, float]:
    began = time.perf_counter()
    return work(connection, rows), began
