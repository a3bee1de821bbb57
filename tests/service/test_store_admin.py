"""Snapshots, versions, leases, keys and forgetting, on both stores."""

from __future__ import annotations

import json
from itertools import count

import pytest

from rankloop.service.storage import experiments, impressions, keys, leases, outcomes, rankers, retention, snapshots
from rankloop.service.storage.keys import StoredKey
from rankloop.wire.experiments import ExperimentRequest
from rankloop.wire.rankers import Spec
from tests.service.running import PATIENCE
from tests.service.stores import TABLES, Store, ev, shop, statuses, store
from tests.service.truths import sent_id

__all__ = ["shop", "store"]  # fixtures


# -- snapshots and versions ----------------------------------------------------------------------------------------


def test_snapshots_only_go_forward(shop: Store) -> None:
    first = shop.row().generation

    def save(seq: int, state: bytes, ahead: int = 0, ranker: str = "shop") -> bool:
        return shop.do(snapshots.save_snapshot, ranker, first + ahead, seq, state, shop.now)

    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(0, first, b"fresh")
    assert save(5, b"five")
    assert not save(4, b"older")
    assert not save(5, b"again")
    assert not save(9, b"of a generation to come", ahead=1)
    assert not save(9, b"of nobody", ranker="nobody")
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(5, first, b"five")
    assert shop.see(snapshots.snapshot_positions) == {"shop": (first, 5)}
    assert shop.see(snapshots.snapshot, "nobody") is None


def test_large_states_are_stored_in_chunks(shop: Store) -> None:
    """It is a snapshot once all of them are there; those of older ones go, those of one under way stay."""
    first = shop.row().generation

    def save(seq: int, *parts: bytes) -> bool:
        for number, part in enumerate(parts):
            shop.do(snapshots.save_chunk, "shop", first, seq, number, part)
        return shop.do(snapshots.save_snapshot, "shop", first, seq, b"", shop.now, len(parts))

    assert save(5, b"fi", b"ve")
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(5, first, b"five")
    shop.do(snapshots.save_chunk, "shop", first, 9, 0, b"un")
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(5, first, b"five")
    assert shop.see(snapshots.unused_chunks, "shop") == []
    assert save(7, b"se", b"v", b"en")
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(7, first, b"seven")
    assert shop.see(snapshots.unused_chunks, "shop") == [(first, 5)]
    assert [shop.do(snapshots.delete_chunks, "shop", (first, 5), 1) for _ in range(3)] == [1, 1, 0]
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(7, first, b"seven")
    shop.do(snapshots.replace_state, "shop", b"small again", shop.now, reset=False)
    assert shop.see(snapshots.unused_chunks, "shop") == [(first, 7), (first, 9)]
    found = shop.see(snapshots.snapshot, "shop")
    assert found is not None
    assert found.state == b"small again"


def test_learner_saves_nothing_after_a_rollback_by_another_process(shop: Store) -> None:
    for i in range(3):
        shop.send(ev(f"e{i}", shop.show(), ["a"], final=True))
    before = shop.row()
    assert shop.do(snapshots.save_snapshot, "shop", before.generation, 3, b"three", shop.now)
    shop.do(snapshots.replace_state, "shop", b"older", shop.now, reset=False)
    after = shop.row()
    assert (after.generation, after.epoch) == (before.generation + 1, before.epoch)
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(
        3, after.generation, b"older"
    )  # goes on at the head
    assert not shop.do(snapshots.save_snapshot, "shop", before.generation, 4, b"of the old generation", shop.now)
    assert shop.do(snapshots.save_snapshot, "shop", after.generation, 4, b"of the new", shop.now)
    shop.do(snapshots.replace_state, "shop", b"fresh", shop.now, reset=True)
    last = shop.row()
    assert (last.generation, last.epoch) == (after.generation + 1, before.epoch + 1)


def test_ranker_made_again_after_deletion_is_new(shop: Store) -> None:
    """Other processes may know the first for a while: what they show and learn of it must not get into the second."""
    first, old = shop.row(), shop.new("old")
    assert shop.delete("shop")
    shop.now += 1
    shop.ranker()
    second = shop.row()
    assert second.revision != first.revision
    assert not shop.do(snapshots.save_snapshot, "shop", first.generation, 5, b"of the first", shop.now)
    assert shop.see(snapshots.snapshot, "shop") == snapshots.Snapshot(0, second.generation, b"fresh")
    assert shop.writer.impression(old).future.result(PATIENCE).fresh
    assert statuses(shop.send(ev("e1", "old", ["a"], final=True))) == ["late"]
    shop.now += 100
    shop.close_windows()
    assert [outcome.learn for outcome in shop.outcomes()] == [False]


def test_impressions_stored_during_the_deletion_of_their_ranker_are_deleted(shop: Store) -> None:
    kept = shop.show()
    shop.ranker("gone")
    late = shop.new("late", ranker="gone", person="ann", request_id="r1")
    shop.delete("gone")
    assert shop.writer.impression(late).future.result(PATIENCE).fresh
    assert statuses(shop.send(ev("e1", "late", ["a"]))) == ["orphan"]
    assert shop.do(retention.delete_old, None) == 0  # its window has not ended
    shop.now += 10
    assert len(shop.close_windows()) == 1  # of the ranker that is there
    assert shop.do(retention.delete_old, None) == 1
    assert shop.rows("SELECT id FROM impressions") == [(kept,)]
    assert mentions(shop, "gone") == []


def test_promoted_version_is_never_deleted(shop: Store) -> None:
    generation, seqs = shop.row().generation, count(1)

    def keep(state: bytes, automatic: bool = False) -> int | None:
        assert shop.do(snapshots.save_snapshot, "shop", generation, next(seqs), state, shop.now)
        return shop.do(snapshots.keep_version, "shop", "note", shop.now, automatic=automatic)

    assert keep(b"by hand") == 1
    assert [keep(b"x" * i, automatic=True) for i in range(1, 7)] == [2, 3, 4, 5, 6, 7]
    shop.do(rankers.set_serving, "shop", 3)
    assert shop.do(snapshots.delete_old_versions, "shop", 2) == 3
    assert [version.version for version in shop.see(snapshots.versions, "shop")] == [7, 6, 3, 1]
    assert shop.see(snapshots.version_state, "shop", 3) == (3, b"xx")
    assert shop.see(snapshots.version_state, "shop", 2) is None
    shop.do(rankers.set_serving, "shop", None)
    shop.do(snapshots.delete_old_versions, "shop", 2)
    assert [version.version for version in shop.see(snapshots.versions, "shop")] == [7, 6, 1]
    assert keep(b"next") == 8  # a number is never used again


def test_rankers_and_their_revisions(shop: Store) -> None:
    assert not shop.do(rankers.add_ranker, "shop", Spec(k=3), b"other", shop.now)
    shop.ranker("books", k=5)
    assert [(row.name, row.spec.k) for row in shop.see(rankers.list_rankers)] == [("books", 5), ("shop", 10)]
    before = shop.see(rankers.revisions)
    shop.do(rankers.set_spec, "shop", Spec(k=4))
    shop.do(rankers.set_learning, "shop", False)
    shop.do(rankers.set_serving, "shop", 1)
    assert shop.see(rankers.revisions) == {"books": before["books"], "shop": before["shop"] + 3}
    row = shop.row()
    assert (row.spec.k, row.learning, row.serving) == (4, False, 1)
    assert shop.see(rankers.get_ranker, "nobody") is None


# -- leases, workers, keys -----------------------------------------------------------------------------------------


def test_leases(store: Store) -> None:
    assert store.do(leases.take_lease, "shop", "one", None)
    assert not store.do(leases.take_lease, "shop", "two", None)
    assert store.see(leases.list_leases) == {"shop": ("one", 0)}
    assert store.do(leases.heartbeat, "one", "here", True) == {"shop"}
    assert store.do(leases.heartbeat, "two", "here", False) == set()
    assert not store.do(leases.take_lease, "shop", "two", ("one", 0))  # it beats: not as it was seen
    assert store.do(leases.take_lease, "shop", "two", ("one", 1))
    assert store.do(leases.heartbeat, "one", "here", True) == set()  # this is how the first one learns of it
    assert store.do(leases.heartbeat, "two", "here", False) == {"shop"}
    store.do(leases.release_lease, "shop", "one")  # not its own any more
    assert store.see(leases.list_leases)["shop"][0] == "two"
    store.do(leases.release_all, "two")
    assert store.see(leases.list_leases) == {}
    assert store.see(leases.list_workers) == {"one": ("here", 1, True)}
    store.do(leases.remove_worker, "one", 0)  # it has beaten since
    assert set(store.see(leases.list_workers)) == {"one"}
    store.do(leases.remove_worker, "one", 1)
    assert store.see(leases.list_workers) == {}


def test_keys(store: Store) -> None:
    assert store.see(keys.load_keys)[:2] == ([], False)
    web = StoredKey("digest", "web", "rank", 5.0, frozenset({"shop", "films"}), 9.5)
    ops = StoredKey("third", "ops", "admin", 7.0)
    assert store.do(keys.add, web)
    assert not store.do(keys.add, StoredKey("other", "web", "rank", 6.0))
    assert store.do(keys.add, ops)
    assert store.see(keys.load_keys)[:2] == ([ops, web], True)
    assert store.do(keys.delete, "web")
    assert not store.do(keys.delete, "web")
    assert [one.name for one in store.see(keys.load_keys).keys] == ["ops"]
    assert store.do(keys.delete, "ops")
    assert store.see(keys.load_keys)[:2] == ([], True)


# -- forgetting ----------------------------------------------------------------------------------------------------


def test_retention_deletes_only_impressions_that_a_snapshot_covers(shop: Store) -> None:
    names = [shop.show() for _ in range(4)]
    waiting = shop.show()
    shop.send(*(ev(f"e{i}", name, ["a"], final=True) for i, name in enumerate(names)))
    shop.now += 1000
    young = shop.show()
    shop.send(ev("young", young, ["a"], final=True))
    before = shop.now - 1
    assert shop.do(retention.delete_old, None) == 0
    assert shop.do(retention.delete_old, before) == 0  # old, but no snapshot has them
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 3, b"three", shop.now)
    assert shop.do(retention.delete_old, before, limit=2) == 2
    assert shop.do(retention.delete_old, before, limit=2) == 1
    assert shop.do(retention.delete_old, before, limit=2) == 0
    assert [outcome.seq for outcome in shop.outcomes()] == [3, 4]
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {names[3], waiting, young}
    assert {sent_id(row[0]) for row in shop.rows("SELECT event_id FROM events")} == {"e3", "young"}
    assert statuses(shop.send(ev("e0", names[0], ["a"]))) == ["orphan"]
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 5, b"five", shop.now)
    assert shop.do(retention.delete_old, before) == 1
    assert {row[0] for row in shop.rows("SELECT id FROM impressions")} == {waiting, young}  # open, or not old enough
    shop.send(ev("next", shop.show(), ["a"], final=True))
    assert [outcome.seq for outcome in shop.outcomes()] == [4, 5]  # numbers go on where they were


def test_retention_deletes_impressions_without_an_outcome(store: Store) -> None:
    store.ranker("shop", silence="ignore")
    store.show()
    store.now += 10
    store.close_windows()
    assert store.do(retention.delete_old, store.now) == 1
    assert store.count("impressions") == 0


def mentions(store: Store, text: str) -> list[str]:
    """Every table and row in which `text` stands, as text or within bytes."""
    return [
        f"{table}: {row}"
        for table in TABLES
        for row in store.rows(f"SELECT * FROM {table}")
        if any(text in (v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v)) for v in row)
    ]


def test_erased_users_are_removed(shop: Store) -> None:
    def show(user: str, name: str) -> str:
        answer = json.dumps({"request_id": f"{user}/{name}", "items": []}).encode()
        return shop.show(name, person=user, request_id=f"{user}/{name}", answer=answer)

    for user in ("ann-4711", "bob-4712"):
        covered, pending, waiting, silent = (
            show(user, f"{kind}-{user[:3]}") for kind in ("covered", "pending", "open", "silent")
        )
        shop.send(ev(f"{user}-1", covered, ["a"], final=True), ev(f"{user}-2", waiting, ["b"]))
        shop.do(snapshots.save_snapshot, "shop", shop.row().generation, len(shop.outcomes()), b"snapshot", shop.now)
        shop.send(ev(f"{user}-3", pending, ["a"], final=True), ev(f"{user}-4", pending, ["b"]))
        assert silent
    before = shop.outcomes()
    assert len(before) == 4
    assert mentions(shop, "ann-4711")

    # Outcomes 0 … 2 are in the snapshot, bob's pending one (3) is not: of him something has to wait.
    erased = retention.erase_user(shop.writer, "bob-4712")
    assert (erased.impressions, erased.events, erased.pending) == (3, 4, 1)
    assert shop.rows("SELECT person, request_id, erase FROM impressions WHERE id = ?", "pending-bob") == [
        (None, None, 1)
    ]
    assert shop.do(retention.delete_old, None) == 0
    assert [outcome.seq for outcome in shop.outcomes()] == [0, 1, 3]  # what learning still needs is there
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 4, b"snapshot", shop.now)
    assert shop.do(retention.delete_old, None) == 1
    assert mentions(shop, "bob-4712") == []
    assert statuses(shop.send(ev("late", "open-bob", ["a"]))) == ["orphan"]

    assert len(shop.rows("SELECT id FROM impressions WHERE person = ?", "ann-4711")) == 4  # nobody else is touched
    assert shop.outcomes() == before[:2]
    erased = retention.erase_user(shop.writer, "ann-4711")
    assert (erased.impressions, erased.events, erased.pending) == (4, 4, 0)
    assert mentions(shop, "ann-4711") == []
    assert retention.erase_user(shop.writer, "ann-4711").impressions == 0


@pytest.mark.slow
def test_users_with_many_impressions_are_erased(shop: Store) -> None:
    for start in range(0, 1200, 400):
        shop.do(impressions.add_impressions, [shop.new(f"imp{i}", person="ann") for i in range(start, start + 400)])
    shop.send(*(ev(f"e{i}", f"imp{i}", ["a"]) for i in range(0, 1200, 2)))
    erased = retention.erase_user(shop.writer, "ann")
    assert (erased.impressions, erased.events, erased.pending) == (1200, 600, 0)
    assert shop.count("impressions") == shop.count("events") == 0


def test_deleted_rankers_leave_no_rows(shop: Store) -> None:
    shop.ranker("books")
    for ranker in ("shop", "books"):
        closed, waiting = shop.show(ranker=ranker, person="ann", request_id="r"), shop.show(ranker=ranker)
        shop.send(ev(f"{ranker}-1", closed, ["a"], final=True), ev(f"{ranker}-2", waiting, ["b"]))
        shop.send(ev(f"{ranker}-3", closed, ["b"]))  # late
        shop.do(snapshots.keep_version, ranker, f"of {ranker}", shop.now)
        shop.do(leases.take_lease, ranker, "worker", None)
        shop.do(experiments.start, shop.row(ranker), "experiment", ExperimentRequest(), shop.now)
    counts = {table: shop.count(table) for table in TABLES}
    assert shop.delete("shop")
    assert {table: 2 * shop.count(table) for table in TABLES} == counts
    assert mentions(shop, "shop") == []
    assert not shop.delete("shop")
    assert statuses(shop.send(ev("x", "imp0", ["a"]))) == ["orphan"]
    assert shop.do(impressions.reserve_numbers, "shop", 1) is None
    assert shop.close_windows() == []
    shop.ranker("shop")  # the name is free, and starts at nothing
    assert shop.see(outcomes.log_offsets)["shop"] == 0
    shop.delete("books")
    assert [shop.count(table) for table in ("impressions", "events", "outcomes", "versions", "leases")] == [0] * 5
