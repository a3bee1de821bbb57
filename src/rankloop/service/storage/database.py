"""The two databases behind one small interface: connections that run SQL in transactions, and errors sorted by remedy.

All SQL of the service is written once, in the dialect that SQLite (3.35 or newer) and PostgreSQL share, with `?` for
parameters. What differs is in `sqlite` and `postgres`: how to connect, how to lock, which errors pass by themselves,
what it takes for a commit to be on the disk, and how long anything may take.
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
PARAMETERS = 30_000  # a statement at most; SQLite takes 32,766, PostgreSQL 65,535


class Retryable(Exception):
    """An error that goes away when the transaction is tried again: a deadlock, a lost connection, a restart."""


class Contended(Retryable):
    """Someone else was quicker: look again. Nothing is wrong with the store or the connection."""


class Appended(NamedTuple):
    """Rows that a table is given, many at a time."""

    table: str
    columns: dict[str, str]  # names, and what is in them: text, int8, float8 or bytea
    sql: str  # one statement whatever the number of rows: it is prepared once, and RETURNING would cost a fifth more

    @classmethod
    def to(cls, table: str, columns: dict[str, str]) -> Appended:
        """Rows of these columns."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(columns)}) ON CONFLICT DO NOTHING"
        return cls(table, columns, sql)


class Connection(ABC):
    """One connection, used by one thread at a time."""

    lock_rows: str = ""  # what SELECT needs behind it to lock the rows it reads until the transaction ends
    whole: bool = True  # whether the log is one table, and what is unique in it is so for ever
    by_time: bool = False  # whether the log is cut by time; then ids are compared in the order they were made in
    settled: bool = False  # whether processes of earlier releases are refused by now; False: not known yet
    doubtful: bool = False  # something was in the way that was not found where it was looked for: look everywhere

    def by(self, index: str) -> str:  # noqa: ARG002
        """What a table's name needs behind it in a SELECT to be read by this index: nothing, if the database knows how
        many rows there are of what. One that guesses may read the whole log to find the few lists that are open."""
        return ""

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement; how many rows it changed."""

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Run a query, or a statement with RETURNING."""

    @abstractmethod
    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        """Run a statement once for each row of parameters; how many rows that changed in all."""

    @abstractmethod
    def transaction(self, durable: bool = True, wait: bool = True) -> AbstractContextManager[None]:
        """A context in which all happens or nothing; errors come out as `StoreUnavailable` or `Retryable`. With `wait`
        false, whoever would have to wait for someone else to finish gets `Contended` instead, where that is known.

        When it ends, others see what was written and the end of this process cannot undo it. If it is `durable`, it is
        on the disk as well, and so is everything that was committed before it, by whomever: both databases write one
        log, in order, and recover from a power cut by reading it from its start to the first gap.
        """

    def take_turns(self, names: Iterable[str]) -> None:  # noqa: B027
        """Until the transaction ends, whoever wants one of the same names waits: nothing to do, if writers are alone
        anyway."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back."""

    def row(self, sql: str, *parameters: Any) -> Row | None:
        """The first row, if there is one."""
        found = self.rows(sql, *parameters)
        return found[0] if found else None

    @abstractmethod
    def append(self, what: Appended, values: Sequence[Sequence[Any]]) -> int:
        """Insert rows, but for those that something unique is in the way of; how many were inserted."""

    def insert(self, table: str, columns: str, values: Sequence[Sequence[Any]], tail: str = "") -> list[Row]:
        """Insert many rows in few statements; `tail` is ON CONFLICT … RETURNING …"""
        marks = "(" + ", ".join("?" * len(values[0])) + ")"
        found: list[Row] = []
        for some in portions(values, PARAMETERS // len(values[0])):
            sql = f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * len(some))} {tail}"
            found += self.rows(sql, *(value for row in some for value in row))
        return found

    def rows_in(self, sql: str, values: Sequence[Any], tail: str = "", *before: Any) -> list[Row]:
        """The rows of `sql` IN (values) `tail`, however many values there are; `before` are parameters of `sql`."""
        found: list[Row] = []
        for some in portions(values, PARAMETERS):
            inside, wanted = self.among(some)
            found += self.rows(f"{sql} {inside} {tail}", *before, *wanted)
        return found

    def by_request(self, columns: str, pairs: Sequence[tuple[str, str]], start: str) -> list[Row]:
        """Columns of the lists from `start` on that were asked for with these (ranker, request_id)."""
        names: dict[str, list[str]] = {}
        for ranker, name in pairs:
            names.setdefault(ranker, []).append(name)
        sql = f"SELECT {columns} FROM impressions{self.by('impressions_request')} WHERE id >= '{start}' AND ranker = ?"
        return [
            row for ranker, some in names.items() for row in self.rows_in(f"{sql} AND request_id", some, "", ranker)
        ]

    def by_event(self, ids: Sequence[str], start: str) -> list[Row]:
        """(event_id, impression_id) of the events of these ids about lists from `start` on."""
        return self.rows_in(
            f"SELECT event_id, impression_id FROM events WHERE impression_id >= '{start}' AND event_id", ids
        )

    def among(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """What says that a column has one of some values, to be put behind its name, and its parameters."""
        return f"IN ({marks(values)})", values


def marks(values: Iterable[Any]) -> str:
    """`?, ?, ?` for an IN list."""
    return ", ".join("?" for _ in values)


def portions(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The values in order, so many at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Database(ABC):
    """How to get connections.

    Every wait for the database ends: connecting, waiting for a lock, a statement that is never answered. `hurried`
    databases, those of a service, end it early, since someone waits; others are for whoever reads a whole log.
    """

    clock: ClassVar[str] = ""  # a query for its time of day, in seconds; empty: it has none but this machine's
    name: str  # tells one store from another; without a password
    at_once: ClassVar[bool] = False  # whether a commit that is not durable is over before anybody could wait for it

    @abstractmethod
    def connect(self, hurried: bool = True) -> Connection:
        """A new connection to write with. One that is not `hurried` may take its time: tables are changed with it."""

    @abstractmethod
    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query; all it reads is of one moment. A lost connection is opened again once."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections that read."""

    def forget(self) -> None:
        """This thread will not read again: close what is kept for it, if anything is."""
        return

    def notifier(self) -> Notifier | None:
        """Words between the processes that share the store; None, if it has no way to pass them on."""
        return None

    def empty_log(self) -> bool:
        """Remove from the write-ahead log what was deleted or overwritten; False if others kept it busy. A server looks
        after its own log."""
        return True

    def tend(self) -> None:
        """What must be seen to beside the writing, a few times a second: nothing, if the database does it itself."""
        return


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


def open_database(url: str, hurried: bool = False) -> Database:
    """`sqlite:///file`, a plain path, or `postgresql://user:password@host/name`.

    >>> open_database("mysql://x")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: store is 'mysql://x'; give a file, sqlite:///file or postgresql://…
    """
    from rankloop.service.storage.postgres import Postgres  # both are built on this module
    from rankloop.service.storage.sqlite import SQLite

    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme in ("postgresql", "postgres"):
        return Postgres(url, hurried)
    if scheme == "sqlite":
        url = unquote(url.removeprefix("sqlite://").removeprefix("/") if url.startswith("sqlite:///") else "")
    elif scheme:
        raise InvalidParameter(f"store is {without_password(url)!r}; give a file, sqlite:///file or postgresql://…")
    if not url or url == ":memory:":
        raise InvalidParameter("the store has no file name; what is learned must outlive the process: give a path")
    return SQLite(Path(url).expanduser())
