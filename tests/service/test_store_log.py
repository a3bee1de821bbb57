"""The log on both stores: migrations, impressions, events, windows."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rankloop.service.storage import impressions, outcomes, rankers, schema, snapshots
from rankloop.service.storage.database import open_database
from rankloop.service.storage.impressions import StoredAnswer
from rankloop.service.storage.outcomes import Closing
from rankloop.wire.calls import FeedbackEvent
from tests.service.running import PATIENCE
from tests.service.stores import KINDS, TABLES, Store, ev, shop, statuses, store
from tests.service.truths import sent_id

__all__ = ["shop", "store"]  # fixtures


# -- migrations ----------------------------------------------------------------------------------------------------


def test_migrations_apply_once(store: Store) -> None:
    assert schema.migrate(store.database) == 0
    assert store.rows("SELECT id FROM migrations") == [(number,) for number in range(schema.CURRENT)]
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
    assert sorted(applied) == [0, 0, 0, 1]


def test_a_migration_that_fails_leaves_nothing(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(store_url)
    monkeypatch.setattr(schema, "SCHEMA", [*schema.SCHEMA, "CREATE TABLE extra (id {int})", "NONSENSE"])
    with pytest.raises(Exception, match=r"(?i)syntax"):
        schema.migrate(database)
    monkeypatch.undo()
    assert schema.migrate(database) == 1


# -- impressions ---------------------------------------------------------------------------------------------------


def test_repeated_request_gets_the_first_answer(shop: Store) -> None:
    def rank(name: str, digest: bytes = b"digest", ranker: str = "shop", request: str | None = "r1") -> StoredAnswer:
        new = shop.new(name, request_id=request, digest=digest, ranker=ranker)
        return shop.writer.impression(new).future.result(PATIENCE)

    assert rank("one") == StoredAnswer(b"answer of one", True, True)
    assert rank("two") == StoredAnswer(b"answer of one", False, True)
    assert rank("three", digest=b"other") == StoredAnswer(b"answer of one", False, False)
    shop.ranker("books")
    assert rank("four", ranker="books").fresh  # a request_id counts within its ranker
    assert rank("five", request=None).fresh
    assert rank("six", request=None).fresh
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {"one", "four", "five", "six"}


def test_a_request_id_twice_in_one_commit(shop: Store) -> None:
    news = [shop.new(name, request_id="r1") for name in ("one", "two", "three")]
    stored = shop.do(impressions.add_impressions, news)
    assert sorted(one.fresh for one in stored) == [False, False, True]
    assert len({one.answer for one in stored}) == 1
    assert shop.count("impressions") == 1


def test_batch_is_stored_if_one_impression_is_already_there(shop: Store) -> None:
    """Many go to PostgreSQL in one statement; what is in the way of one must not keep the others out."""
    asked = shop.show("asked", request_id="r")
    news = [shop.new(f"many{i}", person="ann" if i else None, viewed=i or None) for i in range(40)]
    again = shop.new("again", request_id="r", created=shop.now + 200_000.0)  # longer ago than is looked for first
    stored = shop.do(impressions.add_impressions, [*news[:20], again, *news[20:]])
    assert [one.fresh for one in stored] == [True] * 20 + [False] + [True] * 20
    assert stored[20].answer == f"answer of {asked}".encode()
    assert shop.do(impressions.add_impressions, news) == [*stored[:20], *stored[21:]]  # the answer got lost: once more
    rows = shop.rows(
        "SELECT id, person, viewed, number, body FROM impressions WHERE id LIKE ? ORDER BY number", "many%"
    )
    assert rows == [(one.id, one.person, one.viewed, one.number, one.body) for one in news]


def test_commit_without_acknowledgment_can_be_repeated(shop: Store) -> None:
    new = shop.new("one", request_id="r1")
    first = shop.do(impressions.add_impressions, [new])
    assert shop.do(impressions.add_impressions, [new]) == first  # as if it had never been there
    assert shop.count("impressions") == 1


def test_abandoned_impression_is_deleted(shop: Store) -> None:
    kept, reported, lost = shop.show(), shop.show(), shop.show()
    shop.send(ev("e", reported, ["a"]))
    shop.do(impressions.discard_impressions, [reported, lost])
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {kept, reported}


def test_abandoned_impression_with_a_request_id_stays(shop: Store) -> None:
    """Another process may have answered with it meanwhile; of one that nobody ever saw nothing is learned."""
    lost, answered = shop.show(request_id="r1"), shop.show(request_id="r2")
    shop.do(impressions.discard_impressions, [lost, answered])
    again = shop.writer.impression(shop.new("other", request_id="r2")).future.result(PATIENCE)
    assert (again.answer, again.fresh) == (f"answer of {answered}".encode(), False)
    assert statuses(shop.send(ev("e", answered, ["b"], final=True))) == ["accepted"]
    shop.now += 10_000.0
    while shop.close_windows():
        pass
    assert [one.body for one in shop.outcomes()] == [f"body of {answered}".encode()]


def test_windows_of_a_deleted_ranker_close_without_an_outcome(shop: Store) -> None:
    name = shop.show()
    shop.send(ev("e", name, ["a"]))
    shop.do(rankers.delete_ranker, "shop", shop.now)
    assert shop.do(outcomes.close_windows, shop.now + 10_000.0, KINDS) == []
    assert not shop.see(outcomes.any_window_ended, shop.now + 10_000.0)


# -- events --------------------------------------------------------------------------------------------------------


def test_events_after_the_window_are_stored_as_late(shop: Store) -> None:
    name = shop.show()
    receipts = shop.send(ev("e1", name, ["a"], final=True), ev("e2", name, ["b"]), ev("e3", name, ["b"], final=True))
    assert statuses(receipts) == ["accepted", "late", "late"]
    assert "closed" in (receipts[1].reason or "")
    assert statuses(shop.send(ev("e2", name, ["b"]))) == ["duplicate"]
    assert [outcome.values for outcome in shop.outcomes()] == [[1.0, 0.0, 0.0]]
    found = sorted((sent_id(name), status) for name, status in shop.rows("SELECT event_id, status FROM events"))
    assert found == [("e1", "accepted"), ("e2", "late"), ("e3", "late")]


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
        ({"clicks": ["a"], "grades": {"a": 1.0}}, "grades beside clicks"),
        ({}, "no feedback; give clicks"),
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
    assert shop.rows("SELECT feedback FROM impressions") == [(None,)]
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
    shop.send(ev("e2", name, final=True))
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
    corrected = store.send(
        ev("e1", name, grades={"b": 2.0}),
        ev("e2", name, grades={"a": 4.0}),
        ev("e4", name, grades={}),
        ev("e5", name, grades={}),
    )
    assert statuses(corrected) == ["accepted"] * 4
    assert statuses(store.send(ev("e3", name, grades={"b": 3.0}, final=True))) == ["accepted"]  # the last word counts
    assert store.outcomes("films")[0].values == [4.0, 3.0]  # of c nothing is known
    hole = store.show(ranker="films")
    store.send(ev("e6", hole, grades={"a": 1.0, "c": 1.0}, final=True))
    assert store.outcomes("films")[1].values == [1.0]  # feedback has no holes: from the top to the first unknown


def test_outcomes_are_numbered_per_ranker(shop: Store) -> None:
    shop.ranker("books")
    names = [shop.show(ranker=ranker) for ranker in ("shop", "books", "shop", "books", "books")]
    shop.send(*(ev(f"e{i}", name, ["a"], final=True) for i, name in enumerate(names)))
    assert [outcome.seq for outcome in shop.outcomes("shop")] == [0, 1]
    assert [outcome.seq for outcome in shop.outcomes("books")] == [0, 1, 2]
    assert shop.see(outcomes.log_offsets) == {"shop": 2, "books": 3}
    assert [outcome.seq for outcome in shop.see(outcomes.outcomes_from, "books", 1)] == [1, 2]
    assert [outcome.seq for outcome in shop.see(lambda c: outcomes.outcomes_from(c, "books", 1, limit=1))] == [1]


def test_feedback_while_paused_or_to_a_fallback_is_kept_but_not_learned(shop: Store) -> None:
    fallback = shop.show(learn=False)
    shop.send(ev("e0", fallback, ["a"], final=True))
    shop.do(rankers.set_learning, "shop", False)
    shop.send(ev("e1", shop.show(), ["a"], final=True))
    shop.do(rankers.set_learning, "shop", True)
    shop.send(ev("e2", shop.show(), ["a"], final=True))
    assert [outcome.learn for outcome in shop.outcomes()] == [False, False, True]


def test_feedback_to_lists_from_before_a_reset_is_late(shop: Store) -> None:
    old, epoch = shop.show(), shop.row().epoch
    shop.send(ev("e1", old, ["a"]))
    shop.do(snapshots.replace_state, "shop", b"fresh", shop.now, reset=True)
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
    assert not shop.see(outcomes.any_window_ended, shop.now)
    shop.now += 10
    assert shop.see(outcomes.any_window_ended, shop.now)
    assert sorted(shop.close_windows()) == [
        Closing("shop", "silent", [], 3),
        Closing("shop", "window", [0.0, 1.0, 0.0], 3),
    ]
    assert shop.close_windows() == []
    found = shop.rows("SELECT impression_id, kind, feedback FROM outcomes ORDER BY seq")
    assert found[0] == (early, "final", b"[1.0,0.0,0.0]")
    assert sorted(found[1:]) == sorted([(silent, "silent", b"[]"), (partial, "window", b"[0.0,1.0,0.0]")])
    assert shop.see(impressions.open_counts) == Counter({"shop": 1})
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
    store.close_windows()
    assert [outcome.values for outcome in store.outcomes("films")] == [[2.0]]


def test_windows_close_in_portions(shop: Store) -> None:
    for _ in range(7):
        shop.show()
    shop.now += 10
    sizes = [len(shop.do(outcomes.close_windows, shop.now, KINDS, limit=3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]
    assert [outcome.seq for outcome in shop.outcomes()] == list(range(7))
