"""Catalogs in both stores: what was put in is there, every change is told once and in order, limits hold."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rankloop.features.field_types import FieldType
from rankloop.service.serving import catalog_cache
from rankloop.service.serving.catalog_cache import CachedCatalog, CatalogCache
from rankloop.service.storage import catalog
from rankloop.service.storage.catalog import Limits, NewRow
from tests.service.stores import Store, store

__all__ = ["store"]  # a fixture

ROOM = Limits(1000, 2**30)


def put(
    store: Store, lines: dict[str, Any], merge: bool = False, bounds: Limits = ROOM, name: str = "shop"
) -> list[Any]:
    made = [NewRow(item, values) for item, values in lines.items()]
    return store.do(catalog.write, name, "items", made, merge, bounds, store.now)


def part(store: Store, name: str = "shop") -> catalog.Part:
    found = store.see(catalog.part, name, "items")
    assert found is not None
    return found


def test_rows_are_stored_once(store: Store) -> None:
    lines = {"a": {"price": 3, "brand": "acme"}, "b": {"price": 4.5, "tags": ["x", "y"], "gone": None}}
    assert put(store, lines) == [("accepted", None)] * 2
    assert put(store, lines) == [("unchanged", None)] * 2
    assert store.see(catalog.body, "shop", "items", "a") == b'{"brand":"acme","price":3}'
    assert store.see(catalog.body, "shop", "items", "b") == b'{"price":4.5,"tags":["x","y"]}'
    found = part(store)
    assert (found.rows, found.seq) == (2, 2)
    assert found.fields == {"price": FieldType("number"), "brand": FieldType("string"), "tags": FieldType("strings")}


def test_put_replaces_and_merge_changes_what_is_sent(store: Store) -> None:
    put(store, {"a": {"price": 3, "brand": "acme", "size": 1}})
    assert put(store, {"a": {"price": 5, "size": None}, "new": {"price": 1}}, merge=True) == [("accepted", None)] * 2
    assert store.see(catalog.body, "shop", "items", "a") == b'{"brand":"acme","price":5}'
    assert put(store, {"a": {"price": 5}}, merge=True) == [("unchanged", None)]
    put(store, {"a": {"price": 5}})
    assert store.see(catalog.body, "shop", "items", "a") == b'{"price":5}'


def test_the_same_id_twice_in_one_call_counts_in_order(store: Store) -> None:
    lines = [NewRow("a", {"price": 1}), NewRow("a", {"price": 2, "x": 1}), NewRow("a", {"price": 2, "x": 1})]
    found = store.do(catalog.write, "shop", "items", lines, False, ROOM, store.now)
    assert [status for status, _ in found] == ["accepted", "accepted", "unchanged"]
    assert store.see(catalog.body, "shop", "items", "a") == b'{"price":2,"x":1}'
    assert (part(store).rows, part(store).seq) == (1, 1)


def test_a_value_of_another_kind_is_rejected_and_the_others_pass(store: Store) -> None:
    put(store, {"a": {"price": 3}})
    found = put(store, {"b": {"price": "cheap"}, "c": {"price": 1}})
    assert [status for status, _ in found] == ["rejected", "accepted"]
    assert "field 'price' holds numbers, but here it is 'cheap'" in (found[0][1] or "")
    assert store.see(catalog.body, "shop", "items", "b") is None


def test_limits_of_rows_and_memory(store: Store) -> None:
    small = Limits(2, 2**30)
    found = put(store, {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}, bounds=small)
    assert [status for status, _ in found] == ["accepted", "accepted", "rejected"]
    assert "the limit catalog_items is 2" in (found[2][1] or "")
    assert put(store, {"a": {"x": 2}}, bounds=small) == [("accepted", None)]
    ((status, reason),) = put(store, {"a": {"text": "x" * 5000}}, bounds=Limits(2, 4000))
    assert status == "rejected"
    assert "the limit catalog_bytes is 4,000" in (reason or "")
    before = part(store).bytes
    put(store, {"a": {"text": "x" * 500}})
    put(store, {"a": {"x": 2}})
    assert part(store).bytes == before  # what was taken back does not count


def test_deleted_rows_are_reported_and_later_removed(store: Store) -> None:
    put(store, {"a": {"x": 1}, "b": {"x": 1}})
    assert store.do(catalog.delete, "shop", "items", ["a", "nobody", "a"], store.now) == [True, False, True]
    assert store.do(catalog.delete, "shop", "items", ["a"], store.now) == [False]
    found = part(store)
    assert (found.rows, found.seq) == (1, 3)
    assert [(one.id, one.seq, one.body) for one in store.see(catalog.changes, found.part, 2, 10)] == [("a", 3, None)]
    assert store.do(catalog.delete_unused, store.now, 10) == 0
    assert store.do(catalog.delete_unused, store.now + catalog.DELETED_SECONDS + 1, 10) == 1
    assert part(store).forgotten == 3
    assert store.count("catalog_rows") == 1
    assert put(store, {"a": {"x": 1}}) == [("accepted", None)]


def test_emptied_part_gets_a_new_id_and_its_rows_are_deleted_in_batches(store: Store) -> None:
    put(store, {str(i): {"x": i} for i in range(30)})
    before = part(store)
    assert store.do(catalog.empty, "shop", "items", store.now) == 30
    after = part(store)
    assert after.part != before.part
    assert (after.rows, after.seq, after.fields) == (0, 0, {})
    assert put(store, {"1": {"x": "now a string"}}) == [("accepted", None)]
    assert store.do(catalog.delete_unused, store.now, 20) == 20
    assert store.do(catalog.delete_unused, store.now, 20) == 10
    assert store.do(catalog.delete_unused, store.now, 20) == 0
    assert store.count("catalog_rows") == 1
    assert store.do(catalog.empty, "nobody", "items", store.now) is None
    assert store.do(catalog.drop, "shop")
    assert not store.do(catalog.drop, "shop")


def test_erasing_a_user_deletes_their_rows_in_all_catalogs(store: Store) -> None:
    for name in ("shop", "films"):
        store.do(catalog.write, name, "users", [NewRow("u", {"age": 4}), NewRow("v", {"age": 5})], False, ROOM, 0.0)
    put(store, {"u": {"x": 1}})  # an item that is called like a user
    assert store.do(catalog.erase_user, "u", store.now) == 2
    assert store.see(catalog.body, "shop", "users", "u") is None
    assert store.see(catalog.body, "shop", "users", "v") is not None
    assert store.see(catalog.body, "shop", "items", "u") is not None


def test_two_simultaneous_writers_lose_nothing_and_leave_no_gaps(store: Store) -> None:
    other = Store(store.url)
    errors: list[BaseException] = []

    def write(one: Store, first: int) -> None:
        try:
            for i in range(first, first + 100, 5):
                put(one, {f"i{j}": {"x": j, f"own{first}": 1} for j in range(i, i + 5)})
        except BaseException as error:
            errors.append(error)

    try:
        threads = [threading.Thread(target=write, args=(one, first)) for one, first in ((store, 0), (other, 100))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()
    assert not errors
    found = part(store)
    assert (found.rows, found.seq) == (200, 200)
    assert set(found.fields) == {"x", "own0", "own100"}
    told = store.see(catalog.changes, found.part, 0, 1000)
    assert [one.seq for one in told] == list(range(1, 201))


# -- as a process that ranks holds them ----------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are read at a time, so that a handful takes several turns."""
    monkeypatch.setattr(catalog_cache, "PORTION", 7)
    monkeypatch.setattr(catalog_cache, "SLICE", 3)
    monkeypatch.setattr(catalog_cache, "LOOK_EVERY", 3600.0)


def same(store: Store, one: CachedCatalog) -> bool:
    """Whether what is held is what is stored."""
    ids = [row[0] for row in store.rows("SELECT r.id FROM catalog_rows r JOIN catalogs c ON c.part = r.part")]
    wanted = {}
    for item in ids:
        body = store.see(catalog.body, "shop", "items", item)
        if body is not None:
            wanted[item] = catalog_cache._decode(body)
    return {item: one.items.get(item) for item in one.items.ids} == wanted


@pytest.mark.usefixtures("small")
def test_cache_follows_the_store(store: Store) -> None:
    catalogs = CatalogCache(store.database, ROOM)
    try:
        one = catalogs.want("shop")
        assert len(one.items) == 0
        put(store, {str(i): {"x": float(i), "s": f"s{i}"} for i in range(25)})
        catalogs.follow()
        assert len(one.items) == 25
        assert same(store, one)
        put(store, {"3": {"y": 1.0}, "new": {"x": 7.0}})
        store.do(catalog.delete, "shop", "items", ["4", "5"], store.now)
        catalogs.follow()
        assert same(store, one)
        assert catalogs.want("shop") is one
        late = CatalogCache(store.database, ROOM)
        assert same(store, late.want("shop"))
        late.stop()
        # One that slept while deletions were forgotten begins anew, and keeps what was derived.
        one.items.derive("words", "s", str.split)
        store.do(catalog.delete, "shop", "items", ["6"], store.now)
        store.do(catalog.delete_unused, store.now + catalog.DELETED_SECONDS + 1, 10)
        catalogs.follow()
        assert "6" not in one.items
        assert same(store, one)
        assert one.items.lists("words").get(int(one.items.rows(["7"])[0])) == ["s7"]
        store.do(catalog.empty, "shop", "items", store.now)
        put(store, {"1": {"x": "text"}})
        catalogs.follow()
        assert one.items.ids == ["1"]
        store.do(catalog.drop, "shop")
        catalogs.follow()
        assert len(one.items) == 0
        assert catalogs.keep([None]) == ["shop"]
        assert "shop" not in catalogs
    finally:
        catalogs.stop()


@pytest.mark.usefixtures("small")
def test_a_field_has_the_kind_of_its_first_value_also_for_one_who_comes_late(store: Store) -> None:
    """The first item is changed last, so its values come last: kinds are stored, not guessed again."""
    put(store, {"a": {"code": "red"}})
    put(store, {"b": {"code": "2026-03-01T12:00:00Z"}})
    put(store, {"a": {"code": "blue"}})
    catalogs = CatalogCache(store.database, ROOM)
    try:
        one = catalogs.want("shop")
        assert one.items.get("b") == {"code": "2026-03-01T12:00:00Z"}
        assert one.refused == 0
    finally:
        catalogs.stop()
