"""Metarank's messages and configuration, without a service."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rankloop.core.errors import InvalidInput
from rankloop.features.declarations import declaration
from rankloop.integrations import metarank
from rankloop.integrations.metarank import TYPES, imported

# An example of our own in the shape of Metarank's documentation, with every type of feature that it has.
CONFIG = """
models:
  shop:
    type: lambdamart
    backend: {type: xgboost, iterations: 50}
    weights: {click: 1, purchase: 10}
    features: [price, sale, relevancy, category, brand, embedding, words, tags, clicks, week, ctr, brand_ctr, query_ctr,
      bought, seen_brand, title, title_grams, title_bm25, fresh, hour, from, device, place, noise, spread, age_of_user,
      user_clicks, color]
  small:
    type: lambdamart
    weights: {click: 1}
    features: [price]
features:
  - {name: price, type: number, scope: item, source: item.price}
  - {name: sale, type: boolean, scope: item, source: item.on_sale}
  - {name: relevancy, type: relevancy}
  - {name: category, type: string, scope: item, source: item.category, values: [shoes, hats]}
  - {name: brand, type: string, scope: item, source: item.brand, encode: index, values: [acme, apex]}
  - {name: color, type: string, scope: item, source: item.color}
  - {name: embedding, type: vector, scope: item, source: item.vector}
  - {name: words, type: word_count, scope: item, source: item.title}
  - {name: tags, type: list_size, scope: item, source: item.tags}
  - {name: clicks, type: interaction_count, interaction: click, scope: item}
  - {name: user_clicks, type: interaction_count, interaction: click, scope: user}
  - {name: week, type: window_count, interaction: purchase, scope: item, bucket: 24h, windows: [7, 14]}
  - {name: ctr, type: rate, top: click, bottom: impression, scope: item, bucket: 24h, periods: [7, 30],
     normalize: {weight: 20}}
  - {name: brand_ctr, type: rate, top: click, bottom: impression, scope: item.brand, bucket: 1h, periods: [36]}
  - {name: query_ctr, type: rate, top: click, bottom: impression, scope: ranking.query, bucket: 24h, periods: [7]}
  - {name: bought, type: rate, top: purchase, bottom: click, scope: item, bucket: 24h, periods: [7]}
  - {name: seen_brand, type: interacted_with, interaction: click, field: [item.brand, item.category],
     scope: session, count: 10, duration: 24h}
  - {name: title, type: field_match, rankingField: ranking.query, itemField: item.title,
     method: {type: term, language: en}}
  - {name: title_grams, type: field_match, rankingField: ranking.query, itemField: item.title,
     method: {type: ngram, n: 3}}
  - {name: title_bm25, type: field_match, rankingField: ranking.wish, itemField: item.title, method: {type: bm25}}
  - {name: fresh, type: item_age, source: item.created_at}
  - {name: hour, type: local_time, source: ranking.localts, parse: time_of_day}
  - {name: from, type: referer, source: ranking.referer, scope: user}
  - {name: device, type: ua, source: ranking.ua, field: platform}
  - {name: place, type: position, position: 5}
  - {name: noise, type: random}
  - {name: spread, type: diversity, source: item.category}
  - {name: age_of_user, type: number, scope: user, source: user.age}
"""


def test_every_type_of_feature_gets_a_verdict_and_what_is_taken_can_be_declared() -> None:
    config = yaml.safe_load(CONFIG)
    shop, small = imported(config)
    assert {one["type"] for one in config["features"]} == TYPES
    assert [row.feature for row in shop.rows] == config["models"]["shop"]["features"]
    verdicts = {row.feature: row.verdict for row in shop.rows}
    assert [name for name, verdict in verdicts.items() if verdict == "taken over"] == [
        *("price", "sale", "relevancy", "category", "clicks", "ctr", "brand_ctr", "query_ctr", "fresh", "place")
    ]
    assert [name for name, verdict in verdicts.items() if verdict == "approximated"] == [
        *("brand", "week", "bought", "seen_brand", "title", "title_grams", "title_bm25", "color")
    ]
    assert all(row.how for row in shop.rows if row.verdict != "taken over")
    declared = [declaration(one) for one in shop.spec["features"]]
    names = [one.name for one in declared]
    assert len(set(names)) == len(names)
    assert {"week_7", "week_14", "ctr_7", "ctr_30", "seen_brand_brand", "relevancy"} <= set(names)
    assert shop.spec["interactions"] == {"click": 0.1, "purchase": 1.0}
    assert shop.spec["defaults"] == {"relevancy": 0.0}
    assert (shop.spec["parameters"], small.spec["parameters"]) == (
        {"init": "base", "confidence": "diagonal"},  # a category is hashed into 1,000 columns
        {"init": "base"},
    )
    assert small.spec["features"] == [{"name": "price", "kind": "field", "of": "item.price"}]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([], "no `models`"),
        ({"models": {}, "features": {}}, "no list"),
        ({"models": {}, "features": [{"name": "a"}]}, "a name and a type"),
        ({"models": {"m": {"features": ["b"]}}, "features": []}, "names feature 'b'"),
        ({"models": {"m": {"weights": {"click": 0}}}, "features": []}, "no weight is above 0"),
        ({"models": {"m": 3}, "features": []}, "type, weights and features"),
        (
            {
                "models": {"m": {"features": ["r"]}},
                "features": [{"name": "r", "type": "rate", "bucket": "soon"}],
            },
            "not a duration",
        ),
    ],
)
def test_what_is_no_configuration_is_named(config: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        imported(config)


# Requests and events as Metarank's documentation prints them.
REQUEST = b"""{
  "id": "81f46c34-a4bb-469c-8708-f8127cd67d27",
  "timestamp": "1599391467000",
  "user": "user1",
  "session": "session1",
  "fields": [{"name": "query", "value": "jeans"}, {"name": "source", "value": "search"}],
  "items": [
    {"id": "item3", "fields": [{"name": "relevancy", "value": 2.0}]},
    {"id": "item1", "relevancy": 1.0},
    {"id": "item2"}
  ]
}"""
EVENTS = {
    "item": b"""{"event": "item", "id": "81f46c34-a4bb-469c-8708-f8127cd67d27", "item": "item1",
      "timestamp": "1599391467000", "fields": [{"name": "title", "value": "Nice jeans"},
      {"name": "price", "value": 25.0}, {"name": "color", "value": ["blue", "black"]},
      {"name": "availability", "value": true}]}""",
    "user": b"""{"event": "user", "id": "81f46c34-a4bb-469c-8708-f8127cd67d27", "user": "user1",
      "timestamp": 1599391467000, "fields": [{"name": "age", "value": 33}, {"name": "gender", "value": "m"}]}""",
    "ranking": b"""{"event": "ranking", "id": "81f46c34-a4bb-469c-8708-f8127cd67d27",
      "timestamp": "1599391467000", "user": "user1", "session": "session1",
      "fields": [{"name": "query", "value": "jeans"}],
      "items": [{"id": "item3", "relevancy": 2.0}, {"id": "item1", "fields": []}, {"id": "item2"}]}""",
    "interaction": b"""{"event": "interaction", "id": "0f4c0036-04fb-4409-b2c6-7163a59f6b7d",
      "ranking": "81f46c34-a4bb-469c-8708-f8127cd67d27", "timestamp": "1599391467000", "user": "user1",
      "session": "session1", "type": "purchase", "item": "item1",
      "fields": [{"name": "count", "value": 1}, {"name": "shipping", "value": "DHL"}]}""",
}


def test_a_documented_request_is_read() -> None:
    request = metarank.rank_request(REQUEST)
    assert metarank.values(request.fields) == {"query": "jeans", "source": "search"}
    assert [metarank.item_values(item) for item in request.items] == [{"relevancy": 2.0}, {"relevancy": 1.0}, {}]


@pytest.mark.parametrize("kind", EVENTS)
def test_documented_events_are_read(kind: str) -> None:
    event = metarank.event(EVENTS[kind])
    assert type(event).__name__.lower() == f"{kind}event"
