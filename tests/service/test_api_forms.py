"""Every form of a request over HTTP, values that are missing, and what is said of a table that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankloop.core import codec
from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, teach
from tests.service.test_features import FORMS, body
from tests.service.truths import read

__all__ = ["service"]


def rank(service: Service, name: str, sent: bytes, **query: str) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/rank", content=sent, params=query))


def ranked_by(service: Service, answer: Any) -> Any:
    """The rows that were stored with an impression."""
    ((stored,),) = read(
        service.engine.settings.store, "SELECT body FROM impressions WHERE id = ?", answer["impression_id"]
    )
    impression = codec.load_impression(stored)
    assert impression.features is not None
    return impression.features


def test_every_form_gets_the_same_list_with_the_same_scores(service: Service) -> None:
    spec: Any = {"learner": "greedy", "features": names(3), "exposure": "full", "parameters": {"init": "base"}}
    service.put("forms", **spec)
    teach(service, "forms", 20)
    service.act("forms", "pause")
    rows = [[0.25, 1.5, -3.0], [0.5, 0.125, 2.0], [1.0, 0.5, 0.75], [0.0, -1.0, 8.0]]  # float32 has them all
    answers = [rank(service, "forms", body(form, list("abcd"), rows, names(3), query="q")) for form in FORMS]
    assert all(answer["items"] == answers[0]["items"] for answer in answers)
    assert len({tuple(map(tuple, ranked_by(service, answer).tolist())) for answer in answers}) == 1
    again = [rank(service, "forms", body(form, list("abcd"), rows, names(3), request_id="one")) for form in FORMS]
    assert all(answer == again[0] for answer in again)  # the same request, whichever way it was written


def test_a_default_stands_in_the_list_and_in_the_log_and_may_change(service: Service) -> None:
    """Also once something was learned: no state hangs on it. The old code knew no defaults, and kept a changed spec's
    features for as long as the ranker was loaded."""
    spec: Any = {"learner": "greedy", "features": ["a", "b"], "normalisation": "none", "defaults": {"b": 0.5}}
    service.put("filled", **spec)
    gaps = [[1.0, None], [2.0, 4.0]]
    answer = rank(service, "filled", body("rows", ["x", "y"], gaps, ["a", "b"]))
    assert ranked_by(service, answer).tolist() == [[1.0, 0.5], [2.0, 4.0]]
    assert service.report(answer, ["y"]) == "accepted"
    assert service.settle("filled") == 1
    service.put("filled", **{**spec, "defaults": {"b": 7.0}})
    assert service.status("filled")["learned_impressions"] == 1
    for form in FORMS:
        answer = rank(service, "filled", body(form, ["x", "y"], gaps, ["a", "b"]))
        assert ranked_by(service, answer).tolist() == [[1.0, 7.0], [2.0, 4.0]]
    service.put("filled", **{**spec, "defaults": {}})
    for form in FORMS:
        sent = body(form, ["x", "y"], gaps, ["a", "b"])
        refused(
            service.http.post("/v1/rankers/filled/rank", content=sent),
            422,
            "'x'",
            "'b'",
            "defaults",
            error="invalid",
        )


def test_defaults_that_are_of_no_feature_are_refused(service: Service) -> None:
    response = service.http.put("/v1/rankers/wrong", json={"features": ["a"], "defaults": {"b": 1.0}})
    refused(response, 422, "'b'", "'a'")


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
def test_what_is_no_number_in_a_table_is_named(service: Service, features: str, words: list[str]) -> None:
    service.put("tables", features=["bm25", "price"])
    sent = f'{{"ids": ["p", "q"], "features": {features}}}'
    refused(service.http.post("/v1/rankers/tables/rank", content=sent), 400, *words, error="malformed")


def test_letters_of_packed_features_are_not_taken_for_a_nan(service: Service) -> None:
    """The old code looked for them anywhere in the body."""
    service.put("letters", features=["bm25"])
    sent = '{"ids": ["p"], "features": "NaNNaN==", "k": 0}'
    told = refused(service.http.post("/v1/rankers/letters/rank", content=sent), 400, "$.k", error="malformed")
    assert "JSON has no NaN" not in told


def test_too_many_are_refused_in_every_form(service: Service) -> None:
    service.put("many", learner="base", features=["a"])
    rows = [[1.0]] * 1001
    for form in FORMS:
        sent = body(form, list(range(1001)), rows, ["a"])
        refused(service.http.post("/v1/rankers/many/rank", content=sent), 413, "max_candidates", error="over-limit")


def test_a_ranker_without_features_takes_ids_alone(service: Service) -> None:
    service.put("bare", learner="base")
    assert shown(rank(service, "bare", json.dumps({"ids": [3, 1, 2], "k": 2}).encode())) == [3, 1]
    assert shown(service.rank("bare", items(2))) == ["i0", "i1"]
