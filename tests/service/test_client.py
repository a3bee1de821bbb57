"""The clients against a real server that drops, stalls and refuses: what is sent, how often, and what is raised."""

from __future__ import annotations

import socket
import time
from typing import Any

import numpy as np
import pytest

from rankloop.client import Client, ServiceError, ServiceUnavailable, exchange, requests
from rankloop.core.errors import InvalidInput, RankloopError
from rankloop.wire.calls import FeedbackEvent, RankAnswer
from tests.service.asking import ANSWER, AWAY, HATS, RECEIPTS, STATUS, VERSION, Go, go, short_pauses
from tests.service.scripted import DROP, Asked, Said, Server, script

__all__ = ["go", "short_pauses"]  # fixtures


def test_rank_comes_through_and_a_retry_repeats_the_same_request(go: Go) -> None:
    with Server(script(DROP, AWAY, Said(502, b"bad gateway"), Said(200, ANSWER))) as server:
        answer = go(server.url, "rank", "shop", HATS, query="red", k=1, user="u")
    assert isinstance(answer, RankAnswer)
    assert [item.id for item in answer.items] == ["hat"]
    assert len(server.asked) == 4
    assert {asked.body for asked in server.asked} == {server.asked[0].body}
    sent = server.asked[0].json
    assert len(sent["request_id"]) == 32
    assert (sent["query"], sent["k"], sent["user"]) == ("red", 1, "u")
    assert sent["candidates"] == [
        {"id": "hat", "features": [0.1, 2.0]},
        {"id": "shoe", "features": {"a": 1.0, "b": 2.0}},
    ]


def test_events_keep_their_ids_over_retries(go: Go) -> None:
    events = [
        {"impression_id": "i1", "clicks": np.array([3, 4])},
        FeedbackEvent("mine", "i2", ["hat"], final=True),
        {"impression_id": "i3", "grades": {7: np.float64(2)}, "event_id": "e3"},
    ]
    with Server(script(DROP, AWAY, Said(200, RECEIPTS))) as server:
        assert go(server.url, "feedback", events).counts == {"accepted": 1}
    first, *others = [asked.json for asked in server.asked]
    assert others == [first, first]
    assert len(first[0]["event_id"]) == 32
    assert [event["event_id"] for event in first[1:]] == ["mine", "e3"]
    assert first[0]["clicks"] == [3, 4]
    assert first[2]["grades"] == {"7": 2.0}


def test_click_is_one_line(go: Go) -> None:
    with Server(script(Said(200, RECEIPTS))) as server:
        answer = RankAnswer("i1", "shop", "live@0", "full", False, [])
        assert go(server.url, "click", answer, ["hat"]).status == "accepted"
        go(server.url, "click", "i2", final=False, event_id="e")
        lost = RankAnswer(None, "shop", "live@0", "full", True, [])
        assert go(server.url, "click", lost, ["hat"]).status == "orphan"  # and nothing is sent
        assert go(server.url, "feedback", []).results == []
        with pytest.raises(InvalidInput, match="'hat'"):
            go(server.url, "click", answer, "hat")
    first, second = (asked.json[0] for asked in server.asked)
    assert (first["impression_id"], first["clicks"], first["final"]) == ("i1", ["hat"], True)
    assert (second.pop("event_id"), second.pop("impression_id"), second.pop("clicks")) == ("e", "i2", [])
    assert not any(second.values())  # nothing else is said


def test_retry_after_is_honoured_up_to_a_limit(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    def took(retry_after: str) -> float:
        begin = time.monotonic()
        with Server(script(AWAY._replace(headers=[("Retry-After", retry_after)]), Said(200, STATUS))) as server:
            go(server.url, "ranker", "shop")
        return time.monotonic() - begin

    assert took("0.3") >= 0.3
    monkeypatch.setattr(exchange, "LONGEST_PAUSE", 0.05)
    took("3600")  # not waited for: the test itself would not end


def test_pauses_grow_and_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.1)

    def walk(steps: exchange.Steps[Any]) -> None:
        step = next(steps)
        while True:
            if isinstance(step, float):
                pauses.append(step)
            step = steps.send(exchange.Reply(503) if isinstance(step, exchange.Call) else None)

    pauses: list[float] = []
    for _ in range(40):
        with pytest.raises(ServiceUnavailable):
            walk(requests.Requests("http://x", retries=4).ranker("shop"))
    by_try = np.array(pauses).reshape(40, 4)
    assert (by_try <= 0.1 * 2.0 ** np.arange(4)).all()
    assert (by_try.max(axis=0) > 0.05 * 2.0 ** np.arange(4)).all()
    assert len(set(pauses)) == 160


def test_a_refusal_is_raised_at_once(go: Go) -> None:
    problem = {"error": "unknown-feature", "message": "no feature is called 'prize'; did you mean 'price'?"}
    problem["request_id"] = "1f0c-88"
    with Server(script(Said(422, problem))) as server:
        with pytest.raises(
            ServiceError, match=rf"POST {server.url}/v1/rankers/shop/rank: 422 unknown-feature: "
        ) as got:
            go(server.url, "rank", "shop", HATS)
        found = got.value
        assert (found.status, found.error, found.message, found.request_id) == (422, *problem.values())
        assert not isinstance(got.value, ServiceUnavailable)
        assert isinstance(got.value, RankloopError)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("said", "pattern"),
    [
        (
            Said(401, {"error": "no-key", "message": "a key is needed"}),
            r"a key is needed; give the service's key: Client",
        ),
        (Said(404, b"<html>"), r"404: no reason given; check that this is the URL"),
        (Said(200, b"<html>"), "not from rankloop"),
        (Said(500, b""), "500"),
    ],
)
def test_other_refusals_say_what_to_do(go: Go, said: Said, pattern: str) -> None:
    with Server(script(said)) as server:
        with pytest.raises(ServiceError, match=pattern) as got:
            go(server.url, "ranker", "shop", settings={"key": "secret"})
        assert got.value.status == said.status
        assert "secret" not in str(got.value)
    assert len(server.asked) == 1
    assert server.asked[0].headers["Authorization"] == "Bearer secret"


def test_unavailable_after_the_last_try(go: Go) -> None:
    with Server(script(AWAY)) as server:
        with pytest.raises(ServiceUnavailable, match="503") as got:
            go(server.url, "ranker", "shop", settings={"retries": 1})
        assert (got.value.status, got.value.error) == (503, "draining")
    assert len(server.asked) == 2
    with socket.socket() as listening:  # bound, not listening: connections are refused
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(
            ServiceUnavailable, match=f"GET {url}/v1/rankers: .*check that the service is running"
        ) as got:
            go(url, "rankers", settings={"retries": 1})
    assert (got.value.status, got.value.error) == (0, "unreachable")


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("keep_version", {}),
        ("reset", {}),
        ("rollback", {"version": 3}),
        ("promote", {}),
        ("put_ranker", {"features": ["a"], "if_match": '"7-00"'}),
        ("delete_ranker", {}),
    ],
)
def test_every_try_of_an_operator_action_carries_the_same_idempotency_key(
    go: Go, method: str, named: dict[str, Any]
) -> None:
    too_many = Said(429, {"error": "too-many", "message": "the key sent may ask 1 times a second"})
    done = {"keep_version": Said(200, VERSION), "delete_ranker": Said(204, b"")}.get(method, Said(200, STATUS))
    with Server(script(DROP, AWAY, too_many, done)) as server:
        go(server.url, method, "shop", **named)
        go(server.url, method, "shop", **named)
    keys = [asked.headers["Idempotency-Key"] for asked in server.asked]
    assert len(keys) == 5
    assert len(set(keys[:4])) == 1
    assert keys[4] != keys[0]  # another action


def test_an_operator_action_without_an_answer_may_have_been_carried_out(go: Go) -> None:
    with (
        Server(script(DROP)) as server,
        pytest.raises(ServiceUnavailable, match=r"\(2 tries\); it may have been carried out: check before"),
    ):
        go(server.url, "rollback", "shop", settings={"retries": 1})


def test_connections_are_kept_and_the_key_is_not_shown() -> None:
    def answer(asked: Asked) -> Said:
        return Said(200, [STATUS] if asked.path == "/v1/rankers" else STATUS)

    with Server(answer) as server, Client(server.url, key="secret") as client:
        for _ in range(3):
            client.ranker("shop")
        assert client.rankers()[0].spec.features == ["a"]
        assert repr(client) == f"Client({server.url!r})"
    assert server.connections == 1
