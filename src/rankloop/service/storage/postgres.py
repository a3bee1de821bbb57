"""PostgreSQL: a server that any number of machines share, and that may hang, restart or be far away."""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

from rankloop.core.errors import InvalidParameter
from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Connection, Database, Insert, Retryable, Row, Size, without_password
from rankloop.service.storage.notifications import Notifier

T = TypeVar("T")
READERS = 8  # reading connections per process
POOL_SECONDS = 2.0  # how long a reader waits for one of them
LOCK_SECONDS = 2.0  # how long a statement waits for a locked row
READ_SECONDS = 10.0  # per statement of a service; a large state is read by several statements
IDLE_SECONDS = 5.0  # for which a process may pause inside a transaction; others wait for its locks
WRITE_SECONDS = 30.0  # per transaction that writes
LOCK_SPACE, NAME_LOCKS = 7267, 4096  # advisory locks of names: their first number, and how many there are
# How the driver and the system detect a server that is gone; the URL overrides it.
CONNECTION_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 2,
    "tcp_user_timeout": 4000,  # milliseconds for which sent data may stay unacknowledged
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "rankloop",
}
# Generic plans: planning thirty partitions takes longer than running, and statistics miss new rankers. By index always:
# a plan made while a partition was empty would scan it for as long as the plan is kept. JIT never pays.
PLANS = ("SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off", "SET jit = off")


class SocketWatchdog:
    """Cuts connections on which a transaction takes too long.

    A server that hangs keeps its connections open, so neither `statement_timeout` nor TCP notices it. Once the socket
    is cut, the driver sees a lost connection, whatever it waits for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, float] = {}  # file descriptor -> when to cut it, monotonic

    @contextmanager
    def over(self, descriptor: int, seconds: float | None) -> Iterator[None]:
        """Cut the socket if the block takes longer than so many seconds."""
        if seconds is None:
            yield
            return
        with self._lock:
            self._watched[descriptor] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:  # a closed descriptor may belong to something else
                self._watched.pop(descriptor, None)

    def renew(self, descriptor: int, seconds: float) -> None:
        """Count from now, because the transaction makes progress."""
        with self._lock:
            if descriptor in self._watched:
                self._watched[descriptor] = time.monotonic() + seconds

    def check(self) -> None:
        """Cut the sockets whose time is over."""
        now = time.monotonic()
        with self._lock:
            for descriptor in [one for one, end in self._watched.items() if end < now]:
                del self._watched[descriptor]
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as other:
                    other.shutdown(socket.SHUT_RDWR)


class PostgresConnection(Connection):
    """A psycopg 3 connection; BEGIN and its settings are one round trip."""

    lock_rows = " FOR UPDATE"
    partitioned = True
    _begin = "BEGIN"

    def __init__(self, raw: Any, watchdog: SocketWatchdog, seconds: float | None) -> None:
        import psycopg  # only those who use PostgreSQL need it

        self._errors, self._raw, self._watchdog, self._seconds = psycopg, raw, watchdog, seconds

    def run(self, sql: str, *parameters: Any) -> int:
        return int(self._raw.execute(_translated(sql), parameters).rowcount)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        cursor = self._raw.execute(_translated(sql), parameters)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        # One message, not the pipeline of `executemany`: a process that is stopped within that keeps its locks.
        if not parameters:
            return 0
        if len(parameters) == 1:
            return self.run(sql, *parameters[0])  # prepared
        cursor = self._errors.ClientCursor(self._raw)
        cursor.execute("; ".join(cursor.mogrify(_translated(sql), row) for row in parameters))
        changed = int(cursor.rowcount)
        while cursor.nextset():
            changed += int(cursor.rowcount)
        return changed

    def by_request(self, columns: str, pairs: Sequence[tuple[str, str]], start: str) -> list[Row]:
        # Pair by pair, by the index; OFFSET 0 prevents a join, whose plan may read all impressions of a ranker.
        rankers, names = zip(*pairs, strict=True)
        asked = "unnest(?::text[], ?::text[]) AS asked (r, q)"
        one = f"SELECT {columns} FROM impressions WHERE id >= '{start}' AND ranker = r AND request_id = q OFFSET 0"
        return self.rows(f"SELECT i.* FROM {asked} CROSS JOIN LATERAL ({one}) i", list(rankers), list(names))

    def by_event(self, ids: Sequence[str], start: str) -> list[Row]:
        one = f"SELECT event_id, impression_id FROM events WHERE impression_id >= '{start}' AND event_id = e OFFSET 0"
        return self.rows(f"SELECT i.* FROM unnest(?::text[]) AS sent (e) CROSS JOIN LATERAL ({one}) i", list(ids))

    def in_values(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        return "= ANY(?)", [list(values)]  # one statement, and plan, for any number

    def append(self, insert: Insert, values: Sequence[Sequence[Any]]) -> int:
        if len(values) == 1:
            return self.run(insert.sql, *values[0])
        # One prepared statement with an array per column takes a third of the time of as many inserts. COPY is a little
        # faster, but a process that is stopped within it keeps its locks.
        columns = [list(column) for column in zip(*values, strict=True)]
        return int(self._raw.execute(_array_insert(insert.table, tuple(insert.columns.items())), columns).rowcount)

    def lock_names(self, names: Iterable[str]) -> None:
        # Sorted against deadlocks; few enough that the server has room for them.
        numbers = sorted({zlib.crc32(name.encode()) % NAME_LOCKS for name in names})
        self._raw.execute("SELECT pg_advisory_xact_lock(%s, n) FROM unnest(%s::int[]) n", (LOCK_SPACE, numbers))

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:  # noqa: ARG002
        # The server's log is one sequence: a commit that waits for the disk takes along those before it.
        begin = self._begin if durable else f"{self._begin}; SET LOCAL synchronous_commit = off"
        try:
            with self._watchdog.over(self._raw.fileno(), self._seconds):
                try:
                    self._raw.execute(begin)
                    yield
                    self._raw.execute("COMMIT")
                except BaseException:
                    with suppress(self._errors.Error):
                        self._raw.execute("ROLLBACK")
                    raise
        except self._errors.Error as error:
            raise self._classified(error) from error

    def close(self) -> None:
        self._raw.close()

    def _classified(self, error: Exception) -> Exception:
        kinds = self._errors.errors
        temporary = (kinds.DeadlockDetected, kinds.SerializationFailure, kinds.LockNotAvailable)
        if isinstance(error, temporary) or self._raw.broken or self._raw.closed:
            return Retryable(_first_line(error))
        reported = (kinds.DiskFull, kinds.ReadOnlySqlTransaction, kinds.InsufficientPrivilege, kinds.QueryCanceled)
        if isinstance(error, reported):
            return StoreUnavailable(f"PostgreSQL: {_first_line(error)}; ask its operator; no acknowledged data is lost")
        if isinstance(error, self._errors.OperationalError):
            return Retryable(_first_line(error))
        return error


class PostgresReader(PostgresConnection):
    """A connection that reads; a transaction sees one state, and its time limit counts per statement."""

    _begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        if self._seconds is not None:
            self._watchdog.renew(self._raw.fileno(), self._seconds)
        return super().rows(sql, *parameters)


class Postgres(Database):
    """A server, with a pool of reading connections."""

    clock = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"

    def __init__(self, url: str, time_limits: bool = False) -> None:
        try:
            import psycopg
            import psycopg_pool
        except ImportError:
            raise InvalidParameter(
                "a PostgreSQL store needs psycopg and psycopg_pool, which are not both installed; "
                "pip install 'rankloop[postgres]'"
            ) from None
        try:
            self._options = CONNECTION_DEFAULTS | psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its message may quote a password
            raise InvalidParameter(
                "store is not a valid postgresql:// URL; in its password write / as %2F, @ as %40, : as %3A"
            ) from None
        self._driver = psycopg
        self.name = without_password(url)
        self._watchdog = SocketWatchdog()
        self._seconds = READ_SECONDS if time_limits else None
        self._pool = psycopg_pool.ConnectionPool(
            kwargs={**self._options, "autocommit": True},
            configure=lambda raw: _set_limits(raw, self._seconds),
            min_size=0,
            max_size=READERS,
            timeout=POOL_SECONDS,
            max_idle=60.0,
            reconnect_timeout=POOL_SECONDS,
            open=False,
        )
        self._opening = threading.Lock()

    def connect(self, time_limits: bool = True) -> Connection:
        seconds = WRITE_SECONDS if time_limits else None
        try:
            raw = self._driver.connect(**self._options, autocommit=True)
            with self._watchdog.over(raw.fileno(), seconds):
                _set_limits(raw, seconds)
                if raw.execute("SHOW synchronous_commit").fetchone() == ("off",):
                    raw.execute("SET synchronous_commit = on")  # acknowledged means on the disk, whatever is set
        except self._driver.OperationalError as error:
            raise Retryable(_first_line(error)) from None
        return PostgresConnection(raw, self._watchdog, seconds)

    def read(self, query: Callable[[Connection], T]) -> T:
        # After a restart of the server every connection of the pool is dead, and only using it shows that.
        tries, deadline = READERS + 1, time.monotonic() + POOL_SECONDS
        while True:
            tries -= 1
            try:
                with self._opening:
                    if self._pool.closed:
                        self._pool.open()
                with self._pool.connection() as raw:
                    connection = PostgresReader(raw, self._watchdog, self._seconds)
                    with connection.transaction():
                        return query(connection)
            except (Retryable, self._driver.OperationalError) as error:  # of the pool: it is exhausted or closed
                if not tries or not isinstance(error, Retryable) or time.monotonic() > deadline:
                    text = f"the store cannot be reached ({_first_line(error)}); it will be tried again"
                    raise StoreUnavailable(text) from None

    def close(self) -> None:
        self._pool.close()

    def notifier(self) -> Notifier:
        return Notifier(lambda: self._driver.connect(**self._options, autocommit=True), self._watchdog.over)

    def size(self) -> Size:
        ((used,),) = self.read(lambda connection: connection.rows("SELECT pg_database_size(current_database())"))
        return Size(int(used), None)

    def maintain(self) -> None:
        self._watchdog.check()


def _set_limits(raw: Any, seconds: float | None) -> None:
    """Set how long the server works on a statement, waits for locks and for this client, and how it plans."""
    limits = {
        "lock_timeout": LOCK_SECONDS,
        "statement_timeout": seconds or 0,
        "idle_in_transaction_session_timeout": IDLE_SECONDS if seconds else 0,
    }
    settings = [f"SET {name} = {int(value * 1000)}" for name, value in limits.items()]
    raw.execute("; ".join([*settings, *PLANS]))


@cache
def _array_insert(table: str, columns: tuple[tuple[str, str], ...]) -> Any:
    """Return the statement that inserts rows given as one binary array per column."""
    names, arrays = ", ".join(name for name, _ in columns), ", ".join(f"%b::{kind}[]" for _, kind in columns)
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"


def _translated(sql: str) -> Any:
    return sql.replace("?", "%s")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
