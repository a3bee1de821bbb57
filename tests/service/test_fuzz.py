"""Whatever is sent: no server error, always a Problem that says why, and the ranker works afterwards."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rankloop.core.registry import LEARNERS
from rankloop.service.api.openapi import document
from rankloop.wire.basics import Problem
from tests.service.app_fixtures import Body, Service, fine, items, names, shown, slow_except, teach

NAME = "shop"
SPEC: Body = {"features": names(3), "exposure": "bounded", "timeout_ms": 60_000.0}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BOUNDED = settings(
    max_examples=20,
    database=None,
    phases=[Phase.generate],  # what is found is printed as it is: shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """A body that the document calls text: it is sent as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    logger = logging.getLogger("rankloop")
    logger.setLevel(logging.CRITICAL)  # a learner with wild parameters fails in its warm-up, and that is logged
    with Service(tmp_path_factory.mktemp("fuzz") / "fuzz.db") as running:
        yield running.ready()
    logger.setLevel(logging.NOTSET)


def prepared(service: Service) -> Service:
    """With the ranker that the paths name, whatever the example before did to it."""
    live = service.engine.rankers.get(NAME)
    if live is None or live.row.spec.features != SPEC["features"] or live.row.serving is not None:
        service.http.delete(f"/v1/rankers/{NAME}")
        service.put(NAME, **SPEC)
    return service


def check_alive(service: Service) -> None:
    """The ranker ranks and learns as ever."""
    service.http.delete(f"/v1/rankers/{NAME}")
    service.put(NAME, **SPEC)
    teach(service, NAME, 2)
    answer = service.rank(NAME, items(5))
    assert not answer["fallback"]
    assert len(shown(answer)) == 5
    assert fine(service.http.get("/healthz"))["status"] == "ok"


def check_answer(response: httpx.Response) -> None:
    """Success, or a Problem with a message; never a server error."""
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/json"
        problem = msgspec.json.decode(response.content, type=Problem, strict=True)
        assert problem.error
        assert problem.message


# -- by the document -----------------------------------------------------------------------------------------------


def _operations() -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(deepcopy(document()))  # bodies are changed below, examples too
    results: Any = schema.get_all_operations()
    found = [result.ok() for result in results]
    return {f"{operation.method.upper()} {operation.path}": operation for operation in found}


OPERATIONS = _operations()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    "operation",
    slow_except(OPERATIONS, "POST /v1/rankers/{name}/rank", "POST /v1/feedback", "PUT /v1/rankers/{name}"),
)
def test_the_service_does_as_its_document_says(fuzzed: Service, operation: str, mode: GenerationMode) -> None:
    impressions = [fuzzed_answer["impression_id"] for fuzzed_answer in _answers(prepared(fuzzed), 3)]

    @BOUNDED
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        case = data.draw(OPERATIONS[operation].as_strategy(generation_mode=mode))
        if "name" in (case.path_parameters or {}) and data.draw(st.booleans()):
            case.path_parameters["name"] = NAME
        if mode is GenerationMode.POSITIVE and data.draw(st.integers(0, 3)):
            acquaint(case.body, operation.startswith("PUT"), impressions, data.draw)
        response = send(prepared(fuzzed), case)
        check_answer(response)
        case.validate_response(response, checks=CHECKS)

    try:
        one()
    except Exception as error:
        if "Can't generate" in str(error) or "not possible" in str(error):
            pytest.skip(f"nothing wrong can be sent: {error}")
        raise
    check_alive(fuzzed)


def acquaint(body: Any, spec: bool, impressions: list[str], draw: Any) -> None:
    """Put names into a body that mean something here: a document cannot say which learners or impressions there are."""
    for event in body if isinstance(body, list) else [body]:
        if isinstance(event, dict) and "impression_id" in event:
            event["impression_id"] = draw(st.sampled_from(impressions))
    if not isinstance(body, dict):
        return
    for n, candidate in enumerate(body.get("candidates", ())):
        candidate["id"] = f"i{n}"
        candidate["features"] = draw(st.lists(st.floats(-1e100, 1e100), min_size=3, max_size=3))
    if spec:
        body.update(learner=draw(st.sampled_from(sorted(LEARNERS))), parameters={}, features=["some", "more"])


def _answers(service: Service, count: int) -> list[Any]:
    return [service.rank(NAME, items(4)) for _ in range(count)]


def send(service: Service, case: Any) -> httpx.Response:
    """A generated case over the test's own client."""
    wanted = case.as_transport_kwargs(base_url=str(service.http.base_url))
    content: Any = wanted.get("data")
    if "json" in wanted:
        content = json.dumps(wanted["json"]).encode()
    headers = {"content-type": wanted["headers"]["Content-Type"]} if "Content-Type" in wanted["headers"] else {}
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return service.http.request(
        wanted["method"], wanted["url"], params=wanted.get("params"), content=content, headers=headers
    )


# -- bodies that were valid once -----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = ["id", "features", "candidates", "query", "k", "request_id", "user", "event_id", "impression_id", "clicks"]
KEYS += ["grades", "final", "f0", "f1"]


def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with something in it replaced, dropped, doubled or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: mutated(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], mutated(draw, value[at]), *value[at + 1 :]]
    what = draw(st.sampled_from(["replace", "drop", "double", "add", "nothing"]))
    if what == "drop" and isinstance(value, dict | list) and value:
        return dict(list(value.items())[1:]) if isinstance(value, dict) else value[1:]
    if what == "double" and isinstance(value, list):
        return value + value
    if what == "add" and isinstance(value, dict):
        return {**value, draw(st.sampled_from(KEYS) | st.text(max_size=5)): draw(JSON)}
    return value if what == "nothing" else draw(JSON)


@st.composite
def bodies(draw: st.DrawFn, valid: Any) -> bytes:
    """JSON near the valid one as `json.dumps` writes it, with NaN and lone surrogates, or a part of it, or damaged."""
    value = valid
    for _ in range(draw(st.integers(1, 3))):
        value = mutated(draw, value)
    text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    how = draw(st.sampled_from(["whole", "whole", "cut", "byte", "twice"]))
    if how == "cut":
        return text[: draw(st.integers(0, len(text)))]
    if how == "byte" and text:
        at = draw(st.integers(0, len(text) - 1))
        return text[:at] + bytes([draw(st.integers(0, 255))]) + text[at + 1 :]
    return text * 2 if how == "twice" else text


RANK = {"candidates": items(3), "query": "shoes", "k": 2, "user": "ann"}
EVENT = {"event_id": "fuzz", "impression_id": "IMPRESSION", "clicks": ["i0"], "final": False}
LOGGED = {"query": "shoes", "items": items(3), "clicks": ["i0"], "user": "ann", "propensity": 0.5, "shown": 2}
HARD = settings(BOUNDED, max_examples=3 * settings().max_examples)


def test_no_body_breaks_rank(fuzzed: Service) -> None:
    prepared(fuzzed)

    @HARD
    @given(body=bodies(RANK) | st.binary(max_size=200))
    def one(body: bytes) -> None:
        check_answer(fuzzed.http.post(f"/v1/rankers/{NAME}/rank", content=body))
        check_answer(fuzzed.http.post(f"/v1/rankers/{NAME}/rank/", content=body))  # the framework's own way

    one()
    check_alive(fuzzed)


def test_no_body_breaks_feedback(fuzzed: Service) -> None:
    impression = prepared(fuzzed).rank(NAME, items(3))["impression_id"].encode()

    @HARD
    @given(body=bodies(EVENT) | bodies([EVENT, {**EVENT, "event_id": "fuzz-2"}]) | st.binary(max_size=200))
    def one(body: bytes) -> None:
        known = body.replace(b"IMPRESSION", impression)
        response = fuzzed.http.post("/v1/feedback", content=known)
        check_answer(response)
        if response.status_code == 200:
            answer = response.json()
            assert sum(answer["counts"].values()) == len(answer["results"]) > 0
        check_answer(fuzzed.http.post("/v1/feedback/", content=known))

    one()
    check_alive(fuzzed)


def test_no_body_breaks_a_warm_start(fuzzed: Service) -> None:
    prepared(fuzzed)

    @HARD
    @given(body=bodies(LOGGED) | st.lists(bodies(LOGGED), max_size=3).map(b"\n".join) | st.binary(max_size=200))
    def one(body: bytes) -> None:
        response = fuzzed.http.post(f"/v1/rankers/{NAME}/warm", content=body)
        check_answer(response)
        if response.status_code == 200:
            answer = response.json()
            taken = answer["lists"] + answer["known"] + answer["skipped"]
            assert taken == sum(1 for line in body.split(b"\n") if line.strip())
            assert len(answer["problems"]) == answer["skipped"]

    one()
    fuzzed.settle(NAME)
    assert fuzzed.metric("rankloop_learn_errors_total", ranker=NAME) == 0
    check_alive(fuzzed)


def test_no_body_breaks_the_making_of_rankers(fuzzed: Service) -> None:
    valid = {**SPEC, "learner": "pairrank", "parameters": {"alpha": 0.3, "prior": 3.0}, "k": 4, "seed": 3}

    @settings(HARD, max_examples=2 * settings().max_examples)
    @given(body=bodies(valid))
    def one(body: bytes) -> None:
        check_answer(fuzzed.http.put("/v1/rankers/made", content=body))
        if "made" in fuzzed.engine.rankers:
            width = len(fuzzed.engine.rankers["made"].row.spec.features)
            shown(fuzzed.rank("made", items(3, width) if width else [{"id": 1}]))

    one()
    check_alive(fuzzed)


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/rankers/alike/rank", "/v1/rankers/unknown/rank"])
def test_the_framework_and_the_lane_past_it_say_the_same(fuzzed: Service, path: str) -> None:
    """A slash at the end goes the framework's way; both must answer alike, the impression's id aside."""
    fuzzed.put("alike", **{**SPEC, "exposure": "shadow"})
    impression = fuzzed.rank("alike", items(3))["impression_id"]
    event = {"event_id": "alike", "impression_id": impression, "clicks": ["i1"]}
    sent: list[Any] = [b"", b"{", b"\xff", b'"\xff"', b'{"k": NaN}', b"[" * 5000 + b"]" * 5000, b"x" * (8 * 2**20 + 1)]
    sent += [json.dumps(value).encode() for value in (None, [], {}, [7], event, [event, 3], {"candidates": items(3)})]
    for body in sent:
        answers = []
        for way in (path, f"{path}/"):
            response = fuzzed.http.post(way, content=body, headers={"x-request-id": "same"})
            check_answer(response)
            told = response.json()
            told.pop("impression_id", None)
            answers.append((response.status_code, response.headers["content-type"], told))
        if "accepted" not in answers[0][2].get("counts", {}):  # the second time it is a duplicate
            assert answers[0] == answers[1]
