"""Logs of search engines, in their own shapes, become lists with clicks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankloop.core.errors import DataError, InvalidInput
from rankloop.logs import LoggedImpression, LogReader
from rankloop.logs.engines import parse_action_values

Body = dict[str, Any]


def hit(item: str, *features: Body) -> Body:
    return {"_id": item, "_score": 1.0, "fields": {"_ltrlog": [{"log_entry1": list(features)}]}}


def event(query: str, action: str, item: str) -> Body:
    told = {"object": {"object_id": item, "object_id_field": "sku"}, "position": {"ordinal": 1}}
    return {"action_name": action, "query_id": query, "client_id": "c", "event_attributes": told}


RESPONSES: list[Body] = [
    {
        "took": 3,
        "query": "red shoes",
        "ext": {"ubi": {"query_id": "q1"}},
        "hits": {
            "total": {"value": 2, "relation": "eq"},
            "hits": [
                hit("boot", {"name": "title", "value": 9.5}, {"name": "body"}),
                hit(
                    "sock", {"name": "title", "value": 2.5}, {"name": "body", "value": 1.25}, {"name": "extra_logging"}
                ),
            ],
        },
    },
    {"query_id": "q2", "hits": {"hits": [hit("hat", {"name": "title", "value": 1.0}, {"name": "body", "value": 0})]}},
]
EVENTS = [
    event("q1", "click", "boot"),
    event("q1", "purchase", "sock"),
    event("q9", "click", "boot"),
    event("q2", "hover", "hat"),
]


def write(path: Path, lines: list[Body]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def read(path: Path, kind: str, **options: Any) -> list[LoggedImpression]:
    reading = LogReader([path], kind, strict=True, **options)
    return list(map(reading.parsed, reading))  # a comprehension's frame would keep the file open after an error


def test_logged_features_of_elasticsearch_are_joined_with_events(tmp_path: Path) -> None:
    path, events = write(tmp_path / "responses.jsonl", RESPONSES), write(tmp_path / "events.jsonl", EVENTS)
    one, other = read(path, "ltrlog", clicks=[events])
    assert (one.query, one.items, one.clicks) == ("red shoes", ["boot", "sock"], [1.0, 0.0])
    assert one.features == [{"title": 9.5, "body": 0.0}, {"title": 2.5, "body": 1.25}]
    assert (other.query, other.clicks) == ("", [0.0])


def test_actions_are_worth_what_is_said(tmp_path: Path) -> None:
    path, events = write(tmp_path / "responses.jsonl", RESPONSES), write(tmp_path / "events.jsonl", EVENTS)
    one, other = read(path, "ltrlog", clicks=[events], actions=parse_action_values("click=0.3, purchase=1, hover=.1"))
    assert (one.clicks, other.clicks) == ([0.3, 1.0], [0.1])
    for text in ("click=much", "click=2", "click=-1"):
        with pytest.raises(InvalidInput, match=text):
            parse_action_values(text)


def test_features_of_solr_are_read_dense_and_sparse(tmp_path: Path) -> None:
    answer = {
        "responseHeader": {"status": 0, "params": {"q": "hats", "fl": "id,[features]"}},
        "response": {"docs": [{"id": "a", "[features]": "t=0.02,u=0.0"}, {"id": "b", "[features]": "u=3"}]},
        "clicks": ["b"],
    }
    (one,) = read(write(tmp_path / "solr.jsonl", [answer]), "solr")
    assert (one.query, one.items, one.clicks) == ("hats", ["a", "b"], [0.0, 1.0])
    assert one.features == [{"t": 0.02, "u": 0.0}, {"t": 0.0, "u": 3.0}]


def test_ubi_holds_queries_and_events_in_one_file(tmp_path: Path) -> None:
    query = {
        "query_id": "q1",
        "client_id": "c7",
        "user_query": 'said "action_name" to me',
        "query_response_objects_ids": ["boot", "sock"],
    }
    (one,) = read(write(tmp_path / "ubi.jsonl", [EVENTS[0], query, EVENTS[1]]), "ubi")
    assert (one.query, one.items, one.clicks, one.user) == (query["user_query"], ["boot", "sock"], [1.0, 0.0], "c7")
    assert one.features is None


@pytest.mark.parametrize(
    ("kind", "line", "words"),
    [
        ("ltrlog", {"hits": {"hits": [{"_id": "a"}]}, "clicks": []}, "_ltrlog"),
        ("ltrlog", {"hits": [1]}, "shape of ltrlog"),
        ("ltrlog", {"rows": []}, "hits.hits"),
        ("ltrlog", {"hits": {"hits": [hit("a", {"name": "t", "value": 1.0})]}}, "neither clicks nor a query_id"),
        ("ltrlog", {"clicks": ["b"], "hits": {"hits": [hit("a", {"name": "t", "value": 1.0})]}}, "clicked but not"),
        ("ltrlog", {"clicks": [], "hits": {"hits": []}}, "empty"),
        ("solr", {"response": {"docs": [{"id": "a"}]}}, "fl=id"),
        ("solr", {"response": {"docs": [{"id": "a", "[features]": "t=x"}]}}, "name=number"),
        ("solr", {}, "response.docs"),
        ("ubi", {"query_id": "q"}, "query_response_objects_ids"),
    ],
)
def test_what_is_no_such_answer_is_named_with_its_place(tmp_path: Path, kind: str, line: Body, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read(write(tmp_path / "log.jsonl", [line]), kind)
    assert "log.jsonl:1" in str(caught.value)
