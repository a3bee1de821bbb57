"""The clients against a real server that drops, stalls and refuses: what is sent, how often, and what is raised."""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rankloop import _exchange, _requests
from rankloop.client import AsyncCatalogue, AsyncClient, Catalogue, Client, ServiceError, ServiceUnavailable
from rankloop.errors import InvalidInput, InvalidParameter, RankloopError
from rankloop.service.wire.calls import Candidate, FeedbackEvent, RankAnswer
from rankloop.service.wire.rankers import Spec
from tests.service.running import PATIENCE
from tests.service.scripted import DROP, Asked, Said, Server, script

Go = Callable[..., Any]

ANSWER = {
    "impression_id": "i1",
    "ranker": "shop",
    "version": "live@0",
    "exposure": "full",
    "fallback": False,
    "items": [{"id": "hat", "position": 1, "score": 0.5}],
}
RECEIPTS = {"results": [{"event_id": "e", "status": "accepted"}], "counts": {"accepted": 1}}
STATUS = {
    "name": "shop",
    "spec": {"features": ["a"]},
    "serving": "live",
    "learning": True,
    "outcomes": 3,
    "learned": 2,
    "knows": 2,
    "lag": 1,
    "open_impressions": 0,
    "learner_process": None,
    "snapshot_at": None,
    "created": 1.0,
    "etag": '"7-00"',
    "ready": True,
    "warming": None,
    "origin": {"generation": 1, "how": "made", "version": None, "kept": None, "since": 1.0, "learned_since": 2},
}
COLD = {**STATUS, "ready": False, "warming": "kernels"}
VERSION = {"version": 1, "learned": 5, "created": 1.0, "note": "", "serving": False}
SERIES = {"ranker": "shop", "now": 9.0, "since": 1.0, "step": 10, "points": [{"start": 1.0}], "positions": []}
MOVEMENT = {
    "ranker": "shop",
    "version": "live@1",
    "lists": 1,
    "displacement": 0.0,
    "agreement": 1.0,
    "same_first": 1.0,
    "brought_up": 0.0,
    "memory": {"queries": 1, "share": None},
    "drift": {"alarms": 0, "latest": [], "since": 0, "lists": 1},
}
WEIGHTS = {"ranker": "shop", "version": "live@1", "linear": True, "features": 0, "weights": []}
HATS = [{"id": "hat", "features": [0.1, 2.0]}, {"id": "shoe", "features": {"a": 1, "b": 2}}]
AWAY = Said(503, {"error": "draining", "message": "the service is going down"})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_exchange, "FIRST_PAUSE", 0.005)


@pytest.fixture(params=["blocking", "async"])
def go(request: pytest.FixtureRequest) -> Go:
    """Calls a method of either client."""

    def call(url: str, method: str, *args: Any, settings: dict[str, Any] | None = None, **named: Any) -> Any:
        if request.param == "blocking":
            with Client(url, **settings or {}) as client:
                return getattr(client, method)(*args, **named)

        async def main() -> Any:
            async with AsyncClient(url, **settings or {}) as client:
                return await getattr(client, method)(*args, **named)

        return asyncio.run(main())

    return call


def test_both_clients_have_the_same_methods() -> None:
    def methods(cls: type) -> dict[str, Any]:
        return {n: inspect.signature(m) for n, m in inspect.getmembers(cls, callable) if not n.startswith("_")}

    blocking, awaited = methods(Client), methods(AsyncClient)
    pair = blocking.pop("catalogue").return_annotation, awaited.pop("catalogue").return_annotation
    assert pair == ("Catalogue", "AsyncCatalogue")
    assert blocking == awaited
    assert methods(Catalogue) == methods(AsyncCatalogue)
    assert inspect.signature(Client.rank).return_annotation == "RankAnswer"


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


def test_a_slow_answer_is_not_waited_for(go: Go) -> None:
    with Server(script(Said(200, ANSWER, seconds=2.0), Said(200, ANSWER))) as server:
        go(server.url, "rank", "shop", HATS, request_id="mine", settings={"timeout": 0.5})
    assert [asked.json["request_id"] for asked in server.asked] == ["mine", "mine"]


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
        with pytest.raises(InvalidInput, match=r"give a list of ids, as in \['hat'\]"):
            go(server.url, "click", answer, "hat")
    first, second = (asked.json[0] for asked in server.asked)
    assert (first["impression_id"], first["clicks"], first["final"]) == ("i1", ["hat"], True)
    assert (second.pop("event_id"), second.pop("impression_id"), second.pop("clicks")) == ("e", "i2", [])
    assert not any(second.values())  # nothing else is said


def test_retry_after_is_honoured_up_to_a_limit(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    def took(retry_after: str) -> float:
        begin = time.monotonic()
        with Server(script(AWAY._replace(headers=[("Retry-After", retry_after)]), Said(200, ANSWER))) as server:
            go(server.url, "rank", "shop", HATS)
        return time.monotonic() - begin

    assert 0.3 <= took("0.3") < PATIENCE
    monkeypatch.setattr(_exchange, "LONGEST_PAUSE", 0.05)
    assert took("3600") < PATIENCE


def test_pauses_grow_and_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_exchange, "FIRST_PAUSE", 0.1)

    def walk(steps: _exchange.Steps[Any]) -> None:
        step = next(steps)
        while True:
            if isinstance(step, float):
                pauses.append(step)
            step = steps.send(_exchange.Reply(503) if isinstance(step, _exchange.Call) else None)

    pauses: list[float] = []
    for _ in range(40):
        with pytest.raises(ServiceUnavailable, match="5 tries"):
            walk(_requests.Requests("http://x", retries=4).ranker("shop"))
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
        (Said(404, b"<html>"), r"404: no reason given; is this the url of a rankloop service\?"),
        (Said(200, b"<html>"), "an answer that is not rankloop's"),
        (Said(500, b""), "500"),
    ],
)
def test_other_refusals_say_what_to_do(go: Go, said: Said, pattern: str) -> None:
    with Server(script(said)) as server:
        with pytest.raises(ServiceError, match=pattern) as got:
            go(server.url, "rank", "shop", HATS, settings={"key": "secret"})
        assert got.value.status == said.status
        assert "secret" not in str(got.value)
    assert len(server.asked) == 1
    assert server.asked[0].headers["Authorization"] == "Bearer secret"


def test_unavailable_after_the_last_try(go: Go) -> None:
    with Server(script(AWAY)) as server:
        with pytest.raises(ServiceUnavailable, match=r"503 the service is going down \(2 tries\); try again") as got:
            go(server.url, "rank", "shop", HATS, settings={"retries": 1})
        assert (got.value.status, got.value.error) == (503, "draining")
    assert len(server.asked) == 2
    with socket.socket() as listening:  # bound, not listening: connections are refused
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServiceUnavailable, match=f"GET {url}/v1/rankers: .*is the service started") as got:
            go(url, "rankers", settings={"retries": 1})
    assert (got.value.status, got.value.error) == (0, "no-answer")


@pytest.mark.parametrize("method", ["keep_version", "reset", "rollback", "promote"])
def test_what_may_do_harm_twice_is_not_sent_twice(go: Go, method: str) -> None:
    told = r"\(1 try\); it may have been carried out: look before"
    with Server(script(DROP)) as server, pytest.raises(ServiceUnavailable, match=told):
        go(server.url, method, "shop")
    assert len(server.asked) == 1
    too_many = Said(429, {"error": "too-many", "message": "the key sent may ask 1 times a second"})
    with Server(script(AWAY, too_many, Said(200, VERSION if method == "keep_version" else STATUS))) as server:
        go(server.url, method, "shop")  # 503 and 429 say that nothing was done
    assert len(server.asked) == 3


def test_a_delete_whose_answer_was_lost_is_done(go: Go) -> None:
    gone = Said(404, {"error": "unknown-ranker", "message": "no ranker is called 'shop'"})
    with Server(script(DROP, gone)) as server:
        assert go(server.url, "delete_ranker", "shop") is None
    with Server(script(gone)) as server, pytest.raises(ServiceError, match="unknown-ranker"):
        go(server.url, "delete_ranker", "shop")


@pytest.mark.parametrize(
    ("method", "args", "named", "asked", "body", "said"),
    [
        ("ranker", ("shop",), {}, "GET /v1/rankers/shop", None, STATUS),
        ("rankers", (), {}, "GET /v1/rankers", None, [STATUS]),
        ("rank", ("shop", HATS), {"explain": True}, "POST /v1/rankers/shop/rank?explain=true", ..., ANSWER),
        ("versions", ("shop",), {}, "GET /v1/rankers/shop/versions", None, [VERSION]),
        (
            "keep_version",
            ("shop", "good"),
            {},
            "POST /v1/rankers/shop/versions",
            {"version": None, "note": "good"},
            VERSION,
        ),
        ("promote", ("shop", 3), {}, "POST /v1/rankers/shop/promote", {"version": 3, "note": ""}, STATUS),
        ("rollback", ("shop", 2), {}, "POST /v1/rankers/shop/rollback", {"version": 2, "note": ""}, STATUS),
        ("reset", ("shop",), {}, "POST /v1/rankers/shop/reset", {"version": None, "note": ""}, STATUS),
        ("pause", ("shop",), {}, "POST /v1/rankers/shop/pause", None, STATUS),
        ("resume", ("shop",), {}, "POST /v1/rankers/shop/resume", None, STATUS),
        (
            "erase_user",
            ("a/b ü",),
            {},
            "DELETE /v1/users/a%2Fb%20%C3%BC",
            None,
            {"impressions": 1, "events": 2, "pending": 0},
        ),
        ("lineage", ("shop",), {}, "GET /v1/rankers/shop/lineage", None, []),
        ("series", ("shop", 60, 10), {}, "GET /v1/rankers/shop/series?seconds=60&step=10", None, SERIES),
        ("impressions", ("shop", 5), {}, "GET /v1/rankers/shop/impressions?limit=5", None, []),
        ("weights", ("shop",), {}, "GET /v1/rankers/shop/weights?limit=30", None, WEIGHTS),
        ("movement", ("shop",), {}, "GET /v1/rankers/shop/movement?limit=100", None, MOVEMENT),
        ("audit", (5, "shop"), {}, "GET /v1/audit?limit=5&ranker=shop", None, []),
        ("metrics", (), {}, "GET /metrics", None, b"up 1\n"),
    ],
)
def test_every_method_asks_for_what_it_says(
    go: Go, method: str, args: tuple[Any, ...], named: dict[str, Any], asked: str, body: Any, said: Any
) -> None:
    with Server(script(Said(200, said))) as server:
        found = go(server.url + "/", method, *args, **named)
    (request,) = server.asked
    assert f"{request.method} {request.path}" == asked
    assert body is ... or request.json == body
    assert found == "up 1\n" if method == "metrics" else found is not None


def test_put_ranker_takes_a_spec_or_its_fields(go: Go) -> None:
    with Server(script(Said(201, STATUS))) as server:
        assert go(server.url, "put_ranker", "shop", features=["a"], k=5).lag == 1
        go(server.url, "put_ranker", "shop", Spec(features=["a"]), k=5)
        go(server.url, "put_ranker", "shop", {"features": ["a"], "k": 5})
        with pytest.raises(InvalidInput, match=r"the spec of ranker 'shop': .*`\$.k`"):
            go(server.url, "put_ranker", "shop", k=0)
        with pytest.raises(InvalidInput, match="unknown field `speed`"):
            go(server.url, "put_ranker", "shop", speed=1)
    sent = [asked.json for asked in server.asked]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
    assert (sent[0]["k"], sent[0]["features"], sent[0]["learner"]) == (5, ["a"], "hybrid")


def test_patch_ranker_sends_what_it_was_given_and_nothing_else(go: Go) -> None:
    with Server(script(Said(200, STATUS))) as server:
        go(server.url, "patch_ranker", "shop", exposure="full", guardrail={"share": 0.5})
        go(server.url, "patch_ranker", "shop", k=3, if_match='"7-00"', acknowledge_demotion=True)
        with pytest.raises(InvalidInput, match=r"the change of ranker 'shop': .*`\$.k`"):
            go(server.url, "patch_ranker", "shop", k=0)
    first, second = server.asked
    assert (first.method, first.path) == ("PATCH", "/v1/rankers/shop")
    assert first.json == {"exposure": "full", "guardrail": {"share": 0.5, "alpha": 0.05}}
    assert "If-Match" not in {name.title() for name in first.headers}
    assert (second.path, second.json) == ("/v1/rankers/shop?acknowledge_demotion=true", {"k": 3})
    assert {name.title(): value for name, value in second.headers.items()}["If-Match"] == '"7-00"'


def test_a_change_with_if_match_is_not_sent_twice(go: Go) -> None:
    """The first may have been carried out; then the second would be refused for what the first has changed."""
    with Server(script(DROP, Said(200, STATUS))) as server, pytest.raises(ServiceUnavailable, match="may have been"):
        go(server.url, "put_ranker", "shop", features=["a"], if_match='"7-00"')
    assert len(server.asked) == 1


def test_put_ranker_returns_at_once_and_waits_if_asked(go: Go) -> None:
    with Server(script(Said(201, COLD))) as server:
        assert go(server.url, "put_ranker", "shop", features=["a"]).ready is False
    with Server(script(Said(201, COLD), Said(200, COLD), Said(200, STATUS))) as server:
        assert go(server.url, "put_ranker", "shop", features=["a"], wait=True).ready is True
    assert [asked.method for asked in server.asked] == ["PUT", "GET", "GET"]
    with Server(script(Said(200, COLD))) as server, pytest.raises(ServiceUnavailable, match=r"0\.1 seconds: kernels"):
        go(server.url, "wait_warm", "shop", 0.1)


def test_ready_and_waiting_for_it(go: Go) -> None:
    with Server(script(AWAY, DROP, Said(200, {}))) as server:
        assert go(server.url, "ready") is False
        assert go(server.url, "wait_ready", 5.0) is None
        assert go(server.url, "ready") is True
    assert [asked.path for asked in server.asked] == ["/readyz"] * 4
    with (
        Server(script(AWAY)) as server,
        pytest.raises(ServiceUnavailable, match=r"/readyz: not ready after 0\.2 seconds"),
    ):
        go(server.url, "wait_ready", 0.2)


@pytest.mark.parametrize(
    ("candidates", "pattern"),
    [
        ([{"id": "a", "features": [1.0, float("inf")]}], "candidate 'a': feature 1 is inf; it must be a finite number"),
        ([{"id": "a"}, {"id": 7, "features": {"x": float("-inf")}}], "candidate 7: feature 'x' is -inf"),
        ([Candidate("a", [1e308, 1e308, float("inf")])], "candidate 'a': feature 2 is inf"),
        ([{"id": "a", "features": np.array([np.inf])}], "candidate 'a': feature 0 is inf"),
        ([{"id": "a", "features": ["high"]}], "candidate 'a': feature 0 is 'high'"),
        ([{"id": 1.5}], r"candidate 0 has the id 1\.5"),
        ([{"name": "a"}], r"candidate 0 has \['name'\]; give a dict with 'id'"),
        ([], "there are no candidates"),
        (["a"], "candidate 0 has str"),
    ],
)
def test_what_cannot_be_sent_is_told_before(go: Go, candidates: Any, pattern: str) -> None:
    with Server(script(Said(200, ANSWER))) as server:
        with pytest.raises(InvalidInput, match=pattern):
            go(server.url, "rank", "shop", candidates)
        with pytest.raises(InvalidInput, match="event 0: the grade of 'a' is nan"):
            go(server.url, "feedback", {"impression_id": "i", "grades": {"a": float("nan")}})
        with pytest.raises(InvalidInput, match=r"event 0: .*impression_id"):
            go(server.url, "feedback", {"clicks": []})
        with pytest.raises(InvalidInput, match="user is ''"):
            go(server.url, "erase_user", "")
    assert server.asked == []


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:port"])
def test_wrong_settings_are_told_when_the_client_is_made(url: str) -> None:
    for cls in (Client, AsyncClient):
        with pytest.raises(InvalidParameter, match="it must be like http://"):
            cls(url)
        with pytest.raises(InvalidParameter, match="retries is -1"):
            cls(retries=-1)
        with pytest.raises(InvalidParameter, match="timeout is 0"):
            cls(timeout=0)
        with pytest.raises(InvalidParameter, match="the key has letters") as got:
            cls(key="gehe\nim")
        assert "gehe" not in str(got.value)


def test_connections_are_kept_and_the_key_is_not_shown() -> None:
    def answer(asked: Asked) -> Said:
        return Said(200, [STATUS] if asked.path == "/v1/rankers" else STATUS)

    with Server(answer) as server, Client(server.url, key="secret") as client:
        for _ in range(3):
            client.ranker("shop")
        assert client.rankers()[0].spec.features == ["a"]
        assert repr(client) == f"Client({server.url!r})"
    assert server.connections == 1
