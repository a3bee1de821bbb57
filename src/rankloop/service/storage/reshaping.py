"""The log of a store that an earlier release made becomes partitioned (`partitions`) while everyone goes on.

Nothing is copied: the table that holds the log is the first partition, up to an edge some days ahead, and is dropped
like any other once all in it is past retention. What takes long, to check that no id comes after the edge, is done
beside those who write. Then, in a moment in which nobody uses them, the tables change their names. It happens once no
process of an earlier release is left: those are refused at a start from then on, and the check, which holds for new
rows too, cannot be left to a release that does not know of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rankloop.core.errors import RankloopError
from rankloop.service.storage.database import Connection, Database, Retryable
from rankloop.service.storage.partitions import KEYS, LEGACY, REST, alone, listed, make
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.storage.times import ALPHABET, edge

DAYS = 2  # at least, until the edge: longer than the check of a log takes, short enough that partitions begin soon
TRIES, PAUSE = 200, 0.5  # for the moment in which nobody uses the tables
CHECK = "rankloop_before"  # the name of the constraint
LOCK = 7266  # whoever reshapes, alone
logger = logging.getLogger("rankloop")


class CannotPartition(RankloopError):
    """The log stays as it is."""


def reshape(database: Database, now: float) -> bool:
    """Partition the log, if it is not; False if someone else is at it. It may take minutes, and disturbs nobody.

    Whoever is killed on the way leaves a check behind that lists of days from now would fail: so it is asked for again
    until the log is partitioned, or the check has gone."""
    if isinstance(database, SQLite):
        return True
    connection = database.connect(hurried=False)
    try:
        if listed(connection):
            return True
        if not connection.rows("SELECT 1 WHERE pg_try_advisory_lock(?)", LOCK):
            return False  # or the server has not noticed yet that it is gone
        if listed(connection):
            return True
        try:
            _require_order(connection)
            end = edge((now // 86400 + 1 + DAYS) * 86400)
            _require_before(connection, end)
            logger.info("the log is being partitioned by time; lists and feedback go on meanwhile")
            _prepare(connection, end)
            _patiently(lambda: _switch(connection, end))
        except BaseException:
            if connection.rows("SELECT 1 FROM pg_constraint WHERE conname = ?", CHECK):
                _patiently(lambda: _uncheck(connection))
            raise
        logger.info("the log is partitioned by time")
        return True
    finally:
        connection.close()


def _require_order(connection: Connection) -> None:
    """Ids must sort by time in the order of the database's language; that of some puts `aa` or `ch` elsewhere."""
    pairs = [first + second for first in ALPHABET for second in ALPHABET]
    rows = connection.rows("SELECT pair FROM unnest(?::text[]) pair ORDER BY pair", pairs)
    if [row[0] for row in rows] != pairs:
        raise CannotPartition(
            "the database's collation does not sort ids by time, so its log stays one table and what is old is deleted "
            "row by row; restore it into a database made with LC_COLLATE 'C' to have it partitioned"
        )


def _require_before(connection: Connection, end: str) -> None:
    """Ids must be of the past, up to a clock that is not quite right."""
    found = connection.row("SELECT id FROM impressions WHERE id >= ? ORDER BY id DESC LIMIT 1", end)
    if found is not None:
        raise CannotPartition(
            f"the log has a list {found[0]!r} that was made days from now by its id, so it stays one table and what is "
            "old is deleted row by row; a clock was wrong: delete the list, or wait until its time has passed, then "
            "start a process anew"
        )


def _prepare(connection: Connection, end: str) -> None:
    """Whatever takes long and needs no one to wait."""
    _patiently(lambda: _check(connection, end))
    for table in KEYS:
        connection.run(f"ALTER TABLE {table} VALIDATE CONSTRAINT {CHECK}")


def _check(connection: Connection, end: str) -> None:
    with alone(connection, "ACCESS EXCLUSIVE"):
        for table, key in KEYS.items():
            connection.run(
                f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {CHECK}, "
                f"ADD CONSTRAINT {CHECK} CHECK ({key} < '{end}') NOT VALID"
            )


def _uncheck(connection: Connection) -> None:
    with alone(connection, "ACCESS EXCLUSIVE"):
        for table in KEYS:
            connection.run(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {CHECK}")


def _switch(connection: Connection, end: str) -> None:
    with alone(connection, "ACCESS EXCLUSIVE"):
        for table, key in KEYS.items():
            legacy = f"{table}_{LEGACY}"
            connection.run(
                f"ALTER TABLE {table} RENAME TO {legacy}; "
                f"CREATE TABLE {table} (LIKE {legacy} INCLUDING DEFAULTS INCLUDING STORAGE) "
                f"PARTITION BY RANGE ({key}); "
                f"ALTER TABLE {table} ATTACH PARTITION {legacy} FOR VALUES FROM (MINVALUE) TO ('{end}'); "
                f"ALTER TABLE {legacy} DROP CONSTRAINT {CHECK}"
            )
        make(connection, REST, "DEFAULT")


def _patiently(work: Callable[[], None]) -> None:
    """Until nobody is in the way; others never wait for it longer than a moment."""
    for attempt in range(1, TRIES + 1):
        try:
            work()
            return
        except Retryable:
            if attempt == TRIES:
                raise
            time.sleep(PAUSE)
