"""Parts that were made one by one, used together: a catalog with rules, an experiment, rewards and a way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Service, fine, refused, shown, until
from tests.service.experimenting import look, start

BRANDS = ("acme", "apex", "zeta")
PRICE = {"name": "price", "kind": "field", "of": "item.price", "default": 0}
TITLE = {"name": "title", "kind": "text", "of": "item.title"}
RATE = {"name": "popular", "kind": "rate", "by": "item", "window": "all"}
IDS = [f"i{i}" for i in range(9)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "store.db") as made:
        yield with_catalog(made.ready())


@pytest.fixture
def either(store_url: str) -> Iterator[Service]:
    with Service(store_url) as made:  # type: ignore[arg-type]
        yield with_catalog(made.ready())


def with_catalog(service: Service) -> Service:
    """With an empty catalog, so that rankers can name it before items are uploaded."""
    fine(service.http.put("/v1/catalogs/shop/items", json=[]))
    return service


def goods(i: int) -> dict[str, Any]:
    return {"id": f"i{i}", "price": i, "brand": BRANDS[i % 3], "title": f"shoe number {i}", "tags": ["new"] * (i % 2)}


def stock(service: Service, items: list[dict[str, Any]] | None = None) -> None:
    """Upload, and wait until it is held where it is ranked."""
    fine(service.http.put("/v1/catalogs/shop/items", json=[goods(i) for i in range(9)] if items is None else items))
    settled(service)


def settled(service: Service) -> None:
    until(lambda: fine(service.http.get("/v1/catalogs/shop"))["items"]["behind"] == 0, "it to be held")


def ask(service: Service, name: str, ids: list[str] = IDS, **more: Any) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/rank", json={"ids": ids, **more}))


def test_rules_by_a_catalog_field_hold_in_bounded_lists_of_an_experiment_with_rewards(either: Service) -> None:
    service, name = either, "all"
    service.put(
        name,
        catalog="shop",
        features=[PRICE, TITLE, RATE],
        learner="pairrank",
        exposure="bounded",
        displacement=2,
        quotas=[{"field": "brand", "most": 1, "within": 3}],
        click_reward=0.5,
        k=6,
    )
    stock(service)
    number = start(service, name, against="base", share=1.0)["number"]
    for t in range(12):
        answer = ask(service, name, query=f"shoe {t}", user=f"u{t}", pinned={"i8": 1}, excluded=["i0"])
        found = shown(answer)
        assert answer["experiment"] == number
        assert (found[0], "i0" in found, len(found)) == ("i8", False, 6)
        assert len({int(one[1:]) % 3 for one in found[:3]}) == 3, found  # a brand each
        assert "relaxed" not in answer
        dear = max(found[1:], key=lambda one: int(one[1:]))
        assert service.report(answer, ["i8"], final=False, seen=6) == "accepted"
        assert service.report(answer, [], rewards={dear: 1.0}) == "accepted"
    assert service.settle(name) == 12
    until(lambda: look(service, name, number)["lists"] == 12, "the lists to be counted")
    until(lambda: service.status(name)["counter_impressions"] == 12, "the clicks to be counted")


def test_a_catalog_deleted_and_recreated_with_other_types(service: Service) -> None:
    """Nothing fails meanwhile: nobody is known, which is counted, and quotas have nothing to go by."""
    quotas = [{"field": "brand", "most": 1, "within": 2}]
    service.put("gone", catalog="shop", features=[PRICE, TITLE], learner="pairrank", exposure="full", quotas=quotas)
    assert len(shown(ask(service, "gone", query="shoe"))) == 9  # before anything was uploaded
    stock(service)
    assert len(shown(ask(service, "gone", query="shoe"))) == 9
    assert service.http.delete("/v1/catalogs/shop?force=true").status_code == 204
    known = service.engine.rankers["gone"].schema._catalog
    until(lambda: len(known.items) == 0, "it to be gone")
    assert len(shown(ask(service, "gone", query="shoe"))) == 9
    assert service.metric("rankloop_catalog_unknown_total", ranker="gone") == 18
    swapped = [{"id": one, "price": "dear", "title": 7, "brand": i} for i, one in enumerate(IDS)]
    stock(service, swapped)
    answer = ask(service, "gone", query="shoe")
    assert len(shown(answer)) == 9
    assert "relaxed" not in answer
    for feature in ("price", "title"):
        assert service.metric("rankloop_catalog_missing_total", ranker="gone", feature=feature) == 9


def test_numbers_of_a_request_are_bounded_like_those_of_items(service: Service) -> None:
    far = {"name": "far", "kind": "field", "of": "request.far"}
    alike = {"name": "alike", "kind": "cosine", "of": "item.vector", "to": "request.vector"}
    service.put("wide", catalog="shop", features=[far, alike], learner="pairrank", normalization="none")
    stock(service, [{"id": one, "vector": [1, 0]} for one in IDS])
    huge = 10**400
    for fields in ({"far": 1e300}, {"far": -huge}, {"vector": [1, huge]}):
        answer = service.http.post("/v1/rankers/wide/rank", json={"ids": IDS, "fields": fields})
        refused(answer, 422, "1e+100")
    assert len(shown(ask(service, "wide", fields={"far": 1e9, "vector": [0, 1]}))) == 9
    assert len(shown(ask(service, "wide", fields={"far": "far", "vector": []}))) == 9
