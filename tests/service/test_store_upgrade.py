"""A store of the release before: brought up to date beside its processes, and changed for good once they have gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from rankloop.service.maintenance.housekeeping import Upgrade
from rankloop.service.storage import admin, forgetting, log, partitions, reshaping, schema, states
from rankloop.service.storage.batches import in_batches
from rankloop.service.storage.database import Connection, open_database
from rankloop.service.storage.log import new_id
from rankloop.service.storage.migrations import MIGRATIONS, SETTLED
from rankloop.service.storage.times import edge, lately
from rankloop.wire.rankers import Spec
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE, wait_for
from tests.service.stores import KINDS, Store, as_new, ev, statuses

DAY = 86400.0
OLD = "INSERT INTO workers (id, machine, beat, learns, report) VALUES ('old', 'm', 0, 1, '')"


@contextmanager
def earlier_release(url: str, patch: pytest.MonkeyPatch, steps: int = SETTLED) -> Iterator[Connection]:
    """A connection to a store as that release made it, and a process of it that is on the list."""
    database = open_database(url)
    with patch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", MIGRATIONS[:steps])
        schema.migrate(database)
    connection = database.connect()
    with connection.transaction():
        connection.run("DROP TABLE expansions")
        connection.run(OLD)
        if steps == SETTLED:
            admin.add_ranker(connection, "shop", Spec(), b"fresh", 1.0)
    yield connection
    connection.close()
    database.close()


def told(url: str) -> int:
    """How many migrations a release counts that knows nothing of second steps."""
    database = open_database(url)
    try:
        return database.read(lambda connection: len(connection.rows("SELECT id FROM migrations")))
    finally:
        database.close()


def test_what_comes_after_only_adds() -> None:
    """Else processes of the release before would fail, beside which it is applied. What takes away is a second step."""
    for statements in MIGRATIONS[SETTLED:]:
        for one in statements:
            text = " ".join(one.split())
            assert re.match(r"CREATE (TABLE|INDEX|UNIQUE INDEX)|ALTER TABLE \w+ ADD COLUMN", text), one
            assert not re.search(r"ADD COLUMN \w+ \S+ NOT NULL(?! DEFAULT)", text), f"{one}: old ones do not fill it in"


def test_the_first_step_leaves_the_store_to_those_of_the_release_before(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with earlier_release(store_url, monkeypatch) as connection:
        database = open_database(store_url)
        assert schema.migrate(database) == len(MIGRATIONS) - SETTLED
        assert schema.migrate(database) == 0
        assert told(store_url) == SETTLED  # one of them may be started again
        schema.require_current(database)
        with connection.transaction():
            connection.run(OLD.replace("'old'", "'another'"))
        assert schema.contract(database) == ["another", "old"]
        with connection.transaction():
            admin.beat(connection, "new", "m", True)
            admin.release(connection, "another")
        assert schema.contract(database) == ["old"]
        assert told(store_url) == SETTLED
        with connection.transaction():
            admin.release(connection, "old")
        assert schema.contract(database) == []
        assert told(store_url) == len(MIGRATIONS)
        assert schema.contract(database) == []
        database.close()


def test_a_later_release_may_have_added_what_this_one_does_not_know(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(store_url)
    try:
        store.ranker()
        store.do(admin.beat, "this", "m", True)
        with monkeypatch.context() as later:
            later.setattr(schema, "MIGRATIONS", [*MIGRATIONS, ["ALTER TABLE workers ADD COLUMN later {int}"]])
            assert schema.migrate(store.database) == 1
        assert schema.migrate(store.database) == 0  # it starts again, and works
        store.do(admin.beat, "this", "m", True)
        with monkeypatch.context() as later:
            later.setattr(schema, "MIGRATIONS", [*MIGRATIONS, ["ALTER TABLE workers ADD COLUMN later {int}"]])
            assert schema.contract(store.database) == ["this"]
            store.do(admin.release, "this")
            assert schema.contract(store.database) == []
        with pytest.raises(schema.NewerStore):
            schema.migrate(store.database)
    finally:
        store.close()


def test_beside_processes_of_an_older_release_nothing_is_changed(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with earlier_release(store_url, monkeypatch, SETTLED - 1) as connection:
        beats = iter(range(1, 9))

        def beat(_: float) -> None:
            with connection.transaction():
                connection.run("UPDATE workers SET beat = ?", next(beats))

        database = open_database(store_url)
        monkeypatch.setattr(time, "sleep", beat)
        with pytest.raises(schema.Beside):
            schema.migrate(database)
        assert told(store_url) == SETTLED - 1
        monkeypatch.setattr(time, "sleep", lambda _: None)  # it has been killed, and beats no more
        assert schema.migrate(database) == len(MIGRATIONS) - SETTLED + 1
        database.close()


@pytest.fixture
def grown(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that the release before has filled, with this one beside it and the old one gone."""
    url = postgres.database()
    with earlier_release(url, monkeypatch) as connection:
        database = open_database(url)
        schema.migrate(database)  # the rows are written by the code of this release, which needs its columns
        database.close()
        with connection.transaction():
            now = time.time()
            ids = [new_id(now - 3600 + i) for i in range(300)]
            template = Store.new(_Plain(now), "x")  # type: ignore[arg-type]
            log.add_impressions(connection, [template._replace(id=one, request_id=f"r{one}") for one in ids])
            events = [as_new(ev(f"e{i}", one, ["a"], final=True)) for i, one in enumerate(ids[:200])]
            log.add_events(connection, events, now, KINDS)
            admin.release(connection, "old")
    store = Store(url)
    store.now = now
    yield store
    store.close()


class _Plain:
    """As much of a store as is needed to make an impression."""

    def __init__(self, now: float) -> None:
        self.now, self._numbers = now, iter(range(9))

    def _epoch(self, _: str) -> int:
        return 1000


def contents(store: Store) -> list[Any]:
    order = {"impressions": "id", "events": "event_id", "outcomes": "ranker, seq"}
    return [store.rows(f"SELECT * FROM {table} ORDER BY {key}") for table, key in order.items()]


def test_a_log_that_is_there_becomes_the_first_partition(grown: Store) -> None:
    before = contents(grown)
    assert len(before[0]) == 300
    assert grown.see(partitions.listed) == []
    assert grown.see(lately, grown.now) == ""  # ids may be sorted by the rules of a language
    (first, name) = (before[0][0][0], before[1][0][0])
    assert reshaping.reshape(grown.database, grown.now)
    assert reshaping.reshape(grown.database, grown.now)  # it is
    assert contents(grown) == before
    found = grown.see(partitions.listed)
    assert [one.name for one in found] == ["legacy", "rest"]
    assert 2 * DAY <= partitions.moment(found[0].end or "") - grown.now <= 3 * DAY
    own = before[1][0][1]
    assert statuses(grown.send(ev(name, own, ["b"], final=True))) == ["duplicate"]
    again = grown.new(new_id(grown.now), request_id=f"r{first}", created=grown.now)
    assert not grown.writer.impression(again).future.result(PATIENCE).fresh
    assert home(grown, grown.show(new_id(grown.now))) == "impressions_legacy"
    end = partitions.moment(found[0].end or "")
    grown.alone(partitions.make_ahead, end - 3600.0, 24)
    assert home(grown, grown.show(new_id(end + 1.0))) not in ("impressions_legacy", "impressions_rest")


def home(store: Store, own: str) -> str:
    ((table,),) = store.rows("SELECT tableoid::regclass::text FROM impressions WHERE id = ?", own)
    return str(table)


def test_of_the_first_partition_what_is_old_goes_row_by_row_and_then_all(grown: Store) -> None:
    assert reshaping.reshape(grown.database, grown.now)
    grown.do(states.save_snapshot, "shop", grown.row().generation, 200, b"state", grown.now)
    grown.close_windows()
    grown.now += 20.0
    while grown.close_windows():
        pass
    fresh = grown.show(new_id(grown.now))
    sweep: Callable[..., int] = lambda c, limit: forgetting.sweep(c, grown.now - 10.0, limit)  # noqa: E731
    sum(in_batches(grown.writer, sweep))
    assert {row[0] for row in grown.rows("SELECT id FROM impressions")} == {fresh} | uncovered(grown)
    grown.do(lambda c: c.run("UPDATE impressions SET open = 0"))
    grown.do(states.save_snapshot, "shop", grown.row().generation, 10_000, b"state", grown.now)
    assert partitions.tend(grown.database, grown.now + 40 * DAY, 30.0) == 1
    assert "legacy" not in [one.name for one in grown.see(partitions.listed)]
    assert grown.count("impressions") == 0


def uncovered(store: Store) -> set[str]:
    return {row[0] for row in store.rows("SELECT impression_id FROM outcomes WHERE seq >= 200")}


def test_lists_and_feedback_go_on_while_the_log_is_partitioned(grown: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each step of it a list is shown and reported on, as by another process that has its statements prepared."""
    other = Store(grown.url)
    other.now = grown.now
    shown: list[str] = []

    def use() -> None:
        for _ in range(8):
            own = other.show(new_id(grown.now), request_id=f"r{len(shown)}")
            assert statuses(other.send(ev(f"on{len(shown)}", own, ["a"], final=True))) == ["accepted"]
            shown.append(own)

    def between(work: Callable[[], None]) -> None:
        use()
        work()
        use()

    monkeypatch.setattr(reshaping, "_patiently", between)
    try:
        use()
        assert reshaping.reshape(grown.database, grown.now)
        assert grown.count("impressions") == 300 + len(shown) > 330
        assert [one.seq for one in other.see(log.outcomes_from, "shop", 200)] == list(range(200, 200 + len(shown)))
    finally:
        other.close()


def test_what_fails_on_the_way_leaves_the_log_as_it_was(grown: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the power is off")

    monkeypatch.setattr(reshaping, "_switch", broken)
    with pytest.raises(RuntimeError, match="power"):
        reshaping.reshape(grown.database, grown.now)
    assert grown.see(partitions.listed) == []
    grown.show(new_id(grown.now + 30 * DAY))  # no check is left that a later day would fail


def test_whoever_dies_on_the_way_leaves_it_to_others(grown: Store) -> None:
    """His check stays, and for as long as the server does not notice, so does his lock: then it is asked for again."""
    dead = grown.database.connect(hurried=False)
    reshaping._check(dead, edge(grown.now + 2 * DAY))
    dead.rows("SELECT pg_advisory_lock(?)", reshaping.LOCK)
    assert not reshaping.reshape(grown.database, grown.now)
    upgrade = Upgrade(SimpleNamespace(database=grown.database, clock=lambda: grown.now))  # type: ignore[arg-type]
    upgrade._done = True
    upgrade._reshape()
    assert not upgrade._done
    dead.close()
    wait_for(lambda: reshaping.reshape(grown.database, grown.now), "the lock to be free")
    grown.alone(partitions.make_ahead, grown.now, 24)
    grown.show(new_id(grown.now + 30 * DAY))


def test_a_new_release_starts_on_an_empty_store_that_is_partitioned(postgres: Postgres) -> None:
    store = Store(postgres.database())
    before = store.see(partitions.listed)
    store.do(lambda c: c.run("DELETE FROM migrations WHERE id = ?", len(MIGRATIONS) - 1))
    store.do(lambda c: c.run("DELETE FROM workers"))
    schema.migrate(store.database)
    assert store.see(partitions.listed) == before
    store.close()


def test_a_log_with_ids_of_another_time_stays_one_table(grown: Store) -> None:
    far = grown.show(new_id(grown.now + 30 * DAY))
    with pytest.raises(reshaping.CannotPartition, match=far):
        reshaping.reshape(grown.database, grown.now)
    assert grown.see(partitions.listed) == []


def test_a_language_that_sorts_letters_otherwise_is_noticed() -> None:
    class Danish:
        def rows(self, _: str, pairs: list[str]) -> list[tuple[str]]:
            return [(pair,) for pair in sorted(pairs, key=lambda pair: pair.replace("aa", "å"))]

    with pytest.raises(reshaping.CannotPartition, match="LC_COLLATE 'C'"):
        reshaping._require_order(Danish())  # type: ignore[arg-type]
