"""The thread that saves what is learned, so that neither those who learn nor those who write wait for it.

What a ranker knows is copied while that ranker, and none other, stands still; the copy is made into bytes a piece at a
time. What is small goes to the writer, many rankers in one commit. What is large goes to the store in parts, each a
transaction of its own on a connection of its own, with pauses as long as the work between them: whoever commits a list
or feedback meanwhile waits for one part at most, and no part waits for the disk. The snapshot that they make together
does, and counts only then.

Bytes have a budget: a thousand rankers that all learn are saved less often, not more slowly.
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
from rankloop.service.storage import published, states
from rankloop.service.storage.database import Connection, Retryable
from rankloop.service.storage.notifications import Notification
from rankloop.service.storage.schema import alone
from rankloop.service.storage.writer import Write
from rankloop.service.training.fold import Fold, Publication
from rankloop.service.training.watch import Watch
from rankloop.service.worker.background_threads import Essential
from rankloop.service.worker.process import Process

PART = 2**18  # bytes of a part: about a millisecond, in which nobody else writes
SOME = 4  # parts that are deleted at a time
SHORTEST = 0.002  # seconds of a pause between parts
BUDGET = 16 * 2**20  # bytes a second that are saved without anybody having asked for it
WAIT = 0.2  # seconds between looks whether a fold that is waited for was dropped
TRIES = 5  # of a part, while the store does not take it
logger = logging.getLogger("rankloop")


class _Order(NamedTuple):
    """Something to save; those that somebody waits for come first, then as they came."""

    later: bool
    number: int
    fold: Fold
    then: Callable[[], None] | None
    part: Publication | None  # of a large state, for other machines; None: all of it
    began: float


class Saving:
    """Saves folds, one after the other.

    Parameters
    ----------
    process
        The store, the settings, the counts.
    watch
        Knows who is in a learner's code: a learner may hang in `state`.
    copied
        Called when a fold has been copied and may be learned on, or has been saved and may be again.
    """

    def __init__(self, process: Process, watch: Watch, copied: Callable[[], None]) -> None:
        self._process, self._watch, self._copied = process, watch, copied
        self.peers = False  # whether other machines rank from what is saved here
        self._orders: list[_Order] = []
        self._number = 0
        self._some = threading.Condition()
        self._under_way = 0
        self._stopping = threading.Event()
        self._free_at = 0.0  # monotonic: until then the budget is spent
        self._busy = 0.0  # seconds that the parts of the state under way took to write
        self._swept: dict[str, int] = {}  # ranker: the generation in which it was looked for parts that are nobody's
        self._connection: Connection | None = None
        self.thread = Essential("saving", self._work, self._stopping, process.thread_failed)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def stop(self, patience: float = 10.0) -> None:
        """Save what was ordered, then end."""
        with self._some:
            self._stopping.set()
            self._some.notify_all()
        self.thread.join(patience)

    @property
    def free(self) -> bool:
        """Whether there is budget for what nobody waits for."""
        return time.monotonic() >= self._free_at

    def order(self, fold: Fold, asked: bool = False, then: Callable[[], None] | None = None) -> None:
        """Save a fold soon; before others if somebody has `asked`. `then` is called after it, whatever came of it."""
        if fold.saving and then is None:
            return
        fold.saving = True
        self._put(fold, not (asked or then is not None), then, None)

    def order_part(self, fold: Fold, part: Publication) -> None:
        """Let other machines have what has changed in a large state."""
        self._put(fold, True, None, part)

    def settle(self, patience: float) -> bool:
        """Wait until all that was ordered is saved; False if that takes too long."""
        with self._some:
            return self._some.wait_for(lambda: not self._under_way, patience)

    def _put(self, fold: Fold, later: bool, then: Callable[[], None] | None, part: Publication | None) -> None:
        with self._some:
            self._number += 1
            self._under_way += 1
            self._orders.append(_Order(later, self._number, fold, then, part, time.perf_counter()))
            self._some.notify_all()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # Pauses, and no lower priority: whoever is put aside while it has the interpreter keeps all others from it.
        while True:
            with self._some:
                self._some.wait_for(lambda: self._orders or self._stopping.is_set())
                if not self._orders:
                    break
            self._round()
            if self.thread.replaced:
                self._process.database.forget()
                return
        self._disconnect()
        self._process.database.forget()

    def _round(self, small: bool = False) -> None:
        """Save one that is large, or some that are small together; only `small` ones between the parts of another."""
        waiting: list[tuple[_Order, int, int, Write[bool]]] = []
        size = 0
        while size < states.LARGE and not self.thread.replaced and (order := self._next(small)) is not None:
            try:
                if order.part is not None:
                    size += self._save_part(order.fold, order.part)
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
        with self._some:
            fitting = [one for one in self._orders if not (small and one.fold.large and one.part is None)]
            if not fitting:
                return None
            order = min(fitting)
            self._orders.remove(order)
            return order

    def _save(self, order: _Order, waiting: list[tuple[_Order, int, int, Write[bool]]], small: bool) -> int:
        """Copy, and write or hand to the writer; the bytes."""
        fold, process = order.fold, self._process
        if fold.learned <= fold.snapshot_seq:
            self._settled(order)
            return 0
        began = time.perf_counter()
        learned, arrays, part = self._copy(fold)
        copied = time.perf_counter() - began
        if part is not None:
            self.order_part(fold, part)
        name, generation, now, holder = fold.row.name, fold.generation, process.clock(), process.worker
        if fold.large and small:
            self._put(fold, order.later, order.then, None)  # it has grown: its turn comes when the other is done
            self._over()
            return 0
        if fold.large:
            parts = self._write_parts(fold, learned, arrays)
            kept = process.writer.do(
                lambda c: states.save_snapshot(c, name, generation, learned, b"", now, parts, holder)
            )
            # Without waiting: a store that was away for seconds is no reason to save less often when it is back.
            fold.snapshot_cost = copied + self._busy
            self._done(order, learned, parts * PART, kept, parts)
            return states.LARGE
        fold.snapshot_cost = 0.0  # what is small is bounded by the budget; measured, it would be what others took
        state = state_bytes(fold.row.spec, arrays)
        write = process.writer.run(lambda c: states.save_snapshot(c, name, generation, learned, state, now, 0, holder))
        waiting.append((order, learned, len(state), write))
        return len(state)

    def _copy(self, fold: Fold) -> tuple[int, dict[str, Array], Publication | None]:
        fold.copying = True
        try:
            with self._turn(fold), self._watch.of(fold.row, "state", fold.learned):
                part = fold.part()  # so that the chain of parts has a joint where the snapshot is
                learned, arrays = fold.copy()
                fold.large = sum(array.nbytes for array in arrays.values()) > states.LARGE
                fold.send_parts(fold.large and self.peers)
            if self.thread.replaced:
                raise RankloopError("its state took too long to copy, and another thread saves the others")
            return learned, arrays, part
        finally:
            fold.copying = False
            self._copied()

    @contextmanager
    def _turn(self, fold: Fold) -> Iterator[None]:
        """Have a fold alone. Waits while a backlog is learned, but not for a learner that hangs and was dropped."""
        end = time.monotonic() + self._process.settings.learn_seconds
        while not fold.turn.acquire(timeout=WAIT):
            if not fold.held and time.monotonic() > end:
                raise RankloopError("its learner does not return")
        try:
            yield
        finally:
            fold.turn.release()

    def _write_parts(self, fold: Fold, learned: int, arrays: dict[str, Array]) -> int:
        """Put the parts of a large state into the store; how many there are. Small orders go in between."""
        name, generation, number = fold.row.name, fold.generation, 0
        holder, self._busy = self._process.worker, 0.0
        self._again(lambda c: states.make_room(c, name, generation, learned, holder, SOME))
        for piece in state_pieces(fold.row.spec, arrays, PART):

            def keep(connection: Connection, piece: bytes = piece, number: int = number) -> None:
                states.save_part(connection, name, generation, learned, number, piece)

            self._apart(keep)
            number += 1
            self._round(small=True)
        return number

    def _apart(self, work: Callable[[Connection], object]) -> None:
        """A transaction beside the writer's, which waits for no disk, and a pause."""
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
                    time.sleep(max(SHORTEST, took))
                return
            except (Retryable, StoreUnavailable) as error:
                self._disconnect()
                if not left:
                    raise StoreUnavailable(f"the store does not take a part of a snapshot ({error})") from None
                time.sleep(0.05)

    def _save_part(self, fold: Fold, part: Publication) -> int:
        process, name = self._process, fold.row.name
        try:
            assert part.base is not None
            new = published.Part(part.generation, part.learned, part.base, codec.dumps(part.arrays))
            if process.writer.do(lambda c: published.add_part(c, name, new, process.worker)):
                process.notify(Notification("part", name, part.generation, part.base, part.learned))
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
            if parts or self._swept.get(name) != fold.generation:  # a large one may have become small by a reset
                self._swept[name] = fold.generation
                self._drop_parts(fold, before)
            self._version(fold, learned)
        else:
            fold.held = False  # another has its lease, or its state was replaced: what is here counts no more
        self._spend(size)
        self._settled(order)

    def _drop_parts(self, fold: Fold, before: int) -> None:
        """Delete the parts of snapshots `before` this one, some at a time. Those that other machines follow by stay for
        one snapshot longer: whoever is a little late need not load all of it."""
        name, generation = fold.row.name, fold.generation
        places = self._process.database.read(lambda c: states.old_places(c, name))
        if places or fold.large:
            self._apart(lambda c: published.drop_covered(c, name, generation, before))
        for at in places:
            self._again(lambda c, at=at: states.drop_parts(c, name, at, SOME))  # type: ignore[misc]

    def _again(self, work: Callable[[Connection], int]) -> None:
        """Transactions beside the writer's until nothing is left to do. Small orders go in between."""
        left = [1]

        def once(connection: Connection) -> None:
            left[0] = work(connection)

        while left[0]:
            self._apart(once)
            self._round(small=True)

    def _version(self, fold: Fold, learned: int) -> None:
        """Keep a version now and then."""
        settings, name, generation = self._process.settings, fold.row.name, fold.generation
        if fold.last_version == 0.0:
            fold.last_version = time.monotonic()  # the first version is due an hour after the start, not at it
        if time.monotonic() - fold.last_version < settings.version_seconds or learned == fold.version_seq:
            return
        now = self._process.clock()

        def keep(connection: Connection) -> None:
            if fold.large and not alone(connection):
                return  # written whole it would keep everyone waiting; nobody has asked for it
            at = (generation, learned)  # it may have been replaced just now: the next will do
            if states.keep_version(connection, name, "kept by the clock", now, automatic=True, at=at) is not None:
                states.drop_old_versions(connection, name, settings.keep_versions)

        self._process.writer.do(keep)
        fold.last_version, fold.version_seq = time.monotonic(), learned

    def _failed(self, order: _Order, error: BaseException) -> None:
        name = order.fold.row.name
        if isinstance(error, StoreUnavailable | TimeoutError):
            logger.warning("ranker %s: saving waits for the store: %s", name, error)
        else:
            logger.error("ranker %s: it could not be saved", name, exc_info=error)
        if order.part is None:
            self._settled(order)

    def _settled(self, order: _Order) -> None:
        fold = order.fold
        if order.then is not None:
            try:
                order.then()
            except Exception as error:  # it is tried again at the next look at the leases
                logger.warning("ranker %s: its lease could not be given back: %s", fold.row.name, error)
        fold.last_snapshot = time.monotonic()
        fold.saving = False
        self._over()
        self._copied()  # somebody may have asked for a newer one meanwhile

    def _over(self) -> None:
        with self._some:
            self._under_way -= 1
            self._some.notify_all()

    def _spend(self, size: int) -> None:
        self._free_at = max(self._free_at, time.monotonic()) + size / BUDGET

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
