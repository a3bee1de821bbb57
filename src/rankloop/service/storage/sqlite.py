"""SQLite: a file in WAL mode that any number of processes of one machine share."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Connection, Contended, Database, Insert, Retryable, Row, Size

T = TypeVar("T")
RETRY_SECONDS = 0.0003  # between tries for the write lock
BUSY_SECONDS = 1.0  # how long a writer waits for another process's transaction
READ_SECONDS = 2.0  # how long a reader waits: only while the write-ahead log is truncated, or recovered after a crash
CHECKPOINT_BYTES = 4 * 2**20  # of write-ahead log that are copied into the file together
TRUNCATE_BYTES = 32 * 2**20  # size of the write-ahead log from which on it is truncated
TRUNCATE_SECONDS = 0.05  # how long a truncation waits for readers
TRUNCATE_TRIES = 20  # with as much time for writers in between: 2 seconds at most
AUTO_CHECKPOINT = 32768  # pages after which a commit checkpoints by itself: the thread that should do it has died


class SQLiteConnection(Connection):
    """A connection that writes; every transaction takes the write lock first."""

    _busy_timeout = 0  # milliseconds for which SQLite itself waits for a lock; `_begin` waits better

    def __init__(self, path: Path) -> None:
        self._path, self._durable = path, True
        try:
            self._raw = sqlite3.connect(path, timeout=READ_SECONDS, isolation_level=None, check_same_thread=False)
            self._raw.execute("PRAGMA journal_mode = WAL")
            self._raw.execute("PRAGMA synchronous = FULL")
            self._raw.execute("PRAGMA secure_delete = ON")  # deleted rows are overwritten, whatever the build's default
            self._raw.execute(f"PRAGMA wal_autocheckpoint = {AUTO_CHECKPOINT}")
            self._raw.execute(f"PRAGMA busy_timeout = {self._busy_timeout}")
        except sqlite3.Error as error:
            raise self._classified(error) from None

    def index_hint(self, index: str) -> str:
        return f" INDEXED BY {index}"

    def run(self, sql: str, *parameters: Any) -> int:
        return self._raw.execute(sql, parameters).rowcount

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self._raw.execute(sql, parameters).fetchall()

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        return self._raw.executemany(sql, parameters).rowcount

    def append(self, insert: Insert, values: Sequence[Sequence[Any]]) -> int:
        return self._raw.executemany(insert.sql, values).rowcount

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:
        try:
            self._set_durable(durable)
            self._begin(wait)
            yield
            self._raw.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # after a full disk there may be nothing left to roll back
                self._raw.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._classified(error) from error
            raise

    def _set_durable(self, durable: bool) -> None:
        """Choose whether the next commit waits for the disk."""
        # FULL calls fsync on the write-ahead log, which takes along earlier commits of any process.
        # NORMAL, not OFF: with OFF a power cut during a checkpoint could damage what was durable long ago.
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable

    def _begin(self, wait: bool) -> None:
        """Take the write lock. SQLite itself sleeps up to 100 ms between tries; commits take less than 1 ms."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                if not wait:
                    raise Contended("another process writes") from None
                time.sleep(RETRY_SECONDS)

    def close(self) -> None:
        self._raw.close()

    def _classified(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError | sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.IntegrityError | sqlite3.ProgrammingError
        ):
            text = str(error)
            if "locked" in text or "busy" in text:
                return Retryable(text)
            return StoreUnavailable(f"{self._path}: {text}; {_remedy(text)}")
        return error


class SQLiteReader(SQLiteConnection):
    """A connection that reads without the write lock: every transaction sees the state of its start."""

    _busy_timeout = int(READ_SECONDS * 1000)

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:  # noqa: ARG002
        try:
            self._raw.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise self._classified(error) from error
        finally:
            with suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")


class Checkpointer(SQLiteReader):
    """Copies the write-ahead log into the file, so that no commit has to wait for that."""

    _busy_timeout = int(TRUNCATE_SECONDS * 1000)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = path.with_name(f"{path.name}-wal")
        self._copied = 0

    def checkpoint(self) -> None:
        """Copy what has come since the last time if that is much, and truncate the log if it has become large."""
        size = self._log.stat().st_size
        if size - self._copied < CHECKPOINT_BYTES:
            self._copied = min(self._copied, size)
            return
        busy, logged, copied = self._raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # A truncation makes writers wait for readers of an older state (a backup), so only once all is copied.
        if size > TRUNCATE_BYTES and not busy and copied == logged:  # both counts are -1 if another process copies
            self.truncate()
        self._copied = self._log.stat().st_size

    def truncate(self) -> bool:
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
    return "check the file; `sqlite3 FILE 'PRAGMA integrity_check'` shows whether it is intact"


class SQLite(Database):
    """A file, with one reading connection per thread."""

    fast_commits = True  # a commit that does not wait for the disk takes some 60 µs

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.absolute())
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._checkpointer: Checkpointer | None = None

    def connect(self, time_limits: bool = True) -> Connection:  # noqa: ARG002
        if not self.path.parent.is_dir():
            raise StoreUnavailable(
                f"{self.path.parent} is not a folder; create it, or choose another folder for --store"
            )
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
                self.close_thread()
                if last:
                    raise StoreUnavailable(f"the store cannot be read ({error}); it will be tried again") from None
        raise AssertionError("unreachable")

    def close_thread(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        self.close_thread()
        with self._lock:
            readers = list(self._readers)
        for connection in (*readers, self._checkpointer):
            if connection is not None:
                with suppress(Exception):  # one that is reading ends with its thread
                    connection.close()

    def truncate_log(self) -> bool:
        checkpointer = Checkpointer(self.path)
        try:
            for _ in range(TRUNCATE_TRIES):
                with suppress(sqlite3.Error):
                    if checkpointer.truncate():
                        return True
                time.sleep(TRUNCATE_SECONDS)  # writers continue in between
            return False
        finally:
            checkpointer.close()

    def size(self) -> Size:
        used = 0
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):  # the log comes and goes
                used += self.path.with_name(self.path.name + end).stat().st_size
        return Size(used, shutil.disk_usage(self.path.parent).free)

    def vacuum(self) -> None:
        """Rewrite the file without unused space; other processes cannot write meanwhile."""
        connection = SQLiteConnection(self.path)
        try:
            connection.run("VACUUM")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}; {_remedy(str(error))}") from None
        finally:
            connection.close()
        self.truncate_log()

    def maintain(self) -> None:
        with suppress(OSError, sqlite3.Error, StoreUnavailable, Retryable):  # the next time will do
            if self._checkpointer is None:
                self._checkpointer = Checkpointer(self.path)
            self._checkpointer.checkpoint()
