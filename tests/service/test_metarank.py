"""Metarank's requests and events against the service, answered in its shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from rankloop.integrations.metarank import imported
from tests.adapters.test_metarank import EVENTS, REQUEST
from tests.service.app_fixtures import Body, Service, fine, refused, service, until

__all__ = ["service"]

CONFIG = """
features:
  - {name: price, type: number, scope: item, source: item.price}
  - {name: relevancy, type: relevancy}
  - {name: color, type: string, scope: item, source: item.color, values: [blue, red]}
  - {name: title, type: field_match, rankingField: ranking.query, itemField: item.title, method: {type: term}}
models:
  jeans:
    type: lambdamart
    weights: {click: 1, purchase: 10}
    features: [price, relevancy, color, title]
"""


def spec(**changes: Any) -> Body:
    (found,) = imported(yaml.safe_load(CONFIG))
    return {**found.spec, "exposure": "full", **changes}


@pytest.fixture(scope="module")
def jeans(service: Service) -> Service:
    fine(service.http.put("/v1/catalogs/metarank/items", json=[]))
    service.put("jeans", **spec())
    items = [json.loads(EVENTS["item"]) | {"item": f"item{n}", "id": f"e{n}"} for n in (1, 2, 3)]
    answer = feedback(service, json.dumps(items))
    assert (answer["status"], answer["accepted"], answer["updated"]) == ("ok", 3, 3)
    until(lambda: service.engine.rankers.catalogs["metarank"].items.rows(["item3"])[0] >= 0, "the items to be known")
    return service


def feedback(service: Service, body: str | bytes) -> Any:
    """As curl sends it."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    return fine(service.http.post("/feedback", content=body, headers=form))


def request(name: str, **more: Any) -> Body:
    return {**json.loads(REQUEST), "id": name, **more}


def rank(service: Service, name: str, query: str = "", **more: Any) -> Any:
    return fine(service.http.post(f"/rank/jeans{query}", json=request(name, **more)))


def expect(service: Service, values: list[float], exposure: str = "full") -> list[str]:
    """What is known of the newest list, by position (who looks may see what was known a second ago); its items."""
    newest: Any = {}

    def known() -> bool:
        newest.update(fine(service.http.get("/v1/rankers/jeans/impressions?limit=1"))[0])
        return [item["value"] for item in newest["items"]] == values and newest["exposure"] == exposure

    until(known, f"{values}")
    return [item["id"] for item in newest["items"]]


def test_the_documented_request_is_answered_in_its_shape(jeans: Service) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = fine(jeans.http.post("/rank/jeans", content=REQUEST, headers=form))
    assert set(answer) == {"took", "items"}
    assert isinstance(answer["took"], int)
    assert sorted(one["item"] for one in answer["items"]) == ["item1", "item2", "item3"]
    assert all(set(one) == {"item", "score"} for one in answer["items"])
    scores = [one["score"] for one in answer["items"]]
    assert scores == sorted(scores, reverse=True)
    again = fine(jeans.http.post("/rank/jeans", content=REQUEST, headers=form))
    assert again["items"] == answer["items"]


def test_features_are_explained(jeans: Service) -> None:
    answer = rank(jeans, "explained", "?explain=true")
    names = {one["name"] for one in answer["items"][0]["features"]}
    assert {"price", "relevancy", "color=blue", "color=red", "title"} <= names
    assert all(isinstance(one["value"], float) for one in answer["items"][0]["features"])


@pytest.mark.parametrize("kind", EVENTS)
def test_documented_events_are_taken(jeans: Service, kind: str) -> None:
    if kind == "interaction":
        fine(jeans.http.post("/rank/jeans", content=REQUEST))
    answer = feedback(jeans, EVENTS[kind])
    assert (answer["status"], answer["accepted"]) == ("ok", 1)
    assert set(answer) == {"status", "accepted", "updated", "tookMillis"}


def test_interactions_are_worth_the_models_weights(jeans: Service) -> None:
    answer = rank(jeans, "weighed")
    first, second = (one["item"] for one in answer["items"][:2])
    events = [
        {"event": "interaction", "id": f"i{n}", "ranking": "weighed", "type": kind, "item": item, "timestamp": 1}
        for n, (kind, item) in enumerate([("click", first), ("click", second), ("purchase", second)])
    ]
    assert feedback(jeans, "\n".join(map(json.dumps, events)))["updated"] == 3
    expect(jeans, [0.1, 1.0, 0.0])
    assert feedback(jeans, json.dumps(events))["updated"] == 0  # the same again counts once


def test_a_ranking_from_elsewhere_is_learned_as_it_stood(jeans: Service) -> None:
    ranking = request("elsewhere", event="ranking", items=[{"id": "item2"}, {"id": "item3"}, {"id": "item1"}])
    click = {"event": "interaction", "id": "c1", "ranking": "elsewhere", "type": "click", "item": "item3"}
    answer = feedback(jeans, json.dumps([click, ranking]))  # in whatever order
    assert (answer["status"], answer["accepted"], answer["updated"]) == ("ok", 2, 1)
    assert expect(jeans, [0.0, 0.1, 0.0], "shadow") == ["item2", "item3", "item1"]


def test_what_is_not_taken_is_told(jeans: Service) -> None:
    events: list[Any] = [
        {"event": "interaction", "id": "x1", "type": "click", "item": "item1"},
        {"event": "interaction", "id": "x2", "ranking": "nobody", "type": "click", "item": "item1"},
        {"event": "item", "id": "x3", "item": "item1", "fields": [{"name": "price", "value": "cheap"}]},
        {"event": "purchase", "id": "x4"},
        {"event": "item", "id": "x5", "item": "item1", "fields": [{"name": "price", "value": 30}]},
    ]
    answer = feedback(jeans, json.dumps(events))
    assert (answer["status"], answer["accepted"]) == ("partial", 1)
    told = "\n".join(answer["problems"])
    for words in ("names no ranking", "unknown ranking 'nobody'", "'cheap'", "event 4"):
        assert words in told
    refused(jeans.http.post("/feedback", content=b"{}"), 400, error="malformed")
    refused(jeans.http.post("/feedback", content=b""), 422)
    refused(jeans.http.post("/rank/nobody", json=request("z")), 404)
    wrong = [{"id": "item1", "fields": [{"name": "relevancy", "value": "high"}]}]
    refused(jeans.http.post("/rank/jeans", json=request("z", items=wrong)), 422)


def test_adapters_can_be_left_out(tmp_path: Any) -> None:
    with Service(tmp_path / "none.db", adapters="ubi") as bare:
        assert bare.http.get("/health").status_code == 404
        assert bare.http.post("/personalizer/v1.0/rank").status_code == 404
        assert bare.http.post("/ubi/events", content=b" ").status_code == 422
