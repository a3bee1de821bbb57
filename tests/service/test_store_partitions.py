"""The log in PostgreSQL is cut by time: what that must not change, and what it is for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rankloop.service.storage import impressions, partitions, retention, snapshots
from rankloop.service.storage.database import Connection
from rankloop.service.storage.ids import id_condition, new_id, prefix_time
from rankloop.service.storage.partitions import HOUR, list_partitions
from rankloop.service.storage.writer import in_batches
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE, wait_for
from tests.service.stores import Store, ev, statuses

DAY = 86400.0


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Store]:
    """A store with a ranker, whose clock is at noon of the second day of its partitions."""
    made = Store(postgres.database())
    made.now = (time.time() // DAY + 1) * DAY + DAY / 2
    made.ranker()
    made.alone(partitions.create_ahead, made.now, 24)
    yield made
    made.close()


def parts(store: Store) -> list[partitions.Partition]:
    return store.see(list_partitions)


def home(store: Store, own: str) -> str:
    """The table that a list lies in."""
    ((table,),) = store.rows("SELECT tableoid::regclass::text FROM impressions WHERE id = ?", own)
    return str(table)


def make_past(store: Store, days: int) -> None:
    """Partitions of a day for so many days before the first."""
    first = prefix_time(parts(store)[0].start)
    for day in range(1, days + 1):
        store.do(partitions._create_from, first - day * DAY, first - (day - 1) * DAY)


def closed(store: Store, now: float, name: str) -> str:
    """A list that was shown and clicked then."""
    own = store.show(new_id(now), created=now)
    assert statuses(store.send(ev(name, own, ["a"], final=True))) == ["accepted"]
    return own


def test_impressions_are_in_the_partition_of_their_time(shop: Store) -> None:
    found = parts(shop)
    assert [one.end for one in found[:-2]] == [one.start for one in found[1:-1]]  # each begins where the last ends
    assert found[-1].name == "rest"
    own = shop.show(new_id(shop.now))
    here = next(one for one in found if one.end and one.start <= own < one.end)
    assert home(shop, own) == here.table("impressions")
    assert statuses(shop.send(ev("e", own, ["a"], final=True))) == ["accepted"]
    for table in ("events", "outcomes"):
        assert shop.rows(f"SELECT COUNT(*) FROM {here.table(table)}") == [(1,)]
    assert home(shop, shop.show(new_id(shop.now + 400 * DAY))) == "impressions_rest"  # a clock that is far off


def test_partitions_are_created_ahead(shop: Store) -> None:
    last = max(prefix_time(one.end) for one in parts(shop) if one.end)
    assert last >= shop.now + 2 * DAY
    assert shop.alone(partitions.create_ahead, shop.now, 24) == 0  # there are enough
    later = last + 10 * DAY + 1234.0  # nobody has kept house for ten days
    stray = shop.show(new_id(later))
    assert home(shop, stray) == "impressions_rest"
    assert shop.alone(partitions.create_ahead, later, 24) > 0
    assert home(shop, stray) == "impressions_rest"
    own = shop.show(new_id(later + HOUR))
    assert home(shop, own) != "impressions_rest"
    assert shop.rows("SELECT COUNT(*) FROM impressions") == [(2,)]


def test_partition_is_not_created_over_rows_of_a_fast_clock(shop: Store) -> None:
    last = max(prefix_time(one.end) for one in parts(shop) if one.end)
    ahead = shop.show(new_id(last + 7.0))
    shop.alone(partitions.create_ahead, last - 1.0, 24)
    assert home(shop, ahead) == "impressions_rest"
    starts = [prefix_time(one.start) for one in parts(shop) if one.end]
    assert last not in starts
    assert last + DAY in starts


def around(store: Store) -> tuple[float, float]:
    """Moments before and after an edge between two partitions."""
    middle = prefix_time(next(one.end for one in parts(store) if one.end))
    return middle - 0.01, middle + 0.01


def test_request_repeated_in_the_next_partition_gets_the_first_answer(shop: Store) -> None:
    before, after = around(shop)
    first = shop.show(new_id(before), request_id="r", created=before)
    again = shop.new(new_id(after), request_id="r", created=after)
    stored = shop.writer.impression(again).future.result(PATIENCE)
    assert (stored.answer, stored.fresh, stored.same_request) == (f"answer of {first}".encode(), False, True)
    other = shop.new(new_id(after), request_id="r", created=after, digest=b"other")
    assert not shop.writer.impression(other).future.result(PATIENCE).same_request
    assert shop.count("impressions") == 1


def test_of_two_simultaneous_requests_one_is_stored(shop: Store) -> None:
    """One writes before the edge and the other after it; neither has committed when the other looks."""
    before, after = around(shop)
    other = Store(shop.url)
    try:
        for number in range(20):
            news = [shop.new(new_id(at), request_id=f"r{number}", created=at) for at in (before, after)]
            gate = threading.Barrier(2)
            found: list[impressions.StoredAnswer] = []

            def write(store: Store, new: impressions.NewImpression, gate=gate, found=found) -> None:  # type: ignore[no-untyped-def]
                gate.wait()
                found.append(store.do(impressions.add_impressions, [new])[0])

            threads = [threading.Thread(target=write, args=pair) for pair in zip((shop, other), news, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(one.fresh for one in found) == [False, True]
            assert len({one.answer for one in found}) == 1
    finally:
        other.close()
    assert shop.count("impressions") == 20


def test_repeated_events_are_detected_while_their_impression_is_kept(shop: Store) -> None:
    make_past(shop, 20)
    then = shop.now
    shop.now -= 20 * DAY
    own = closed(shop, shop.now, "e")
    shop.now = then
    assert statuses(shop.send(ev("e", own, ["b"], final=True))) == ["duplicate"]
    today = shop.show(new_id(shop.now))
    assert statuses(shop.send(ev("mine", today, ["a"]), ev("late", own, ["a"]))) == ["accepted", "late"]
    assert statuses(shop.send(ev("mine", today, ["a"]), ev("late", own, ["a"]))) == ["duplicate", "duplicate"]
    assert len(shop.outcomes()) == 1


def test_reused_event_id_is_detected_for_a_day(shop: Store) -> None:
    make_past(shop, 3)
    before = shop.show(new_id(shop.now - DAY / 2))
    assert statuses(shop.send(ev("e", before, ["a"]))) == ["accepted"]
    own = shop.show(new_id(shop.now))
    (receipt,) = shop.send(ev("e", own, ["a"]))
    assert receipt.status == "rejected"
    assert "give every event its own" in (receipt.reason or "")
    shop.now += 3 * DAY
    late = shop.show(new_id(shop.now))
    assert statuses(shop.send(ev("e", late, ["a"]))) == ["accepted"]  # its list is of another day
    assert statuses(shop.send(ev("e", late, ["a"]), ev("e", before, ["a"]))) == ["duplicate", "duplicate"]


def test_an_event_id_used_long_ago_in_the_same_partition_is_rejected(shop: Store) -> None:
    """It is not found among the recent, but is in the way; so it is looked for everywhere, and once."""
    first = prefix_time(parts(shop)[0].start)
    shop.alone(partitions._create_from, first - 30 * DAY, first)
    long_ago, lately = (shop.show(new_id(first - days * DAY)) for days in (20, 0.01))
    shop.now = first
    assert statuses(shop.send(ev("e", long_ago, ["a"]))) == ["accepted"]
    assert statuses(shop.send(ev("e", lately, ["a"]), ev("f", lately, ["a"]))) == ["rejected", "accepted"]
    assert statuses(shop.send(ev("e", lately, ["a"]))) == ["rejected"]
    assert statuses(shop.send(ev("e", long_ago, ["a"]), ev("f", lately, ["a"]))) == ["duplicate", "duplicate"]


def retired(store: Store, days: float) -> int:
    dropped = partitions.maintain(store.database, store.now, days)
    sum(in_batches(store.writer, lambda c, limit: retention.delete_old(c, store.now - days * DAY, limit)))
    return dropped


def cover(store: Store, seq: int) -> None:
    store.do(snapshots.save_snapshot, "shop", store.row().generation, seq, b"state", store.now)


def test_retention_drops_partitions(shop: Store) -> None:
    make_past(shop, 4)
    first = prefix_time(parts(shop)[0].start)
    lists = [closed(shop, first + day * DAY + 1.0, f"e{day}") for day in range(4)]
    cover(shop, 3)  # the last outcome is needed yet
    shop.now = first + 4 * DAY + 1.0
    assert retired(shop, 2.0) == 2
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == set(lists[2:])
    for table in ("events", "outcomes"):
        assert {row[0] for row in shop.rows(f"SELECT impression_id FROM {table}")} == set(lists[2:])
    assert [one.seq for one in shop.outcomes()] == [2, 3]
    shop.now += 3 * DAY
    assert retired(shop, 2.0) == 1
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {lists[3]}  # no snapshot covers it
    assert statuses(shop.send(ev("e3", lists[3], ["a"]), ev("e0", lists[0], ["a"]))) == ["duplicate", "orphan"]
    cover(shop, 4)
    assert retired(shop, 2.0) >= 1
    assert shop.count("impressions") == 0


def test_rows_are_deleted_one_by_one_in_partitions_that_must_stay(shop: Store) -> None:
    make_past(shop, 1)
    first = prefix_time(parts(shop)[0].start)
    gone, kept = closed(shop, first + 1.0, "e1"), closed(shop, first + 2.0, "e2")
    waiting = shop.show(new_id(first + 3.0), created=first + 3.0)
    cover(shop, 1)
    shop.now = first + 10 * DAY
    retired(shop, 2.0)
    assert home(shop, kept) == parts(shop)[0].table("impressions")
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {kept, waiting}
    assert statuses(shop.send(ev("e1", gone, ["a"]))) == ["orphan"]
    stray = shop.show(new_id(first + 400 * DAY), created=first + 4.0)  # in no partition, by its id
    shop.do(lambda c: c.run("UPDATE impressions SET open = 0 WHERE id = ?", stray))
    retired(shop, 2.0)
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {kept, waiting}


def test_retention_does_not_wait_for_long_readers(shop: Store) -> None:
    make_past(shop, 1)
    first = prefix_time(parts(shop)[0].start)
    closed(shop, first + 1.0, "e1")
    cover(shop, 1)
    shop.now = first + 10 * DAY
    old = len([one for one in parts(shop) if one.end])  # all
    reading, over = threading.Event(), threading.Event()

    def read(connection: object) -> None:
        connection.rows("SELECT COUNT(*) FROM impressions")  # type: ignore[attr-defined]
        reading.set()
        over.wait(PATIENCE)

    thread = threading.Thread(target=lambda: shop.database.read(read))
    thread.start()
    try:
        assert reading.wait(PATIENCE)
        assert partitions.maintain(shop.database, shop.now, 2.0) == 0
        shop.show(new_id(shop.now))  # and nobody else is kept from writing
    finally:
        over.set()
        thread.join()
    assert partitions.maintain(shop.database, shop.now, 2.0) == old


def test_retention_and_learning_do_not_deadlock(shop: Store) -> None:
    """Learning reads outcomes, then their lists; a drop locks lists, then outcomes. Whoever is between the two would
    wait for the drop, and the drop for him."""
    make_past(shop, 1)
    cover(shop, 1)
    shop.now = prefix_time(parts(shop)[0].start) + 10 * DAY
    waited: list[float] = []
    reading = threading.Event()

    def read(connection: Connection) -> None:
        connection.rows("SELECT seq FROM outcomes")
        reading.set()
        wait_for(lambda: any(lock for (lock,) in shop.rows(locked)), "the drop to lock the lists", every=0.001)
        began = time.perf_counter()
        connection.rows("SELECT id FROM impressions")
        waited.append(time.perf_counter() - began)

    locked = "SELECT granted FROM pg_locks WHERE relation = 'impressions'::regclass AND mode = 'AccessExclusiveLock'"
    thread = threading.Thread(target=lambda: shop.database.read(read))
    thread.start()
    assert reading.wait(PATIENCE)
    # On a busy machine the reader may not have seen the lock before the drop gave it up again: the next time will do.
    wait_for(lambda: partitions.maintain(shop.database, shop.now, 2.0) > 0, "the drop")
    thread.join()
    assert len(waited) == 1


def test_partitions_are_created_again_after_a_long_pause(shop: Store) -> None:
    """All there were are past retention: they go, and the log goes on in new ones."""
    shop.now += 400 * DAY
    assert retired(shop, 2.0) > 0
    assert any(one.start and prefix_time(one.start) > shop.now for one in parts(shop) if one.end)
    shop.alone(partitions.drop_old, shop.now + 400 * DAY)
    assert [one.name for one in parts(shop)] == ["rest"]
    assert shop.alone(partitions.create_ahead, shop.now, 24) > 0
    later = shop.now + 2 * HOUR
    assert home(shop, shop.show(new_id(later), created=later)) != "impressions_rest"


def test_rows_are_deleted_one_by_one_in_partitions_longer_than_the_retention(shop: Store) -> None:
    """It was made when lists were kept for ever; what is past retention must not stay for another month."""
    first = prefix_time(parts(shop)[0].start)
    shop.alone(partitions._create_from, first - 30 * DAY, first)
    gone, kept = closed(shop, first - 20 * DAY, "e1"), closed(shop, first - DAY, "e2")
    cover(shop, 2)
    shop.now = time.time()
    retired(shop, 10.0)
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {kept}, gone


def test_foreign_ids_do_not_limit_the_searched_partitions(shop: Store) -> None:
    """A language may sort them before all others."""
    own, old = new_id(shop.now), new_id(shop.now - 5 * DAY)
    assert shop.see(id_condition, [own], shop.now)[0].startswith("id >= '")
    assert shop.see(id_condition, [own, old], shop.now) == ("id >= ? AND id <= ? AND id", (old, own))
    assert shop.see(id_condition, [own, old, "_x"], shop.now) == ("id", ())


def test_users_are_erased_in_all_partitions(shop: Store) -> None:
    make_past(shop, 3)
    first = prefix_time(parts(shop)[0].start)
    for day in range(4):
        shop.show(new_id(first + day * DAY + 1.0), person="ann")
    kept = shop.show(new_id(shop.now), person="bob")
    assert retention.erase_user(shop.writer, "ann").impressions == 4
    assert shop.rows("SELECT id FROM impressions") == [(kept,)]
