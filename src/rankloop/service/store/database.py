"""The two databases behind one small interface: connections that run SQL in transactions, and errors sorted by remedy.

All SQL of the service is written once, in the dialect that SQLite (3.35 or newer) and PostgreSQL share, with `?` for
parameters. What differs is here: how to connect, how to lock, which errors pass by themselves.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from rankloop.errors import InvalidParameter
from rankloop.service.errors import StoreUnavailable

Row = tuple[Any, ...]
T = TypeVar("T")
PARAMETERS = 30_000  # a statement at most; SQLite takes 32,766, PostgreSQL 65,535


class Retryable(Exception):
    """An error that goes away when the transaction is tried again: a deadlock, a lost connection, a restart."""


class Connection(ABC):
    """One connection, used by one thread at a time."""

    lock_rows: str = ""  # what SELECT needs behind it to lock the rows it reads until the transaction ends

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement; how many rows it changed."""

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Run a query, or a statement with RETURNING."""

    @abstractmethod
    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""

    @abstractmethod
    def transaction(self) -> Any:
        """A context in which all happens or nothing; errors come out as `StoreUnavailable` or `Retryable`."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back."""

    def tidy(self) -> None:
        """What a database wants done now and then, outside of transactions: nothing, if it does it itself."""
        return

    def row(self, sql: str, *parameters: Any) -> Row | None:
        """The first row, if there is one."""
        found = self.rows(sql, *parameters)
        return found[0] if found else None

    def insert(self, table: str, columns: str, values: Sequence[Sequence[Any]], tail: str = "") -> list[Row]:
        """Insert many rows in few statements; `tail` is ON CONFLICT … RETURNING …"""
        marks = "(" + ", ".join("?" * len(values[0])) + ")"
        found: list[Row] = []
        for some in _portions(values, PARAMETERS // len(values[0])):
            sql = f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * len(some))} {tail}"
            found += self.rows(sql, *(value for row in some for value in row))
        return found

    def rows_in(self, sql: str, values: Sequence[Any], tail: str = "") -> list[Row]:
        """The rows of `sql` IN (values) `tail`, however many values there are."""
        found: list[Row] = []
        for some in _portions(values, PARAMETERS):
            found += self.rows(f"{sql} IN ({marks(some)}) {tail}", *some)
        return found


def marks(values: Iterable[Any]) -> str:
    """`?, ?, ?` for an IN list."""
    return ", ".join("?" for _ in values)


def _portions(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Database(ABC):
    """How to get connections."""

    url: str

    @abstractmethod
    def connect(self) -> Connection:
        """A new connection."""

    def reader(self) -> Connection:
        """A new connection that only reads."""
        return self.connect()

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a transaction on this thread's own connection; a lost connection is opened again once."""
        for last in (False, True):
            connection: Connection | None = getattr(self._local, "connection", None)
            try:
                if connection is None:
                    connection = self._local.connection = self.reader()
                    with self._lock:
                        self._readers.add(connection)
                with connection.transaction():
                    return query(connection)
            except Retryable as error:
                self._local.connection = None
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                if last:
                    raise StoreUnavailable(f"the store cannot be reached ({error}); it will be tried again") from None
        raise AssertionError("unreachable")

    def forget(self) -> None:
        """Close this thread's own connection, if it has one."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        """Close the connections of all threads that read: those of an event loop's pool do not do it themselves."""
        self.forget()
        with self._lock:
            readers = list(self._readers)
        for connection in readers:
            with suppress(Exception):  # SQLite's may only be closed by their own thread, and end with it
                connection.close()

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()


# -- SQLite --------------------------------------------------------------------------------------------------------

LARGE_LOG = 32 * 2**20  # bytes of write-ahead log that are worth emptying it
TIDY_SECONDS = 0.05  # how long to wait for readers to finish before that
NAP = 0.0003  # seconds between tries for the write lock
BUSY_SECONDS = 10.0  # how long a writer waits for another process's transaction


class SQLiteConnection(Connection):
    """WAL mode; every transaction takes the write lock first and is on the disk when it ends."""

    _nap = 0  # milliseconds for which SQLite itself waits for a lock; `_begin` waits better

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._raw = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._raw.execute("PRAGMA journal_mode = WAL")
            self._raw.execute("PRAGMA synchronous = FULL")  # an fsync a commit: NORMAL could lose the last ones
            self._raw.execute(f"PRAGMA busy_timeout = {self._nap}")
        except sqlite3.Error as error:
            raise self._sorted(error) from None

    def run(self, sql: str, *parameters: Any) -> int:
        return self._raw.execute(sql, parameters).rowcount

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self._raw.execute(sql, parameters).fetchall()

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        self._raw.executemany(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._begin()
            yield
            self._raw.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # after a full disk there may be nothing left to roll back
                self._raw.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._sorted(error) from error
            raise

    def _begin(self) -> None:
        """Take the write lock. SQLite's own waiting doubles its naps up to 100 ms; commits take a fraction of one."""
        patience = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > patience:
                    raise
                time.sleep(NAP)

    def tidy(self) -> None:
        """Empty the write-ahead log once it is large. SQLite does so itself only when nobody reads, and someone always
        does: the log would grow as long as there is traffic."""
        log = self._path.with_name(f"{self._path.name}-wal")
        with suppress(OSError, sqlite3.Error):  # the next time will do
            if log.stat().st_size > LARGE_LOG:
                self._raw.execute(f"PRAGMA busy_timeout = {TIDY_SECONDS * 1000:.0f}")
                self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with suppress(sqlite3.Error):
            self._raw.execute(f"PRAGMA busy_timeout = {self._nap}")

    def close(self) -> None:
        self._raw.close()

    def _sorted(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError | sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.IntegrityError | sqlite3.ProgrammingError
        ):
            text = str(error)
            if "locked" in text or "busy" in text:
                return Retryable(text)
            return StoreUnavailable(f"{self._path}: {text}; {_sqlite_remedy(text)}")
        return error


class SQLiteReader(SQLiteConnection):
    """Reads without the write lock: WAL gives every transaction the state of its start."""

    _nap = int(BUSY_SECONDS * 1000)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._raw.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise self._sorted(error) from error
        finally:
            with suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")


def _sqlite_remedy(text: str) -> str:
    if "full" in text or "disk I/O" in text:
        return "make room on the disk; nothing that was acknowledged is lost"
    if "readonly" in text or "read-only" in text:
        return "give the service the right to write to the file and its folder"
    if "unable to open" in text:
        return "check that the folder exists and may be written to"
    return "check the file; `sqlite3 FILE 'PRAGMA integrity_check'` tells whether it is whole"


class SQLite(Database):
    """A file on this machine, for any number of processes of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.url = f"sqlite:///{path}"

    def connect(self) -> Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{self.path.parent}: {error.strerror}; choose another folder for --store") from None
        return SQLiteConnection(self.path)

    def reader(self) -> Connection:
        return SQLiteReader(self.path)


# -- PostgreSQL ----------------------------------------------------------------------------------------------------


class PostgresConnection(Connection):
    """psycopg 3, statements prepared by the driver."""

    lock_rows = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        import psycopg  # only those who use PostgreSQL need it

        self._errors = psycopg
        try:
            self._raw = psycopg.connect(url, connect_timeout=5, application_name="rankloop")
        except psycopg.OperationalError as error:
            raise Retryable(_first_line(error)) from None
        except psycopg.ProgrammingError:  # its message may quote a password that was taken for something else
            raise InvalidParameter(
                "store is no postgresql:// URL that can be read; in its password write / as %2F, @ as %40, : as %3A"
            ) from None

    def run(self, sql: str, *parameters: Any) -> int:
        return self._raw.execute(_translated(sql), parameters).rowcount

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        cursor = self._raw.execute(_translated(sql), parameters)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        with self._raw.cursor() as cursor:
            cursor.executemany(_translated(sql), parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self._raw.transaction():
                yield
        except self._errors.Error as error:
            raise self._sorted(error) from error

    def close(self) -> None:
        self._raw.close()

    def _sorted(self, error: Exception) -> Exception:
        kinds = self._errors.errors
        passing = (kinds.DeadlockDetected, kinds.SerializationFailure, kinds.LockNotAvailable)
        if isinstance(error, passing) or self._raw.broken or self._raw.closed:
            return Retryable(_first_line(error))
        if isinstance(error, kinds.DiskFull | kinds.ReadOnlySqlTransaction | kinds.InsufficientPrivilege):
            return StoreUnavailable(
                f"PostgreSQL: {_first_line(error)}; ask whoever runs it, nothing acknowledged is lost"
            )
        if isinstance(error, self._errors.OperationalError):
            return Retryable(_first_line(error))
        return error


class Postgres(Database):
    """A PostgreSQL that any number of machines may share."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise InvalidParameter(
                "a PostgreSQL store needs psycopg, which is not installed; pip install 'rankloop[postgres]'"
            ) from None

    def connect(self) -> Connection:
        return PostgresConnection(self.url)


def _translated(sql: str) -> Any:
    return sql.replace("?", "%s")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


def without_password(url: str) -> str:
    """A store's address as it may be shown.

    >>> without_password("postgresql://me:secret@db/rankloop?sslmode=require&password=secret")
    'postgresql://me@db/rankloop?sslmode=require'
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    rest, _, query = rest.partition("?")
    before, at, host = rest.rpartition("@")
    shown = f"{scheme}://{before.partition(':')[0]}{at}{host}"
    kept = [
        part for part in query.split("&") if part and not part.lower().startswith(("password", "passfile", "sslpass"))
    ]
    return f"{shown}?{'&'.join(kept)}" if kept else shown


def open_database(url: str) -> Database:
    """`sqlite:///file`, a plain path, or `postgresql://user:password@host/name`.

    >>> open_database("mysql://x")
    Traceback (most recent call last):
    ...
    rankloop.errors.InvalidParameter: store is 'mysql://x'; give a file, sqlite:///file or postgresql://…
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme in ("postgresql", "postgres"):
        return Postgres(url)
    if scheme == "sqlite":
        url = unquote(url.removeprefix("sqlite://").removeprefix("/") if url.startswith("sqlite:///") else "")
    elif scheme:
        raise InvalidParameter(f"store is {without_password(url)!r}; give a file, sqlite:///file or postgresql://…")
    if not url or url == ":memory:":
        raise InvalidParameter("the store has no file name; what is learned must outlive the process: give a path")
    return SQLite(Path(url).expanduser())
