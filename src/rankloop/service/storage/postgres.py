"""PostgreSQL: a server that any number of machines may share, and that may hang, restart or be far away."""

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
from rankloop.service.storage.database import Appended, Connection, Database, Retryable, Row, without_password
from rankloop.service.storage.notifications import Notifier

T = TypeVar("T")
READERS = 8  # connections for reading that a process opens at most
POOL_SECONDS = 2.0  # how long a reader waits for one of them
LOCK_SECONDS = 2.0  # how long a statement waits for a row that someone else has locked
READ_SECONDS = 10.0  # a statement of a hurried reader; a large state is read by several statements
IDLE_SECONDS = 5.0  # for which a process may stand still inside a transaction; others wait for its locks
WRITE_SECONDS = 30.0  # a transaction that writes; whoever waits for it has given up long before
TURN, TURNS = 7267, 4096  # a number that no one else uses for advisory locks; how many there are of them
# What the driver and the system do about a server that is gone; what the URL says comes before it.
PATIENCE: dict[str, Any] = {
    "connect_timeout": 2,
    "tcp_user_timeout": 4000,  # milliseconds for which sent data may stay unacknowledged
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "rankloop",
}
# Plans that do not depend on the values they are asked about: they are made once, not at each call (for thirty
# partitions that takes longer than to run them); and a ranker that is newer than the statistics is not taken for one
# without lists, of which all would then be read to find one by its request. By an index wherever there is one: a plan
# that was made while a partition was empty would read it from its beginning for as long as the plan is kept. Nothing
# here runs for so long that compiling it first would pay.
PLANS = ("SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off", "SET jit = off")
LOOK_AGAIN = 30.0  # seconds after which it is asked again whether the log is partitioned by now


class Watch:
    """Cuts connections on which a transaction takes too long.

    A server that hangs holds its connections open, and the system on its side even acknowledges what is sent, so
    neither `statement_timeout` nor TCP notices. Cutting the socket makes the driver see a lost connection, whatever it
    waits for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, float] = {}  # file descriptor -> when to cut it, monotonic

    @contextmanager
    def over(self, descriptor: int, seconds: float | None) -> Iterator[None]:
        """While something is under way on a socket."""
        if seconds is None:
            yield
            return
        with self._lock:
            self._watched[descriptor] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:  # never cut a descriptor that has been closed and belongs to something else now
                self._watched.pop(descriptor, None)

    def renew(self, descriptor: int, seconds: float) -> None:
        """What is under way on a socket makes progress: count from now."""
        with self._lock:
            if descriptor in self._watched:
                self._watched[descriptor] = time.monotonic() + seconds

    def look(self) -> None:
        """Cut what is over its time."""
        now = time.monotonic()
        with self._lock:
            for descriptor in [one for one, end in self._watched.items() if end < now]:
                del self._watched[descriptor]
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as other:
                    other.shutdown(socket.SHUT_RDWR)


class Shape:
    """What all connections of a database know of its tables."""

    by_time = False  # once it is, it stays so
    looked = float("-inf")  # monotonic


class PostgresConnection(Connection):
    """psycopg 3; statements are prepared by the driver, transactions said by hand: BEGIN and its terms are one trip."""

    lock_rows = " FOR UPDATE"
    whole = False
    _begin = "BEGIN"

    def __init__(self, raw: Any, watch: Watch, seconds: float | None, shape: Shape) -> None:
        import psycopg  # only those who use PostgreSQL need it

        self._errors, self._raw, self._watch, self._seconds = psycopg, raw, watch, seconds
        self._shape = shape

    @property
    def by_time(self) -> bool:  # type: ignore[override]
        # A log that could not be partitioned, or is not yet, may be sorted by the rules of a language.
        shape = self._shape
        if not shape.by_time and time.monotonic() - shape.looked > LOOK_AGAIN:
            shape.looked = time.monotonic()
            sql = "SELECT 1 FROM pg_class WHERE oid = to_regclass('impressions') AND relkind = 'p'"
            shape.by_time = bool(self.rows(sql))
        return shape.by_time

    def run(self, sql: str, *parameters: Any) -> int:
        return int(self._raw.execute(_translated(sql), parameters).rowcount)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        cursor = self._raw.execute(_translated(sql), parameters)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        # As one message, and not by `executemany`: that is a pipeline, and a process that is stopped in the middle of
        # one keeps its locks until it goes on. The server waits for the rest, and none of its time-outs counts there.
        if not parameters:
            return 0
        if len(parameters) == 1:
            return self.run(sql, *parameters[0])  # prepared, which takes half of the server's time
        cursor = self._errors.ClientCursor(self._raw)
        cursor.execute("; ".join(cursor.mogrify(_translated(sql), row) for row in parameters))
        changed = int(cursor.rowcount)
        while cursor.nextset():
            changed += int(cursor.rowcount)
        return changed

    def by_request(self, columns: str, pairs: Sequence[tuple[str, str]], start: str) -> list[Row]:
        # Pair by pair, by the index of both; OFFSET 0 keeps it from becoming a join. For one, or `ANY`, all lists of a
        # ranker would be read, if it was planned while there were few.
        rankers, names = zip(*pairs, strict=True)
        asked = "unnest(?::text[], ?::text[]) AS asked (r, q)"
        one = f"SELECT {columns} FROM impressions WHERE id >= '{start}' AND ranker = r AND request_id = q OFFSET 0"
        return self.rows(f"SELECT i.* FROM {asked} CROSS JOIN LATERAL ({one}) i", list(rankers), list(names))

    def by_event(self, ids: Sequence[str], start: str) -> list[Row]:
        one = f"SELECT event_id, impression_id FROM events WHERE impression_id >= '{start}' AND event_id = e OFFSET 0"
        return self.rows(f"SELECT i.* FROM unnest(?::text[]) AS told (e) CROSS JOIN LATERAL ({one}) i", list(ids))

    def among(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        return "= ANY(?)", [list(values)]  # the same statement for any number of values, so that its plan is kept

    def append(self, what: Appended, values: Sequence[Sequence[Any]]) -> int:
        if len(values) == 1:
            return self.run(what.sql, *values[0])
        # One prepared statement with a column each as an array: a third of the time of as many inserts, and a message
        # that is sent as a whole. COPY takes a little less, but who is stopped in the middle of it keeps his locks.
        columns = [list(column) for column in zip(*values, strict=True)]
        return int(self._raw.execute(_by_columns(what.table, tuple(what.columns.items())), columns).rowcount)

    def take_turns(self, names: Iterable[str]) -> None:
        # In this order, so that two never wait for each other in a ring; of so many numbers that the server, which has
        # room for some thousands of locks, never runs out of it.
        turns = sorted({zlib.crc32(name.encode()) % TURNS for name in names})
        self._raw.execute("SELECT pg_advisory_xact_lock(%s, turn) FROM unnest(%s::int[]) turn", (TURN, turns))

    @contextmanager
    def transaction(self, durable: bool = True, wait: bool = True) -> Iterator[None]:  # noqa: ARG002
        # The log of PostgreSQL is one sequence for all: a commit that waits for the disk takes along those before it.
        terms = self._begin if durable else f"{self._begin}; SET LOCAL synchronous_commit = off"
        try:
            with self._watch.over(self._raw.fileno(), self._seconds):
                try:
                    self._raw.execute(terms)
                    yield
                    self._raw.execute("COMMIT")
                except BaseException:
                    with suppress(self._errors.Error):
                        self._raw.execute("ROLLBACK")
                    raise
        except self._errors.Error as error:
            raise self._sorted(error) from error

    def close(self) -> None:
        self._raw.close()

    def _sorted(self, error: Exception) -> Exception:
        kinds = self._errors.errors
        passing = (kinds.DeadlockDetected, kinds.SerializationFailure, kinds.LockNotAvailable)
        if isinstance(error, passing) or self._raw.broken or self._raw.closed:
            return Retryable(_first_line(error))
        told = (kinds.DiskFull, kinds.ReadOnlySqlTransaction, kinds.InsufficientPrivilege, kinds.QueryCanceled)
        if isinstance(error, told):
            return StoreUnavailable(
                f"PostgreSQL: {_first_line(error)}; ask whoever runs it, nothing acknowledged is lost"
            )
        if isinstance(error, self._errors.OperationalError):
            return Retryable(_first_line(error))
        return error


class PostgresReader(PostgresConnection):
    """All that a transaction reads is of one moment: READ COMMITTED would let each statement see another one, and pair
    a ranker's row with the snapshot of its next generation. The time limit is one of each statement: a transaction that
    only reads keeps nobody waiting, and may be as long as what it reads is large."""

    _begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        if self._seconds is not None:
            self._watch.renew(self._raw.fileno(), self._seconds)
        return super().rows(sql, *parameters)


class Postgres(Database):
    """A server, and a pool of connections that read."""

    clock = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"

    def __init__(self, url: str, hurried: bool = False) -> None:
        try:
            import psycopg
            import psycopg_pool
        except ImportError:
            raise InvalidParameter(
                "a PostgreSQL store needs psycopg and psycopg_pool, which are not both installed; "
                "pip install 'rankloop[postgres]'"
            ) from None
        try:
            self._terms = PATIENCE | psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its message may quote a password that was taken for something else
            raise InvalidParameter(
                "store is no postgresql:// URL that can be read; in its password write / as %2F, @ as %40, : as %3A"
            ) from None
        self._driver = psycopg
        self.name = without_password(url)
        self._watch, self._shape = Watch(), Shape()
        self._seconds = READ_SECONDS if hurried else None
        self._pool = psycopg_pool.ConnectionPool(
            kwargs={**self._terms, "autocommit": True},
            configure=lambda raw: _set_terms(raw, self._seconds),
            min_size=0,
            max_size=READERS,
            timeout=POOL_SECONDS,
            max_idle=60.0,
            reconnect_timeout=POOL_SECONDS,
            open=False,
        )
        self._opening = threading.Lock()

    def connect(self, hurried: bool = True) -> Connection:
        seconds = WRITE_SECONDS if hurried else None
        try:
            raw = self._driver.connect(**self._terms, autocommit=True)
            with self._watch.over(raw.fileno(), seconds):
                _set_terms(raw, seconds)
                if raw.execute("SHOW synchronous_commit").fetchone() == ("off",):
                    raw.execute("SET synchronous_commit = on")  # what was acknowledged is on the disk, whatever is set
        except self._driver.OperationalError as error:
            raise Retryable(_first_line(error)) from None
        return PostgresConnection(raw, self._watch, seconds, self._shape)

    def read(self, query: Callable[[Connection], T]) -> T:
        # After a restart every connection of the pool is dead, and each is found out only by asking it.
        tries, patience = READERS + 1, time.monotonic() + POOL_SECONDS
        while True:
            tries -= 1
            try:
                with self._opening:
                    if self._pool.closed:
                        self._pool.open()
                with self._pool.connection() as raw:
                    connection = PostgresReader(raw, self._watch, self._seconds, self._shape)
                    with connection.transaction():
                        return query(connection)
            except (Retryable, self._driver.OperationalError) as error:  # of the pool: none can be had, or it is closed
                if not tries or not isinstance(error, Retryable) or time.monotonic() > patience:
                    text = f"the store cannot be reached ({_first_line(error)}); it will be tried again"
                    raise StoreUnavailable(text) from None

    def close(self) -> None:
        self._pool.close()

    def notifier(self) -> Notifier:
        return Notifier(lambda: self._driver.connect(**self._terms, autocommit=True), self._watch.over)

    def tend(self) -> None:
        self._watch.look()


def _set_terms(raw: Any, seconds: float | None) -> None:
    """What the server does about a statement that takes too long, so that it does not go on with what was given up, and
    about a client that is silent within a transaction (without `seconds`: nothing but not to wait for locks); and how
    it plans."""
    limits = {
        "lock_timeout": LOCK_SECONDS,
        "statement_timeout": seconds or 0,
        "idle_in_transaction_session_timeout": IDLE_SECONDS if seconds else 0,
    }
    settings = [f"SET {name} = {int(value * 1000)}" for name, value in limits.items()]
    raw.execute("; ".join([*settings, *PLANS]))


@cache
def _by_columns(table: str, columns: tuple[tuple[str, str], ...]) -> Any:
    """A statement that appends the rows of so many arrays, in their order, as binary parameters."""
    names, arrays = ", ".join(name for name, _ in columns), ", ".join(f"%b::{kind}[]" for _, kind in columns)
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"


def _translated(sql: str) -> Any:
    return sql.replace("?", "%s")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
