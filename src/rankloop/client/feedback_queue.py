"""The feedback queue of the clients: events wait in SQLite, in memory or in a file, until a thread has delivered them.

Their event_ids make repeats harmless, so events are sent again after a lost response, and processes may share a file.
"""

from __future__ import annotations

import atexit
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from rankloop.client import exchange
from rankloop.client.exchange import Call, Reply, pause, problem_of
from rankloop.client.transport import send
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, Receipt

BATCH = 500  # events per request, at most; the service takes 1,000 unless its setting max_events says otherwise
LEASE = 30.0  # seconds for which a process that sends events keeps others that share the file from sending them, too
IDLE = 10.0  # seconds after which a thread without events ends; the next event starts another
EXIT_SECONDS = 5.0  # at most, for all clients, when the program ends
REPORT_EVERY = 60.0  # seconds between two log messages about the same problem
KEPT = (401, 403, 404, 408, 425, 429)  # a wrong key or address, or overload: events wait, as after a 5xx

Settings = dict[str, Any]  # of httpx.Client
OnRejected = Callable[[Receipt, FeedbackEvent], None]
Row = tuple[int, bytes]

_logger = logging.getLogger(__name__)
_queues: weakref.WeakSet[FeedbackQueue] = weakref.WeakSet()


def log_rejected(receipt: Receipt, event: FeedbackEvent) -> None:
    """The default of `on_rejected`."""
    _logger.warning("event %s of %s was rejected: %s", receipt.event_id, event.impression_id, receipt.reason)


class FeedbackQueue:
    """Events on their way to the service. All methods may be called from any thread.

    When the queue is full, the oldest events are dropped: they are the first whose attribution window closes.

    Attributes
    ----------
    counts
        Events since the start of the process, by what became of them: the statuses of the service (`accepted`,
        `duplicate`, `late`, `orphan`, `rejected`) and `dropped`.
    last_error
        Why the last try failed; None after one that succeeded.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        size: int,
        path: str | os.PathLike[str] | None,
        on_rejected: OnRejected,
    ) -> None:
        self.url, self.size, self.path = url, size, None if path is None else os.fspath(path)
        self._settings, self._on_rejected = settings, on_rejected
        self._closed = False
        self._begin()
        if self.path is not None:
            self._open_file()
        _queues.add(self)

    def _begin(self) -> None:
        """The state of a process in which nothing has been queued."""
        self.counts: Counter[str] = Counter()
        self.last_error: str | None = None
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._mine: Sequence[Row] = ()  # claimed: being sent now
        self._hurry = False
        self._most = BATCH
        self._waiting = 0
        self._reported: dict[str, float] = {}

    def _open_file(self) -> None:
        """Fail now if the file cannot be used, and send what an earlier process has left in it."""
        assert self.path is not None
        if not Path(self.path).parent.is_dir():
            raise InvalidParameter(f"queue_file is {self.path!r}; its folder does not exist")
        try:
            with self._wake:
                self._count()
        except sqlite3.Error as error:
            raise InvalidParameter(f"queue_file is {self.path!r}; it cannot be used: {error}") from None
        if self._waiting:
            with self._wake:
                self._start()

    # -- for health checks -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Events that wait; in a shared file those of all processes, as of the last look."""
        return self._waiting

    @property
    def delivered(self) -> int:
        """Events that the service has taken: also late, orphaned and repeated ones, but not rejected ones."""
        return sum(count for status, count in self.counts.items() if status not in ("rejected", "dropped"))

    @property
    def rejected(self) -> int:
        """Events that the service has rejected."""
        return self.counts["rejected"]

    @property
    def dropped(self) -> int:
        """Events that were lost here: the queue was full, its file failed, or the program ended."""
        return self.counts["dropped"]

    # -- for the clients -------------------------------------------------------------------------------------------

    def put(self, events: Iterable[FeedbackEvent]) -> None:
        """Add events. Never raises for want of room: then the oldest are dropped, and counted."""
        given = [(msgspec.json.encode(event),) for event in events]
        bodies = given[-self.size :]
        with self._wake:
            if self._closed:
                raise RankloopError("the client is closed; send events before close()")
            try:
                with self._database() as database:
                    database.executemany("INSERT INTO events (body) VALUES (?)", bodies)
                self._waiting += len(bodies)
                self._make_room(len(bodies), len(given) - len(bodies))
            except sqlite3.Error as error:  # a full disk must not break a page
                self._drop(len(given), f"the file {self.path} cannot be written ({error})")
            self._start()
            self._wake.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until all events are delivered; False if the time was not enough."""
        with self._wake:
            if self._waiting:
                self._hurry = True
                self._start()
                self._wake.notify_all()
            return self._wake.wait_for(lambda: not self._waiting, timeout)

    def close(self, timeout: float) -> None:
        """Deliver what is there, for at most `timeout` seconds, and end. What is in a file stays there."""
        if self._closed:
            return
        done = self.flush(timeout)
        with self._wake:
            self._release()
            self._closed = True
            if not done and self.path is None:
                self._drop(self._waiting, f"the client was closed before {self.url} has answered")
                self._waiting = 0
            elif not done:
                _logger.warning("%d events are left in %s; the next process sends them", self._waiting, self.path)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._wake.notify_all()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="rankloop-feedback", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is about to end
                self._thread = None

    def _work(self) -> None:
        try:
            with httpx.Client(**self._settings) as http:
                self._send_all(http)
        except Exception:  # the next event starts another thread
            _logger.exception("the thread that sends feedback has failed")
            with self._wake:
                self._release()
                self._thread = None

    def _send_all(self, http: httpx.Client) -> None:
        """Send batches until there is nothing to send for a while, or the queue is closed."""
        failures = 0
        while rows := self._next():
            body = b"[" + b",".join(body for _, body in rows) + b"]"
            wait = self._settle(rows, send(http, self.url, Call("POST", "/v1/feedback", body)), failures)
            failures = 0 if wait is None else failures + 1
            with self._wake:
                if wait is not None:
                    self._wake.wait_for(lambda: self._hurry or self._closed, wait)
                self._hurry = False

    def _next(self) -> Sequence[Row]:
        """The next batch, now claimed by this process. No rows mean that the thread ends."""
        with self._wake:
            while not self._closed:
                self._mine = self._claimed()
                if self._mine:
                    return self._mine
                if self._waiting:  # another process sends them, or the file fails
                    self._wake.wait(1.0)
                elif not self._wake.wait(IDLE) and not self._waiting:
                    break
            self._thread = None  # within the lock: whoever adds the next event starts another
            return ()

    def _settle(self, rows: Sequence[Row], reply: Reply, failures: int) -> float | None:
        """Do with a batch what its answer says. Seconds until the next try, None after an answer."""
        receipts = _receipts(reply, len(rows))
        if receipts is None and 400 <= reply.status < 500 and reply.status not in KEPT:
            if len(rows) > 1:  # too large, or one of them is at fault: send fewer
                with self._wake:
                    self._most = len(rows) // 2
                    self._release()
                return None
            receipts = [Receipt(None, "rejected", problem_of(reply).message or f"status {reply.status}")]
        if receipts is None:
            problem = problem_of(reply)
            why = f"{reply.status} {problem.error}".rstrip() if reply.status else reply.lost
            with self._wake:
                self.last_error = why if reply.status != 200 else "the response is not from rankloop"
                text = "cannot deliver feedback to %s: %s; %d events wait"
                self._report("failed", text, self.url, self.last_error, self._waiting)
                self._release()
            return pause(failures, reply, exchange.FIRST_PAUSE)
        self._answered(rows, receipts)
        return None

    def _answered(self, rows: Sequence[Row], receipts: list[Receipt]) -> None:
        for (_, body), receipt in zip(rows, receipts, strict=True):
            if receipt.status == "rejected":
                event = msgspec.json.decode(body, type=FeedbackEvent)
                try:
                    self._on_rejected(Receipt(event.event_id, "rejected", receipt.reason), event)
                except Exception:
                    _logger.exception("on_rejected failed for event %s", event.event_id)
        with self._wake:
            self.last_error = None
            self._most = min(BATCH, 2 * self._most)
            if not self._closed:
                self._delete([number for number, _ in rows])
                self.counts.update(receipt.status for receipt in receipts)
            self._mine = ()
            self._wake.notify_all()

    # -- the table; the caller has the lock ------------------------------------------------------------------------

    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            made = sqlite3.connect(self.path or ":memory:", timeout=2.0, check_same_thread=False)
            if self.path is not None:
                # Committed events survive the end of the process, also by a signal; a power cut may take the last ones.
                made.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL")
            with made:
                made.execute(
                    "CREATE TABLE IF NOT EXISTS events "
                    "(id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, claimed REAL NOT NULL DEFAULT 0)"
                )
            self._connection = made
        return self._connection

    def _count(self) -> None:
        if not self._closed:
            (self._waiting,) = self._database().execute("SELECT count(*) FROM events").fetchone()

    def _claimed(self) -> Sequence[Row]:
        """The oldest events that nobody sends, claimed for the time of a lease."""
        now = time.time()
        try:
            if self.path is not None:
                self._count()
            if not self._waiting:
                self._wake.notify_all()
                return ()
            with self._database() as database:
                database.execute("BEGIN IMMEDIATE")
                sql = "SELECT id, body FROM events WHERE claimed < ? ORDER BY id LIMIT ?"
                rows: list[Row] = database.execute(sql, (now, self._most)).fetchall()
                sql = "UPDATE events SET claimed = ? WHERE id = ?"
                database.executemany(sql, [(now + LEASE, number) for number, _ in rows])
            return rows
        except sqlite3.Error as error:
            self._report("file", "cannot read the feedback queue %s: %s", self.path, error)
            return ()

    def _release(self) -> None:
        """Nobody sends them any more."""
        rows, self._mine = self._mine, ()
        if rows and not self._closed:
            self._change("UPDATE events SET claimed = 0 WHERE id = ?", [number for number, _ in rows])

    def _delete(self, numbers: list[int]) -> None:
        self._waiting = max(self._waiting - len(numbers), 0)
        self._change("DELETE FROM events WHERE id = ?", numbers)

    def _change(self, sql: str, numbers: list[int]) -> None:
        try:
            with self._database() as database:
                database.executemany(sql, [(number,) for number in numbers])
        except sqlite3.Error as error:  # sent again after the lease, and counted once by the service
            self._report("file", "cannot write the feedback queue %s: %s", self.path, error)

    def _make_room(self, added: int, lost: int) -> None:
        """Drop the oldest events, but neither the newest, nor those that are being sent now."""
        excess = self._waiting - self.size
        if excess > 0:
            newest = "id > (SELECT max(id) FROM events) - ?"
            oldest = f"SELECT id FROM events WHERE claimed < ? AND NOT {newest} ORDER BY id LIMIT ?"
            with self._database() as database:
                found = database.execute(f"DELETE FROM events WHERE id IN ({oldest})", (time.time(), added, excess))
            self._waiting -= found.rowcount
            lost += found.rowcount
        if lost:
            self._drop(lost, f"more than {self.size} wait")

    def _drop(self, count: int, why: str) -> None:
        self.counts["dropped"] += count
        self._report("dropped", "%d feedback events dropped: %s", self.dropped, why)

    def _report(self, kind: str, text: str, *values: Any) -> None:
        """A warning, now and then."""
        now = time.monotonic()
        if now >= self._reported.get(kind, -REPORT_EVERY) + REPORT_EVERY:
            self._reported[kind] = now
            _logger.warning(text, *values)

    # -- fork ------------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Hold still, without a connection: SQLite's must not be carried into another process."""
        self._wake.acquire()
        if self.path is not None and self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._wake.release()

    def after_fork_in_child(self) -> None:
        """Start empty: the parent sends the events that wait in its memory."""
        self._begin()


def _receipts(reply: Reply, count: int) -> list[Receipt] | None:
    if reply.status != 200:
        return None
    try:
        found = msgspec.json.decode(reply.body, type=FeedbackAnswer).results
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if len(found) == count else None


_forking: list[FeedbackQueue] = []


def _before_fork() -> None:
    _forking[:] = list(_queues)
    for queue in _forking:
        queue.before_fork()


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    while _forking:
        _forking.pop().after_fork_in_child()


def _at_exit() -> None:
    end = time.monotonic() + EXIT_SECONDS
    for queue in list(_queues):
        queue.close(max(end - time.monotonic(), 0.0))


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
