"""Counters of a service: they hold closed lists and nothing of the list they are for, outlive a restart, are the same
in two processes, and forget a user; in both stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.features.counters import CountedOutcome, Counters
from rankloop.service.ranking.feature_spec import declarations
from rankloop.service.storage import counters
from rankloop.service.storage import impressions as lists
from tests.service.app_fixtures import Service, fine, until

FEATURES: list[dict[str, Any]] = [
    {"name": "clicks", "kind": "count", "by": "item", "log": False},
    {"name": "shown", "kind": "count", "of": "impressions", "by": "item", "log": False},
    {"name": "brand", "kind": "rate", "by": "item.brand", "prior": 1},
    {"name": "mine", "kind": "count", "by": ["user", "item.brand"], "log": False},
    {"name": "again", "kind": "clicked", "of": "item.brand"},
]
IDS = ["a", "b", "c"]


def begun(service: Service) -> None:
    brands = {"a": "acme", "b": "apex", "c": "acme"}
    items = [{"id": item, "brand": brand} for item, brand in brands.items()]
    fine(service.http.put("/v1/catalogs/shop/items", json=items))
    service.put("shop", learner="pairrank", features=FEATURES, catalog="shop", normalization="none", exposure="full")


@pytest.fixture
def service(store_url: str) -> Iterator[Service]:
    with Service(store_url) as made:  # type: ignore[arg-type]
        begun(made.ready())
        until(lambda: fine(made.http.get("/v1/catalogs/shop"))["items"]["behind"] == 0, "the catalog")
        yield made


def rank(service: Service, user: str = "u") -> tuple[Any, dict[str, dict[str, float]]]:
    """A list, and the features it was ranked by as they are stored: item -> feature -> value."""
    answer = fine(service.http.post("/v1/rankers/shop/rank", json={"ids": IDS, "query": "q", "user": user}))
    (one,) = service.engine.database.read(lambda c: lists.latest_impressions(c, "shop", 1))
    made = codec.load_impression(one.body)
    assert made.features is not None
    names = [feature["name"] for feature in FEATURES]
    found = zip(made.items.tolist(), made.features.tolist(), strict=True)
    return answer, {item: dict(zip(names, row, strict=True)) for item, row in found}


def counted(service: Service, outcomes: int) -> None:
    def done() -> bool:
        return bool(fine(service.http.get("/v1/rankers/shop"))["counter_impressions"] >= outcomes)

    until(done, f"{outcomes} outcomes to be counted")


def rebuilt(service: Service) -> Counters:
    """Counters from the log alone."""
    engine = service.engine
    fresh = Counters(declarations(engine.rankers["shop"].row.spec), engine.settings.counter_keys)
    for one in engine.database.read(lambda c: counters.counter_inputs(c, "shop", 0, 1000)):
        assert one.notes is not None
        fresh.fold(CountedOutcome(one.created, np.array(one.values), codec.loads(one.notes)[0], one.viewed))
    return fresh


def live(service: Service) -> Counters:
    return service.engine.rankers.counted["shop"].counters


def test_clicks_affect_counters_of_later_rankings_only(service: Service) -> None:
    first, own = rank(service)
    assert all(not any(row.values()) for row in own.values())
    service.report(first, ["a"])
    counted(service, 1)
    body = service.engine.database.read(lambda c: lists.latest_impressions(c, "shop", 1))[0].body
    features = codec.load_impression(body).features
    assert features is not None
    assert not features.any()  # what it was ranked by stays what it was
    _, later = rank(service)
    assert {item: row["clicks"] for item, row in later.items()} == {"a": 1, "b": 0, "c": 0}
    assert {row["shown"] for row in later.values()} == {1}
    assert {item: (row["mine"], row["again"]) for item, row in later.items()} == {"a": (1, 1), "b": (0, 0), "c": (1, 1)}
    assert later["a"]["brand"] == later["c"]["brand"] > later["b"]["brand"]
    _, stranger = rank(service, "stranger")
    assert {(row["mine"], row["again"]) for row in stranger.values()} == {(0, 0)}


def test_counters_continue_after_a_restart_bit_for_bit(service: Service, store_url: str) -> None:
    for n in range(12):
        answer, _ = rank(service, f"u{n % 3}")
        service.report(answer, [IDS[n % 3]])
    counted(service, 12)
    before = live(service).dumps()
    assert rebuilt(service).dumps() == before
    service.engine.rankers.counted.stop()  # stores what is counted
    saved = service.engine.database.read(lambda c: counters.saved(c, "shop"))
    assert saved is not None
    assert (saved.seq, saved.state) == (12, before)
    answer, _ = rank(service)
    service.report(answer, ["b"])
    with Service(store_url) as other:  # type: ignore[arg-type]  # a second process of the same service
        other.ready()
        counted(other, 13)
        assert live(other).folded == 13
        assert live(other).dumps() == rebuilt(other).dumps()
        answer, _ = rank(other)
        other.report(answer, ["c"])
        counted(other, 14)
        service.engine.rankers.counted.follow()
        assert live(service).dumps() == live(other).dumps()


def test_erased_users_are_removed_from_counters(service: Service, store_url: str) -> None:
    for user in ("u", "v"):
        answer, _ = rank(service, user)
        service.report(answer, ["a"])
    counted(service, 2)
    waiting, _ = rank(service)  # open while its user goes
    fine(service.http.delete("/v1/users/u"))
    assert service.report(waiting, ["a"]) in ("late", "orphan")
    until(lambda: rank(service)[1]["a"]["mine"] == 0, "it to be forgotten")
    found = rank(service)[1]
    assert {(row["mine"], row["again"]) for row in found.values()} == {(0, 0)}
    assert found["a"]["clicks"] == 2  # of the item, whoever clicked
    assert rank(service, "v")[1]["a"]["mine"] == 1
    until(lambda: bool(service.engine.database.read(lambda c: counters.saved(c, "shop"))), "the counters to be stored")
    with Service(store_url) as other:  # type: ignore[arg-type]
        other.ready()
        counted(other, 2)
        assert rank(other)[1]["a"]["mine"] == 0
        assert rank(other, "v")[1]["a"]["mine"] == 1
    later = service.engine.clock() + 2 * counters.KEPT
    service.engine.writer.do(lambda connection: counters.delete_old_erasures(connection, later))
    assert service.engine.database.read(counters.erasures) == []


def test_counters_are_reported_and_deleted_with_their_ranker(service: Service) -> None:
    answer, _ = rank(service)
    service.report(answer, ["a"])
    counted(service, 1)
    service.engine.refresh()
    text = service.http.get("/metrics").text
    assert re.search(r'rankloop_counters_behind\{[^}]*ranker="shop"[^}]*\} 0', text)
    keys = live(service).keys
    assert keys == 3 + 2 + 2 + 1 + 1  # items, brands, brands of the user, all together, the user's clicks
    service.engine.rankers.counted.stop()
    assert service.http.delete("/v1/rankers/shop").is_success
    assert service.engine.database.read(lambda c: counters.saved(c, "shop")) is None
