"""Each method of the clients: what it asks for, and what it refuses to send."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from rankloop.client import AsyncCatalog, AsyncClient, Catalog, Client, ServiceUnavailable
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.wire.calls import Candidate
from rankloop.wire.rankers import Spec
from tests.service.asking import (
    ANSWER,
    AWAY,
    COLD,
    HATS,
    MOVEMENT,
    SERIES,
    STATUS,
    VERSION,
    WEIGHTS,
    Go,
    go,
    short_pauses,
)
from tests.service.scripted import DROP, Said, Server, script

__all__ = ["go", "short_pauses"]  # fixtures
ASKED = {"version": None, "note": "", "force": False}


def test_both_clients_have_the_same_methods() -> None:
    def methods(cls: type) -> dict[str, Any]:
        return {n: inspect.signature(m) for n, m in inspect.getmembers(cls, callable) if not n.startswith("_")}

    blocking, awaited = methods(Client), methods(AsyncClient)
    pair = blocking.pop("catalog").return_annotation, awaited.pop("catalog").return_annotation
    assert pair == ("Catalog", "AsyncCatalog")
    assert blocking == awaited
    assert methods(Catalog) == methods(AsyncCatalog)
    assert blocking["rank"].return_annotation == "RankAnswer"


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
            {"version": None, "note": "good", "force": False},
            VERSION,
        ),
        ("promote", ("shop", 3), {}, "POST /v1/rankers/shop/promote", ASKED | {"version": 3}, STATUS),
        ("rollback", ("shop", 2), {}, "POST /v1/rankers/shop/rollback", ASKED | {"version": 2}, STATUS),
        ("reset", ("shop",), {"force": True}, "POST /v1/rankers/shop/reset", ASKED | {"force": True}, STATUS),
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
        (
            "export_user",
            ("a/b ü",),
            {},
            "GET /v1/users/a%2Fb%20%C3%BC?limit=1000",
            None,
            {"user": "a/b ü", "impressions": [], "next": None, "entries": [], "counters": [], "not_listed": []},
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
        assert go(server.url, "put_ranker", "shop", features=["a"], k=5).unlearned_impressions == 1
        go(server.url, "put_ranker", "shop", Spec(features=["a"]), k=5)
        go(server.url, "put_ranker", "shop", {"features": ["a"], "k": 5})
        with pytest.raises(InvalidInput, match=r"spec.*'shop'.*`\$\.k`"):
            go(server.url, "put_ranker", "shop", k=0)
        with pytest.raises(InvalidInput, match="`speed`"):
            go(server.url, "put_ranker", "shop", speed=1)
    sent = [asked.json for asked in server.asked]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
    assert sent[0] == {"features": ["a"], "k": 5}  # what is left out keeps its value


def test_patch_ranker_sends_what_it_was_given_and_nothing_else(go: Go) -> None:
    with Server(script(Said(200, STATUS))) as server:
        go(server.url, "patch_ranker", "shop", exposure="full", guardrail={"share": 0.5})
        go(server.url, "patch_ranker", "shop", k=3, if_match='"7-00"', acknowledge_demotion=True)
        with pytest.raises(InvalidInput, match=r"'shop'.*`\$\.k`"):
            go(server.url, "patch_ranker", "shop", k=0)
    first, second = server.asked
    assert (first.method, first.path) == ("PATCH", "/v1/rankers/shop")
    assert first.json == {"exposure": "full", "guardrail": {"share": 0.5, "alpha": 0.05}}
    assert "If-Match" not in {name.title() for name in first.headers}
    assert (second.path, second.json) == ("/v1/rankers/shop?acknowledge_demotion=true", {"k": 3})
    assert {name.title(): value for name, value in second.headers.items()}["If-Match"] == '"7-00"'


def test_put_ranker_returns_at_once_and_waits_if_asked(go: Go) -> None:
    with Server(script(Said(201, COLD))) as server:
        assert go(server.url, "put_ranker", "shop", features=["a"]).ready is False
    with Server(script(Said(201, COLD), Said(200, COLD), Said(200, STATUS))) as server:
        assert go(server.url, "put_ranker", "shop", features=["a"], wait=True).ready is True
    assert [asked.method for asked in server.asked] == ["PUT", "GET", "GET"]
    with Server(script(Said(200, COLD))) as server, pytest.raises(ServiceUnavailable, match=r"0\.1"):
        go(server.url, "wait_compiled", "shop", 0.1)


def test_ready_and_waiting_for_it(go: Go) -> None:
    with Server(script(AWAY, DROP, Said(200, {}))) as server:
        assert go(server.url, "ready") is False
        assert go(server.url, "wait_ready", 5.0) is None
        assert go(server.url, "ready") is True
    assert [asked.path for asked in server.asked] == ["/readyz"] * 4
    with (
        Server(script(AWAY)) as server,
        pytest.raises(ServiceUnavailable, match=r"ready.*0\.2"),
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
        (["a"], "candidate 0 has str"),
    ],
)
def test_what_cannot_be_sent_is_told_before(go: Go, candidates: Any, pattern: str) -> None:
    with Server(script(Said(200, ANSWER))) as server:
        with pytest.raises(InvalidInput, match=pattern):
            go(server.url, "rank", "shop", candidates)
        with pytest.raises(InvalidInput, match="'a'"):
            go(server.url, "feedback", {"impression_id": "i", "grades": {"a": float("nan")}})
        with pytest.raises(InvalidInput, match="impression_id"):
            go(server.url, "feedback", {"clicks": []})
        with pytest.raises(InvalidInput, match="user is ''"):
            go(server.url, "erase_user", "")
    assert server.asked == []


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:port"])
def test_wrong_settings_are_told_when_the_client_is_made(url: str) -> None:
    for cls in (Client, AsyncClient):
        with pytest.raises(InvalidParameter):
            cls(url)
        with pytest.raises(InvalidParameter, match="retries is -1"):
            cls(retries=-1)
        with pytest.raises(InvalidParameter, match="timeout is 0"):
            cls(timeout=0)
        with pytest.raises(InvalidParameter, match="rank_timeout is 0"):
            cls(rank_timeout=0)
        for events in (-1, True, 2.5):
            with pytest.raises(InvalidParameter, match=f"queue is {events}"):
                cls(queue=events)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter, match="queue_file"):
            cls(queue=0, queue_file="events.db")
        with pytest.raises(InvalidParameter, match="queue_file"):
            cls(queue_file="/no/such/folder/events.db")
        with pytest.raises(InvalidParameter) as got:
            cls(key="gehe\nim")
        assert "gehe" not in str(got.value)
