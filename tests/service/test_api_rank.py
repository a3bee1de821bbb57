"""Ranking over HTTP: every way to send candidates, and every way to get it wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.core import codec
from tests.service.app_fixtures import Body, Service, fine, items, names, refused, service, shown, teach
from tests.service.test_features import FORMS
from tests.service.test_features import body as in_form
from tests.service.truths import read

__all__ = ["service"]  # a fixture


def test_the_answer_names_the_model(service: Service) -> None:
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
        "experiment",
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


def test_k_of_request_spec_or_candidates(service: Service) -> None:
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
        refused(service.http.post(path, json=other), 409, "'r'", error="conflict")
    service.put("again-b", learner="random", exposure="full")
    assert service.rank("again-b", items(9, 1), request_id="r", query="q", k=5)["ranker"] == "again-b"
    assert service.http.post(path, json=body).content == first.content


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
        assert list(shares) == [*names(3), "baseline", "this query"]
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
    refused(response, 404, "'shoos'", "'shoes'", error="unknown")


@pytest.mark.parametrize(
    ("candidate", "error", "words"),
    [
        ({"id": "x"}, "invalid", ["'x'", "features", "'bm25'"]),
        ({"id": "x", "features": {"bm25": 1.0}}, "unknown-feature", ["'x'", "'price'"]),
        (
            {"id": "x", "features": {"bm25": 1.0, "prize": 2.0}},
            "unknown-feature",
            ["'price'", "'prize'"],
        ),
        (
            {"id": "x", "features": {"bm25": 1.0, "price": 2.0, "age": 1.0}},
            "unknown-feature",
            ["'age'"],
        ),
        ({"id": "x", "features": [1.0]}, "invalid", ["'x'", "features"]),
        ({"id": "x", "features": [1.0, 2.0, 3.0]}, "invalid", ["'x'", "features"]),
        ({"id": "x", "features": []}, "invalid", ["'x'", "features"]),
        ({"id": "x", "features": [1.0, 1e200]}, "invalid", ["'x'", "'price'", "1e+200", "1e+100"]),
        ({"id": "x", "features": {"price": -1e101, "bm25": 0}}, "invalid", ["'x'", "'price'", "-1e+101"]),
        ({"id": "x", "features": [10**120, 1]}, "invalid", ["'x'", "'bm25'"]),
        ({"id": "x\0", "features": [1, 1]}, "invalid", ["NUL"]),
        ({"id": "ok", "features": [1, 1]}, "invalid", ["'ok'"]),
        ({"id": 7, "features": [1, 1]}, "invalid", []),
    ],
)
def test_invalid_candidates_are_named(service: Service, candidate: Any, error: str, words: list[str]) -> None:
    service.put("checked", features=["bm25", "price"])
    body = {"candidates": [{"id": "ok", "features": [0.0, 1.0]}, candidate]}
    refused(service.http.post("/v1/rankers/checked/rank", json=body), 422, *words, error=error)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", ""),
        (b"{", ""),
        (b'{"candidates": [{"id": "a"', ""),
        (b'{"candidates": [{"id": "a"}]} x', ""),
        (b"\xff\xfe\x00", ""),
        (b'{"candidates": [{"id": "\xff"}]}', "UTF-8"),
        (b'{"candidates": [{"id": "\\ud800 and some more"}]}', ""),
        (b"null", ""),
        (b"[]", ""),
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
        (b'{"candidates": [{"features": []}]}', ""),
        (b'{"candidates": [{"id": "a", "feature": []}]}', ""),
        (b'{"candidates": [{"id": "a"}], "query": "%s"}' % (b"x" * 513), "$.query"),
        (b'{"candidates": [{"id": "a"}], "user": "%s"}' % (b"x" * 513), "$.user"),
        (b'{"candidates": [{"id": "a"}], "user": ""}', "$.user"),
        (b'{"candidates": [{"id": "a"}], "request_id": "%s"}' % (b"x" * 513), "$.request_id"),
        (b'{"candidates": [{"id": "a"}], "request_id": ""}', "$.request_id"),
        (b'{"candidates": [{"id": "a"}], "request_id": 5}', "$.request_id"),
        (b'{"ids": ["a"], "features": [[1', ""),
        (b'{"ids": ["a"], "features": [[1, NaN]]}', "JSON"),
        (b'{"ids": ["\xff"], "features": [[1]]}', "UTF-8"),
        (b'{"ids": [], "features": []}', "$.ids"),
        (b'{"features": [[1]]}', "`ids`"),
        (b'{"ids": ["a"], "features": %s1%s}' % (b"[" * 5000, b"]" * 5000), "$.features"),
        (b"[" * 100_000, ""),
        (b'{"candidates": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "$.candidates"),
    ],
)
def test_bodies_of_another_shape_are_refused(service: Service, body: bytes, word: str) -> None:
    service.put("shapes", learner="base")
    refused(service.http.post("/v1/rankers/shapes/rank", content=body), 400, word, error="malformed")


@pytest.mark.parametrize("field", ["query", "user", "request_id"])
def test_nul_characters_are_refused(service: Service, field: str) -> None:
    service.put("nul", learner="base")
    body = {"candidates": [{"id": "a"}], field: "a\0b"}
    refused(service.http.post("/v1/rankers/nul/rank", json=body), 422, "NUL", field, error="invalid")


def test_exceeded_limits_are_named(tmp_path: Path) -> None:
    limits: Body = {"max_body_bytes": 4000, "max_candidates": 5, "max_features": 3, "max_events": 2}
    with Service(tmp_path / "small.db", **limits) as small:
        small.ready().put("shop", features=names(3))
        path = "/v1/rankers/shop/rank"
        shown(small.rank("shop", items(5)))
        refused(small.http.post(path, json={"candidates": items(6)}), 413, "max_candidates")
        wide = {"features": names(4)}
        refused(small.http.put("/v1/rankers/wide", json=wide), 413, "features", "max_features")
        event = {"event_id": "e", "impression_id": "i", "clicks": []}
        refused(small.http.post("/v1/feedback", json=[event] * 3), 413, "max_events")
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
    refused(service.http.get("/v1/nothing"), 404, "/v1/nothing", error="unknown")
    response = service.http.get("/v1/feedback")
    refused(response, 405)
    assert response.headers["allow"] == "OPTIONS, POST" or "POST" in response.headers["allow"]


def rank(service: Service, name: str, sent: bytes, **query: str) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/rank", content=sent, params=query))


def stored_rows(service: Service, answer: Any) -> Any:
    """The rows that were stored with an impression."""
    ((stored,),) = read(
        service.engine.settings.store, "SELECT body FROM impressions WHERE id = ?", answer["impression_id"]
    )
    impression = codec.load_impression(stored)
    assert impression.features is not None
    return impression.features


def test_defaults_are_logged_and_may_change(service: Service) -> None:
    """Also once something was learned: no state hangs on it. The old code knew no defaults, and kept a changed spec's
    features for as long as the ranker was loaded."""
    spec: Any = {"learner": "greedy", "features": ["a", "b"], "normalization": "none", "defaults": {"b": 0.5}}
    service.put("filled", **spec)
    gaps = [[1.0, None], [2.0, 4.0]]
    answer = rank(service, "filled", in_form("rows", ["x", "y"], gaps, ["a", "b"]))
    assert stored_rows(service, answer).tolist() == [[1.0, 0.5], [2.0, 4.0]]
    assert service.report(answer, ["y"]) == "accepted"
    assert service.settle("filled") == 1
    service.put("filled", **{**spec, "defaults": {"b": 7.0}})
    assert service.status("filled")["learned_impressions"] == 1
    for form in FORMS:
        answer = rank(service, "filled", in_form(form, ["x", "y"], gaps, ["a", "b"]))
        assert stored_rows(service, answer).tolist() == [[1.0, 7.0], [2.0, 4.0]]
    service.put("filled", **{**spec, "defaults": {}})
    for form in FORMS:
        sent = in_form(form, ["x", "y"], gaps, ["a", "b"])
        refused(
            service.http.post("/v1/rankers/filled/rank", content=sent),
            422,
            "'x'",
            "'b'",
            "defaults",
            error="invalid",
        )


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ('[[1, "2"], [3, 4]]', ["`str`", "'price'", "'p'"]),
        ("[[1, 2], [true, 4]]", ["`bool`", "'bm25'", "'q'"]),
        ('{"bm25": [1, 2], "price": [1, {}]}', ["`object`", "'price'", "'q'"]),
        ('{"bm25": [1, 2], "price": 7}', ["`int`", "'price'"]),
        ('"no base64!"', ["base64", "$.features"]),
        ("[[1, 2], [1, 2, true]]", ["`bool`"]),  # a column that the ranker does not have
    ],
)
def test_non_numbers_in_tables_are_named(service: Service, features: str, words: list[str]) -> None:
    service.put("tables", features=["bm25", "price"])
    sent = f'{{"ids": ["p", "q"], "features": {features}}}'
    refused(service.http.post("/v1/rankers/tables/rank", content=sent), 400, *words, error="malformed")
