"""The thread that saves snapshots, so that neither learning nor the store's writer waits for it.

Small states go to the writer, many rankers in one commit. Large ones go to the store in parts, each in a transaction
of its own with a pause after it; they count once the snapshot that they make together is committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rankloop.core import codec
from rankloop.core.errors import RankloopError
from rankloop.core.types import Array
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking.model import state_bytes, state_pieces
from rankloop.service.storage import snapshots
from rankloop.service.storage.database import Connection, Retryable
from rankloop.service.storage.notifications import Notification
from rankloop.service.storage.writer import Write
from rankloop.service.training.fold import Fold, Publication
from rankloop.service.training.hang_detection import HangDetector
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import EssentialThread

PART = 2**18  # bytes of a part: about a millisecond in which nobody else writes
DELETED = 4  # parts that are deleted at a time
SHORTEST_PAUSE = 0.002  # seconds between parts
BUDGET = 16 * 2**20  # bytes per second of snapshots that nobody waits for: many rankers are saved less often
WAIT = 0.2  # seconds between looks whether a fold was dropped while its lock is awaited
TRIES = 5  # of a part, while the store is unavailable
logger = logging.getLogger("rankloop")


class _Order(NamedTuple):
    """Something to save, in the order of saving: first what somebody waits for, then the oldest."""

    later: bool
    number: int
    fold: Fold
    then: Callable[[], None] | None
    delta: Publication | None  # of a large state, for other machines; None: a snapshot
    began: float


class SnapshotWriter:
    """Saves folds, one after the other.

    Parameters
    ----------
    process
        The store, the settings, the metrics.
    detector
        Notices a learner that hangs in `state`.
    copied
        Called when a fold was copied and may learn on, or was saved and may be saved again.
    """

    def __init__(self, process: Process, detector: HangDetector, copied: Callable[[], None]) -> None:
        self._process, self._detector, self._copied = process, detector, copied
        self.peers = False  # whether other machines rank from what is saved here
        self._orders: list[_Order] = []
        self._number = 0
        self._changed = threading.Condition()
        self._under_way = 0
        self._stopping = threading.Event()
        self._free_at = 0.0  # monotonic: until then the budget is spent
        self._busy = 0.0  # seconds that writing the parts of the present state took
        self._swept: dict[str, int] = {}  # ranker -> the generation whose leftover parts were deleted
        self._connection: Connection | None = None
        self.thread = EssentialThread("snapshots", self._work, self._stopping, process.thread_failed)

    def stop(self, patience: float = 10.0) -> None:
        """Save what was ordered, then end the thread."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        self.thread.join(patience)

    @property
    def free(self) -> bool:
        """Whether there is budget for a snapshot that nobody waits for."""
        return time.monotonic() >= self._free_at

    def order(self, fold: Fold, asked: bool = False, then: Callable[[], None] | None = None) -> None:
        """Save a fold soon; before others if somebody has `asked`. `then` is called after it, even if it fails."""
        if fold.saving and then is None:
            return
        fold.saving = True
        self._put(fold, not (asked or then is not None), then, None)

    def order_delta(self, fold: Fold, delta: Publication) -> None:
        """Store what has changed in a large state, for other machines."""
        self._put(fold, True, None, delta)

    def settle(self, patience: float) -> bool:
        """Wait until everything that was ordered is saved; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, patience)

    def _put(self, fold: Fold, later: bool, then: Callable[[], None] | None, delta: Publication | None) -> None:
        with self._changed:
            self._number += 1
            self._under_way += 1
            self._orders.append(_Order(later, self._number, fold, then, delta, time.perf_counter()))
            self._changed.notify_all()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # Pauses and not a lower priority: a thread that is preempted while it has the interpreter blocks all others.
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._stopping.is_set())
                if not self._orders:
                    break
            self._round()
            if self.thread.replaced:
                self._process.database.close_thread()
                return
        self._disconnect()
        self._process.database.close_thread()

    def _round(self, small: bool = False) -> None:
        """Save one large fold, or some small ones together; only `small` ones between the parts of a large one."""
        waiting: list[tuple[_Order, int, int, Write[bool]]] = []
        size = 0
        while size < snapshots.LARGE and not self.thread.replaced and (order := self._next(small)) is not None:
            try:
                if order.delta is not None:
                    size += self._save_delta(order.fold, order.delta)
                else:
                    size += self._save(order, waiting, small)
            except BaseException as error:  # SystemExit of a learner, too: the other orders are saved
                self._failed(order, error)
        for order, learned, length, write in waiting:
            try:
                self._done(order, learned, length, write.future.result(30.0), 0)
            except Exception as error:
                self._failed(order, error)

    def _next(self, small: bool) -> _Order | None:
        with self._changed:
            fitting = [one for one in self._orders if not (small and one.fold.large and one.delta is None)]
            if not fitting:
                return None
            order = min(fitting)
            self._orders.remove(order)
            return order

    def _save(self, order: _Order, waiting: list[tuple[_Order, int, int, Write[bool]]], small: bool) -> int:
        """Copy the state, and write it or hand it to the writer; its bytes."""
        fold, process = order.fold, self._process
        if fold.learned <= fold.snapshot_seq:
            self._finished(order)
            return 0
        began = time.perf_counter()
        learned, arrays, delta = self._copy(fold)
        copied = time.perf_counter() - began
        if delta is not None:
            self.order_delta(fold, delta)
        name, generation, now, holder = fold.row.name, fold.generation, process.clock(), process.worker
        if fold.large and small:
            self._put(fold, order.later, order.then, None)  # it has grown: its turn comes when the other is done
            self._over()
            return 0
        if fold.large:
            parts = self._write_parts(fold, learned, arrays)
            kept = process.writer.do(
                lambda c: snapshots.save_snapshot(c, name, generation, learned, b"", now, parts, holder)
            )
            # Without waiting: a store that was unavailable for seconds is no reason to save less often later.
            fold.snapshot_cost = copied + self._busy
            self._done(order, learned, parts * PART, kept, parts)
            return snapshots.LARGE
        fold.snapshot_cost = 0.0  # small ones are bounded by the budget
        state = state_bytes(fold.row.spec, arrays)
        write = process.writer.run(
            lambda c: snapshots.save_snapshot(c, name, generation, learned, state, now, 0, holder)
        )
        waiting.append((order, learned, len(state), write))
        return len(state)

    def _copy(self, fold: Fold) -> tuple[int, dict[str, Array], Publication | None]:
        fold.copying = True
        try:
            with self._locked(fold), self._detector.call(fold.row, "state", fold.learned):
                delta = fold.next_delta()  # so that the chain of deltas has a joint where the snapshot is
                learned, arrays = fold.copy()
                fold.large = sum(array.nbytes for array in arrays.values()) > snapshots.LARGE
                fold.send_deltas(fold.large and self.peers)
            if self.thread.replaced:
                raise RankloopError("its state took too long to copy, and another thread saves the others")
            return learned, arrays, delta
        finally:
            fold.copying = False
            self._copied()

    @contextmanager
    def _locked(self, fold: Fold) -> Iterator[None]:
        """Hold a fold's lock. Waits while a backlog is learned, but not for a learner that hangs and was dropped."""
        end = time.monotonic() + self._process.settings.learn_seconds
        while not fold.in_use.acquire(timeout=WAIT):
            if not fold.held and time.monotonic() > end:
                raise RankloopError("its learner does not return")
        try:
            yield
        finally:
            fold.in_use.release()

    def _write_parts(self, fold: Fold, learned: int, arrays: dict[str, Array]) -> int:
        """Write the parts of a large state; their number. Small orders go in between."""
        name, generation, number = fold.row.name, fold.generation, 0
        holder, self._busy = self._process.worker, 0.0
        self._again(lambda c: snapshots.delete_partial(c, name, generation, learned, holder, DELETED))
        for piece in state_pieces(fold.row.spec, arrays, PART):

            def keep(connection: Connection, piece: bytes = piece, number: int = number) -> None:
                snapshots.save_chunk(connection, name, generation, learned, number, piece)

            self._transaction(keep)
            number += 1
            self._round(small=True)
        return number

    def _transaction(self, work: Callable[[Connection], object]) -> None:
        """A transaction on a connection of its own, which does not wait for the disk, and a pause."""
        for left in reversed(range(TRIES)):
            began = time.perf_counter()
            try:
                if self._connection is None:
                    self._connection = self._process.database.connect()
                with self._connection.transaction(durable=False):
                    work(self._connection)
                took = time.perf_counter() - began
                self._busy += took
                if not self._stopping.is_set():
                    time.sleep(max(SHORTEST_PAUSE, took))
                return
            except (Retryable, StoreUnavailable) as error:
                self._disconnect()
                if not left:
                    raise StoreUnavailable(f"the store does not take a part of a snapshot ({error})") from None
                time.sleep(0.05)

    def _save_delta(self, fold: Fold, delta: Publication) -> int:
        process, name = self._process, fold.row.name
        try:
            assert delta.base is not None
            new = snapshots.StateDelta(delta.generation, delta.learned, delta.base, codec.dumps(delta.arrays))
            if process.writer.do(lambda c: snapshots.add_delta(c, name, new, process.worker)):
                process.notify(Notification("part", name, delta.generation, delta.base, delta.learned))
            self._spend(len(new.state))
            return len(new.state)
        finally:
            self._over()

    def _done(self, order: _Order, learned: int, size: int, kept: bool, parts: int) -> None:
        fold, process, name = order.fold, self._process, order.fold.row.name
        if kept:
            before, fold.snapshot_seq = fold.snapshot_seq, learned
            process.metrics.count("snapshots_total", ranker=name)
            process.metrics.observe("snapshot_seconds", time.perf_counter() - order.began)
            process.notify(Notification("saved", name, fold.generation, seq=learned))
            if parts or self._swept.get(name) != fold.generation:  # a reset may have made a large one small
                self._swept[name] = fold.generation
                self._drop_parts(fold, before)
            self._version(fold, learned)
        else:
            fold.held = False  # another process has its lease, or its state was replaced
        self._spend(size)
        self._finished(order)

    def _drop_parts(self, fold: Fold, before: int) -> None:
        """Delete the parts of snapshots `before` this one, some at a time. Deltas stay for one snapshot longer, for
        machines that are a little late."""
        name, generation = fold.row.name, fold.generation
        places = self._process.database.read(lambda c: snapshots.unused_chunks(c, name))
        if places or fold.large:
            self._transaction(lambda c: snapshots.delete_old_deltas(c, name, generation, before))
        for at in places:
            self._again(lambda c, at=at: snapshots.delete_chunks(c, name, at, DELETED))  # type: ignore[misc]

    def _again(self, work: Callable[[Connection], int]) -> None:
        """Repeat a transaction until nothing is left to do. Small orders go in between."""
        left = [1]

        def once(connection: Connection) -> None:
            left[0] = work(connection)

        while left[0]:
            self._transaction(once)
            self._round(small=True)

    def _version(self, fold: Fold, learned: int) -> None:
        """Keep a version every `version_seconds`."""
        settings, name, generation = self._process.settings, fold.row.name, fold.generation
        if fold.last_version == 0.0:
            fold.last_version = time.monotonic()  # the first version is due an hour after the start, not at it
        if time.monotonic() - fold.last_version < settings.version_seconds or learned == fold.version_seq:
            return
        now = self._process.clock()

        def keep(connection: Connection) -> None:
            at = (generation, learned)  # if it was replaced just now, the next one is kept
            if snapshots.keep_version(connection, name, "kept by the clock", now, automatic=True, at=at) is not None:
                snapshots.delete_old_versions(connection, name, settings.keep_versions)

        self._process.writer.do(keep)
        fold.last_version, fold.version_seq = time.monotonic(), learned

    def _failed(self, order: _Order, error: BaseException) -> None:
        name = order.fold.row.name
        if isinstance(error, StoreUnavailable | TimeoutError):
            logger.warning("ranker %s: saving waits for the store: %s", name, error)
        else:
            logger.error("ranker %s: it could not be saved", name, exc_info=error)
        if order.delta is None:
            self._finished(order)

    def _finished(self, order: _Order) -> None:
        fold = order.fold
        if order.then is not None:
            try:
                order.then()
            except Exception as error:  # the next round of leases tries again
                logger.warning("ranker %s: its lease could not be given back: %s", fold.row.name, error)
        fold.last_snapshot = time.monotonic()
        fold.saving = False
        self._over()
        self._copied()  # a newer one may have been asked for meanwhile

    def _over(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def _spend(self, size: int) -> None:
        self._free_at = max(self._free_at, time.monotonic()) + size / BUDGET

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
