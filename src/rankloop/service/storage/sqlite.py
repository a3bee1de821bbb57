"""SQLite: a file on this machine, for any number of processes of it, in WAL mode."""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Appended, Connection, Contended, Database, Retryable, Row

T = TypeVar("T")
NAP = 0.0003  # seconds between tries for the write lock
BUSY_SECONDS = 1.0  # how long a writer waits for another process's transaction before it looks who still wants it
READ_SECONDS = 2.0  # how long a reader waits: only while the log is being emptied, or recovered after a crash
COPY_EVERY = 4 * 2**20  # bytes of write-ahead log after which they are copied into the file
LARGE_LOG = 32 * 2**20  # bytes of write-ahead log that are worth emptying it
EMPTY_SECONDS = 0.05  # how long to wait for readers to finish before that
EMPTY_TRIES = 20  # to empty the log on demand, with as much time for writers in between: 2 seconds at most
FAR_TOO_LARGE = 32768  # pages of log after which whoever commits copies it himself: the thread that should is gone


class SQLiteConnection(Connection):
    """Writes; every transaction takes the write lock first."""

    _nap = 0  # milliseconds for which SQLite itself waits for a lock; `_begin` waits better

    def __init__(self, path: Path) -> None:
        self._path, self._durable = path, True
        try:
            self._raw = sqlite3.connect(path, timeout=READ_SECONDS, isolation_level=None, check_same_thread=False)
            self._raw.execute("PRAGMA journal_mode = WAL")
            self._raw.execute("PRAGMA synchronous = FULL")
            self._raw.execute("PRAGMA secure_delete = ON")  # deleted rows are overwritten, whatever the build's default
            self._raw.execute(f"PRAGMA wal_autocheckpoint = {FAR_TOO_LARGE}")
            self._raw.execute(f"PRAGMA busy_timeout = {self._nap}")
        except sqlite3.Error as error:
            raise self._sorted(error) from None

    def by(self, index: str) -> str:
        return f" INDEXED BY {index}"

    def run(self, sql: str, *parameters: Any) -> int:
        return self._raw.execute(sql, parameters).rowcount

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self._raw.execute(sql, parameters).fetchall()

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        return self._raw.executemany(sql, parameters).rowcount

    def append(self, what: Appended, values: Sequence[Sequence[Any]]) -> int:
        return self._raw.executemany(what.sql, values).rowcount

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:
        try:
            self._choose(durable)
            self._begin(wait)
            yield
            self._raw.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # after a full disk there may be nothing left to roll back
                self._raw.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._sorted(error) from error
            raise

    def _choose(self, durable: bool) -> None:
        """Whether the next commit waits for the disk; SQLite wants it said outside of transactions.

        A commit appends to the write-ahead log. FULL then calls fsync on that file, and fsync is about a file, not
        about a write: what earlier commits of any process have left in the system's memory goes to the disk with it.
        So an event on the disk has its impression there, too, though nobody waited for that. NORMAL, not OFF, for the
        others: both leave a commit to the system, but with OFF the log would be copied into the file without an fsync
        on either side, and a power cut at that moment could damage what was durable long ago.
        """
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable

    def _begin(self, wait: bool) -> None:
        """Take the write lock. SQLite's own waiting doubles its naps up to 100 ms; commits take a fraction of one."""
        patience = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > patience:
                    raise
                if not wait:
                    raise Contended("someone else writes") from None
                time.sleep(NAP)

    def close(self) -> None:
        self._raw.close()

    def _sorted(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError | sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.IntegrityError | sqlite3.ProgrammingError
        ):
            text = str(error)
            if "locked" in text or "busy" in text:
                return Retryable(text)
            return StoreUnavailable(f"{self._path}: {text}; {_remedy(text)}")
        return error


class SQLiteReader(SQLiteConnection):
    """Reads without the write lock: WAL gives every transaction the state of its start."""

    _nap = int(READ_SECONDS * 1000)

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:  # noqa: ARG002
        try:
            self._raw.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise self._sorted(error) from error
        finally:
            with suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")


class LogCopier(SQLiteReader):
    """Copies the write-ahead log into the file, beside whoever writes: a copy of 4 MB takes milliseconds and two
    fsyncs, which a commit that does it itself would have to wait for."""

    _nap = int(EMPTY_SECONDS * 1000)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = path.with_name(f"{path.name}-wal")
        self._copied = 0

    def copy(self) -> None:
        """Copy what has come since the last time if that is much, and empty the log if it has become large.

        SQLite starts it anew by itself only when nobody reads or writes for a moment; in traffic it would grow.
        """
        size = self._log.stat().st_size
        if size - self._copied < COPY_EVERY:
            self._copied = min(self._copied, size)
            return
        busy, logged, copied = self._raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # A checkpoint that truncates makes writers wait for readers. One that reads an older state (a backup) would
        # cost them EMPTY_SECONDS every 4 MB until it ends.
        if size > LARGE_LOG and not busy and copied == logged:  # both counts are -1 if another process copies
            self.empty()
        self._copied = self._log.stat().st_size

    def empty(self) -> bool:
        """Copy the whole log and truncate it; False if a reader or a writer was in the way."""
        busy, _, _ = self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy


def _remedy(text: str) -> str:
    if "full" in text or "disk I/O" in text:
        return "make room on the disk; nothing that was acknowledged is lost"
    if "readonly" in text or "read-only" in text:
        return "give the service the right to write to the file and its folder"
    if "unable to open" in text:
        return "check that the folder exists and may be written to"
    return "check the file; `sqlite3 FILE 'PRAGMA integrity_check'` tells whether it is whole"


class SQLite(Database):
    """A file, and the connections that threads keep to it for reading."""

    at_once = True  # a commit that need not reach the disk is a copy into the system's memory: some 60 µs

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.absolute())
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._copier: LogCopier | None = None

    def connect(self, hurried: bool = True) -> Connection:  # noqa: ARG002
        if not self.path.parent.is_dir():
            raise StoreUnavailable(f"{self.path.parent} is not a folder; create it, or choose another one for --store")
        return SQLiteConnection(self.path)

    def read(self, query: Callable[[Connection], T]) -> T:
        for last in (False, True):
            connection: Connection | None = getattr(self._local, "connection", None)
            try:
                if connection is None:
                    connection = self._local.connection = SQLiteReader(self.path)
                    with self._lock:
                        self._readers.add(connection)
                with connection.transaction():
                    return query(connection)
            except Retryable as error:
                self.forget()
                if last:
                    raise StoreUnavailable(f"the store cannot be read ({error}); it will be tried again") from None
        raise AssertionError("unreachable")

    def forget(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        self.forget()
        with self._lock:
            readers = list(self._readers)
        for connection in (*readers, self._copier):
            if connection is not None:
                with suppress(Exception):  # one that reads at this moment ends with its thread
                    connection.close()

    def empty_log(self) -> bool:
        copier = LogCopier(self.path)
        try:
            for _ in range(EMPTY_TRIES):
                with suppress(sqlite3.Error):
                    if copier.empty():
                        return True
                time.sleep(EMPTY_SECONDS)  # writers go on in between
            return False
        finally:
            copier.close()

    def vacuum(self) -> None:
        """Rewrite the file without unused space; nobody else can write meanwhile."""
        connection = SQLiteConnection(self.path)
        try:
            connection.run("VACUUM")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}; {_remedy(str(error))}") from None
        finally:
            connection.close()
        self.empty_log()

    def tend(self) -> None:
        with suppress(OSError, sqlite3.Error, StoreUnavailable, Retryable):  # the next time will do
            if self._copier is None:
                self._copier = LogCopier(self.path)
            self._copier.copy()
