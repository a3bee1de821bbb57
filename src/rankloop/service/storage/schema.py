"""Stores are brought up to date by `migrations`, beside processes of the release before."""

from __future__ import annotations

import time

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Connection, Database, Retryable
from rankloop.service.storage.migrations import MIGRATIONS, SETTLED
from rankloop.service.storage.partitions import lay_out, listed
from rankloop.service.storage.sqlite import SQLiteConnection

__all__ = ["MIGRATIONS", "Beside", "NewerStore", "alone", "contract", "migrate", "require_current", "steps"]
LOOKS = 3.0  # seconds in which a process that lives has beaten


class NewerStore(RankloopError):
    """The store was written by a later release."""


class Beside(RankloopError):
    """Processes of another release run on the store, and this one cannot run beside them."""


def migrate(database: Database, patience: float = 10.0) -> int:
    """Bring the store up to date, all or nothing; how many migrations were applied.

    A change has two steps. The first only adds: those of the release before do not notice, whether they run or are
    started again. The second, `contract`, says that the store is of this release, and earlier ones are refused from
    then on; it is taken once none of their processes is left, here if there are no processes at all.
    """
    start = time.monotonic()
    while True:
        try:
            connection = database.connect(hurried=False)
            try:
                _refuse_beside(connection)
                with connection.transaction():
                    return _migrate(connection)
            finally:
                connection.close()
        except Retryable as error:  # the database may still be starting, or another process migrates
            if time.monotonic() - start > patience:
                raise StoreUnavailable(
                    f"the store cannot be reached ({error}); check --store and that the database runs"
                ) from None
            time.sleep(0.2)


def contract(database: Database) -> list[str]:
    """Take the second step if no process of an earlier release is left; else those that are, and nothing happens."""
    connection = database.connect(hurried=False)
    try:
        with connection.transaction():
            _take_turns(connection)
            _, settled = steps(connection)
            if settled >= len(MIGRATIONS):
                return []
            if late := _behind(connection):
                return late
            _settle(connection, settled)
            return []
    finally:
        connection.close()


def require_current(database: Database) -> None:
    """Refuse a store that is not of this release, without changing it: for those who only look."""
    try:
        added, settled = database.read(steps)
    except Exception as error:
        raise StoreUnavailable(
            f"this is no store of rankloop, or it cannot be read ({error}); give what `rankloop serve --store` has"
        ) from None
    if settled > len(MIGRATIONS):
        raise NewerStore(_newer(settled))
    if added < len(MIGRATIONS):
        raise RankloopError(
            f"the store has {added} migrations, this release wants {len(MIGRATIONS)}; "
            "`rankloop serve` or `rankloop keys list` with this release bring it up to date"
        )


def _newer(done: int) -> str:
    return (
        f"the store has {done} migrations, this release knows {len(MIGRATIONS)}; "
        "serve it with the release that wrote it"
    )


def steps(connection: Connection) -> tuple[int, int]:
    """How many migrations have been added, and how many of them earlier releases are refused for."""
    settled = len(connection.rows("SELECT id FROM migrations"))
    if settled < SETTLED:
        return settled, settled
    added = (
        [int(row[0]) for row in connection.rows("SELECT id FROM expansions")]
        if _has_table(connection, "expansions")
        else []
    )
    return max([settled, *(number + 1 for number in added)]), settled


def _has_table(connection: Connection, name: str) -> bool:
    embedded = isinstance(connection, SQLiteConnection)
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?" if embedded else "SELECT 1 WHERE to_regclass(?) IS NOT NULL"
    return connection.row(sql, name) is not None


def _take_turns(connection: Connection) -> None:
    if not isinstance(connection, SQLiteConnection):
        connection.run("SELECT pg_advisory_xact_lock(7265)")  # processes that start together take turns


def _migrate(connection: Connection) -> int:
    embedded = isinstance(connection, SQLiteConnection)
    _take_turns(connection)
    connection.run("CREATE TABLE IF NOT EXISTS migrations (id INTEGER PRIMARY KEY)")
    # What has been added, and an earlier release need not know: it counts the rows of `migrations`.
    connection.run("CREATE TABLE IF NOT EXISTS expansions (id INTEGER PRIMARY KEY)")
    added, settled = steps(connection)
    if settled > len(MIGRATIONS):
        raise NewerStore(_newer(settled))
    types = {"int": "INTEGER", "real": "REAL", "bytes": "BLOB"}
    if not embedded:
        types = {"int": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA"}
    for number, statements in enumerate(MIGRATIONS[added:], added):
        for statement in statements:
            connection.run(statement.format(**types))
        connection.run(f"INSERT INTO {'migrations' if number < SETTLED else 'expansions'} (id) VALUES (?)", number)
    settled = max(settled, min(SETTLED, len(MIGRATIONS)))
    if settled < len(MIGRATIONS) and connection.row("SELECT 1 FROM workers LIMIT 1") is None:
        _settle(connection, settled)
        if not embedded and not listed(connection) and connection.row("SELECT 1 FROM impressions LIMIT 1") is None:
            lay_out(connection, time.time())
    return max(0, len(MIGRATIONS) - added)


def _settle(connection: Connection, settled: int) -> None:
    connection.many("INSERT INTO migrations (id) VALUES (?)", [(one,) for one in range(settled, len(MIGRATIONS))])


def alone(connection: Connection) -> bool:
    """Whether earlier releases are refused by now: what they could not read may be written."""
    return steps(connection)[1] >= len(MIGRATIONS)


def _behind(connection: Connection) -> list[str]:
    """Processes on the list of those that live that know fewer migrations than this one."""
    sql = "SELECT id FROM workers WHERE COALESCE(knows, ?) < ? ORDER BY id"
    return [row[0] for row in connection.rows(sql, SETTLED, len(MIGRATIONS))]


def _refuse_beside(connection: Connection) -> None:
    """Refuse a store that has to be changed in one go while processes beat in it: they would not know its tables."""
    with connection.transaction():
        if not _has_table(connection, "migrations") or not _has_table(connection, "workers"):
            return
        settled = len(connection.rows("SELECT id FROM migrations"))
        before: dict[str, int] = dict(connection.rows("SELECT id, beat FROM workers")) if settled < SETTLED else {}
    if not before:
        return
    time.sleep(LOOKS)
    with connection.transaction():
        now: dict[str, int] = dict(connection.rows("SELECT id, beat FROM workers"))
    alive = sorted(name for name, beat in now.items() if before.get(name) != beat)
    if alive:
        raise Beside(
            f"the store has {settled} migrations, and {len(alive)} processes of the release that made it run on it "
            f"({', '.join(alive[:3])}); this one can run beside those that know {SETTLED} or more: stop them first, or "
            "upgrade by a release in between"
        )
