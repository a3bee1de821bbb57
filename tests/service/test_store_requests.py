"""Lists by the names that callers gave them, lists that may never be shown, and what silence is worth; both stores."""

from __future__ import annotations

from rankloop.service.storage import impressions
from tests.service.stores import Store, ev, shop, statuses, store

__all__ = ["shop", "store"]  # fixtures


def test_impressions_are_found_by_request_id_and_id(shop: Store) -> None:
    shop.ranker("other")
    one = shop.show(request_id="r1")
    two = shop.show(ranker="other", request_id="r1", shown=b"[7,8]")
    three = shop.show()
    names = ["r1", three, "nobody"]
    found = shop.see(impressions.find_impressions, ["shop", "other"], names)
    assert {name: sorted(each.id for each in lists) for name, lists in found.items()} == {
        "r1": sorted([one, two]),
        three: [three],
    }
    (first,) = [each for each in found["r1"] if each.id == two]
    assert (first.ranker, first.items, first.top, first.viewed) == ("other", frozenset({"7", "8"}), "7", None)
    only = shop.see(impressions.find_impressions, ["other"], names)
    assert [each.id for each in only.pop("r1")] == [two]
    assert only == {}
    assert shop.see(impressions.find_impressions, [], names) == {}
    many = [f"n{i}" for i in range(600)]
    assert set(shop.see(impressions.find_impressions, ["shop"], [*many, "r1"])) == {"r1"}


def test_deferred_impressions_are_learned_once_viewed(shop: Store) -> None:
    never, later = shop.show(viewed=0), shop.show(viewed=0)
    assert statuses(shop.send(ev("activated", later, seen=1))) == ["accepted"]
    shop.now += 20
    shop.close_windows()
    (outcome,) = shop.outcomes()
    assert (outcome.learn, outcome.values, outcome.viewed) == (True, [], 1)
    assert shop.rows("SELECT open, seq FROM impressions WHERE id = ?", never)[0] == (0, None)


def test_silence_is_worth_the_default_reward(store: Store) -> None:
    store.ranker(default_reward=0.25)
    silent, told, unseen = store.show(), store.show(), store.show(viewed=0)
    store.send(ev("e", told, rewards={"b": 0.5}))
    store.now += 20
    store.close_windows()
    values = {seq: one.values for seq, one in enumerate(store.outcomes())}
    assert sorted(values.values()) == [[0.0, 0.5, 0.0], [0.25, 0.0, 0.0]]
    assert store.rows("SELECT seq FROM impressions WHERE id = ?", unseen)[0] == (None,)
    assert store.rows("SELECT open FROM impressions WHERE id = ?", silent)[0] == (0,)
