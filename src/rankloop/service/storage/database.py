"""The interface of both databases: connections that run SQL in transactions, and errors sorted by remedy.

All SQL is written once, in the dialect that SQLite (3.35 or newer) and PostgreSQL share, with `?` for parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import unquote

from rankloop.core.errors import InvalidParameter
from rankloop.service.storage.notifications import Notifier

Row = tuple[Any, ...]
T = TypeVar("T")
MAX_PARAMETERS = 30_000  # per statement; SQLite takes 32,766, PostgreSQL 65,535


class Retryable(Exception):
    """An error that goes away when the transaction is tried again: a deadlock, a lost connection, a restart."""


class Contended(Retryable):
    """Another process was faster; the store and the connection are fine."""


class Insert(NamedTuple):
    """A statement that inserts many rows into a table."""

    table: str
    columns: dict[str, str]  # name -> PostgreSQL type
    sql: str  # the same for any number of rows, so it is prepared once

    @classmethod
    def into(cls, table: str, columns: dict[str, str]) -> Insert:
        """Make the statement for these columns."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(columns)}) ON CONFLICT DO NOTHING"
        return cls(table, columns, sql)


class Size(NamedTuple):
    """Bytes that a store takes, and that are left; `free` is None where the disk is another machine's."""

    used: int
    free: int | None


class Connection(ABC):
    """One connection, used by one thread at a time."""

    lock_rows: str = ""  # SQL suffix that locks the selected rows until the transaction ends
    partitioned: bool = False  # whether the log is partitioned by time; unique indexes hold within a partition only
    search_all: bool = False  # a conflicting row was not found among recent ones: search all partitions

    def index_hint(self, index: str) -> str:  # noqa: ARG002
        """Return the SQL after a table's name that makes a SELECT use an index; empty if the database plans well."""
        return ""

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement; return how many rows it changed."""

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Run a query, or a statement with RETURNING."""

    @abstractmethod
    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        """Run a statement once per row of parameters; return how many rows were changed in all."""

    @abstractmethod
    def transaction(self, durable: bool = True, wait: bool = True) -> AbstractContextManager[None]:
        """Run a block in a transaction; errors are raised as `StoreUnavailable` or `Retryable`.

        A durable commit is on the disk when the block ends, and so is every earlier commit of any process: both
        databases write one log, in order. Without `wait`, `Contended` is raised instead of waiting for another writer,
        where that is known.
        """

    def lock_names(self, names: Iterable[str]) -> None:  # noqa: B027
        """Lock names until the transaction ends. SQLite has one writer at a time anyway."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back."""

    def row(self, sql: str, *parameters: Any) -> Row | None:
        """Return the first row, if there is one."""
        found = self.rows(sql, *parameters)
        return found[0] if found else None

    @abstractmethod
    def append(self, insert: Insert, values: Sequence[Sequence[Any]]) -> int:
        """Insert rows, except those that violate a unique index; return how many were inserted."""

    def insert(self, table: str, columns: str, values: Sequence[Sequence[Any]], tail: str = "") -> list[Row]:
        """Insert many rows in few statements; `tail` is ON CONFLICT … RETURNING …"""
        row_marks = f"({marks(values[0])})"
        found: list[Row] = []
        for some in portions(values, MAX_PARAMETERS // len(values[0])):
            sql = f"INSERT INTO {table} ({columns}) VALUES {', '.join([row_marks] * len(some))} {tail}"
            found += self.rows(sql, *(value for row in some for value in row))
        return found

    def rows_in(self, sql: str, values: Sequence[Any], tail: str = "", *before: Any) -> list[Row]:
        """Return the rows of `sql` IN (values) `tail` for any number of values; `before` are parameters of `sql`."""
        found: list[Row] = []
        for some in portions(values, MAX_PARAMETERS):
            condition, wanted = self.in_values(some)
            found += self.rows(f"{sql} {condition} {tail}", *before, *wanted)
        return found

    def by_request(self, columns: str, pairs: Sequence[tuple[str, str]], start: str) -> list[Row]:
        """Return columns of the impressions with these (ranker, request_id), among ids from `start` on."""
        names: dict[str, list[str]] = {}
        for ranker, name in pairs:
            names.setdefault(ranker, []).append(name)
        table = f"impressions{self.index_hint('impressions_request')}"
        sql = f"SELECT {columns} FROM {table} WHERE id >= '{start}' AND ranker = ? AND request_id"
        return [row for ranker, some in names.items() for row in self.rows_in(sql, some, "", ranker)]

    def by_event(self, ids: Sequence[str], start: str) -> list[Row]:
        """Return (event_id, impression_id) of events by their ids, among impressions from `start` on."""
        return self.rows_in(
            f"SELECT event_id, impression_id FROM events WHERE impression_id >= '{start}' AND event_id", ids
        )

    def in_values(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return the SQL condition that a column has one of some values, and its parameters."""
        return f"IN ({marks(values)})", values


def marks(values: Iterable[Any]) -> str:
    """Return `?, ?, ?` for an IN list."""
    return ", ".join("?" for _ in values)


def portions(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the values in order, at most `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Database(ABC):
    """A factory of connections.

    Every wait for the database ends: for a connection, a lock or a statement. Databases with `time_limits`, those of a
    service, give up early; others are for programs that read a whole log.
    """

    clock: ClassVar[str] = ""  # a query for the server's time in seconds; empty: the time is that of this machine
    name: str  # identifies the store; without a password
    fast_commits: ClassVar[bool] = False  # whether a commit that is not durable takes microseconds

    @abstractmethod
    def connect(self, time_limits: bool = True) -> Connection:
        """Return a new connection to write with; without time limits it can change tables."""

    @abstractmethod
    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query on one consistent state. A lost connection is opened again once."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections that read."""

    @abstractmethod
    def size(self) -> Size:
        """Return how much space the store takes."""

    def close_thread(self) -> None:
        """Close the connection that is kept for this thread, if there is one."""
        return

    def notifier(self) -> Notifier | None:
        """Return the channel between the processes that share the store; None if it has none."""
        return None

    def truncate_log(self) -> bool:
        """Remove deleted and overwritten data from the write-ahead log; False if others kept it busy."""
        return True

    def maintain(self) -> None:
        """Do the work beside the writing that is due a few times per second; none if the database does it itself."""
        return


def without_password(url: str) -> str:
    """Return a store's address without its password.

    >>> without_password("postgresql://me:secret@db/rankloop?sslmode=require&password=secret")
    'postgresql://me@db/rankloop?sslmode=require'
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    rest, _, query = rest.partition("?")
    before, at, host = rest.rpartition("@")
    shown = f"{scheme}://{before.partition(':')[0]}{at}{host}"
    secret = ("password", "passfile", "sslpass")
    kept = [field for field in query.split("&") if field and not field.lower().startswith(secret)]
    return f"{shown}?{'&'.join(kept)}" if kept else shown


def open_database(url: str, time_limits: bool = False) -> Database:
    """Open `sqlite:///file`, a plain path, or `postgresql://user:password@host/name`.

    >>> open_database("mysql://x")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: store is 'mysql://x'; give a file, sqlite:///file or postgresql://…
    """
    from rankloop.service.storage.postgres import Postgres  # both import this module
    from rankloop.service.storage.sqlite import SQLite

    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme in ("postgresql", "postgres"):
        return Postgres(url, time_limits)
    if scheme == "sqlite":
        url = unquote(url.removeprefix("sqlite://").removeprefix("/") if url.startswith("sqlite:///") else "")
    elif scheme:
        raise InvalidParameter(f"store is {without_password(url)!r}; give a file, sqlite:///file or postgresql://…")
    if not url or url == ":memory:":
        raise InvalidParameter("the store has no file name; learned models must outlive the process: give a path")
    return SQLite(Path(url).expanduser())
