"""The writer, and several processes at once, on both stores."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from rankloop.service.errors import StoreUnavailable
from rankloop.service.settings import Settings
from rankloop.service.storage import impressions, leases, schema
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage import rankers as stored_rankers
from rankloop.service.storage.database import Connection, Retryable, open_database
from rankloop.service.storage.impressions import StoredAnswer
from rankloop.service.storage.sqlite import SQLiteConnection
from rankloop.wire.calls import Receipt
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE
from tests.service.stores import KINDS, Store, T, as_new, ev, shop, statuses, store
from tests.service.truths import sent_id

__all__ = ["shop", "store"]  # fixtures


# -- the writer ----------------------------------------------------------------------------------------------------


def held_up(store: Store) -> threading.Event:
    """Keep the writer busy, so that what is asked of it meanwhile gathers; set the event to let it go on."""
    go, busy = threading.Event(), threading.Event()

    def wait(_: Connection) -> None:
        busy.set()
        go.wait(PATIENCE)

    store.writer.run(wait)
    busy.wait(PATIENCE)
    return go


def lower_limit(connection: Connection) -> None:
    """As SQLite comes; distributions raise the number of parameters a statement may have."""
    if isinstance(connection, SQLiteConnection):
        connection._raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32766)


def test_many_large_requests_in_one_commit(shop: Store) -> None:
    most = Settings().max_events
    name = shop.show()
    shop.do(lower_limit)
    go = held_up(shop)
    writes = [shop.writer.events([as_new(ev(f"e{i}-{j}", name, ["a"])) for j in range(most)]) for i in range(20)]
    go.set()
    for write in writes:
        assert statuses(write.future.result(PATIENCE).receipts) == ["accepted"] * most
    assert shop.count("events") == 20 * most


@pytest.mark.slow
def test_many_large_requests_that_close_in_one_commit(shop: Store) -> None:
    names = [f"imp{i}" for i in range(6000)]
    for start in range(0, len(names), 500):
        shop.do(impressions.add_impressions, [shop.new(name) for name in names[start : start + 500]])
    shop.do(lower_limit)
    go = held_up(shop)
    writes = [
        shop.writer.events([as_new(ev(f"e{n}", n, ["a"], final=True)) for n in names[start::6]]) for start in range(6)
    ]
    go.set()
    for write in writes:
        assert statuses(write.future.result(PATIENCE).receipts) == ["accepted"] * 1000
    assert [row[0] for row in shop.rows("SELECT seq FROM outcomes ORDER BY seq")] == list(range(6000))


def test_abandoned_write_does_not_stop_the_writer(shop: Store) -> None:
    go = held_up(shop)

    async def impatient() -> None:
        loop = asyncio.get_running_loop()
        given_up = shop.writer.impression(shop.new("lost"), loop)
        with pytest.raises(TimeoutError):
            await given_up.done(0.01)
        given_up.abandoned = True
        canceled = asyncio.ensure_future(shop.writer.events([as_new(ev("e1", "nowhere", ["a"]))], loop).done())
        await asyncio.sleep(0.01)
        canceled.cancel()  # as when a caller hangs up

    asyncio.run(impatient())
    go.set()
    assert shop.show("kept") == "kept"
    assert shop.rows("SELECT id FROM impressions") == [("kept",)]


def test_one_failing_write_does_not_fail_the_others(shop: Store) -> None:
    go = held_up(shop)

    def broken(_: Connection) -> None:
        raise ZeroDivisionError("on purpose")

    before, bad, after = (
        shop.writer.impression(shop.new("one")),
        shop.writer.run(broken),
        shop.writer.impression(shop.new("two")),
    )
    go.set()
    with pytest.raises(ZeroDivisionError):
        bad.future.result(PATIENCE)
    assert before.future.result(PATIENCE).fresh
    assert after.future.result(PATIENCE).fresh


def test_readers_do_not_wait_for_writers(shop: Store) -> None:
    tries = iter([Retryable("a hiccup"), None])

    def moody(connection: Connection) -> list[stored_rankers.Ranker]:
        if error := next(tries):
            raise error
        return stored_rankers.list_rankers(connection)

    assert len(shop.see(moody)) == 1  # tried again, on another connection
    go = held_up(shop)  # a transaction that does not end
    assert [row.name for row in shop.see(stored_rankers.list_rankers)] == ["shop"]
    go.set()


def test_closed_writer_refuses(shop: Store) -> None:
    shop.writer.close()
    with pytest.raises(StoreUnavailable):
        shop.show()


@pytest.mark.usefixtures("usual_patience")
def test_a_missing_server_is_named(tmp_path: Path) -> None:
    database = open_database(f"postgresql://nobody@/nothing?host={tmp_path}")
    with pytest.raises(StoreUnavailable):
        schema.migrate(database, patience=0.1)
    with pytest.raises(StoreUnavailable):
        database.read(stored_rankers.list_rankers)


# -- several processes at once -------------------------------------------------------------------------------------


@pytest.fixture
def crowd(store_url: str) -> Iterator[list[Store]]:
    """Four processes' worth of writers on one store."""
    made = [Store(store_url) for _ in range(4)]
    yield made
    for one in made:
        one.close()


def together(stores: Sequence[Store], work: Callable[[int, Store], T]) -> list[T]:
    start = threading.Barrier(len(stores))

    def one(number: int) -> T:
        start.wait()
        try:
            return work(number, stores[number])
        finally:
            stores[number].database.close_thread()

    with ThreadPoolExecutor(len(stores)) as pool:
        return [job.result() for job in [pool.submit(one, number) for number in range(len(stores))]]


def test_sequence_numbers_have_no_gap_under_concurrent_writers(crowd: list[Store]) -> None:
    rankers = ["books", "films", "shop"]
    for ranker in rankers:
        crowd[0].ranker(ranker)
    names = {f"{ranker}-{i}": ranker for ranker in rankers for i in range(40)}
    crowd[0].do(impressions.add_impressions, [crowd[0].new(name, ranker=ranker) for name, ranker in names.items()])

    def work(number: int, store: Store) -> list[Receipt]:
        """Every writer reports on every list: a click of its own, and the end, which has the same id for all."""
        rng = random.Random(number)
        events = [ev(f"click-{number}-{name}", name, ["abc"[number % 3]]) for name in names]
        events += [ev(f"end-{name}", name, [], final=True) for name in names]
        rng.shuffle(events)
        writes = [
            store.writer.events([as_new(event) for event in events[start : start + 5]])
            for start in range(0, len(events), 5)
        ]
        return [receipt for write in writes for receipt in write.future.result(PATIENCE).receipts]

    receipts = [receipt for found in together(crowd, work) for receipt in found]
    ends = Counter((r.event_id, r.status) for r in receipts if str(r.event_id).startswith("end-"))
    assert {f"end-{name}": (ends[f"end-{name}", "accepted"], ends[f"end-{name}", "duplicate"]) for name in names} == {
        f"end-{name}": (1, 3) for name in names
    }
    assert {r.status for r in receipts} == {"accepted", "late", "duplicate"}

    told = {r.event_id: r.status for r in receipts if r.status != "duplicate"}
    rows = crowd[0].rows("SELECT event_id, status, impression_id FROM events")
    stored = [(sent_id(name), status, impression) for name, status, impression in rows]
    assert {name: status for name, status, _ in stored} == told
    for ranker in rankers:
        outcomes = crowd[0].rows(
            "SELECT seq, impression_id, feedback FROM outcomes WHERE ranker = ? ORDER BY seq", ranker
        )
        assert [row[0] for row in outcomes] == list(range(40))
        assert {row[1] for row in outcomes} == {name for name in names if names[name] == ranker}
        for _, impression, feedback in outcomes:  # the join has lost no click, whoever wrote it
            clicked = {
                "abc"[int(name[6]) % 3]
                for name, status, i in stored
                if i == impression and status == "accepted" and name.startswith("click")
            }
            assert json.loads(feedback) == [float(item in clicked) for item in "abc"]


def test_one_event_id_for_two_impressions_by_two_processes(crowd: list[Store]) -> None:
    crowd[0].ranker()
    names = [crowd[0].show() for _ in range(4)]

    def work(number: int, store: Store) -> list[str]:
        return [store.send(ev(f"e{i}", names[number], ["a"]))[0].status for i in range(25)]

    for found in zip(*together(crowd, work), strict=True):
        assert Counter(found) == {"accepted": 1, "rejected": 3}
    assert crowd[0].count("events") == 25


def test_one_request_id_by_four_processes(crowd: list[Store]) -> None:
    crowd[0].ranker()

    def work(number: int, store: Store) -> list[StoredAnswer]:
        news = [store.new(f"imp-{number}-{i}", request_id=f"r{i}") for i in range(30)]
        return [write.future.result(PATIENCE) for write in [store.writer.impression(new) for new in news]]

    for found in zip(*together(crowd, work), strict=True):
        assert sorted(one.fresh for one in found) == [False, False, False, True]
        assert len({one.answer for one in found}) == 1
    assert crowd[0].count("impressions") == 30


def test_windows_close_while_events_arrive(crowd: list[Store]) -> None:
    crowd[0].ranker()
    names = [f"imp{i}" for i in range(60)]
    crowd[0].do(impressions.add_impressions, [crowd[0].new(name) for name in names])

    def work(number: int, store: Store) -> list[str]:
        store.now += 10
        if number < 2:
            closed = 0
            while closings := store.do(stored_outcomes.close_windows, store.now, KINDS, limit=5):
                closed += len(closings)
            return ["closed"] * closed
        mine = names[number % 2 :: 2]
        random.Random(number).shuffle(mine)
        return [store.send(ev(f"e-{name}", name, ["a"], final=True))[0].status for name in mine]

    told = Counter(status for found in together(crowd, work) for status in found)
    assert told["closed"] + told["accepted"] == 60
    assert told["accepted"] + told["late"] == 60
    found = crowd[0].rows("SELECT seq, impression_id, kind FROM outcomes ORDER BY seq")
    assert [row[0] for row in found] == list(range(60))
    assert {row[1] for row in found} == set(names)
    assert sum(row[2] == "final" for row in found) == told["accepted"]


def test_numbers_are_never_given_twice(crowd: list[Store]) -> None:
    crowd[0].ranker()
    found = together(crowd, lambda _, store: [store.do(impressions.reserve_numbers, "shop", 10) for _ in range(25)])
    assert sorted(first for some in found for first in some if first is not None) == list(range(0, 1000, 10))


def test_a_lease_is_taken_by_one(crowd: list[Store]) -> None:
    assert sorted(together(crowd, lambda n, store: store.do(leases.take_lease, "shop", f"w{n}", None))) == [
        False
    ] * 3 + [True]
    ((holder, beat),) = crowd[0].see(leases.list_leases).values()
    taken = together(crowd, lambda n, store: store.do(leases.take_lease, "shop", f"next{n}", (holder, beat)))
    assert sorted(taken) == [False] * 3 + [True]


def test_many_statements_are_sent_in_one_message(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped in the middle of a pipeline keeps its locks, and no time-out of the server counts."""
    with closing(Store(postgres.database())) as store:
        store.ranker()

        def must_not(*_: object) -> None:
            raise AssertionError("a pipeline")

        monkeypatch.setattr("psycopg.Connection.pipeline", must_not)
        rows = [(f"it's \\ {i}", bytes([i, 0, 255 - i])) for i in range(3)]
        sql = "INSERT INTO snapshot_chunks (ranker, generation, seq, chunk, state) VALUES (?, 0, 0, 1, ?)"
        assert store.do(lambda c: c.many(sql, rows)) == 3
        assert store.do(lambda c: c.many(sql, [])) == 0
        assert sorted(store.rows("SELECT ranker, state FROM snapshot_chunks")) == rows
        gone = store.do(lambda c: c.many("DELETE FROM snapshot_chunks WHERE ranker = ?", [(row[0],) for row in rows]))
        assert gone == 3
