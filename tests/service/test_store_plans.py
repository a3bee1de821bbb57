"""How PostgreSQL does what the store asks of its log: with an index, and in the partitions that are meant, no others.

Every function of the store that reads or writes impressions, events or outcomes is called on a log of many partitions,
what it says to the database is written down, and each statement is then explained as it runs. `docs/postgresql.md`
has the same list.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from rankloop.service.storage import counters, events, experiments, outcomes, partitions, quarantine, rankers, retention
from rankloop.service.storage import ids as stored_ids
from rankloop.service.storage import impressions as latest
from rankloop.service.storage.database import Connection, Insert, Row
from rankloop.service.storage.events import NewEvent
from rankloop.service.storage.ids import new_id, time_prefix
from rankloop.service.storage.impressions import NewImpression
from rankloop.service.storage.outcomes import AdoptedImpression
from rankloop.service.storage.writer import Writer
from rankloop.wire.calls import FeedbackEvent
from tests.service.conftest import Postgres
from tests.service.stores import KINDS, Store

DAY = 86400.0
DAYS, LISTS = 12, 3000  # partitions of the past, lists in each
SMALL = 64  # rows: a table of so few is read as a whole, and rightly so
DOCS = Path(__file__).parents[2] / "docs" / "postgresql.md"
ONE, LATELY, ALL = 1, 5, 99  # partitions that may be read; lately: the last day's, those made ahead, and the rest


class Said(NamedTuple):
    """A statement and the parameters that it was first run with."""

    sql: str
    parameters: tuple[Any, ...]


class Recorder(Connection):
    """A connection that remembers what is said to it."""

    lock_rows, partitioned = " FOR UPDATE", True

    def __init__(self, real: Connection) -> None:
        self._real = real
        self.said: list[Said] = []

    def run(self, sql: str, *parameters: Any) -> int:
        self.said.append(Said(sql, parameters))
        return self._real.run(sql, *parameters)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        self.said.append(Said(sql, parameters))
        return self._real.rows(sql, *parameters)

    def many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> int:
        self.said.append(Said(sql, tuple(parameters[0])))
        return self._real.many(sql, parameters)

    def in_values(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        return self._real.in_values(values)

    def by_request(self, columns: str, pairs: Sequence[tuple[str, str]], start: str) -> list[Row]:
        return type(self._real).by_request(self, columns, pairs, start)

    def by_event(self, ids: Sequence[str], start: str) -> list[Row]:
        return type(self._real).by_event(self, ids, start)

    def append(self, what: Insert, values: Sequence[Sequence[Any]]) -> int:
        self.said.append(Said(what.sql, tuple(values[0])))
        return self._real.append(what, values)

    def transaction(self, durable: bool = True, wait: bool = True) -> Any:
        return self._real.transaction(durable, wait)

    def close(self) -> None:
        self._real.close()


class Filled:
    """A log of many partitions, all closed and learned but for a few lists of today."""

    def __init__(self, url: str) -> None:
        self.store = store = Store(url)
        self.now = store.now = time.time()
        store.ranker("shop")
        store.ranker("other")
        first = stored_ids.prefix_time(store.see(partitions.list_partitions)[0].start)
        real = store.database.connect(time_limits=False)
        with real.transaction():
            for day in range(DAYS, 0, -1):
                start = first - day * DAY
                partitions._create_from(real, start, start + DAY)
                self._fill(real, start, (DAYS - day) * LISTS)
            self._fill(real, first, DAYS * LISTS)
            real.run("UPDATE log_offsets SET next_seq = ?", (DAYS + 1) * LISTS)
            real.run("UPDATE snapshots SET seq = ?", (DAYS + 1) * LISTS - 100)
        partitions.create_ahead(real, self.now, 24)
        real.run("ANALYZE impressions, events, outcomes")
        self.connection = Recorder(real)
        self.ids = [row[0] for row in real.rows("SELECT id FROM impressions ORDER BY id")]
        self.open = [store.show(new_id(self.now), window=1.0 if i < 5 else 1e6, person="ann") for i in range(10)]

    def _fill(self, real: Connection, start: float, seq: int) -> None:
        own = "? || lpad(to_hex(i), 16, '0')"
        columns = "id, ranker, epoch, number, created, closes, person, request_id, digest, learn, body, answer, shown, "
        real.run(
            f"INSERT INTO impressions ({columns}feedback, open, seq) SELECT {own}, 'shop', 1, i, ? + i, ? + i, "
            f"'p' || mod(i, 500), 'r' || ? || i, '', 1, 'body', ?, '[1,2]', '[1,0]', 0, ? + i "
            f"FROM generate_series(0, {LISTS - 1}) i",
            time_prefix(start),
            start,
            start,
            str(seq),
            b"a" * 400,
            seq,
        )
        real.run(
            f"INSERT INTO events SELECT 'e' || ? || i, {own}, ?, 'accepted', ? FROM generate_series(0, {LISTS - 1}) i",
            str(seq),
            time_prefix(start),
            start,
            b"a" * 200,
        )
        real.run(
            "INSERT INTO outcomes (ranker, seq, impression_id, kind, learn, feedback, created) "
            f"SELECT 'shop', ? + i, {own}, 'final', 1, '[1,0]', ? FROM generate_series(0, {LISTS - 1}) i",
            seq,
            time_prefix(start),
            start,
        )

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens in here has not."""
        try:
            with self.connection.transaction():
                yield
                raise _Undone
        except _Undone:
            pass

    def plan(self, one: Said) -> dict[str, Any]:
        """How it is run, with what it took: by the plan that is kept, which is the same for all values."""
        with self.undone():
            raw = self.connection._real._raw  # type: ignore[attr-defined]
            cursor = psycopg.ClientCursor(raw)
            numbers = itertools.count(1)
            cursor.execute(f"PREPARE plan AS {re.sub(r'[?]', lambda _: f'${next(numbers)}', one.sql)}")
            values = cursor.mogrify(f"({', '.join(['%s'] * len(one.parameters))})", one.parameters)
            explain = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE plan"
            ((told,),) = cursor.execute(f"{explain} {values if one.parameters else ''}").fetchall()
            cursor.execute("DEALLOCATE plan")
        found: dict[str, Any] = told[0]["Plan"]
        return found


class _Undone(Exception):
    pass


@pytest.fixture(scope="module")
def filled(postgres: Postgres) -> Iterator[Filled]:
    made = Filled(postgres.database())
    yield made
    made.connection.close()
    made.store.close()


class Direct:
    """A writer that does things in the transaction under way."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def do(self, work: Callable[[Connection], Any], timeout: float = 0.0) -> Any:  # noqa: ARG002
        return work(self._connection)


def impression(filled: Filled, number: int, **fields: Any) -> NewImpression:
    return filled.store.new(new_id(filled.now), created=filled.now, request_id=f"new{number}", **fields)


def event(own: str, name: str) -> NewEvent:
    return NewEvent(FeedbackEvent(name, own, [1], final=True), b"{}")


def _report(f: Filled, own: str) -> Any:
    return events.add_events(f.connection, [event(own, "fresh")], f.now, KINDS)


def _discard(f: Filled) -> Any:
    latest.discard_impressions(f.connection, f.open[:1])
    return f.open


def _erase(f: Filled) -> Any:
    writer: Writer = Direct(f.connection)  # type: ignore[assignment]
    return retention.erase_user(writer, "p7")


def _export(f: Filled) -> Any:
    return retention.user_impressions(f.connection, retention.user_impression_ids(f.connection, "p7", "", 50))


def _import(f: Filled) -> Any:
    epoch = f.store.row("shop").epoch
    return outcomes.backfill(
        f.connection, "shop", epoch, [AdoptedImpression("k", None, [1, 2], [1.0, 0.0], b"body")], f.now
    )


def _sweep_old(f: Filled) -> Any:
    return [retention.delete_old(f.connection, f.now - 5 * DAY, 50)]


def _bury(f: Filled) -> Any:
    rankers.delete_ranker(f.connection, "shop", f.now)
    lists = rankers.delete_remains(f.connection, 50)
    f.connection._real.run("DELETE FROM impressions WHERE ranker = 'shop'")
    return lists, rankers.delete_remains(f.connection, 50)


def _covered(f: Filled) -> Any:
    return partitions.is_covered(f.connection, partitions.list_partitions(f.connection)[0])


OLD = 3 * LISTS + 7  # a list of some days ago
CALLS: dict[str, tuple[int, Callable[[Filled], Any]]] = {
    "a list": (LATELY, lambda f: latest.add_impressions(f.connection, [impression(f, 1)])),
    "a list asked for again": (
        ALL,
        lambda f: latest.add_impressions(f.connection, [impression(f, 2), impression(f, 2), impression(f, 3)]),
    ),
    "an answer given up on": (ONE, _discard),
    "an event": (LATELY, lambda f: _report(f, f.open[0])),
    "an event on an old list": (LATELY, lambda f: _report(f, f.ids[OLD])),
    "windows that end": (ALL, lambda f: outcomes.close_windows(f.connection, f.now + 60, KINDS)),
    "whether windows end": (ALL, lambda f: outcomes.any_window_ended(f.connection, f.now + 60)),
    "open lists": (ALL, lambda f: latest.open_counts(f.connection)),
    "oldest open list": (ALL, lambda f: latest.oldest_open(f.connection)),
    "settled lists": (ALL, lambda f: outcomes.export_outcomes(f.connection, "shop", LISTS, LISTS + 64)),
    "what is to be learned": (LATELY, lambda f: outcomes.outcomes_from(f.connection, "shop", DAYS * LISTS + 2900)),
    "what is to be counted": (
        LATELY,
        lambda f: counters.counter_inputs(f.connection, "shop", DAYS * LISTS + 2900, 256),
    ),
    "an experiment's lists": (
        LATELY,
        lambda f: [experiments.interleaved_outcomes(f.connection, "shop", 1, DAYS * LISTS, (DAYS + 1) * LISTS, 256)],
    ),
    "lists by request": (LATELY, lambda f: latest.find_impressions(f.connection, ["shop"], [f"r{DAYS * LISTS}7"])),
    "lists by an old request": (ALL, lambda f: latest.find_impressions(f.connection, ["shop"], [f"r{3 * LISTS}7"])),
    "the latest lists": (ALL, lambda f: latest.latest_impressions(f.connection, "shop", 20)),
    "the latest bodies": (ALL, lambda f: latest.latest_bodies(f.connection, "shop", 1, 20)),
    "bodies since": (ALL, lambda f: latest.latest_learned_bodies(f.connection, "shop", 1, f.now - 30 * DAY, 8)),
    "lists of another system": (ALL, _import),
    "a user forgotten": (ALL, _erase),
    "a user exported": (ALL, _export),
    "what is old": (ALL, _sweep_old),
    "whether a partition may go": (ONE, _covered),
    "what a ranker leaves": (ALL, _bury),
    "an outcome passed over": (
        ALL,
        lambda f: [
            quarantine.add_failure(
                f.connection, f.store.row("shop"), "learn", (DAYS + 1) * LISTS - 50, "hung", f.now, 3, "me"
            )
        ],
    ),
    "outcomes that are left": (ALL, lambda f: outcomes.count_outcomes(f.connection, "shop", OLD, OLD + 50)),
}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that were run."""
    if plan.get("Actual Loops"):
        yield plan
        for one in plan.get("Plans", ()):
            yield from nodes(one)


def read(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in nodes(plan) if "Scan" in one["Node Type"] and "Relation Name" in one]


def whole(one: dict[str, Any], sizes: dict[str, int]) -> bool:
    """Whether a large table was read from its beginning to its end."""
    return one["Node Type"] == "Seq Scan" and sizes.get(one["Relation Name"], 0) > SMALL


@pytest.mark.parametrize("name", CALLS)
def test_queries_use_indexes_of_the_partitions_they_need(filled: Filled, name: str) -> None:
    most, call = CALLS[name]
    filled.connection.said.clear()
    with filled.undone():
        assert call(filled)
    said = [one for one in filled.connection.said if re.search(r"impressions|events|outcomes", one.sql)]
    said = [one for one in said if "pg_inherits" not in one.sql]
    assert said
    rows = filled.connection._real.rows
    sizes = {table: int(count) for table, count in rows("SELECT relname, reltuples::bigint FROM pg_class")}
    for one in said:
        plan = filled.plan(one)
        scans = read(plan)
        assert not [scan["Relation Name"] for scan in scans if whole(scan, sizes)], f"{one.sql}: {plan}"
        for table in partitions.KEYS:
            leaves = {scan["Relation Name"] for scan in scans if scan["Relation Name"].startswith(f"{table}_")}
            assert len(leaves) <= most, f"{one.sql} reads {sorted(leaves)}"


def test_impressions_are_found_by_id_in_one_partition(filled: Filled) -> None:
    """Whatever is done with a known list: read, locked, changed, closed, deleted with its events and its outcome."""
    own, now = filled.ids[OLD], filled.now
    said = filled.connection.said
    said.clear()
    with filled.undone():
        events.add_events(filled.connection, [event(filled.open[0], "fresh")], now, KINDS)
        retention._delete(filled.connection, [own])
    by_id = [one for one in said if re.search(r"\b(impression_)?id( = ANY\(| IN \(| = )\?", one.sql)]
    assert len(by_id) >= 5
    for one in by_id:
        leaves = {scan["Relation Name"] for scan in read(filled.plan(one))}
        assert len(leaves) == 1 or ("id >= '" in one.sql and len(leaves) <= LATELY), one.sql


@pytest.mark.parametrize(
    "call",
    [
        lambda c: latest.latest_bodies(c, "shop", 99, 20),
        lambda c: latest.latest_learned_bodies(c, "shop", 99, 0.0, 8),
    ],
    ids=["latest_bodies", "newest_bodies"],
)
def test_log_before_a_reset_is_not_read(filled: Filled, call: Callable[[Connection], Any]) -> None:
    """No list is of the new epoch yet; to find none must not mean to look at all."""
    filled.connection.said.clear()
    assert call(filled.connection) == []
    (one,) = filled.connection.said
    rows = sum(scan["Actual Rows"] for scan in read(filled.plan(one)))
    assert 0 < rows < 200 + 2 * DAYS < LISTS


def test_outcomes_are_found_across_old_and_recent_partitions(filled: Filled) -> None:
    """Whether it is all among recent lists is told by the numbers; where one is missing, all partitions are asked."""
    head = (DAYS + 1) * LISTS
    with filled.undone():
        numbers = [one.seq for one in outcomes.outcomes_from(filled.connection, "shop", DAYS * LISTS - 100)]
        assert numbers == list(range(DAYS * LISTS - 100, DAYS * LISTS + 156))
        real = filled.connection._real
        real.run("UPDATE outcomes SET impression_id = ? WHERE ranker = 'shop' AND seq = ?", filled.ids[5], head - 10)
        real.run("DELETE FROM outcomes WHERE ranker = 'shop' AND seq = ?", head - 5)
        numbers = [one.seq for one in outcomes.outcomes_from(filled.connection, "shop", head - 20)]
        assert numbers == [*range(head - 20, head - 5), *range(head - 4, head)]
        assert outcomes.outcomes_from(filled.connection, "shop", head) == []
