"""One contract for both stores: what is joined, numbered, kept and forgotten, by one process or by several at once."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.service.settings import Settings
from rankloop.service.store import NewEvent, NewImpression, Outcome, StoreUnavailable, Writer, admin, log, schema
from rankloop.service.store.database import BUSY_SECONDS, Connection, Passing, SQLiteConnection, open_database
from rankloop.service.store.log import Closing, Stored
from rankloop.service.wire import FeedbackEvent, Receipt, Spec
from tests.service.conftest import Postgres
from tests.service.running import read

T = TypeVar("T")
KINDS = {"pairrank": "clicks", "x": "grades"}
TABLES = ["rankers", "heads", "impressions", "events", "outcomes", "snapshots", "versions", "leases", "workers", "keys"]


class Store:
    """A database with its writer, as one process has them, and a clock that stands still."""

    def __init__(self, url: str) -> None:
        self.url, self.now = url, 1000.0
        self.database = open_database(url)
        schema.migrate(self.database)
        self.writer = Writer(self.database, KINDS, clock=lambda: self.now)
        self._numbers = count()

    def close(self) -> None:
        self.writer.close()
        self.database.forget()

    def do(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return self.writer.do(lambda connection: work(connection, *arguments, **named))

    def see(self, work: Callable[..., T], *arguments: Any) -> T:
        return self.database.read(lambda connection: work(connection, *arguments))

    def ranker(self, name: str = "shop", **spec: Any) -> None:
        assert self.do(admin.add_ranker, name, Spec(**spec), b"fresh", self.now)

    def row(self, name: str = "shop") -> admin.Ranker:
        found = self.see(admin.ranker, name)
        assert found is not None
        return found

    def new(
        self, name: str | None = None, *, ranker: str = "shop", window: float = 10.0, **fields: Any
    ) -> NewImpression:
        number = next(self._numbers)
        name = name or f"imp{number}"
        made: dict[str, Any] = {
            "id": name,
            "ranker": ranker,
            "epoch": self._epoch(ranker),
            "number": number,
            "created": self.now,
            "closes": self.now + window,
            "person": None,
            "request_id": None,
            "digest": b"digest",
            "learn": True,
            "body": f"body of {name}".encode(),
            "answer": f"answer of {name}".encode(),
            "shown": b'["a","b","c"]',
        }
        return NewImpression(**(made | fields))

    def _epoch(self, ranker: str) -> int:
        found = self.see(admin.ranker, ranker)
        return found.epoch if found else 0

    def show(self, name: str | None = None, **fields: Any) -> str:
        new = self.new(name, **fields)
        assert self.writer.impression(new).future.result(30).fresh
        return new.id

    def send(self, *events: FeedbackEvent) -> list[Receipt]:
        return self.writer.events([as_new(event) for event in events]).future.result(30).receipts

    def close_windows(self, ranker: str = "shop") -> list[Closing]:
        return self.do(log.close_windows, ranker, self.now, KINDS)

    def outcomes(self, ranker: str = "shop") -> list[Outcome]:
        return self.see(log.outcomes_from, ranker, 0)

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return read(self.url, sql, *parameters)

    def count(self, table: str) -> int:
        ((number,),) = self.rows(f"SELECT COUNT(*) FROM {table}")
        return int(number)


def as_new(event: FeedbackEvent) -> NewEvent:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return NewEvent(event, json.dumps(fields).encode())


def ev(event: str, impression: str, clicks: list[Any] | None = None, **fields: Any) -> FeedbackEvent:
    return FeedbackEvent(event, impression, clicks, **fields)


def statuses(receipts: Sequence[Receipt]) -> list[str]:
    return [receipt.status for receipt in receipts]


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    made = Store(store_url)
    yield made
    made.close()


@pytest.fixture
def shop(store: Store) -> Store:
    """A store with a ranker that takes clicks."""
    store.ranker()
    return store


# -- migrations ----------------------------------------------------------------------------------------------------


def test_migrations_apply_once(store: Store) -> None:
    assert schema.migrate(store.database) == 0
    assert store.rows("SELECT id FROM migrations") == [(number,) for number in range(len(schema.MIGRATIONS))]
    for table in TABLES:
        assert store.count(table) == 0


def test_processes_that_start_together_migrate_once(store_url: str) -> None:
    start = threading.Barrier(4)

    def migrate() -> int:
        database = open_database(store_url)
        start.wait()
        return schema.migrate(database)

    with ThreadPoolExecutor(4) as pool:
        applied = [job.result() for job in [pool.submit(migrate) for _ in range(4)]]
    assert sorted(applied) == [0, 0, 0, len(schema.MIGRATIONS)]


def test_a_migration_that_fails_leaves_nothing(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(store_url)
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, ["CREATE TABLE extra (id {int})", "NONSENSE"]])
    with pytest.raises(Exception, match=r"(?i)syntax"):
        schema.migrate(database)
    monkeypatch.undo()
    assert schema.migrate(database) == len(schema.MIGRATIONS)


def test_a_store_of_a_later_release_is_refused(store: Store) -> None:
    store.do(lambda c: c.run("INSERT INTO migrations (id) VALUES (?)", len(schema.MIGRATIONS)))
    with pytest.raises(schema.NewerStore, match="release that wrote it"):
        schema.migrate(store.database)


# -- impressions ---------------------------------------------------------------------------------------------------


def test_a_request_id_gets_its_first_answer(shop: Store) -> None:
    def rank(name: str, digest: bytes = b"digest", ranker: str = "shop", request: str | None = "r1") -> Stored:
        new = shop.new(name, request_id=request, digest=digest, ranker=ranker)
        return shop.writer.impression(new).future.result(30)

    assert rank("one") == Stored(b"answer of one", True, True)
    assert rank("two") == Stored(b"answer of one", False, True)
    assert rank("three", digest=b"other") == Stored(b"answer of one", False, False)
    shop.ranker("books")
    assert rank("four", ranker="books").fresh  # a request_id counts within its ranker
    assert rank("five", request=None).fresh
    assert rank("six", request=None).fresh
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {"one", "four", "five", "six"}
    assert shop.see(log.answer_of, "shop", "r1") == (b"answer of one", b"digest")
    assert shop.see(log.answer_of, "shop", "r2") is None


def test_a_request_id_twice_in_one_commit(shop: Store) -> None:
    news = [shop.new(name, request_id="r1") for name in ("one", "two", "three")]
    stored = shop.do(log.add_impressions, news)
    assert sorted(one.fresh for one in stored) == [False, False, True]
    assert len({one.answer for one in stored}) == 1
    assert shop.count("impressions") == 1


def test_a_commit_whose_answer_got_lost_can_be_repeated(shop: Store) -> None:
    new = shop.new("one", request_id="r1")
    first = shop.do(log.add_impressions, [new])
    assert shop.do(log.add_impressions, [new]) == first  # as if it had never been there
    assert shop.count("impressions") == 1


def test_numbers_are_reserved_for_one(shop: Store) -> None:
    assert [shop.do(log.reserve_numbers, "shop", 10) for _ in range(3)] == [0, 10, 20]
    assert shop.do(log.reserve_numbers, "nobody", 10) is None


def test_a_list_nobody_waits_for_is_taken_back(shop: Store) -> None:
    kept, reported, lost = shop.show(), shop.show(), shop.show()
    shop.send(ev("e", reported, ["a"]))
    shop.do(log.discard_impressions, [reported, lost])
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {kept, reported}


# -- events --------------------------------------------------------------------------------------------------------


def test_clicks_of_several_events_are_one_outcome(shop: Store) -> None:
    name = shop.show()
    assert statuses(shop.send(ev("e1", name, ["b"]))) == ["accepted"]
    assert statuses(shop.send(ev("e2", name, []), ev("e3", name, ["c"]))) == ["accepted", "accepted"]
    assert shop.outcomes() == []
    assert statuses(shop.send(ev("e4", name, ["b"], final=True))) == ["accepted"]
    assert shop.outcomes() == [Outcome(0, True, shop.row().epoch, f"body of {name}".encode(), [0.0, 1.0, 1.0])]
    assert shop.rows("SELECT open, seq FROM impressions") == [(0, 0)]
    assert shop.rows("SELECT kind FROM outcomes") == [("final",)]


def test_an_event_counts_once(shop: Store) -> None:
    one, two = shop.show(), shop.show()
    first = ev("e1", one, ["a"])
    assert statuses(shop.send(first, first)) == ["accepted", "duplicate"]
    assert statuses(shop.send(first)) == ["duplicate"]
    (other,) = shop.send(ev("e1", two, ["a"]))
    assert other.status == "rejected"
    assert one in (other.reason or "")
    assert shop.count("events") == 1
    assert statuses(shop.send(ev("e2", one, final=True))) == ["accepted"]
    assert statuses(shop.send(first)) == ["duplicate"]  # not late: it was in time
    assert shop.outcomes()[0].values == [1.0, 0.0, 0.0]


def test_what_comes_after_the_end_is_kept_but_late(shop: Store) -> None:
    name = shop.show()
    receipts = shop.send(ev("e1", name, ["a"], final=True), ev("e2", name, ["b"]), ev("e3", name, ["b"], final=True))
    assert statuses(receipts) == ["accepted", "late", "late"]
    assert "closed" in (receipts[1].reason or "")
    assert statuses(shop.send(ev("e2", name, ["b"]))) == ["duplicate"]
    assert [outcome.values for outcome in shop.outcomes()] == [[1.0, 0.0, 0.0]]
    assert sorted(shop.rows("SELECT event_id, status FROM events")) == [
        ("e1", "accepted"),
        ("e2", "late"),
        ("e3", "late"),
    ]


def test_an_event_without_its_impression_is_an_orphan(shop: Store) -> None:
    name = shop.show()
    receipts = shop.send(ev("e1", "nowhere", ["a"]), ev("e2", name, ["a"]))
    assert statuses(receipts) == ["orphan", "accepted"]
    assert "nowhere" in (receipts[0].reason or "")
    assert shop.count("events") == 1
    # It was not kept, so its id is free.
    assert statuses(shop.send(ev("e1", name, ["b"]))) == ["accepted"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"clicks": ["a"], "grades": {"a": 1.0}}, "only one kind"),
        ({}, "give clicks"),
        ({"grades": {"a": 1.0}}, "learns from clicks"),
        ({"clicks": ["a", "z"]}, "not shown in this impression: 'z'"),
        ({"clicks": [1]}, "not shown"),
    ],
)
def test_events_that_break_a_rule_are_rejected_with_the_rule(shop: Store, fields: dict[str, Any], reason: str) -> None:
    name = shop.show()
    (receipt,) = shop.send(FeedbackEvent("e1", name, **fields))
    assert receipt.status == "rejected"
    assert reason in (receipt.reason or "")
    assert shop.count("events") == 0
    assert shop.rows("SELECT seen FROM impressions") == [(None,)]
    assert statuses(shop.send(ev("e1", name, ["a"]))) == ["accepted"]  # put right, it may come again


def test_a_bare_final_closes_what_came_before(shop: Store) -> None:
    clicked, silent = shop.show(), shop.show()
    assert statuses(shop.send(ev("e1", clicked, ["c"]), ev("e2", clicked, final=True))) == ["accepted", "accepted"]
    assert statuses(shop.send(ev("e3", silent, final=True))) == ["accepted"]
    assert [outcome.values for outcome in shop.outcomes()] == [[0.0, 0.0, 1.0], []]
    assert shop.rows("SELECT kind FROM outcomes") == [("final",), ("final",)]


def test_ids_that_are_numbers(shop: Store) -> None:
    name = shop.show(shown=b"[30,10,20]")
    assert statuses(shop.send(ev("e1", name, [20]), ev("e2", name, [40]))) == ["accepted", "rejected"]
    shop.send(ev("e3", name, final=True))
    assert shop.outcomes()[0].values == [0.0, 0.0, 1.0]


def test_grades(store: Store) -> None:
    store.ranker("films", learner="x")
    name = store.show(ranker="films")
    wrong = store.send(
        ev("e1", name, ["a"]),
        ev("e2", name, grades={"a": -1.0}),
        ev("e3", name, grades={"a": float("inf")}),
        ev("e4", name, grades={"a": float("nan")}),
        ev("e5", name, grades={"z": 1.0}),
    )
    assert statuses(wrong) == ["rejected"] * 5
    assert "learns from grades" in (wrong[0].reason or "")
    assert all("at least 0" in (receipt.reason or "") for receipt in wrong[1:4])
    assert statuses(store.send(ev("e1", name, grades={"b": 2.0}), ev("e2", name, grades={"a": 4.0}))) == [
        "accepted",
        "accepted",
    ]
    assert statuses(store.send(ev("e3", name, grades={"b": 3.0}, final=True))) == ["accepted"]  # the last word counts
    assert store.outcomes("films")[0].values == [4.0, 3.0]  # of c nothing is known
    hole = store.show(ranker="films")
    store.send(ev("e6", hole, grades={"a": 1.0, "c": 1.0}, final=True))
    assert store.outcomes("films")[1].values == [1.0]  # feedback has no holes: from the top to the first unknown


def test_rankers_count_apart(shop: Store) -> None:
    shop.ranker("books")
    names = [shop.show(ranker=ranker) for ranker in ("shop", "books", "shop", "books", "books")]
    shop.send(*(ev(f"e{i}", name, ["a"], final=True) for i, name in enumerate(names)))
    assert [outcome.seq for outcome in shop.outcomes("shop")] == [0, 1]
    assert [outcome.seq for outcome in shop.outcomes("books")] == [0, 1, 2]
    assert shop.see(log.heads) == {"shop": 2, "books": 3}
    assert [outcome.seq for outcome in shop.see(log.outcomes_from, "books", 1)] == [1, 2]
    assert [outcome.seq for outcome in shop.see(lambda c: log.outcomes_from(c, "books", 1, limit=1))] == [1]


def test_feedback_while_paused_or_to_a_fallback_is_kept_but_not_learned(shop: Store) -> None:
    fallback = shop.show(learn=False)
    shop.send(ev("e0", fallback, ["a"], final=True))
    shop.do(admin.set_learning, "shop", False)
    shop.send(ev("e1", shop.show(), ["a"], final=True))
    shop.do(admin.set_learning, "shop", True)
    shop.send(ev("e2", shop.show(), ["a"], final=True))
    assert [outcome.learn for outcome in shop.outcomes()] == [False, False, True]


def test_feedback_to_lists_from_before_a_reset_is_late(shop: Store) -> None:
    old, epoch = shop.show(), shop.row().epoch
    shop.send(ev("e1", old, ["a"]))
    shop.do(admin.replace_state, "shop", b"fresh", shop.now, reset=True)
    (receipt,) = shop.send(ev("e2", old, ["b"], final=True))
    assert receipt.status == "late"
    assert "reset" in (receipt.reason or "")
    shop.now += 100  # its window still closes, and it is not learned
    shop.close_windows()
    assert [(outcome.learn, outcome.epoch) for outcome in shop.outcomes()] == [(False, epoch)]
    assert statuses(shop.send(ev("e3", shop.show(), ["a"], final=True))) == ["accepted"]
    assert [(outcome.learn, outcome.epoch) for outcome in shop.outcomes()[1:]] == [(True, epoch + 1)]


# -- windows -------------------------------------------------------------------------------------------------------


def test_a_window_that_closes_takes_silence_for_no_click(shop: Store) -> None:
    early, silent, partial, later = shop.show(), shop.show(), shop.show(), shop.show(window=50.0)
    shop.send(ev("e1", early, ["a"], final=True), ev("e2", partial, ["b"]))
    assert shop.close_windows() == []
    assert shop.see(log.due, shop.now) == []
    shop.now += 10
    assert shop.see(log.due, shop.now) == ["shop"]
    assert sorted(shop.close_windows()) == [
        Closing("shop", "silent", [], 3),
        Closing("shop", "window", [0.0, 1.0, 0.0], 3),
    ]
    assert shop.close_windows() == []
    found = shop.rows("SELECT impression_id, kind, feedback FROM outcomes ORDER BY seq")
    assert found[0] == (early, "final", b"[1.0,0.0,0.0]")
    assert sorted(found[1:]) == sorted([(silent, "silent", b"[]"), (partial, "window", b"[0.0,1.0,0.0]")])
    assert shop.see(log.open_counts) == Counter({"shop": 1})
    assert statuses(shop.send(ev("e3", silent, ["a"]), ev("e4", later, ["a"]))) == ["late", "accepted"]


def test_silence_can_mean_nothing(store: Store) -> None:
    store.ranker("shop", silence="ignore")
    silent, partial = store.show(), store.show()
    store.send(ev("e1", partial, []))
    store.now += 10
    assert Counter(closing.kind for closing in store.close_windows()) == {"ignored": 1, "window": 1}
    assert store.rows("SELECT impression_id, kind FROM outcomes") == [(partial, "window")]
    assert store.rows("SELECT open, seq FROM impressions WHERE id = ?", silent) == [(0, None)]
    assert statuses(store.send(ev("e2", silent, ["a"]))) == ["late"]


def test_silence_is_no_grade(store: Store) -> None:
    store.ranker("films", learner="x")
    store.show(ranker="films")
    partial = store.show(ranker="films")
    store.send(ev("e1", partial, grades={"a": 2.0}))
    store.now += 10
    store.close_windows("films")
    assert [outcome.values for outcome in store.outcomes("films")] == [[2.0]]


def test_windows_close_in_portions(shop: Store) -> None:
    for _ in range(7):
        shop.show()
    shop.now += 10
    sizes = [len(shop.do(log.close_windows, "shop", shop.now, KINDS, limit=3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]
    assert [outcome.seq for outcome in shop.outcomes()] == list(range(7))


# -- the writer ----------------------------------------------------------------------------------------------------


def held_up(store: Store) -> threading.Event:
    """Keep the writer busy, so that what is asked of it meanwhile gathers; set the event to let it go on."""
    go, busy = threading.Event(), threading.Event()

    def wait(_: Connection) -> None:
        busy.set()
        go.wait(30)

    store.writer.run(wait)
    busy.wait(30)
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
        assert statuses(write.future.result(60).receipts) == ["accepted"] * most
    assert shop.count("events") == 20 * most


def test_many_large_requests_that_close_in_one_commit(shop: Store) -> None:
    names = [f"imp{i}" for i in range(6000)]
    for start in range(0, len(names), 500):
        shop.do(log.add_impressions, [shop.new(name) for name in names[start : start + 500]])
    shop.do(lower_limit)
    go = held_up(shop)
    writes = [
        shop.writer.events([as_new(ev(f"e{n}", n, ["a"], final=True)) for n in names[start::6]]) for start in range(6)
    ]
    go.set()
    for write in writes:
        assert statuses(write.future.result(60).receipts) == ["accepted"] * 1000
    assert [row[0] for row in shop.rows("SELECT seq FROM outcomes ORDER BY seq")] == list(range(6000))


def test_who_stops_waiting_does_not_stop_the_writer(shop: Store) -> None:
    go = held_up(shop)

    async def impatient() -> None:
        loop = asyncio.get_running_loop()
        given_up = shop.writer.impression(shop.new("lost"), loop)
        with pytest.raises(TimeoutError):
            await given_up.done(0.01)
        given_up.abandoned = True
        cancelled = asyncio.ensure_future(shop.writer.events([as_new(ev("e1", "nowhere", ["a"]))], loop).done())
        await asyncio.sleep(0.01)
        cancelled.cancel()  # as when a caller hangs up

    asyncio.run(impatient())
    go.set()
    assert shop.show("kept") == "kept"
    assert shop.rows("SELECT id FROM impressions") == [("kept",)]


def test_one_bad_write_does_not_spoil_the_others(shop: Store) -> None:
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
        bad.future.result(30)
    assert before.future.result(30).fresh
    assert after.future.result(30).fresh


def test_reading_never_waits_for_whoever_writes(shop: Store) -> None:
    tries = iter([Passing("a hiccup"), None])

    def moody(connection: Connection) -> list[admin.Ranker]:
        if error := next(tries):
            raise error
        return admin.rankers(connection)

    assert len(shop.see(moody)) == 1  # tried again, on another connection
    go = held_up(shop)  # a transaction that does not end
    start = time.monotonic()
    assert [row.name for row in shop.see(admin.rankers)] == ["shop"]
    assert time.monotonic() - start < BUSY_SECONDS / 2
    go.set()


def test_a_closed_writer_says_so(shop: Store) -> None:
    shop.writer.close()
    with pytest.raises(StoreUnavailable, match="stopping"):
        shop.show()


def test_a_missing_server_is_named(tmp_path: Path) -> None:
    database = open_database(f"postgresql://nobody@/nothing?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        schema.migrate(database, patience=0.1)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        database.read(admin.rankers)


# -- several processes at once -------------------------------------------------------------------------------------


@pytest.fixture
def crowd(store_url: str) -> Iterator[list[Store]]:
    """Four processes' worth of writers on one store."""
    made = [Store(store_url) for _ in range(4)]
    yield made
    for store in made:
        store.close()


def together(stores: Sequence[Store], work: Callable[[int, Store], T]) -> list[T]:
    start = threading.Barrier(len(stores))

    def one(number: int) -> T:
        start.wait()
        try:
            return work(number, stores[number])
        finally:
            stores[number].database.forget()

    with ThreadPoolExecutor(len(stores)) as pool:
        return [job.result() for job in [pool.submit(one, number) for number in range(len(stores))]]


def test_sequence_numbers_have_no_gap_under_concurrent_writers(crowd: list[Store]) -> None:
    rankers = ["books", "films", "shop"]
    for ranker in rankers:
        crowd[0].ranker(ranker)
    names = {f"{ranker}-{i}": ranker for ranker in rankers for i in range(40)}
    crowd[0].do(log.add_impressions, [crowd[0].new(name, ranker=ranker) for name, ranker in names.items()])

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
        return [receipt for write in writes for receipt in write.future.result(60).receipts]

    receipts = [receipt for found in together(crowd, work) for receipt in found]
    ends = Counter((r.event_id, r.status) for r in receipts if str(r.event_id).startswith("end-"))
    assert {f"end-{name}": (ends[f"end-{name}", "accepted"], ends[f"end-{name}", "duplicate"]) for name in names} == {
        f"end-{name}": (1, 3) for name in names
    }
    assert {r.status for r in receipts} == {"accepted", "late", "duplicate"}

    told = {r.event_id: r.status for r in receipts if r.status != "duplicate"}
    stored = crowd[0].rows("SELECT event_id, status, impression_id FROM events")
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

    def work(number: int, store: Store) -> list[Stored]:
        news = [store.new(f"imp-{number}-{i}", request_id=f"r{i}") for i in range(30)]
        return [write.future.result(60) for write in [store.writer.impression(new) for new in news]]

    for found in zip(*together(crowd, work), strict=True):
        assert sorted(one.fresh for one in found) == [False, False, False, True]
        assert len({one.answer for one in found}) == 1
    assert crowd[0].count("impressions") == 30


def test_windows_close_while_the_last_events_come(crowd: list[Store]) -> None:
    crowd[0].ranker()
    names = [f"imp{i}" for i in range(60)]
    crowd[0].do(log.add_impressions, [crowd[0].new(name) for name in names])

    def work(number: int, store: Store) -> list[str]:
        store.now += 10
        if number < 2:
            closed = 0
            while closings := store.do(log.close_windows, "shop", store.now, KINDS, limit=5):
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
    found = together(crowd, lambda _, store: [store.do(log.reserve_numbers, "shop", 10) for _ in range(25)])
    assert sorted(first for some in found for first in some if first is not None) == list(range(0, 1000, 10))


def test_a_lease_is_taken_by_one(crowd: list[Store]) -> None:
    assert sorted(together(crowd, lambda n, store: store.do(admin.take_lease, "shop", f"w{n}", None))) == [
        False
    ] * 3 + [True]
    ((holder, beat),) = crowd[0].see(admin.leases).values()
    taken = together(crowd, lambda n, store: store.do(admin.take_lease, "shop", f"next{n}", (holder, beat)))
    assert sorted(taken) == [False] * 3 + [True]


# -- snapshots and versions ----------------------------------------------------------------------------------------


def test_snapshots_only_go_forward(shop: Store) -> None:
    first = shop.row().generation

    def save(seq: int, state: bytes, ahead: int = 0, ranker: str = "shop") -> bool:
        return shop.do(admin.save_snapshot, ranker, first + ahead, seq, state, shop.now)

    assert shop.see(admin.snapshot, "shop") == admin.Snapshot(0, first, b"fresh")
    assert save(5, b"five")
    assert not save(4, b"older")
    assert not save(5, b"again")
    assert not save(9, b"of a generation to come", ahead=1)
    assert not save(9, b"of nobody", ranker="nobody")
    assert shop.see(admin.snapshot, "shop") == admin.Snapshot(5, first, b"five")
    assert shop.see(admin.snapshot_seqs) == {"shop": (first, 5)}
    assert shop.see(admin.snapshot, "nobody") is None


def test_a_learner_that_was_rolled_back_behind_its_back_saves_nothing(shop: Store) -> None:
    for i in range(3):
        shop.send(ev(f"e{i}", shop.show(), ["a"], final=True))
    before = shop.row()
    assert shop.do(admin.save_snapshot, "shop", before.generation, 3, b"three", shop.now)
    shop.do(admin.replace_state, "shop", b"older", shop.now, reset=False)
    after = shop.row()
    assert (after.generation, after.epoch) == (before.generation + 1, before.epoch)
    assert shop.see(admin.snapshot, "shop") == admin.Snapshot(3, after.generation, b"older")  # goes on at the head
    assert not shop.do(admin.save_snapshot, "shop", before.generation, 4, b"of the old generation", shop.now)
    assert shop.do(admin.save_snapshot, "shop", after.generation, 4, b"of the new", shop.now)
    shop.do(admin.replace_state, "shop", b"fresh", shop.now, reset=True)
    last = shop.row()
    assert (last.generation, last.epoch) == (after.generation + 1, before.epoch + 1)


def test_a_ranker_made_again_is_another(shop: Store) -> None:
    """Other processes may know the first for a while: what they show and learn of it must not get into the second."""
    first, old = shop.row(), shop.new("old")
    assert shop.do(admin.delete_ranker, "shop")
    shop.now += 1
    shop.ranker()
    second = shop.row()
    assert second.revision != first.revision
    assert not shop.do(admin.save_snapshot, "shop", first.generation, 5, b"of the first", shop.now)
    assert shop.see(admin.snapshot, "shop") == admin.Snapshot(0, second.generation, b"fresh")
    assert shop.writer.impression(old).future.result(30).fresh
    assert statuses(shop.send(ev("e1", "old", ["a"], final=True))) == ["late"]
    shop.now += 100
    shop.close_windows()
    assert [outcome.learn for outcome in shop.outcomes()] == [False]


def test_a_list_that_was_made_while_its_ranker_was_deleted_is_swept(shop: Store) -> None:
    kept = shop.show()
    shop.ranker("gone")
    late = shop.new("late", ranker="gone", person="ann", request_id="r1")
    shop.do(admin.delete_ranker, "gone")
    assert shop.writer.impression(late).future.result(30).fresh
    assert statuses(shop.send(ev("e1", "late", ["a"]))) == ["orphan"]
    assert shop.do(admin.sweep, None) == 1
    assert shop.rows("SELECT id FROM impressions") == [(kept,)]
    assert mentions(shop, "gone") == []


def test_versions_are_kept_and_the_served_one_is_never_dropped(shop: Store) -> None:
    def keep(state: bytes, automatic: bool = False) -> int:
        return shop.do(admin.keep_version, "shop", len(state), state, "note", shop.now, automatic=automatic)

    assert keep(b"by hand") == 1
    assert [keep(b"x" * i, automatic=True) for i in range(1, 7)] == [2, 3, 4, 5, 6, 7]
    shop.do(admin.set_serving, "shop", 3)
    assert shop.do(admin.drop_old_versions, "shop", 2) == 3
    assert [version.version for version in shop.see(admin.versions, "shop")] == [7, 6, 3, 1]
    assert shop.see(admin.version_state, "shop", 3) == (2, b"xx")
    assert shop.see(admin.version_state, "shop", 2) is None
    shop.do(admin.set_serving, "shop", None)
    shop.do(admin.drop_old_versions, "shop", 2)
    assert [version.version for version in shop.see(admin.versions, "shop")] == [7, 6, 1]
    assert keep(b"next") == 8  # a number is never used again


def test_rankers_and_their_revisions(shop: Store) -> None:
    assert not shop.do(admin.add_ranker, "shop", Spec(k=3), b"other", shop.now)
    shop.ranker("books", k=5)
    assert [(row.name, row.spec.k) for row in shop.see(admin.rankers)] == [("books", 5), ("shop", 10)]
    before = shop.see(admin.revisions)
    shop.do(admin.change_spec, "shop", Spec(k=4))
    shop.do(admin.set_learning, "shop", False)
    shop.do(admin.set_serving, "shop", 1)
    assert shop.see(admin.revisions) == {"books": before["books"], "shop": before["shop"] + 3}
    row = shop.row()
    assert (row.spec.k, row.learning, row.serving) == (4, False, 1)
    assert shop.see(admin.ranker, "nobody") is None


# -- leases, workers, keys -----------------------------------------------------------------------------------------


def test_leases(store: Store) -> None:
    assert store.do(admin.take_lease, "shop", "one", None)
    assert not store.do(admin.take_lease, "shop", "two", None)
    assert store.see(admin.leases) == {"shop": ("one", 0)}
    assert store.do(admin.beat, "one", "here", True, b"report") == {"shop"}
    assert store.do(admin.beat, "two", "here", False, b"") == set()
    assert not store.do(admin.take_lease, "shop", "two", ("one", 0))  # it beats: not as it was seen
    assert store.do(admin.take_lease, "shop", "two", ("one", 1))
    assert store.do(admin.beat, "one", "here", True, b"report") == set()  # this is how the first one learns of it
    assert store.do(admin.beat, "two", "here", False, b"") == {"shop"}
    store.do(admin.release_lease, "shop", "one")  # not its own any more
    assert store.see(admin.leases)["shop"][0] == "two"
    store.do(admin.release, "two")
    assert store.see(admin.leases) == {}
    assert store.see(admin.workers) == {"one": ("here", 1, True)}
    assert store.see(admin.reports, "here") == {"one": b"report"}
    assert store.see(admin.reports, "elsewhere") == {}
    store.do(admin.forget_worker, "one", 0)  # it has beaten since
    assert set(store.see(admin.workers)) == {"one"}
    store.do(admin.forget_worker, "one", 1)
    assert store.see(admin.workers) == {}


def test_keys(store: Store) -> None:
    assert store.do(admin.add_key, "digest", "web", "rank", 5.0)
    assert not store.do(admin.add_key, "other", "web", "rank", 6.0)
    assert store.do(admin.add_key, "third", "ops", "admin", 7.0)
    assert store.see(admin.keys) == [("third", "ops", "admin", 7.0), ("digest", "web", "rank", 5.0)]
    assert store.do(admin.drop_key, "web")
    assert not store.do(admin.drop_key, "web")
    assert [row[1] for row in store.see(admin.keys)] == ["ops"]


# -- forgetting ----------------------------------------------------------------------------------------------------


def test_the_sweep_deletes_only_what_a_snapshot_covers(shop: Store) -> None:
    names = [shop.show() for _ in range(4)]
    waiting = shop.show()
    shop.send(*(ev(f"e{i}", name, ["a"], final=True) for i, name in enumerate(names)))
    shop.now += 1000
    young = shop.show()
    shop.send(ev("young", young, ["a"], final=True))
    before = shop.now - 1
    assert shop.do(admin.sweep, None) == 0
    assert shop.do(admin.sweep, before) == 0  # old, but no snapshot has them
    shop.do(admin.save_snapshot, "shop", shop.row().generation, 3, b"three", shop.now)
    assert shop.do(admin.sweep, before, limit=2) == 2
    assert shop.do(admin.sweep, before, limit=2) == 1
    assert shop.do(admin.sweep, before, limit=2) == 0
    assert [outcome.seq for outcome in shop.outcomes()] == [3, 4]
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {names[3], waiting, young}
    assert {row[0] for row in shop.rows("SELECT event_id FROM events")} == {"e3", "young"}
    assert statuses(shop.send(ev("e0", names[0], ["a"]))) == ["orphan"]
    shop.do(admin.save_snapshot, "shop", shop.row().generation, 5, b"five", shop.now)
    assert shop.do(admin.sweep, before) == 1
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {waiting, young}  # open, or not old enough
    shop.send(ev("next", shop.show(), ["a"], final=True))
    assert [outcome.seq for outcome in shop.outcomes()] == [4, 5]  # numbers go on where they were


def test_what_was_closed_without_an_outcome_is_swept_too(store: Store) -> None:
    store.ranker("shop", silence="ignore")
    store.show()
    store.now += 10
    store.close_windows()
    assert store.do(admin.sweep, store.now) == 1
    assert store.count("impressions") == 0


def mentions(store: Store, text: str) -> list[str]:
    """Every table and row in which `text` stands, as text or within bytes."""
    return [
        f"{table}: {row}"
        for table in TABLES
        for row in store.rows(f"SELECT * FROM {table}")
        if any(text in (v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v)) for v in row)
    ]


def test_a_user_is_forgotten(shop: Store) -> None:
    def show(user: str, name: str) -> str:
        answer = json.dumps({"request_id": f"{user}/{name}", "items": []}).encode()
        return shop.show(name, person=user, request_id=f"{user}/{name}", answer=answer)

    for user in ("ann-4711", "bob-4712"):
        covered, pending, waiting, silent = (
            show(user, f"{kind}-{user[:3]}") for kind in ("covered", "pending", "open", "silent")
        )
        shop.send(ev(f"{user}-1", covered, ["a"], final=True), ev(f"{user}-2", waiting, ["b"]))
        shop.do(admin.save_snapshot, "shop", shop.row().generation, len(shop.outcomes()), b"snapshot", shop.now)
        shop.send(ev(f"{user}-3", pending, ["a"], final=True), ev(f"{user}-4", pending, ["b"]))
        assert silent
    before = shop.outcomes()
    assert len(before) == 4
    assert mentions(shop, "ann-4711")

    # Outcomes 0 … 2 are in the snapshot, bob's pending one (3) is not: of him something has to wait.
    erased = shop.do(admin.erase_user, "bob-4712")
    assert (erased.impressions, erased.events, erased.pending) == (3, 2, 1)
    assert shop.rows("SELECT person, request_id, erase FROM impressions WHERE id = ?", "pending-bob") == [
        (None, None, 1)
    ]
    assert shop.do(admin.sweep, None) == 0
    assert [outcome.seq for outcome in shop.outcomes()] == [0, 1, 3]  # what learning still needs is there
    shop.do(admin.save_snapshot, "shop", shop.row().generation, 4, b"snapshot", shop.now)
    assert shop.do(admin.sweep, None) == 1
    assert mentions(shop, "bob-4712") == []
    assert statuses(shop.send(ev("late", "open-bob", ["a"]))) == ["orphan"]

    assert len(shop.rows("SELECT id FROM impressions WHERE person = ?", "ann-4711")) == 4  # nobody else is touched
    assert shop.outcomes() == before[:2]
    erased = shop.do(admin.erase_user, "ann-4711")
    assert (erased.impressions, erased.events, erased.pending) == (4, 4, 0)
    assert mentions(shop, "ann-4711") == []
    assert shop.do(admin.erase_user, "ann-4711").impressions == 0


def test_a_user_with_many_impressions_is_forgotten(shop: Store) -> None:
    for start in range(0, 1200, 400):
        shop.do(log.add_impressions, [shop.new(f"imp{i}", person="ann") for i in range(start, start + 400)])
    shop.send(*(ev(f"e{i}", f"imp{i}", ["a"]) for i in range(0, 1200, 2)))
    erased = shop.do(admin.erase_user, "ann")
    assert (erased.impressions, erased.events, erased.pending) == (1200, 600, 0)
    assert shop.count("impressions") == shop.count("events") == 0


def test_a_deleted_ranker_leaves_nothing(shop: Store) -> None:
    shop.ranker("books")
    for ranker in ("shop", "books"):
        closed, waiting = shop.show(ranker=ranker, person="ann", request_id="r"), shop.show(ranker=ranker)
        shop.send(ev(f"{ranker}-1", closed, ["a"], final=True), ev(f"{ranker}-2", waiting, ["b"]))
        shop.send(ev(f"{ranker}-3", closed, ["b"]))  # late
        shop.do(admin.keep_version, ranker, 1, b"state", f"of {ranker}", shop.now)
        shop.do(admin.take_lease, ranker, "worker", None)
    counts = {table: shop.count(table) for table in TABLES}
    assert shop.do(admin.delete_ranker, "shop")
    assert {table: 2 * shop.count(table) for table in TABLES} == counts
    assert mentions(shop, "shop") == []
    assert not shop.do(admin.delete_ranker, "shop")
    assert statuses(shop.send(ev("x", "imp0", ["a"]))) == ["orphan"]
    assert shop.do(log.reserve_numbers, "shop", 1) is None
    assert shop.close_windows("shop") == []
    shop.ranker("shop")  # the name is free, and starts at nothing
    assert shop.see(log.heads)["shop"] == 0
    shop.do(admin.delete_ranker, "books")
    assert [shop.count(table) for table in ("impressions", "events", "outcomes", "versions", "leases")] == [0] * 5


# -- the joining rules, against dictionaries -----------------------------------------------------------------------

RANKERS: dict[str, dict[str, Any]] = {
    "clicks": {},
    "quiet": {"silence": "ignore"},
    "graded": {"learner": "x"},
}
ITEMS = ["a", "b", "c"]
Action = tuple[Any, ...]


class Book:
    """The rules of joining in plain Python, one event after the other."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[str, Any]] = {}
        self.events: dict[str, str] = {}
        self.outcomes: dict[str, list[tuple[str, str, list[float]]]] = {name: [] for name in RANKERS}

    def show(self, name: str, ranker: str, closes: float) -> None:
        self.lists[name] = {
            "ranker": ranker,
            "closes": closes,
            "open": True,
            "told": False,
            "clicks": None,
            "grades": {},
        }

    def take(self, event: FeedbackEvent) -> str:
        if event.event_id in self.events:
            return "duplicate" if self.events[event.event_id] == event.impression_id else "rejected"
        one = self.lists.get(event.impression_id)
        if one is None:
            return "orphan"
        graded = one["ranker"] == "graded"
        given, other = (event.grades, event.clicks) if graded else (event.clicks, event.grades)
        if other is not None or (given is None and not event.final):
            return "rejected"
        if any(item not in ITEMS for item in given or ()) or any(grade < 0 for grade in (event.grades or {}).values()):
            return "rejected"
        self.events[event.event_id] = event.impression_id
        if not one["open"]:
            return "late"
        if event.clicks is not None:
            one["clicks"] = (one["clicks"] or set()) | set(event.clicks)
        one["grades"].update(event.grades or {})
        one["told"] |= given is not None
        if event.final:
            self._end(event.impression_id, "final")
        return "accepted"

    def close(self, ranker: str, now: float) -> None:
        ended = [(one["closes"], name) for name, one in self.lists.items() if one["ranker"] == ranker and one["open"]]
        for closes, name in sorted(ended):
            if closes <= now:
                one = self.lists[name]
                if one["told"] or ranker == "clicks":
                    self._end(name, "window" if one["told"] else "silent")
                one["open"] = False

    def _end(self, name: str, kind: str) -> None:
        one = self.lists[name]
        one["open"] = False
        values: list[float] = []
        if one["clicks"] is not None:
            values = [float(item in one["clicks"]) for item in ITEMS]
        for item in ITEMS:
            if item not in one["grades"]:
                break
            values.append(one["grades"][item])
        self.outcomes[one["ranker"]].append((name, kind, values))


reports = st.fixed_dictionaries(
    {"event": st.integers(0, 25), "at": st.integers(0, 12)},
    optional={
        "clicks": st.lists(st.sampled_from([*ITEMS, *ITEMS, "z"]), max_size=3),
        "grades": st.dictionaries(
            st.sampled_from([*ITEMS, *ITEMS, "z"]), st.sampled_from([0.0, 1.0, 4.0, -1.0]), max_size=3
        ),
        "final": st.booleans(),
    },
)
# Mostly feedback of the kind the list wants, or few sequences would come to anything.
fitting = st.fixed_dictionaries(
    {"event": st.integers(0, 200), "at": st.integers(0, 12), "fit": st.lists(st.sampled_from(ITEMS), max_size=3)},
    optional={"final": st.booleans()},
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.sampled_from(sorted(RANKERS)), st.sampled_from([1.0, 5.0])),
        st.tuples(st.just("send"), st.lists(st.one_of(fitting, fitting, reports), min_size=1, max_size=5)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from(sorted(RANKERS))),
    ),
    max_size=40,
)


class Compared:
    """Does the same to a store and to the book; every example gets rankers of its own in the one store."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self._examples = count()

    def run(self, todo: list[Action]) -> None:
        store, book, prefix = self.store, Book(), f"x{next(self._examples)}-"
        for ranker, spec in RANKERS.items():
            store.ranker(prefix + ranker, **spec)
        shown: list[tuple[str, str]] = []
        for action in todo:
            if action[0] == "show":
                name = f"{prefix}{len(shown):03}"
                shown.append((name, action[1]))
                store.show(name, ranker=prefix + action[1], window=action[2])
                book.show(name, action[1], store.now + action[2])
            elif action[0] == "send":
                events = [self._event(prefix, shown, dict(fields)) for fields in action[1]]
                assert statuses(store.send(*events)) == [book.take(event) for event in events]
            else:
                store.now += action[1]
                store.close_windows(prefix + action[2])
                book.close(action[2], store.now)
        for ranker, expected in book.outcomes.items():
            found = store.rows(
                "SELECT seq, impression_id, kind, feedback FROM outcomes WHERE ranker = ? ORDER BY seq", prefix + ranker
            )
            assert [row[0] for row in found] == list(range(len(expected)))
            assert [(name, kind, json.loads(feedback)) for _, name, kind, feedback in found] == expected
        kept = store.rows("SELECT event_id, impression_id FROM events WHERE impression_id LIKE ?", f"{prefix}%")
        assert dict(kept) == book.events
        opened = store.rows("SELECT id FROM impressions WHERE open = 1 AND id LIKE ?", f"{prefix}%")
        assert {row[0] for row in opened} == {name for name, one in book.lists.items() if one["open"]}

    @staticmethod
    def _event(prefix: str, shown: list[tuple[str, str]], fields: dict[str, Any]) -> FeedbackEvent:
        at = fields.pop("at")
        name, ranker = shown[at] if at < len(shown) else (f"{prefix}nowhere", "clicks")
        event = f"{prefix}e{fields.pop('event')}"
        if "fit" in fields:
            items = fields.pop("fit")
            fields |= {"grades": dict.fromkeys(items, 2.0)} if ranker == "graded" else {"clicks": items}
        return FeedbackEvent(event, name, **fields)


def test_joining_follows_the_rules_sqlite(tmp_path: Path) -> None:
    compared = Compared(str(tmp_path / "store.db"))

    @settings(max_examples=120)
    @given(actions)
    def follows(todo: list[Action]) -> None:
        compared.run(todo)

    follows()
    compared.store.close()


def test_joining_follows_the_rules_postgresql(postgres: Postgres) -> None:
    compared = Compared(postgres.database())

    @settings(max_examples=30)
    @given(actions)
    def follows(todo: list[Action]) -> None:
        compared.run(todo)

    follows()
    compared.store.close()


def test_the_write_ahead_log_is_emptied_though_someone_always_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankloop.service.store.database.LARGE_LOG", 100_000)
    monkeypatch.setattr("rankloop.service.store.writer.TIDY_EVERY", 0.05)
    database = open_database(str(tmp_path / "busy.db"))
    schema.migrate(database)
    writer, ended = Writer(database, {}), threading.Event()

    def look() -> None:
        while not ended.is_set():
            database.read(admin.rankers)
        database.forget()

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    log_file, sizes = tmp_path / "busy.db-wal", []
    try:
        for i in range(200):
            writer.do(lambda c, i=i: admin.add_key(c, f"{i}" * 20_000, f"key {i}", "rank", 1.0))  # type: ignore[misc]
            sizes.append(log_file.stat().st_size)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
        writer.close()
        database.forget()
    assert any(after < before for before, after in pairwise(sizes)), "never emptied"
    assert max(sizes) < 8_000_000
