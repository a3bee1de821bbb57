"""Parts that were made one by one, used together: a catalog with rules, an experiment, rewards and a way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Service, check_bounded, fine, refused, shown, until
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


def test_what_is_learned_from_declared_features_goes_back_with_a_version(either: Service) -> None:
    service, name = either, "back"
    service.put(
        name, catalog="shop", features=[PRICE, RATE], learner="pairrank", exposure="full", normalisation="stream"
    )
    stock(service)

    def teach(best: str, rounds: int) -> None:
        for t in range(rounds):
            assert service.report(ask(service, name, query=f"q{t}", k=9), [best]) == "accepted"
        service.settle(name)

    teach("i8", 5)
    kept = service.act(name, "versions")["version"]
    before = service.state(name)
    teach("i1", 5)
    assert service.state(name) != before
    service.act(name, "rollback", version=kept)
    service.settle(name)
    assert service.state(name) == before
    # what was shown and clicked was so, whatever is made of it
    until(lambda: service.status(name)["counter_impressions"] == 10, "all clicks to be counted")
    assert sorted(shown(ask(service, name, k=9))) == IDS


def test_a_removed_declaration_leaves_what_was_learned_of_the_others(service: Service) -> None:
    service.put("fixed", catalog="shop", features=[PRICE], learner="pairrank")
    stock(service)
    path = "/v1/rankers/fixed"
    fine(service.http.patch(path, json={"features": [PRICE, TITLE]}))  # nothing is learned yet
    assert service.report(ask(service, "fixed"), ["i3"]) == "accepted"
    service.settle("fixed")
    changed = fine(service.http.patch(path, json={"features": [PRICE]}))["changed"]
    assert (changed["carried"], changed["removed"]) == (["price"], ["title"])
    assert len(shown(ask(service, "fixed"))) == 9


def test_a_catalog_that_goes_and_comes_back_with_other_kinds(service: Service) -> None:
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


@pytest.mark.parametrize("title", ["", "!", 7, ["", "-"]])
def test_texts_without_a_word_match_nothing(service: Service, title: Any) -> None:
    service.put("words", catalog="shop", features=[TITLE], learner="pairrank")
    stock(service, [{"id": one, "title": title} for one in IDS])
    assert len(shown(ask(service, "words", query="red shoe"))) == 9


def test_numbers_of_a_request_are_bounded_like_those_of_items(service: Service) -> None:
    far = {"name": "far", "kind": "field", "of": "request.far"}
    alike = {"name": "alike", "kind": "cosine", "of": "item.vector", "to": "request.vector"}
    service.put("wide", catalog="shop", features=[far, alike], learner="pairrank", normalisation="none")
    stock(service, [{"id": one, "vector": [1, 0]} for one in IDS])
    huge = 10**400
    for fields in ({"far": 1e300}, {"far": -huge}, {"vector": [1, huge]}):
        answer = service.http.post("/v1/rankers/wide/rank", json={"ids": IDS, "fields": fields})
        refused(answer, 422, "1e+100")
    assert len(shown(ask(service, "wide", fields={"far": 1e9, "vector": [0, 1]}))) == 9
    assert len(shown(ask(service, "wide", fields={"far": "far", "vector": []}))) == 9


def test_what_cannot_be_is_said_with_its_remedy(service: Service) -> None:
    service.put("told", catalog="shop", features=[PRICE, "bm25"], learner="pairrank")
    stock(service)
    path, sent = "/v1/rankers/told/rank", {"bm25": [1, 2], "price": [3, 4]}
    refused(service.http.post(path, json={"ids": ["i0", "i1"], "features": sent}), 422, "'price'")
    sent = {"bm25": [1, 2]}
    lists = {"ids": ["i0", "i1"], "features": sent, "quotas": [{"field": "tags", "most": 1}]}
    refused(service.http.post(path, json=lists), 422, "'tags'", "groups")
    answer = ask(service, "told", ["i0", "i1"], features=sent)
    event = {"event_id": "e", "impression_id": answer["impression_id"]}
    (told,) = service.feedback(event)
    assert told["reason"] == "it has no feedback; give clicks, rewards, seen or viewed"
    (told,) = service.feedback({**event, "clicks": ["i0"], "grades": {"i0": 1.0}})
    assert told["reason"].startswith("it has grades beside clicks")


def test_a_request_that_is_repeated_gets_its_list_though_the_items_have_changed(either: Service) -> None:
    service = either
    service.put("twice", catalog="shop", features=[PRICE, RATE], learner="pairrank", exposure="full")
    stock(service)
    first = ask(service, "twice", request_id="r", query="q")
    stock(service, [{"id": one, "price": 99 - i} for i, one in enumerate(IDS)])
    again = ask(service, "twice", request_id="r", query="q")
    assert (again["impression_id"], again["items"]) == (first["impression_id"], first["items"])
    path = "/v1/rankers/twice/rank"
    refused(service.http.post(path, json={"ids": IDS[:3], "request_id": "r", "query": "q"}), 409, "'r'")


def test_an_array_of_no_items_makes_an_empty_catalog_and_changes_nothing_else(service: Service) -> None:
    nothing: dict[str, Any] = {"results": [], "counts": {}, "warnings": []}
    assert fine(service.http.put("/v1/catalogs/new/items", json=[])) == nothing
    found = fine(service.http.get("/v1/catalogs/new"))
    assert (found["items"]["count"], found["users"]["count"]) == (0, 0)
    stock(service)
    assert fine(service.http.put("/v1/catalogs/shop/items", json=[])) == nothing
    assert fine(service.http.get("/v1/catalogs/shop"))["items"]["count"] == 9


def test_bounded_lists_by_declared_features_stay_near_the_order_of_the_request(service: Service) -> None:
    service.put("near", catalog="shop", features=[PRICE], learner="pairrank", exposure="bounded", displacement=2)
    stock(service)
    for t in range(20):
        answer = ask(service, "near", query=f"q{t}", k=5)
        check_bounded(IDS, shown(answer), 5, 2)
        assert service.report(answer, [shown(answer)[-1]]) == "accepted"
