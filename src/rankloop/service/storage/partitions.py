"""The log in PostgreSQL is partitioned by time, so that old rows are deleted by dropping tables.

The rows of an impression are in the partition of its id, which begins with its time: `impressions` by `id`, `events`
and `outcomes` by `impression_id`, with the same bounds. Bounds are full hours, and partitions are contiguous. Unique
indexes hold within a partition; `impressions` and `events` search the partitions of the last day before they insert.
`…_rest` takes rows that have no partition, so a write never fails for lack of one. SQLite needs no partitions.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Connection, Database, Retryable
from rankloop.service.storage.ids import prefix_time, time_prefix
from rankloop.service.storage.sqlite import SQLite

KEYS = {"impressions": "id", "events": "impression_id", "outcomes": "impression_id"}
REST = "rest"
PARTS = 30  # per retention time: rows are deleted at most a thirtieth of it late
LONGEST = 720  # hours of a partition, for stores without retention
AHEAD = 6  # hours for which partitions must exist, at least
HOUR = 3600
DROP_WAITS = (50, 50, 100, 100, 200, 200, 400, 800)  # ms for which a drop may wait for its lock, by attempt
LOCK_WAIT = 150  # ms for the first table
NEXT_LOCK_WAIT = 20  # ms for the others: their holder may wait for the first
DROPS = 4  # partitions that are dropped together
PAUSE = 0.1  # seconds between attempts
ATTACH_TIMEOUT = 1500  # ms for which others may wait while a partition is attached
logger = logging.getLogger("rankloop")
_BOUNDS = re.compile(r"FROM \((MINVALUE|'\w+')\) TO \('(\w+)'\)")

_INDEXES = {
    "impressions": (
        "ALTER TABLE {leaf} ADD PRIMARY KEY (id)",
        "CREATE UNIQUE INDEX {leaf}_request ON {leaf} (ranker, request_id) WHERE request_id IS NOT NULL",
        "CREATE INDEX {leaf}_open ON {leaf} (closes, ranker) WHERE open = 1",
        "CREATE INDEX {leaf}_person ON {leaf} (person) WHERE person IS NOT NULL",
        "CREATE INDEX {leaf}_erase ON {leaf} (id) WHERE erase = 1",
        # Partial, though all rows have `erase >= 0`: otherwise a plan may use it to find a request of a ranker.
        "CREATE INDEX {leaf}_latest ON {leaf} (ranker, created) WHERE erase >= 0",
    ),
    "events": (
        "ALTER TABLE {leaf} ADD PRIMARY KEY (event_id)",
        "CREATE INDEX {leaf}_impression ON {leaf} (impression_id)",
    ),
    "outcomes": ("ALTER TABLE {leaf} ADD PRIMARY KEY (ranker, seq)",),
}


class Partition(NamedTuple):
    """The tables `impressions_NAME`, `events_NAME` and `outcomes_NAME`."""

    name: str
    start: str  # prefixes of ids; empty: from the first on
    end: str | None  # None: rows that are in no other

    def table(self, which: str) -> str:
        """Return the name of one of its tables."""
        return f"{which}_{self.name}"


def hours(retention_days: float) -> int:
    """Return the length of a partition. Some queries read all of them, so there are about thirty for any retention.

    >>> hours(30.0), hours(7.0), hours(0.5), hours(0.0)
    (24, 6, 1, 720)
    """
    return min(LONGEST, max(1, math.ceil(retention_days * 24 / PARTS))) if retention_days else LONGEST


def list_partitions(connection: Connection) -> list[Partition]:
    """Return the partitions in order of time, that of the rest last."""
    rows = connection.rows(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = to_regclass('impressions')"
    )
    found = []
    for table, text in rows:
        name, bounds = table.removeprefix("impressions_"), _BOUNDS.search(text)
        start, end = bounds.groups() if bounds else ("'~'", None)
        found.append(Partition(name, "" if start == "MINVALUE" else start.strip("'"), end))
    return sorted(found, key=lambda one: (one.end is None, one.start))


def create(connection: Connection, name: str, bounds: str) -> None:
    """Create the three tables of a partition, then attach them, which takes a moment while they are empty."""
    tables = [f"CREATE TABLE {table}_{name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE)" for table in KEYS]
    for table in KEYS:
        tables += [index.format(leaf=f"{table}_{name}") for index in _INDEXES[table]]
        tables.append(f"ALTER TABLE {table} ATTACH PARTITION {table}_{name} {bounds}")
    connection.run("; ".join(tables))


def create_partitioned(connection: Connection, now: float) -> None:
    """Replace the empty log tables of a new store by partitioned ones."""
    for table, key in KEYS.items():
        # Collation C compares ids byte by byte, whatever the language of the database is.
        connection.run(
            f'ALTER TABLE {table} ALTER COLUMN {key} TYPE TEXT COLLATE "C"; '
            f"ALTER TABLE {table} RENAME TO {table}_plain; "
            f"CREATE TABLE {table} (LIKE {table}_plain INCLUDING DEFAULTS INCLUDING STORAGE) "
            f"PARTITION BY RANGE ({key}); DROP TABLE {table}_plain"
        )
    create(connection, REST, "DEFAULT")
    first = now // HOUR * HOUR
    _create_from(connection, first, (first // 86400 + 2) * 86400)


def _create_from(connection: Connection, start: float, end: float) -> None:
    name = time.strftime("%Y%m%d%H", time.gmtime(start))
    create(connection, name, f"FOR VALUES FROM ('{time_prefix(start)}') TO ('{time_prefix(end)}')")


def maintain(database: Database, now: float, retention_days: float, until: float = math.inf) -> int:
    """Create the partitions that will be needed and drop those past retention; return how many were dropped.

    Rows made after `until` stay whatever their age: they are not archived yet.
    """
    if isinstance(database, SQLite):
        return 0
    connection = database.connect(time_limits=False)
    try:
        create_ahead(connection, now, hours(retention_days))
        return drop_old(connection, min(now - retention_days * 86400, until)) if retention_days else 0
    finally:
        connection.close()


def create_ahead(connection: Connection, now: float, length: int) -> int:
    """Create partitions of `length` hours until there are enough for a while; return how many were created."""
    made = 0
    try:
        while _create_next(connection, now, length):
            made += 1
    except Retryable:  # the tables are in use: try the next time
        pass
    except StoreUnavailable as error:
        logger.warning("no partition could be created, so impressions are stored in impressions_rest: %s", error)
    return made


def _last(connection: Connection) -> float:
    """Return when the last partition ends."""
    found = list_partitions(connection)
    return max((prefix_time(one.end) for one in found if one.end), default=0.0)


def _create_next(connection: Connection, now: float, length: int) -> bool:
    enough = now + HOUR * max(AHEAD, 2 * length)
    if _last(connection) >= enough:
        return False
    with locked(connection, "SHARE UPDATE EXCLUSIVE"):
        # The server scans the rest for rows of the new partition, and locks it meanwhile.
        connection.run(f"SET LOCAL statement_timeout = {ATTACH_TIMEOUT}")
        last = _last(connection)
        if last >= enough:  # another process was faster
            return False
        start = last if last > now else (now // HOUR + 1) * HOUR  # what came meanwhile stays in the rest
        while _in_rest(connection, start, start + length * HOUR):  # a clock is ahead
            start += length * HOUR
        _create_from(connection, start, start + length * HOUR)
        return True


def _in_rest(connection: Connection, start: float, end: float) -> bool:
    """Return whether the rest has rows that a partition would have to hold."""
    inside = [f"(SELECT 1 FROM {table}_{REST} WHERE {key} >= ? AND {key} < ? LIMIT 1)" for table, key in KEYS.items()]
    bounds = (time_prefix(start), time_prefix(end)) * len(KEYS)
    return bool(connection.rows(f"SELECT 1 WHERE EXISTS {' OR EXISTS '.join(inside)}", *bounds))


def drop_old(connection: Connection, before: float) -> int:
    """Drop partitions that end `before` a time and whose outcomes are in snapshots; return how many."""
    dropped = 0
    with suppress(Retryable):  # the log is being read: try the next time
        old = [one for one in _ended(connection, before) if is_covered(connection, one)]
        for at in range(0, len(old), DROPS):
            dropped += _drop(connection, old[at : at + DROPS])
    return dropped


def _drop(connection: Connection, some: Sequence[Partition]) -> int:
    for wait in DROP_WAITS:
        try:
            with locked(connection, "ACCESS EXCLUSIVE", wait):
                # Checked again, now that no process writes.
                unused = [one for one in some if is_covered(connection, one)]
                if unused:
                    tables = [one.table(table) for one in unused for table in KEYS]
                    connection.run(f"DROP TABLE {', '.join(tables)}")
                return len(unused)
        except Retryable:
            time.sleep(PAUSE)
    raise Retryable("the log is in use")


def is_covered(connection: Connection, one: Partition) -> bool:
    """Return whether snapshots contain all outcomes of a partition, and no impression in it is open."""
    if connection.rows(f"SELECT 1 FROM {one.table('impressions')} WHERE open = 1 LIMIT 1"):
        return False
    last = f"(SELECT MAX(o.seq) FROM {one.table('outcomes')} o WHERE o.ranker = r.name)"
    kept = "SELECT 1 FROM rankers r LEFT JOIN snapshots s ON s.ranker = r.name"
    kept = f"{kept} WHERE {last} >= COALESCE(s.seq, 0) LIMIT 1"
    return not connection.rows(kept)


def tables_to_sweep(connection: Connection, before: float) -> list[str]:
    """Return the tables of impressions in which old rows are deleted one by one, because they cannot be dropped soon:
    something in them must stay, or they are much longer than the retention asks for."""
    if not connection.partitioned:
        return ["impressions"]
    found = list_partitions(connection)
    rows = [one for one in _ended(connection, before) if not is_covered(connection, one)]
    late = before + 2 * HOUR * hours((time.time() - before) / 86400)
    kept = [one for one in found if one.name == REST]
    kept += [one for one in found if one.end and one.start < time_prefix(before) and one.end > time_prefix(late)]
    return [one.table("impressions") for one in dict.fromkeys((*kept, *rows))]


def _ended(connection: Connection, before: float) -> list[Partition]:
    return [one for one in list_partitions(connection) if one.end is not None and one.end <= time_prefix(before)]


@contextmanager
def locked(connection: Connection, mode: str, wait: int = LOCK_WAIT) -> Iterator[None]:
    """A transaction that locks the tables of the log; `Retryable` after `wait` ms, since requests queue behind it."""
    first, *others = KEYS
    with connection.transaction():
        connection.run(f"SET LOCAL lock_timeout = {wait}; LOCK TABLE ONLY {first} IN {mode} MODE")
        connection.run(
            f"SET LOCAL lock_timeout = {NEXT_LOCK_WAIT}; LOCK TABLE ONLY {', ONLY '.join(others)} IN {mode} MODE"
        )
        yield
