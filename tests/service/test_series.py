"""Curves in the store: sums by bucket, from all processes, kept as long as they should be; on both stores."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from rankloop.service.observability.history import History
from rankloop.service.storage import metric_history
from rankloop.service.storage.metric_history import Bucket
from rankloop.service.storage.outcomes import Closing
from tests.service.stores import Store, shop, store

__all__ = ["shop", "store"]  # fixtures

T0 = 1_700_000_000.0  # a multiple of 10 and not of 600


def stored(store: Store, step: int, since: float = 0.0, ranker: str = "shop") -> dict[int, Bucket]:
    return dict(store.see(lambda c: list(metric_history.between(c, ranker, step, since))))


def test_what_is_added_is_summed_in_the_bucket_of_its_moment(shop: Store) -> None:
    shop.do(metric_history.add, T0 + 1, {"shop": Bucket(lists=2, reciprocal=0.5, lag=7, shown=[2, 1], clicks=[1])})
    shop.do(
        metric_history.add, T0 + 9.9, {"shop": Bucket(lists=1, reciprocal=0.25, lag=3, shown=[1, 1, 1], clicks=[0, 1])}
    )
    shop.do(metric_history.add, T0 + 10, {"shop": Bucket(lists=5)})
    first, second = int(T0), int(T0) + 10
    summed = Bucket(lists=3, reciprocal=0.75, lag=7, shown=[3, 2, 1], clicks=[1, 1])
    assert stored(shop, 10) == {first: summed, second: Bucket(lists=5)}
    assert stored(shop, 10, since=T0 + 10) == {second: Bucket(lists=5)}
    coarse = int(T0) // 600 * 600
    assert stored(shop, 600)[coarse].lists == 8


def test_nothing_is_kept_of_a_ranker_that_has_gone(shop: Store) -> None:
    shop.do(metric_history.add, T0, {"shop": Bucket(lists=1), "gone": Bucket(lists=1)})
    assert stored(shop, 10, ranker="gone") == {}
    assert shop.count("metric_history") == 2
    shop.delete("shop")
    assert shop.count("metric_history") == 0


def test_buckets_go_when_their_time_is_over_the_fine_ones_first(shop: Store) -> None:
    shop.do(metric_history.add, T0, {"shop": Bucket(lists=1)})
    shop.do(metric_history.delete_old, T0 + 6 * 3600 - 1)
    assert shop.count("metric_history") == 2
    shop.do(metric_history.delete_old, T0 + 6 * 3600 + 10)
    assert list(stored(shop, 10)) == []
    assert len(stored(shop, 600)) == 1
    shop.do(metric_history.delete_old, T0 + 91 * 86400)
    assert shop.count("metric_history") == 0


def test_processes_that_add_at_the_same_time_lose_nothing(shop: Store) -> None:
    others = [Store(shop.url) for _ in range(3)]

    def work(one: Store) -> None:
        for _ in range(20):
            one.do(metric_history.add, T0, {"shop": Bucket(lists=1, shown=[1, 1], clicks=[0, 1])})

    threads = [threading.Thread(target=work, args=(one,)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in others:
        one.close()
    assert stored(shop, 10)[int(T0)] == Bucket(lists=60, shown=[60, 60], clicks=[0, 60])


@given(st.lists(st.tuples(st.integers(1, 60), st.data())))
def test_the_counts_of_outcomes_are_those_of_a_plain_count(drawn: list[tuple[int, st.DataObject]]) -> None:
    history, shown, clicks, reciprocal, clicked = History(), [0] * 51, [0] * 51, 0.0, 0
    for length, data in drawn:
        values = data.draw(st.lists(st.sampled_from([0.0, 1.0]), max_size=length))
        history.closed(Closing("shop", "final", values, length))
        for slot in range(length):
            shown[min(slot, 50)] += 1
        for slot, value in enumerate(values):
            clicks[min(slot, 50)] += int(value)
        if 1.0 in values:
            clicked, reciprocal = clicked + 1, reciprocal + 1.0 / (values.index(1.0) + 1)
    history.closed(Closing("shop", "ignored", [], 10))
    found = history._buckets.get("shop", Bucket())
    assert (found.outcomes, found.clicked, found.reciprocal) == (len(drawn), clicked, reciprocal)
    assert found.shown + [0] * (51 - len(found.shown)) == shown
    assert found.clicks + [0] * (51 - len(found.clicks)) == clicks
