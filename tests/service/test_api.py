"""The HTTP API: every route, what it answers, and what it says when it refuses."""

from __future__ import annotations

import json
import logging
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from rankloop.errors import InvalidParameter
from rankloop.registry import LEARNERS
from rankloop.service import model as models
from rankloop.service import wire
from rankloop.service.auth import digest, new_token
from rankloop.service.engine import NUMBERS
from rankloop.service.features import Schema
from rankloop.service.metrics import METRICS
from rankloop.service.routes import ROUTES
from rankloop.service.run import opened, prepare, prepare_ranker
from rankloop.service.settings import Settings
from rankloop.service.store import admin
from tests.service.app_fixtures import Body, Clock, Service, fine, items, names, refused, service, shown, teach, until

__all__ = ["service"]  # a fixture

ROOT = Path(__file__).parents[2]


# -- making and changing rankers -----------------------------------------------------------------------------------


def test_a_new_ranker_is_created_with_every_default_spelled_out(service: Service) -> None:
    response = service.http.put("/v1/rankers/put-new", json={"learner": "pdgd", "features": ["a", "b"]})
    assert response.status_code == 201
    status = response.json()
    assert status["name"] == "put-new"
    assert status["spec"] == {
        "learner": "pdgd",
        "parameters": {"rate": 0.1, "decay": 0.9999977, "plus_one": True},
        "features": ["a", "b"],
        "normalisation": "query-minmax",
        "k": 10,
        "exposure": "shadow",
        "displacement": 3,
        "window_seconds": 1800.0,
        "silence": "no-click",
        "timeout_ms": 100.0,
        "seed": 0,
    }
    assert (status["serving"], status["learning"], status["outcomes"], status["lag"]) == ("live", True, 0, 0)
    assert status["learner_process"] == service.engine.worker
    assert fine(service.http.get("/v1/rankers/put-new"))["spec"] == status["spec"]
    assert service.http.put("/v1/rankers/put-new", json=status["spec"]).status_code == 200


def test_a_ranker_that_learned_nothing_may_change_altogether(service: Service) -> None:
    service.put("put-free", features=names(2))
    answer = service.rank("put-free", items(4, 2))
    assert service.put("put-free", learner="greedy", features=names(3), seed=4)["spec"]["learner"] == "greedy"
    assert shown(service.rank("put-free", items(4, 3))) == ["i0", "i1", "i2", "i3"]
    assert service.report(answer, ["i1"]) == "late"  # a list of the ranker that was


def test_what_was_learned_protects_what_it_hangs_on(service: Service) -> None:
    service.put("put-kept", features=names(3))
    teach(service, "put-kept", 3)
    before = service.state("put-kept")
    for change in (
        {"learner": "greedy"},
        {"features": names(4)},
        {"features": ["f1", "f0", "f2"]},
        {"seed": 5},
        {"normalisation": "none"},
        {"parameters": {"alpha": 0.9}},
    ):
        spec: dict[str, Any] = {"features": names(3), **change}
        changed = next(iter(change))
        response = service.http.put("/v1/rankers/put-kept", json=spec)
        refused(response, 409, f"another {changed}", "/v1/rankers/put-kept/reset", "another name", error="conflict")
    assert service.state("put-kept") == before

    free = {"k": 3, "exposure": "full", "displacement": 1, "window_seconds": 5.0, "silence": "ignore"}
    spec = service.put("put-kept", features=names(3), **free, timeout_ms=5000.0)["spec"]
    assert {key: spec[key] for key in free} == free
    answer = service.rank("put-kept", items(6))
    assert len(answer["items"]) == 3
    assert answer["exposure"] == "full"
    assert answer["version"] == "live@3"
    assert service.state("put-kept") == before

    service.act("put-kept", "reset")
    assert service.put("put-kept", learner="greedy", features=names(3))["spec"]["learner"] == "greedy"


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"learner": "pairank", "features": ["a"]}, 422, ["'pairank'", "did you mean 'pairrank'", "pdgd"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"speed": 1}}, 422, ["'pdgd'", "'speed'", "rate"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": -1}}, 422, ["rate is -1", "above 0"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": "fast"}}, 422, ["rate is 'fast'"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": 10**400}}, 422, ["rate is", "finite"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"plus_one": [[]]}}, 422, ["plus_one", "true or false"]),
        ({"learner": "pdgd"}, 422, ["features is empty", "'pdgd'"]),
        ({"features": ["a", "b", "a"]}, 422, ["'a'", "twice"]),
        ({"features": ["a", ""]}, 400, ["$.features[1]"]),
        ({"features": ["a"], "k": 0}, 400, ["$.k"]),
        ({"features": ["a"], "exposure": "fully"}, 400, ["fully", "$.exposure"]),
        ({"features": ["a"], "window_seconds": 0}, 400, ["$.window_seconds"]),
        ({"features": ["a"], "seed": -1}, 400, ["$.seed"]),
        ({"features": ["a"], "seed": 2**63}, 400, ["$.seed"]),
        ({"features": ["a"], "sed": 1}, 400, ["unknown field", "sed"]),
        ({"features": [f"f{j}" for j in range(4097)]}, 413, ["4097 features", "max_features", "4096"]),
        ([], 400, ["object"]),
    ],
)
def test_a_spec_that_breaks_a_rule_is_refused_by_name(
    service: Service, spec: Any, status: int, words: list[str]
) -> None:
    refused(service.http.put("/v1/rankers/put-wrong", json=spec), status, *words)
    refused(service.http.get("/v1/rankers/put-wrong"), 404)


@pytest.mark.parametrize("name", ["-a", ".a", "a" * 65, "a b", "ä", "a\nb", "a\n", "a%00"])
def test_a_ranker_name_must_be_plain(service: Service, name: str) -> None:
    refused(service.http.put(f"/v1/rankers/{quote(name)}", json={"learner": "base"}), 400, "name")
    refused(service.http.post(f"/v1/rankers/{quote(name)}/rank", json={"candidates": [{"id": 1}]}), 400, "name")


def test_rankers_are_listed_and_deleted(service: Service) -> None:
    service.put("list-b", learner="base")
    service.put("list-a", learner="base")
    listed = [ranker["name"] for ranker in fine(service.http.get("/v1/rankers"))]
    assert listed == sorted(listed)
    assert {"list-a", "list-b"} <= set(listed)

    answer = service.rank("list-a", [{"id": 1}, {"id": 2}], request_id="r")
    response = service.http.delete("/v1/rankers/list-a")
    assert (response.status_code, response.content) == (204, b"")
    for again in (
        service.http.delete("/v1/rankers/list-a"),
        service.http.get("/v1/rankers/list-a"),
        service.http.get("/v1/rankers/list-a/versions"),
        service.http.post("/v1/rankers/list-a/rank", json={"candidates": [{"id": 1}]}),
        service.http.post("/v1/rankers/list-a/reset"),
    ):
        refused(again, 404, "'list-a'", "did you mean 'list-b'", error="unknown")
    assert service.report(answer, [1]) == "orphan"

    assert service.put("list-a", learner="base")["outcomes"] == 0  # a new one of that name knows nothing of the old
    assert service.rank("list-a", [{"id": 3}], request_id="r")["items"][0]["id"] == 3


def test_without_any_ranker_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    with Service(tmp_path / "empty.db") as empty:
        assert fine(empty.http.get("/v1/rankers")) == []
        refused(empty.http.get("/v1/rankers/shop"), 404, "PUT")
        refused(empty.http.post("/v1/rankers/shop/rank", json={"candidates": [{"id": 1}]}), 404, "PUT")


# -- ranking -------------------------------------------------------------------------------------------------------


def test_features_by_name_by_list_and_mixed_are_the_same(service: Service) -> None:
    service.put("by-name", features=["f0", "f1"], exposure="full", normalisation="none")
    rows = {"a": [1.0, 5.0], "b": [2.0, -3.5], "c": [0.0, 0.25]}
    lists: list[Body] = [{"id": i, "features": row} for i, row in rows.items()]
    named: list[Body] = [{"id": i, "features": {"f1": row[1], "f0": row[0]}} for i, row in rows.items()]
    for given in (lists, named, [lists[0], named[1], lists[2]]):
        answer = service.rank("by-name", given, explain=True, request_id="the same")
        assert {i["id"]: [i["features"][f]["value"] for f in ("f0", "f1")] for i in answer["items"]} == rows


def test_the_answer_says_what_ranked(service: Service) -> None:
    service.put("answer", features=names(3), exposure="bounded")
    answer = service.rank("answer", items(5), request_id="r1", query="shoes", user="u")
    assert set(answer) == {
        "impression_id",
        "ranker",
        "version",
        "exposure",
        "fallback",
        "items",
        "reason",
        "request_id",
    }
    assert (answer["ranker"], answer["version"], answer["exposure"]) == ("answer", "live@0", "bounded")
    assert (answer["fallback"], answer["reason"], answer["request_id"]) == (False, None, "r1")
    assert set(answer["items"][0]) == {"id", "position", "score"}


@pytest.mark.parametrize("ids", [[3, 1, 2], [-(2**63), 0, 2**63 - 1], ["c", "a", "ü\n😀"], ["1", "01", "1.0"]])
def test_ids_come_back_as_they_were_sent(service: Service, ids: list[Any]) -> None:
    service.put("ids", learner="base", exposure="full")
    answer = service.rank("ids", [{"id": i} for i in ids])
    assert shown(answer) == ids
    assert service.report(answer, [ids[2]]) == "accepted"


def test_k_is_the_requests_the_rankers_or_all_there_is(service: Service) -> None:
    service.put("cut", learner="random", exposure="full", k=2)
    assert len(service.rank("cut", items(5, 1))["items"]) == 2
    assert len(service.rank("cut", items(5, 1), k=4)["items"]) == 4
    assert len(service.rank("cut", items(5, 1), k=1000)["items"]) == 5
    for k in (0, -1, 1001, 2**70, 1.5, True, "2"):
        body = {"candidates": items(2, 1), "k": k}
        refused(service.http.post("/v1/rankers/cut/rank", json=body), 400, "$.k")


def test_the_same_request_id_gets_the_same_bytes(service: Service) -> None:
    service.put("again", learner="random", exposure="full")
    path, body = "/v1/rankers/again/rank", {"candidates": items(9, 1), "request_id": "r", "query": "q", "k": 5}
    first = service.http.post(path, json=body)
    assert all(service.http.post(path, json=body).content == first.content for _ in range(3))
    assert service.status("again")["open_impressions"] == 1
    for other in (
        {**body, "query": "p"},
        {**body, "k": 4},
        {**body, "candidates": items(8, 1)},
        {**body, "candidates": items(9, 1)[::-1]},
    ):
        refused(service.http.post(path, json=other), 409, "'r'", "its own", error="conflict")
    service.put("again-b", learner="random", exposure="full")
    assert service.rank("again-b", items(9, 1), request_id="r", query="q", k=5)["ranker"] == "again-b"
    assert service.http.post(path, json=body).content == first.content


def test_other_features_are_another_request(service: Service) -> None:
    service.put("again-f", features=names(2), normalisation="none")
    candidates = items(4, 2)
    service.rank("again-f", candidates, request_id="r")
    candidates[3]["features"][1] = math.nextafter(candidates[3]["features"][1], 2.0)
    body = {"candidates": candidates, "request_id": "r"}
    refused(service.http.post("/v1/rankers/again-f/rank", json=body), 409, "'r'")


def test_requests_with_the_same_id_at_the_same_time_get_one_answer(service: Service) -> None:
    service.put("at-once", learner="random", exposure="full")
    body = {"candidates": items(9, 1), "request_id": "r"}
    answers: list[bytes] = []

    def ask() -> None:
        answers.append(service.http.post("/v1/rankers/at-once/rank", json=body).content)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert service.status("at-once")["open_impressions"] == 1


def test_contributions_sum_to_the_score(service: Service) -> None:
    service.put("explain", features=names(3), exposure="full")
    teach(service, "explain", 5)
    answer = service.rank("explain", items(6, seed=77), explain=True)
    for item in answer["items"]:
        shares = item["features"]
        assert list(shares) == names(3)
        for share in shares.values():
            assert share["contribution"] == share["value"] * share["weight"]
        assert sum(share["contribution"] for share in shares.values()) == pytest.approx(item["score"], abs=1e-15)
    assert any(share["weight"] != 0 for share in answer["items"][0]["features"].values())
    assert max(answer["items"], key=lambda i: i["score"])["features"]["f0"]["weight"] > 0  # the user likes feature 0
    assert "features" not in service.rank("explain", items(6))["items"][0]
    query = "/v1/rankers/explain/rank?explain=perhaps"
    refused(service.http.post(query, json={"candidates": items(2)}), 400, "explain")


def test_a_learner_without_weights_has_no_scores_to_explain(service: Service) -> None:
    service.put("no-score", learner="random", features=names(2), exposure="full")
    item = service.rank("no-score", items(2, 2), explain=True)["items"][0]
    assert item["score"] is None
    assert "features" not in item


def test_an_unknown_ranker_is_named_with_a_guess(service: Service) -> None:
    service.put("shoes", learner="base")
    response = service.http.post("/v1/rankers/shoos/rank", json={"candidates": [{"id": 1}]})
    refused(response, 404, "'shoos'", "did you mean 'shoes'", error="unknown")


@pytest.mark.parametrize(
    ("candidate", "error", "words"),
    [
        ({"id": "x"}, "invalid", ["'x'", "no features", "'bm25'"]),
        ({"id": "x", "features": {"bm25": 1.0}}, "unknown-feature", ["'x'", "lacks", "'price'"]),
        (
            {"id": "x", "features": {"bm25": 1.0, "prize": 2.0}},
            "unknown-feature",
            ["lacks feature 'price'", "unknown feature 'prize'"],
        ),
        (
            {"id": "x", "features": {"bm25": 1.0, "price": 2.0, "age": 1.0}},
            "unknown-feature",
            ["unknown feature 'age'"],
        ),
        ({"id": "x", "features": [1.0]}, "invalid", ["'x'", "1 features", "has 2"]),
        ({"id": "x", "features": [1.0, 2.0, 3.0]}, "invalid", ["'x'", "3 features", "has 2"]),
        ({"id": "x", "features": []}, "invalid", ["'x'", "0 features"]),
        ({"id": "x", "features": [1.0, 1e200]}, "invalid", ["'x'", "'price'", "1e+200", "1e+100"]),
        ({"id": "x", "features": {"price": -1e101, "bm25": 0}}, "invalid", ["'x'", "'price'", "-1e+101"]),
        ({"id": "x", "features": [10**120, 1]}, "invalid", ["'x'", "'bm25'"]),
        ({"id": "x\0", "features": [1, 1]}, "invalid", ["NUL"]),
        ({"id": "ok", "features": [1, 1]}, "invalid", ["'ok'", "twice"]),
        ({"id": 7, "features": [1, 1]}, "invalid", ["integers", "strings"]),
    ],
)
def test_a_candidate_that_breaks_a_rule_is_named(
    service: Service, candidate: Any, error: str, words: list[str]
) -> None:
    service.put("checked", features=["bm25", "price"])
    body = {"candidates": [{"id": "ok", "features": [0.0, 1.0]}, candidate]}
    refused(service.http.post("/v1/rankers/checked/rank", json=body), 422, *words, error=error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", ["JSON has no NaN"]),
        ("Infinity", ["JSON has no NaN"]),
        ("-Infinity", ["JSON has no NaN"]),
        ("1e999", ["out of range", "features[0]"]),
        ("9" * 400, ["out of range", "features[0]"]),
        ("null", ["float", "null", "features[0]"]),
        ("true", ["float", "bool", "features[0]"]),
        ('"3.5"', ["float", "str", "features[0]"]),
        ("[1]", ["float", "array", "features[0]"]),
        ("{}", ["float", "object", "features[0]"]),
    ],
)
def test_a_feature_that_is_no_number_is_refused(service: Service, text: str, words: list[str]) -> None:
    service.put("numbers", features=["bm25", "price"])
    body = '{"candidates": [{"id": "x", "features": [%s, 1.0]}]}' % text  # noqa: UP031
    refused(service.http.post("/v1/rankers/numbers/rank", content=body), 400, *words, error="malformed")
    body = '{"candidates": [{"id": "x", "features": {"price": 1.0, "bm25": %s}}]}' % text  # noqa: UP031
    refused(service.http.post("/v1/rankers/numbers/rank", content=body), 400, error="malformed")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "empty"),
        (b"{", "too early"),
        (b'{"candidates": [{"id": "a"', "too early"),
        (b'{"candidates": [{"id": "a"}]} x', "trailing"),
        (b"\xff\xfe\x00", "malformed"),
        (b'{"candidates": [{"id": "\xff"}]}', "UTF-8"),
        (b'{"candidates": [{"id": "\\ud800 and some more"}]}', "surrogate"),
        (b"null", "null"),
        (b"[]", "array"),
        (b'{"candidates": []}', "$.candidates"),
        (b'{"candidates": null}', "$.candidates"),
        (b'{"candidates": {"id": "a"}}', "$.candidates"),
        (b"{}", "candidates"),
        (b'{"candidates": [{"id": ""}]}', "$.candidates[0].id"),
        (b'{"candidates": [{"id": 1.5}]}', "$.candidates[0].id"),
        (b'{"candidates": [{"id": true}]}', "$.candidates[0].id"),
        (b'{"candidates": [{"id": null}]}', "$.candidates[0].id"),
        (b'{"candidates": [{"id": 9223372036854775808}]}', "$.candidates[0].id"),
        (b'{"candidates": [{"id": %s}]}' % (b"7" * 5000), "$.candidates[0].id"),
        (b'{"candidates": [{"id": "%s"}]}' % (b"x" * 257), "$.candidates[0].id"),
        (b'{"candidates": [{"features": []}]}', "id"),
        (b'{"candidates": [{"id": "a", "feature": []}]}', "feature"),
        (b'{"candidates": [{"id": "a"}], "query": "%s"}' % (b"x" * 513), "$.query"),
        (b'{"candidates": [{"id": "a"}], "user": "%s"}' % (b"x" * 513), "$.user"),
        (b'{"candidates": [{"id": "a"}], "user": ""}', "$.user"),
        (b'{"candidates": [{"id": "a"}], "request_id": "%s"}' % (b"x" * 513), "$.request_id"),
        (b'{"candidates": [{"id": "a"}], "request_id": ""}', "$.request_id"),
        (b'{"candidates": [{"id": "a"}], "request_id": 5}', "$.request_id"),
        (b"[" * 100_000, ""),
        (b'{"candidates": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "$.candidates"),
    ],
)
def test_a_body_of_another_shape_is_refused_with_the_place(service: Service, body: bytes, word: str) -> None:
    service.put("shapes", learner="base")
    refused(service.http.post("/v1/rankers/shapes/rank", content=body), 400, word, error="malformed")


@pytest.mark.parametrize("field", ["query", "user", "request_id"])
def test_nul_is_no_text(service: Service, field: str) -> None:
    service.put("nul", learner="base")
    body = {"candidates": [{"id": "a"}], field: "a\0b"}
    refused(service.http.post("/v1/rankers/nul/rank", json=body), 422, "NUL", field, error="invalid")


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain", "application/json"])
def test_the_content_type_does_not_matter(service: Service, content_type: str | None) -> None:
    """`curl -d` says that it sends a form."""
    headers = {} if content_type is None else {"content-type": content_type}
    service.http.put("/v1/rankers/curl", content=b'{"learner": "base"}', headers=headers).raise_for_status()
    body = b'{"candidates": [{"id": "a"}, {"id": "b"}]}'
    answer = fine(service.http.post("/v1/rankers/curl/rank", content=body, headers=headers))
    event = f'{{"event_id": "e", "impression_id": "{answer["impression_id"]}", "clicks": ["b"]}}'.encode()
    assert fine(service.http.post("/v1/feedback", content=event, headers=headers))["results"][0]["event_id"] == "e"
    fine(service.http.post("/v1/rankers/curl/versions", content=b'{"note": "x"}', headers=headers))
    fine(service.http.post("/v1/rankers/curl/versions", headers=headers))


def test_every_limit_is_named_when_it_is_passed(tmp_path: Path) -> None:
    limits: Body = {"max_body_bytes": 4000, "max_candidates": 5, "max_features": 3, "max_events": 2}
    with Service(tmp_path / "small.db", **limits) as small:
        small.ready().put("shop", features=names(3))
        path = "/v1/rankers/shop/rank"
        shown(small.rank("shop", items(5)))
        refused(small.http.post(path, json={"candidates": items(6)}), 413, "6 candidates", "max_candidates", "is 5")
        wide = {"features": names(4)}
        refused(small.http.put("/v1/rankers/wide", json=wide), 413, "4 features", "max_features", "is 3")
        event = {"event_id": "e", "impression_id": "i", "clicks": []}
        refused(small.http.post("/v1/feedback", json=[event] * 3), 413, "3 events", "max_events", "is 2")
        large = b'{"candidates": [{"id": "%s"}]}' % (b"x" * 4000)

        def chunks() -> Iterator[bytes]:
            for _ in range(50):
                yield large[:100]

        for where, method in ((path, "POST"), ("/v1/feedback", "POST"), ("/v1/rankers/shop", "PUT")):
            answer = small.http.request(method, where, content=large)
            refused(answer, 413, "max_body_bytes", "4,000", error="over-limit")
            answer = small.http.request(method, where, content=chunks())  # no Content-Length to believe
            refused(answer, 413, "max_body_bytes", error="over-limit")
        shown(small.rank("shop", items(5)))


def test_unknown_paths_and_methods(service: Service) -> None:
    refused(service.http.get("/v1/nothing"), 404, "/v1/nothing", "/docs", error="unknown")
    response = service.http.get("/v1/feedback")
    refused(response, 405)
    assert response.headers["allow"] == "OPTIONS, POST" or "POST" in response.headers["allow"]


# -- feedback ------------------------------------------------------------------------------------------------------


def test_every_event_of_a_batch_is_answered_for_itself(service: Service) -> None:
    service.put("mixed", learner="base", exposure="full")
    first, second, closed = (service.rank("mixed", [{"id": "a"}, {"id": "b"}]) for _ in range(3))
    assert service.report(closed, ["a"]) == "accepted"
    known, other = first["impression_id"], second["impression_id"]
    batch: list[Any] = [
        {"event_id": "mixed-1", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed-1", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed-1", "impression_id": other, "clicks": ["a"]},
        {"event_id": "mixed-2", "impression_id": known, "clicks": ["z", "y"]},
        {"event_id": "mixed-3", "impression_id": "nowhere", "clicks": []},
        {"event_id": "mixed-4", "impression_id": closed["impression_id"], "clicks": ["b"]},
        {"event_id": "mixed-5", "impression_id": known, "grades": {"a": 1.0}},
        {"event_id": "mixed-6", "impression_id": known, "clicks": ["a"], "grades": {"a": 1.0}},
        {"event_id": "mixed-7", "impression_id": known},
        {"event_id": "mixed-8", "impression_id": known, "clicks": ["a"], "when": 5},
        {"event_id": "", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed\0", "impression_id": known, "clicks": ["a"]},
        17,
        {"event_id": "mixed-9", "impression_id": known, "final": True},
        {"event_id": "mixed-10", "impression_id": known, "clicks": ["b"]},
        {"event_id": "mixed-2", "impression_id": other, "clicks": ["b"], "final": True},  # refused before: free
    ]
    response = fine(service.http.post("/v1/feedback", json=batch))
    expected = [
        ("accepted", None),
        ("duplicate", None),
        ("rejected", known),
        ("rejected", "'z', 'y'"),
        ("orphan", "'nowhere'"),
        ("late", "closed"),
        ("rejected", "'mixed' learns from clicks"),
        ("rejected", "only one kind"),
        ("rejected", "clicks"),
        ("rejected", "when"),
        ("rejected", "event_id"),
        ("rejected", "NUL"),
        ("rejected", "object"),
        ("accepted", None),
        ("late", "closed"),
        ("accepted", None),
    ]
    assert len(response["results"]) == len(batch)
    for receipt, event, (status, word) in zip(response["results"], batch, expected, strict=True):
        assert receipt["status"] == status, (event, receipt)
        if word is None:
            assert "reason" not in receipt
        else:
            assert word in receipt["reason"]
        if isinstance(event, dict) and receipt["event_id"] is not None:
            assert receipt["event_id"] == event["event_id"]
    assert response["counts"] == Counter(status for status, _ in expected)
    assert service.settle("mixed") == 3


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "empty"),
        (b"[", "too early"),
        (b'[{"event_id": "a", "impression_id": "b"}', "too early"),
        (b"7", "object"),
        (b"null", "object"),
        (b"[7]", "object"),
        (b'{"event_id": "a"}', "impression_id"),
        (b'{"event_id": 5, "impression_id": "b"}', "$.event_id"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": "x"}', "$.clicks"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": [null]}', "$.clicks[0]"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": [%s]}' % (b"9" * 30), "$.clicks[0]"),
        (b'{"event_id": "a", "impression_id": "b", "grades": {"x": NaN}}', "NaN"),
        (b'{"event_id": "a", "impression_id": "b", "grades": {"x": 1e999}}', "out of range"),
        (b'{"event_id": "a", "impression_id": "b", "final": 1}', "$.final"),
        (b'{"event_id": "%s", "impression_id": "b"}' % (b"a" * 513), "$.event_id"),
        (b'{"event_id": "a", "impression_id": "%s"}' % (b"b" * 65), "$.impression_id"),
        (b'{"event_id": "a\\u0000", "impression_id": "b"}', "NUL"),
        (b'{"event_id": "\xff", "impression_id": "b"}', "UTF-8"),
        (b'[{"event_id": "\xff", "impression_id": "b"}, {"event_id": "c", "impression_id": "b"}]', "UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, "nested"),
    ],
)
def test_one_malformed_event_is_an_error(service: Service, body: bytes, word: str) -> None:
    refused(service.http.post("/v1/feedback", content=body), 400, word, error="malformed")


def test_an_empty_array_of_events_is_refused(service: Service) -> None:
    refused(service.http.post("/v1/feedback", json=[]), 422, "at least one")


def test_clicks_that_come_one_by_one_are_joined(service: Service) -> None:
    service.put("joined", learner="greedy", features=names(3), exposure="full")
    service.put("at-a-time", learner="greedy", features=names(3), exposure="full")
    one, other = (service.rank(name, items(6)) for name in ("joined", "at-a-time"))
    assert shown(one) == shown(other)
    for click in ("i4", "i2", "i4"):
        assert service.report(one, [click], final=False) == "accepted"
    assert service.status("joined")["open_impressions"] == 1
    assert service.report(one, final=True) == "accepted"
    assert service.report(one, ["i1"]) == "late"
    assert service.report(other, ["i2", "i4"]) == "accepted"
    for name in ("joined", "at-a-time"):
        assert service.settle(name) == 1
        assert service.status(name)["open_impressions"] == 0
    arrays = [service.engine.rankers[name].model.learner.state() for name in ("joined", "at-a-time")]
    assert all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])
    assert np.any(arrays[0]["theta_"] != 0)


def test_integer_ids_may_be_reported_as_numbers_or_text(service: Service) -> None:
    service.put("numeric", learner="base", exposure="full")
    answer = service.rank("numeric", [{"id": 10}, {"id": -3}])
    assert service.report(answer, [-3], final=False) == "accepted"
    assert service.report(answer, ["10"], final=False) == "accepted"
    assert service.report(answer, [3], final=False) == "rejected"


def outcome_kinds(service: Service, ranker: str) -> dict[str, int]:
    kinds = ("final", "window", "silent", "ignored")
    return {kind: int(service.metric("rankloop_outcomes_total", ranker=ranker, kind=kind)) for kind in kinds}


def test_a_window_closes_by_itself(service: Service) -> None:
    service.put("window", learner="base", exposure="full", window_seconds=0.2)
    service.rank("window", items(4, 1))
    until(lambda: service.settle("window") == 1, "the window to close", 5)
    assert service.status("window")["open_impressions"] == 0


@pytest.mark.parametrize("silence", ["no-click", "ignore"])
def test_silence_means_what_the_ranker_says(silence: str, tmp_path: Path) -> None:
    """One list with a click, one without any event, one with an event that says: nothing was clicked."""
    clock, name = Clock(), "shop"
    with Service(tmp_path / "silence.db", clock) as service:
        service.ready()
        service.put(name, learner="greedy", features=names(3), exposure="full", window_seconds=600.0, silence=silence)
        clicked, quiet, told = (service.rank(name, items(4, seed=s)) for s in range(3))
        assert service.report(clicked, ["i2"], final=False) == "accepted"
        assert service.report(told, [], final=False) == "accepted"
        assert service.status(name)["open_impressions"] == 3
        clock.ahead = 601.0
        until(lambda: service.status(name)["open_impressions"] == 0, "the windows to close")
        assert service.settle(name) == (3 if silence == "no-click" else 2)
        closed = {"silent": 1, "ignored": 0} if silence == "no-click" else {"silent": 0, "ignored": 1}
        assert outcome_kinds(service, name) == {"final": 0, "window": 2, **closed}
        assert service.metric("rankloop_learned_total", ranker=name) == (3 if silence == "no-click" else 2)
        for answer in (clicked, quiet, told):
            assert service.report(answer, ["i1"]) == "late"
        assert service.settle(name) == (3 if silence == "no-click" else 2)


# -- versions ------------------------------------------------------------------------------------------------------


def weights(service: Service, name: str) -> list[float]:
    """The weights that rank now, as answers explain them."""
    answer = service.rank(name, items(2), explain=True)
    return [share["weight"] for share in answer["items"][0]["features"].values()]


def test_versions_are_kept_listed_and_never_change(service: Service) -> None:
    service.put("kept", features=names(3), exposure="full")
    assert service.versions("kept") == []
    teach(service, "kept", 2)
    response = service.http.post("/v1/rankers/kept/versions", json={"note": "after two"})
    assert response.status_code == 201
    version = response.json()
    assert (version["version"], version["learned"], version["note"]) == (1, 2, "after two")
    teach(service, "kept", 2)
    service.http.post("/v1/rankers/kept/versions").raise_for_status()  # a body is not needed
    listed = service.versions("kept")
    assert [v["version"] for v in listed] == [2, 1]
    assert [v["learned"] for v in listed] == [4, 2]
    assert listed[1] == version
    assert not any(v["serving"] for v in listed)


def test_a_promoted_version_serves_while_learning_goes_on_behind_it(service: Service) -> None:
    service.put("promoted", features=names(3), exposure="full")
    teach(service, "promoted", 3)
    before = weights(service, "promoted")
    status = service.act("promoted", "promote", note="good one")
    assert status["serving"] == "v1"
    assert service.versions("promoted")[0] | {"created": 0} == {
        "version": 1,
        "learned": 3,
        "created": 0,
        "note": "good one",
        "serving": True,
    }
    teach(service, "promoted", 4, seed=50)
    answer = service.rank("promoted", items(4))
    assert answer["version"] == "v1"
    assert weights(service, "promoted") == before
    status = service.status("promoted")
    assert (status["learned"], status["serving"]) == (7, "v1")

    assert service.act("promoted", "promote", version="live")["serving"] == "live"
    assert service.rank("promoted", items(4))["version"] == "live@7"
    assert weights(service, "promoted") != before

    assert service.act("promoted", "promote", version=1)["serving"] == "v1"
    assert weights(service, "promoted") == before
    refused(service.http.post("/v1/rankers/promoted/promote", json={"version": 9}), 404, "no version 9", "it has 1")
    assert service.status("promoted")["serving"] == "v1"


def test_rollback_restores_the_very_bits_and_a_second_one_undoes_it(service: Service) -> None:
    service.put("back", features=names(3), exposure="full")
    teach(service, "back", 3)
    old, old_weights = service.state("back"), weights(service, "back")
    service.http.post("/v1/rankers/back/versions").raise_for_status()
    teach(service, "back", 3, seed=90)
    new, new_weights = service.state("back"), weights(service, "back")
    assert new != old

    status = service.act("back", "rollback")
    assert service.state("back") == service.snapshot("back") == old
    assert weights(service, "back") == old_weights
    assert status["lag"] == 0
    assert service.rank("back", items(4))["version"] == "live@6"  # the log goes on, it is not rewritten
    assert service.versions("back")[0]["note"] == "before the rollback to v1"
    service.act("back", "rollback")
    assert service.state("back") == service.snapshot("back") == new
    assert weights(service, "back") == new_weights
    service.act("back", "rollback", version=1, note="that was better")
    assert service.state("back") == old
    assert service.versions("back")[0]["note"] == "that was better"

    teach(service, "back", 2, seed=120)  # and it learns on from there
    assert service.state("back") != old
    assert service.status("back")["learned"] == 8


def test_rollback_ends_a_promotion(service: Service) -> None:
    service.put("back-live", features=names(3), exposure="full")
    teach(service, "back-live", 2)
    service.act("back-live", "promote")
    teach(service, "back-live", 2, seed=9)
    assert service.act("back-live", "rollback", version=1)["serving"] == "live"
    assert not any(version["serving"] for version in service.versions("back-live"))


def test_rollback_needs_a_version(service: Service) -> None:
    service.put("no-way-back", learner="base")
    refused(service.http.post("/v1/rankers/no-way-back/rollback"), 409, "no versions", "/versions")
    service.act("no-way-back", "versions")
    refused(service.http.post("/v1/rankers/no-way-back/rollback", json={"version": 7}), 404, "no version 7")
    refused(service.http.post("/v1/rankers/no-way-back/rollback", json={"version": "live"}), 422, "promote")
    for version in (0, -1, 1.5, "v1", True, 2**70):
        for action in ("rollback", "promote"):
            response = service.http.post(f"/v1/rankers/no-way-back/{action}", json={"version": version})
            refused(response, 400, "$.version")
    refused(service.http.post("/v1/rankers/no-way-back/versions", json={"note": "x" * 513}), 400, "$.note")
    refused(service.http.post("/v1/rankers/no-way-back/versions", json={"note": "a\0b"}), 422, "NUL")


def test_a_version_of_another_spec_is_neither_served_nor_gone_back_to(service: Service) -> None:
    """It would be read with the wrong features; and a ranker that cannot be loaded must never get into the store."""
    service.put("other-spec", features=names(3), exposure="full")
    teach(service, "other-spec", 2)
    service.act("other-spec", "reset", note="the old features")
    service.put("other-spec", features=names(2), exposure="full")
    for action in ("promote", "rollback"):
        response = service.http.post(f"/v1/rankers/other-spec/{action}", json={"version": 1})
        refused(response, 422, "another spec", "features")
    assert service.status("other-spec")["serving"] == "live"
    service.engine.keeper.cycle()
    teach(service, "other-spec", 1, width=2)


def test_reset_forgets_but_keeps_a_version_and_what_was_shown_before_is_late(service: Service) -> None:
    service.put("reset", features=names(3), exposure="full")
    fresh = service.state("reset")
    teach(service, "reset", 3)
    learned = service.state("reset")
    shown_before = service.rank("reset", items(4))
    assert service.report(shown_before, ["i1"], final=False) == "accepted"
    status = service.act("reset", "reset", note="start again")
    assert service.state("reset") == service.snapshot("reset") == fresh
    assert service.versions("reset")[0]["note"] == "start again"
    assert (status["serving"], status["lag"]) == ("live", 0)
    event = {"event_id": "reset-late", "impression_id": shown_before["impression_id"], "clicks": ["i1"], "final": True}
    assert service.feedback(event)[0]["status"] == "late"
    assert "reset" in service.feedback({**event, "event_id": "reset-later"})[0]["reason"]
    assert service.state("reset") == fresh
    teach(service, "reset", 1)
    assert service.state("reset") != fresh
    service.act("reset", "rollback", version=1)
    assert service.state("reset") == learned


def test_what_comes_while_paused_is_kept_but_never_learned(service: Service) -> None:
    service.put("paused", features=names(3), exposure="full")
    teach(service, "paused", 2)
    before = service.state("paused")
    assert service.act("paused", "pause")["learning"] is False
    first = service.rank("paused", items(5))
    assert service.report(first, ["i3"]) == "accepted"
    waiting = service.rank("paused", items(5))
    assert service.settle("paused") == 3
    assert service.state("paused") == before
    assert service.report(first, ["i3"]) == "late"
    assert service.act("paused", "resume")["learning"] is True
    assert service.settle("paused") == 3
    assert service.state("paused") == before
    assert service.report(waiting, ["i3"]) == "accepted"  # shown while paused, reported after
    assert service.settle("paused") == 4
    assert service.state("paused") != before
    assert service.metric("rankloop_learned_total", ranker="paused") == 3


def test_actions_on_an_unknown_ranker(service: Service) -> None:
    for action in ("promote", "rollback", "reset", "pause", "resume", "versions"):
        refused(service.http.post(f"/v1/rankers/nobody/{action}"), 404, "'nobody'", error="unknown")
        refused(service.http.post(f"/v1/rankers/nobody/{action}", content=b'{"note": "\xff"}'), 400, "UTF-8")
        refused(service.http.post(f"/v1/rankers/nobody/{action}", content=b'{"note"'), 400)


# -- users ---------------------------------------------------------------------------------------------------------


def stored_of(service: Service, user: str) -> tuple[int, int]:
    """How many impressions carry a user's name, and how many events are in the store at all."""

    def count(connection: Any) -> tuple[int, int]:
        own = connection.row("SELECT COUNT(*) FROM impressions WHERE person = ?", user)
        return own[0], connection.row("SELECT COUNT(*) FROM events")[0]

    try:
        return service.engine.database.read(count)
    finally:
        service.engine.database.forget()


def test_a_user_is_erased(tmp_path: Path) -> None:
    with Service(tmp_path / "users.db", snapshot_seconds=0.1) as one:
        one.ready().put("shop", features=names(3), exposure="full")
        for user in ("ann", "bob"):
            for t in range(3):
                answer = one.rank("shop", items(4, seed=t), user=user, request_id=f"{user}-{t}")
                assert one.report(answer, ["i1"], final=t < 2) == "accepted"
        one.settle("shop")
        until(lambda: one.status("shop")["snapshot_at"] == 4, "a snapshot")
        learned = one.state("shop")
        assert stored_of(one, "ann") == (3, 6)
        erased = fine(one.http.delete("/v1/users/ann"))
        assert erased == {"impressions": 3, "events": 3, "pending": 0}
        assert stored_of(one, "ann") == (0, 3)
        assert stored_of(one, "bob")[0] == 3
        assert one.state("shop") == learned
        assert one.status("shop")["open_impressions"] == 1
        assert one.report(answer, ["i2"], final=True) == "accepted"  # bob's
        one.settle("shop")
        assert fine(one.http.delete("/v1/users/ann")) == {"impressions": 0, "events": 0, "pending": 0}
        assert one.rank("shop", items(4), request_id="ann-0")["version"] == "live@5"  # her request_id is free again


def test_what_learning_still_needs_of_a_user_is_unlinked_now_and_deleted_later(tmp_path: Path) -> None:
    with Service(tmp_path / "users.db", snapshot_seconds=3600) as one:
        one.ready().put("shop", features=names(3), exposure="full")
        one.engine.rankers["shop"].snapshot_cost = 1e9  # no snapshot before it is asked for
        answer = one.rank("shop", items(4), user="ann")
        assert one.report(answer, ["i1"]) == "accepted"
        one.settle("shop")
        assert fine(one.http.delete("/v1/users/ann")) == {"impressions": 0, "events": 0, "pending": 1}
        assert stored_of(one, "ann") == (0, 1)
        one.engine.learning.save(one.engine.rankers["shop"], force=True)
        one.engine.keeper.sweep()
        assert stored_of(one, "ann") == (0, 0)


@pytest.mark.parametrize("user", ["a/b", "/a", "a//b", "a/", "auth0|12 3", "ä😀", "a?b#c", "50%2F", "x" * 512, "rank"])
def test_any_user_that_can_be_sent_can_be_erased(service: Service, user: str) -> None:
    service.put("anyone", learner="base")
    service.rank("anyone", [{"id": 1}], user=user)
    assert stored_of(service, user)[0] == 1
    path = "/v1/users/" + quote(user, safe="")
    erased = fine(service.http.request("DELETE", service.http.base_url.copy_with(raw_path=path.encode())))
    assert erased["impressions"] + erased["pending"] == 1
    assert stored_of(service, user)[0] == 0


def test_a_user_that_cannot_be(service: Service) -> None:
    refused(service.http.delete("/v1/users/a%00b"), 422, "NUL")
    refused(service.http.delete("/v1/users/" + "x" * 513), 400, "user")
    refused(service.http.delete("/v1/users/"), 404)
    refused(service.http.delete("/v1/users/%2F"), 404)


# -- status, health, metrics ---------------------------------------------------------------------------------------


def test_the_status_counts(service: Service) -> None:
    service.put("counted", learner="base", exposure="full")
    answers = [service.rank("counted", [{"id": "a"}, {"id": "b"}]) for _ in range(4)]
    assert service.report(answers[0], ["a"], event_id="counted-1") == "accepted"
    assert service.report(answers[0], ["a"], event_id="counted-1") == "duplicate"
    assert service.report(answers[0], ["b"]) == "late"
    assert service.report(answers[1], ["z"]) == "rejected"
    assert service.report(answers[2], ["b"], final=False) == "accepted"
    service.settle("counted")
    status = service.status("counted")
    assert (status["outcomes"], status["learned"], status["lag"], status["open_impressions"]) == (1, 1, 0, 3)
    assert status["counts"] == {"ranked": 4, "accepted": 2, "duplicate": 1, "late": 1, "rejected": 1}
    assert status["learner_process"] == service.engine.worker
    assert status["serving"] == "live"
    assert status["created"] > 1.7e9


def test_alive(service: Service) -> None:
    assert fine(service.http.get("/healthz"))["status"] == "ok"
    assert fine(service.http.get("/readyz")) == {"status": "ready"}


def test_not_ready_while_kernels_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rankings come as fallbacks meanwhile; a ranker that is made just then is warm in the end, too."""
    go = threading.Event()
    true_warm = models.warm

    def slow(spec: wire.Spec) -> None:
        assert go.wait(30)
        true_warm(spec)

    store = tmp_path / "cold.db"
    prepare_ranker(Settings(store=str(store)), "first", wire.Spec(features=names(3), exposure="full"))
    monkeypatch.setattr(models, "warm", slow)
    with Service(store) as cold:
        response = cold.http.get("/readyz")
        refused(response, 503, "warming up", error="not-ready")
        assert response.headers["retry-after"] == "1"
        assert fine(cold.http.get("/healthz"))["status"] == "ok"
        answer = cold.rank("first", items(4))
        assert (answer["fallback"], answer["reason"]) == (True, "warming-up")
        assert shown(answer) == ["i0", "i1", "i2", "i3"]
        assert cold.report(answer, ["i1"]) == "accepted"
        cold.put("second", learner="pdgd", features=names(3), exposure="full")
        go.set()
        cold.ready()
        assert cold.http.get("/readyz").status_code == 200
        until(lambda: all(not cold.rank(name, items(4))["fallback"] for name in ("first", "second")), "the rankers")
        assert cold.settle("first") == 1
        assert cold.metric("rankloop_learned_total", ranker="first") == 0


def test_a_ranker_made_in_the_last_moment_of_warming_up_gets_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rankers were looked at, and before the service says that it is ready."""
    looked, go = threading.Event(), threading.Event()

    def last_moment(*_: Any) -> int:
        looked.set()
        assert go.wait(30)
        return 0

    monkeypatch.setattr("rankloop.service.engine.gc.collect", last_moment)
    with Service(tmp_path / "moment.db") as cold:
        assert looked.wait(30)
        cold.put("late-comer", learner="greedy", features=names(3), exposure="full")
        go.set()
        cold.ready()
        until(lambda: not cold.rank("late-comer", items(4))["fallback"], "the ranker", 5)


SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$')


def test_the_metrics_are_prometheus_text_and_tell_the_story(service: Service) -> None:
    name = "measured"
    service.put(name, learner="random", features=names(2), exposure="full", k=3)
    answers = [service.rank(name, items(5, 2, seed=s)) for s in range(6)]
    for answer in answers[:4]:
        service.report(answer, [answer["items"][1]["id"]])
    service.report(answers[0], [])  # late
    event = {"event_id": "measured-twice", "impression_id": answers[4]["impression_id"], "clicks": []}
    service.feedback(event, event)
    orphans = service.metric("rankloop_feedback_events_total", status="orphan")
    service.feedback({"event_id": "measured-orphan", "impression_id": "nowhere", "clicks": []})
    service.settle(name)

    response = service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    typed = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            typed[line.split()[2]] = line.split()[3]
        elif not line.startswith("# HELP "):
            found = SAMPLE.match(line)
            assert found, line
            float(found[3])
            base = re.sub(r"_(bucket|sum|count)$", "", found[1])
            assert found[1] in typed or typed[base] == "histogram", line
            assert 'worker="' in line
    assert set(typed) <= {metric.prefix + key for key, metric in METRICS.items()}

    def value(metric: str, **labels: str) -> float:
        return service.metric(f"rankloop_{metric}", ranker=name, **labels)

    assert value("rank_requests_total", exposure="full") == 6
    assert value("rank_seconds_count") == 6
    assert {s: value("feedback_events_total", status=s) for s in ("accepted", "duplicate", "late")} == {
        "accepted": 5,
        "duplicate": 1,
        "late": 1,
    }
    assert service.metric("rankloop_feedback_events_total", status="orphan") == orphans + 1
    assert [value("shown_positions_total", position=str(p)) for p in (1, 2, 3, 4)] == [4, 4, 4, 0]
    assert [value("clicked_positions_total", position=str(p)) for p in (1, 2, 3)] == [0, 4, 0]
    assert value("ranked_positions_total") == 18
    assert 0 < value("explored_positions_total") < 18
    assert value("rank_fallbacks_total") == 0
    assert value("learner_lag") == 0
    assert value("learned_total") == value("outcomes_total", kind="final") == 4
    assert value("lease_held") == 1
    assert service.metric("rankloop_http_requests_total", route="/v1/rankers/{name}/rank", status="200") >= 6
    assert service.metric("rankloop_store_commit_seconds_count") > 0
    assert service.metric("process_resident_memory_bytes") > 1e7


def test_a_fallback_is_counted_by_its_reason(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("fails", learner="random", exposure="full")
    monkeypatch.setattr("rankloop.learners.random_order.RandomOrder.rank", lambda *_: 1 / 0)
    logging.getLogger("rankloop").setLevel(logging.ERROR)
    try:
        assert service.rank("fails", items(3, 1))["reason"] == "error"
    finally:
        logging.getLogger("rankloop").setLevel(logging.NOTSET)
    assert service.metric("rankloop_rank_fallbacks_total", ranker="fails", reason="error") == 1
    assert service.status("fails")["counts"] == {"ranked": 1, "fallbacks": 1}


def test_a_thousand_and_more_impression_numbers(tmp_path: Path) -> None:
    """Numbers are reserved in blocks; the second block goes on where the first ends."""
    with Service(tmp_path / "many.db") as one:
        one.ready().put("shop", learner="base", exposure="full")
        live = one.engine.rankers["shop"]
        one.rank("shop", [{"id": 1}])
        for _ in range(NUMBERS - 2):
            live.number()
        for _ in range(2):
            one.rank("shop", [{"id": 1}])
        numbers = one.engine.database.read(lambda c: c.rows("SELECT number FROM impressions ORDER BY number"))
        one.engine.database.forget()
        assert [number for (number,) in numbers] == [0, NUMBERS - 1, NUMBERS]


# -- keys ----------------------------------------------------------------------------------------------------------

KEYS = {"rank": "rank-0123456789abcdef", "feedback": "feed-0123456789abcdef", "admin": "admn-0123456789abcdef"}
SCOPE_OF = {
    ("POST", "/v1/rankers/{name}/rank"): "rank",
    ("POST", "/v1/feedback"): "feedback",
    ("GET", "/metrics"): "any",
    ("GET", "/healthz"): "none",
    ("GET", "/readyz"): "none",
    ("GET", "/openapi.json"): "none",
    ("GET", "/docs"): "none",
    ("GET", "/"): "none",
}


def routes() -> list[tuple[str, str]]:
    """(method, path) of everything that the service answers."""
    found = []
    for handler in ROUTES:
        for method in handler.http_methods:
            found += [(str(getattr(method, "value", method)), re.sub(r":\w+}", "}", path)) for path in handler.paths]
    return sorted(set(found))


def test_every_route_is_in_the_openapi_document(service: Service) -> None:
    document = fine(service.http.get("/openapi.json"))
    hidden = {("GET", path) for path in ("/", "/docs", "/openapi.json")}
    listed = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert listed == set(routes()) - hidden
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
    assert "FeedbackEvent" in document["components"]["schemas"]
    assert document["info"]["title"] == "rankloop"


def test_the_docs_are_a_page(service: Service) -> None:
    for path in ("/docs", "/"):
        response = service.http.get(path)
        assert response.headers["content-type"].startswith("text/html")
        assert "/v1/rankers/{name}/rank" in response.text


def test_every_route_and_every_setting_is_on_the_service_page() -> None:
    page = (ROOT / "docs" / "service.md").read_text("utf-8")
    missing = [f"{method} {path}" for method, path in routes() if path != "/" and not mentioned(page, path)]
    missing += [entry.name for entry in fields(Settings) if f"`{entry.name}`" not in page]
    missing += [entry for entry in wire.Spec.__struct_fields__ if f"`{entry}`" not in page]
    assert not missing, f"docs/service.md does not mention {', '.join(missing)}"


def mentioned(page: str, path: str) -> bool:
    """Whether a path stands on the page, or its last part does in the row of a sister (`/pause`, `/resume`)."""
    return path in page or f"`/{path.rpartition('/')[2]}`" in page


def test_on_loopback_without_keys_everything_is_open(service: Service) -> None:
    assert service.engine.keys.off
    assert service.http.get("/v1/rankers", headers={"authorization": "Bearer whatever"}).status_code == 200


def test_every_route_asks_for_its_scope(tmp_path: Path) -> None:
    keys = ",".join(f"{token}:{scope}" for scope, token in KEYS.items())
    with Service(tmp_path / "keys.db", keys=keys) as locked:
        locked.ready()
        for method, path in routes():
            wanted = SCOPE_OF.get((method, path), "admin")
            url = path.replace("{name}", "nobody").replace("{user}", "ann")

            def ask(token: str | None, method: str = method, url: str = url, scheme: str = "Bearer") -> Any:
                headers = {} if token is None else {b"authorization": f"{scheme} {token}".encode("latin-1")}
                return locked.http.request(method, url, headers=headers)

            if wanted == "none":
                assert ask(None).status_code == 200
                continue
            for response in (
                ask(None),
                ask("wrong-0123456789abcdef"),
                ask(KEYS["admin"], scheme="Basic"),
                ask("\xe4" * 9),
            ):
                refused(response, 401, "key", error="not-authenticated")
                assert response.headers["www-authenticate"] == "Bearer"
            for scope, token in KEYS.items():
                response = ask(token)
                if wanted in (scope, "any"):
                    assert response.status_code not in (401, 403), (method, path, scope)
                else:
                    message = refused(response, 403, f"'{wanted}'", scope, error="not-allowed")
                    assert token not in message
            assert ask(KEYS[wanted] if wanted in KEYS else KEYS["rank"], scheme="bearer").status_code not in (401, 403)


def test_a_key_of_the_store_is_honoured_and_revoked_while_the_service_runs(tmp_path: Path) -> None:
    settings, token = Settings(store=str(tmp_path / "keys.db")), new_token()
    with Service(tmp_path / "keys.db") as one:
        one.ready().put("shop", learner="base")
        with opened(settings) as writer:
            assert writer.do(lambda c: admin.add_key(c, digest(token), "web", "rank+feedback", 0.0))
        one.engine.keeper.cycle()
        key = {"authorization": f"Bearer {token}"}
        body = {"candidates": [{"id": 1}]}
        refused(one.http.post("/v1/rankers/shop/rank", json=body), 401, "Authorization: Bearer")
        fine(one.http.post("/v1/rankers/shop/rank", json=body, headers=key))
        refused(one.http.get("/v1/rankers", headers=key), 403, "'admin'", "rank+feedback")
        fine(one.http.get("/healthz"))
        with opened(settings) as writer:
            assert writer.do(lambda c: admin.drop_key(c, "web"))
        until(lambda: one.http.post("/v1/rankers/shop/rank", json=body).is_success, "the keeper to see it gone", 5)


def test_a_service_that_others_can_reach_needs_a_key(tmp_path: Path) -> None:
    store = str(tmp_path / "open.db")
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(InvalidParameter, match=r"no API key.*rankloop keys create"):
            prepare(Settings(store=store, host=host))
    for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost"):
        prepare(Settings(store=store, host=host))
    prepare(Settings(store=store, host="0.0.0.0", keys=f"{KEYS['rank']}:rank"))
    with opened(Settings(store=store)) as writer:
        writer.do(lambda c: admin.add_key(c, digest(new_token()), "web", "rank", 0.0))
    prepare(Settings(store=store, host="0.0.0.0"))


def test_no_key_at_all_closes_a_service_that_is_not_on_loopback(tmp_path: Path) -> None:
    """Its last key was revoked: that must not open the doors."""
    with Service(tmp_path / "closed.db", host="0.0.0.0") as closed:
        refused(closed.http.get("/v1/rankers"), 401)
        fine(closed.http.get("/healthz"))


# -- the documents agree with the code -----------------------------------------------------------------------------


def test_the_example_in_the_docs_fits_the_wire() -> None:
    page = (ROOT / "docs" / "service.md").read_text("utf-8")
    blocks = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 3
    import msgspec

    spec = msgspec.json.decode(blocks[0], type=wire.Spec)
    request = msgspec.json.decode(blocks[1], type=wire.RankRequest)
    msgspec.json.decode(blocks[2], type=wire.FeedbackEvent)
    assert spec.learner in LEARNERS
    assert Schema(spec).read(request.query, request.candidates).n == 2
    assert json.loads(blocks[1])["candidates"][1]["features"] == [7.2, 0.1, 20]
