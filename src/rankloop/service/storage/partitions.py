"""The log in PostgreSQL is cut by time, so that what is old goes with its table and not row by row.

Everything about a list lies in the partition of the list's id, which begins with the milliseconds in which it was made:
`impressions` by `id`, `events` and `outcomes` by `impression_id`, all three at the same edges. So one look-up by an id
reads one partition, the three go together, and whether they may go is a question of a few index look-ups. Edges are at
full hours and each partition begins where the one before it ends; how long one is follows from the retention.

A unique index is a partition's own. What that leaves open is closed where rows are added (`log`, `repeats`): an event
is looked for where its list lies, and an event or a request of the same name in the partitions of the last day.

`…_rest` takes what has no partition: nobody has kept house for days, or a clock is far off. A write never fails for the
lack of a table. `…_legacy` is the whole log of a store that an earlier release made (`reshaping`).

SQLite has none of this: a file has no partitions, one machine writes less than deleting row by row keeps up with, and
its pages are reused in place.
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
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.storage.times import ALPHABET, edge

KEYS = {"impressions": "id", "events": "impression_id", "outcomes": "impression_id"}
REST, LEGACY = "rest", "legacy"
PARTS = 30  # into which the time of retention is cut: lists go at most a thirtieth of it late
LONGEST = 720  # hours of a partition; those of a store that keeps all for ever
AHEAD = 6  # hours for which there must be a partition, at least
HOUR = 3600
WAITS = (50, 50, 100, 100, 200, 200, 400, 800)  # ms for which others may wait behind a drop that waits itself, by try
WAIT = 150  # ms, of whoever can try for long
SECOND = 20  # ms for the second and third table: whoever has one of them and waits for the first will not give it up
TOGETHER = 4  # partitions that are dropped at a time
PAUSE = 0.1  # seconds between tries
LONGEST_SCAN = 1500  # ms for which everyone may wait while a partition is attached
logger = logging.getLogger("rankloop")
_BOUNDS = re.compile(r"FROM \((MINVALUE|'\w+')\) TO \('(\w+)'\)")

_INDEXES = {
    "impressions": (
        "ALTER TABLE {leaf} ADD PRIMARY KEY (id)",
        "CREATE UNIQUE INDEX {leaf}_request ON {leaf} (ranker, request_id) WHERE request_id IS NOT NULL",
        "CREATE INDEX {leaf}_open ON {leaf} (closes, ranker) WHERE open = 1",
        "CREATE INDEX {leaf}_person ON {leaf} (person) WHERE person IS NOT NULL",
        "CREATE INDEX {leaf}_erase ON {leaf} (id) WHERE erase = 1",
        # Of all lists, and so only for those who say `erase >= 0`: a plan that was made while there were few would
        # else take this one to look for a request among all lists of a ranker.
        "CREATE INDEX {leaf}_latest ON {leaf} (ranker, created) WHERE erase >= 0",
    ),
    "events": (
        "ALTER TABLE {leaf} ADD PRIMARY KEY (event_id)",
        "CREATE INDEX {leaf}_impression ON {leaf} (impression_id)",
    ),
    "outcomes": ("ALTER TABLE {leaf} ADD PRIMARY KEY (ranker, seq)",),
}


class Partition(NamedTuple):
    """Tables that hold the lists of some time: `impressions_NAME`, `events_NAME` and `outcomes_NAME`."""

    name: str
    start: str  # beginnings of ids; empty: from the first on
    end: str | None  # None: what is in no other

    def table(self, which: str) -> str:
        """The name of one of its tables."""
        return f"{which}_{self.name}"


def moment(start: str) -> float:
    """The time of an edge.

    >>> moment(edge(7200.0))
    7200.0
    """
    value = 0
    for letter in start:
        value = value * len(ALPHABET) + ALPHABET.index(letter)
    return value / 1000


def hours(retention_days: float) -> int:
    """How long a partition is. All take part in some queries, so there are some thirty whatever the retention is.

    >>> hours(30.0), hours(7.0), hours(0.5), hours(0.0)
    (24, 6, 1, 720)
    """
    return min(LONGEST, max(1, math.ceil(retention_days * 24 / PARTS))) if retention_days else LONGEST


def listed(connection: Connection) -> list[Partition]:
    """The partitions there are, in order of time, the one of the rest last; none in a store that has not any yet."""
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


def make(connection: Connection, name: str, bounds: str) -> None:
    """Make the three tables of a partition and attach them; nobody who reads or writes waits for more than the
    attaching of empty tables."""
    tables = [f"CREATE TABLE {table}_{name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE)" for table in KEYS]
    connection.run("; ".join((*tables, *attaching(name, bounds))))


def attaching(name: str, bounds: str) -> list[str]:
    """What makes the tables of that name, which are there, a partition."""
    statements = []
    for table in KEYS:
        statements += [index.format(leaf=f"{table}_{name}") for index in _INDEXES[table]]
        statements.append(f"ALTER TABLE {table} ATTACH PARTITION {table}_{name} {bounds}")
    return statements


def lay_out(connection: Connection, now: float) -> None:
    """Make the log of a new store partitioned; its tables are empty."""
    for table, key in KEYS.items():
        # Ids are compared byte by byte, whatever the order of words is in the language of the database.
        connection.run(
            f'ALTER TABLE {table} ALTER COLUMN {key} TYPE TEXT COLLATE "C"; '
            f"ALTER TABLE {table} RENAME TO {table}_plain; "
            f"CREATE TABLE {table} (LIKE {table}_plain INCLUDING DEFAULTS INCLUDING STORAGE) "
            f"PARTITION BY RANGE ({key}); DROP TABLE {table}_plain"
        )
    make(connection, REST, "DEFAULT")
    first = now // HOUR * HOUR
    _make_from(connection, first, (first // 86400 + 2) * 86400)


def _make_from(connection: Connection, start: float, end: float) -> None:
    name = time.strftime("%Y%m%d%H", time.gmtime(start))
    make(connection, name, f"FOR VALUES FROM ('{edge(start)}') TO ('{edge(end)}')")


def tend(database: Database, now: float, retention_days: float, until: float = math.inf) -> int:
    """Make the partitions that will be needed, drop those that are past retention; how many were dropped. What was made
    after `until` stays whatever its age: it is not archived yet."""
    if isinstance(database, SQLite):
        return 0
    connection = database.connect(hurried=False)
    try:
        make_ahead(connection, now, hours(retention_days))
        return drop_old(connection, min(now - retention_days * 86400, until)) if retention_days else 0
    finally:
        connection.close()


def make_ahead(connection: Connection, now: float, length: int) -> int:
    """Make partitions of `length` hours until there are enough for a while; how many were made."""
    made = 0
    try:
        while _make_next(connection, now, length):
            made += 1
    except Retryable:  # somebody changes the tables, or reads the rest: the next time will do
        pass
    except StoreUnavailable as error:
        logger.warning("no partition could be made, so lists go to the tables of the rest: %s", error)
    return made


def _last(connection: Connection) -> float:
    """When the partitions there are end; never, where the log is one table."""
    found = listed(connection)
    return max((moment(one.end) for one in found if one.end), default=0.0 if found else math.inf)


def _make_next(connection: Connection, now: float, length: int) -> bool:
    enough = now + HOUR * max(AHEAD, 2 * length)
    if _last(connection) >= enough:
        return False
    with alone(connection, "SHARE UPDATE EXCLUSIVE"):
        # The server looks through all of the rest for rows of the new one, and keeps others from it meanwhile.
        connection.run(f"SET LOCAL statement_timeout = {LONGEST_SCAN}")
        last = _last(connection)
        if last >= enough:  # another process was quicker
            return False
        start = last if last > now else (now // HOUR + 1) * HOUR  # what came meanwhile lies in the rest, and stays
        while _taken(connection, start, start + length * HOUR):  # by clocks that are ahead
            start += length * HOUR
        _make_from(connection, start, start + length * HOUR)
        return True


def _taken(connection: Connection, start: float, end: float) -> bool:
    """Whether there are rows in the rest that a partition would have to hold."""
    inside = [f"(SELECT 1 FROM {table}_{REST} WHERE {key} >= ? AND {key} < ? LIMIT 1)" for table, key in KEYS.items()]
    bounds = (edge(start), edge(end)) * len(KEYS)
    return bool(connection.rows(f"SELECT 1 WHERE EXISTS {' OR EXISTS '.join(inside)}", *bounds))


def drop_old(connection: Connection, before: float) -> int:
    """Drop partitions whose lists were all made `before` that time and whose outcomes snapshots cover; how many."""
    dropped = 0
    with suppress(Retryable):  # somebody reads the whole log: the next time will do
        old = [one for one in _past(connection, before) if covered(connection, one)]
        for at in range(0, len(old), TOGETHER):
            dropped += _drop(connection, old[at : at + TOGETHER])
    return dropped


def _drop(connection: Connection, some: Sequence[Partition]) -> int:
    for wait in WAITS:
        try:
            with alone(connection, "ACCESS EXCLUSIVE", wait):
                # Looked at once more, now that nobody else writes.
                free = [one for one in some if covered(connection, one)]
                if free:
                    tables = [one.table(table) for one in free for table in KEYS]
                    connection.run(f"DROP TABLE {', '.join(tables)}")
                return len(free)
        except Retryable:
            time.sleep(PAUSE)
    raise Retryable("the log is in use")


def covered(connection: Connection, one: Partition) -> bool:
    """Whether nothing of a partition is needed any more: replay starts at the snapshots."""
    if connection.rows(f"SELECT 1 FROM {one.table('impressions')} WHERE open = 1 LIMIT 1"):
        return False
    last = f"(SELECT MAX(o.seq) FROM {one.table('outcomes')} o WHERE o.ranker = r.name)"  # one look at the index each
    kept = "SELECT 1 FROM rankers r LEFT JOIN snapshots s ON s.ranker = r.name"
    kept = f"{kept} WHERE {last} >= COALESCE(s.seq, 0) LIMIT 1"
    return not connection.rows(kept)


def by_row(connection: Connection, before: float) -> list[str]:
    """The tables of impressions in which what was made `before` that time is deleted row by row: those that go as a
    whole are left to that, unless something in them must stay, or they are so long that what is in them would stay for
    much longer than it should: they were made under a longer retention."""
    found = [] if connection.whole else listed(connection)
    if not found:
        return ["impressions"]
    rows = [one for one in _past(connection, before) if not covered(connection, one)]
    late = before + 2 * HOUR * hours((time.time() - before) / 86400)
    kept = [one for one in found if one.name in (REST, LEGACY)]
    kept += [one for one in found if one.end and one.start < edge(before) and one.end > edge(late)]
    return [one.table("impressions") for one in dict.fromkeys((*kept, *rows))]


def _past(connection: Connection, before: float) -> list[Partition]:
    return [one for one in listed(connection) if one.end is not None and one.end <= edge(before)]


@contextmanager
def alone(connection: Connection, mode: str, wait: int = WAIT) -> Iterator[None]:
    """A transaction that holds the tables of the log in a mode in which others cannot change or, `ACCESS EXCLUSIVE`,
    use them. `Retryable` if that would mean to wait for more than so many ms: others wait behind whoever waits, and
    they answer requests.

    Those who add an event go from `impressions` on to the others, those who learn the other way. So, with the first
    table locked, somebody may hold the last and wait for the first: then it is let go at once."""
    first, *others = KEYS
    with connection.transaction():
        connection.run(f"SET LOCAL lock_timeout = {wait}; LOCK TABLE ONLY {first} IN {mode} MODE")
        connection.run(f"SET LOCAL lock_timeout = {SECOND}; LOCK TABLE ONLY {', ONLY '.join(others)} IN {mode} MODE")
        yield
