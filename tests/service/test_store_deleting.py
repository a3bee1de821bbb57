"""Much is deleted in short transactions, and whoever wants to write gets in between."""

from __future__ import annotations

import pytest

from rankloop.service.errors import Conflict
from rankloop.service.storage import impressions, rankers
from rankloop.service.storage.database import Connection
from rankloop.service.storage.writer import in_batches
from tests.service.stores import Store, ev, shop, statuses, store

__all__ = ["shop", "store"]  # fixtures


def many_lists(store: Store, ranker: str, count: int) -> None:
    for start in range(0, count, 500):
        news = [store.new(f"{ranker}{i}", ranker=ranker) for i in range(start, min(count, start + 500))]
        store.do(impressions.add_impressions, news)


@pytest.mark.slow
def test_writes_continue_while_a_large_ranker_is_deleted(shop: Store) -> None:
    shop.ranker("large")
    many_lists(shop, "large", 3000)
    shop.send(*(ev(f"e{i}", f"large{i}", ["a"], final=True) for i in range(1000)))
    sizes: list[int] = []

    def some(connection: Connection, limit: int) -> int:
        gone = rankers.delete_remains(connection, limit)
        sizes.append(gone)
        return gone

    assert shop.do(rankers.delete_ranker, "large", shop.now)
    assert shop.see(rankers.get_ranker, "large") is None
    assert statuses(shop.send(ev("late", "large1", ["a"]))) == ["orphan"]
    shown = 0
    for _ in in_batches(shop.writer, some):
        shop.show()  # between two batches
        shown += 1
    assert shown == sum(1 for size in sizes if size)
    assert shown > 4
    assert shop.count("impressions") == shown
    assert [shop.count(table) for table in ("events", "outcomes", "tombstones")] == [0, 0, 0]


def test_deletion_continues_after_a_restart(shop: Store) -> None:
    shop.ranker("large")
    many_lists(shop, "large", 200)
    assert shop.do(rankers.delete_ranker, "large", shop.now)
    assert shop.do(rankers.delete_remains, 50) == 50
    other = Store(shop.url)
    try:
        sum(in_batches(other.writer, rankers.delete_remains))
    finally:
        other.close()
    assert [shop.count(table) for table in ("impressions", "tombstones")] == [0, 0]


def test_name_is_free_once_all_rows_of_the_deleted_ranker_are_gone(shop: Store) -> None:
    shop.show(request_id="r")
    assert shop.do(rankers.delete_ranker, "shop", shop.now)
    with pytest.raises(Conflict):
        shop.ranker("shop")
    sum(in_batches(shop.writer, rankers.delete_remains))
    shop.ranker("shop")
    shop.show(request_id="r")  # another one's answers are not its own
