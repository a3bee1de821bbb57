"""UBI's events as feedback."""

from __future__ import annotations

import json
from typing import Any

from tests.service.app_fixtures import Body, Service, fine, items, names, refused, service, shown, until

__all__ = ["service"]


def event(query: str | None, action: str, item: str | None, **more: Any) -> Body:
    told: Body = {"position": {"ordinal": 2}}
    if item is not None:
        told["object"] = {"object_id": item, "object_id_field": "sku"}
    sent = {"action_name": action, "client_id": "c", "session_id": "s", "timestamp": "2026-11-17T09:00:00.000Z"}
    return {**sent, **({} if query is None else {"query_id": query}), "event_attributes": told, **more}


def send(service: Service, *events: Body) -> list[Any]:
    results: list[Any] = fine(service.http.post("/ubi/events", json=list(events)))["results"]
    return results


def statuses(results: list[Any]) -> list[str]:
    return [one["status"] for one in results]


def expect(service: Service, name: str, values: list[float]) -> None:
    """What is known of the newest list, by position; who looks may see what was known a second ago."""

    def known() -> bool:
        newest = fine(service.http.get(f"/v1/rankers/{name}/impressions?limit=1"))[0]
        return [item["value"] for item in newest["items"]] == values

    until(known, f"{name} to know {values}")


def test_clicks_are_joined_by_request_id_and_by_impression_id(service: Service) -> None:
    service.put("plain", learner="greedy", features=names(3), exposure="full")
    for name in ("by-request", None):
        answer = service.rank("plain", items(4), request_id=name)
        found = shown(answer)
        click = event(name or answer["impression_id"], "click", found[2])
        assert statuses(send(service, click, click)) == ["accepted", "duplicate"]
        expect(service, "plain", [0.0, 0.0, 1.0, 0.0])
        later = event(name or answer["impression_id"], "click", found[0], timestamp="2026-11-17T09:01:00.000Z")
        assert statuses(send(service, later)) == ["accepted"]
        expect(service, "plain", [1.0, 0.0, 1.0, 0.0])


def test_actions_are_worth_what_the_ranker_says(service: Service) -> None:
    service.put(
        "worth", learner="greedy", features=names(3), exposure="full", interactions={"click": 0.3, "purchase": 1.0}
    )
    found = shown(service.rank("worth", items(4), request_id="w1"))
    results = send(
        service, event("w1", "click", found[0]), event("w1", "click", found[1]), event("w1", "purchase", found[1])
    )
    assert statuses(results) == ["accepted"] * 3
    expect(service, "worth", [0.3, 1.0, 0.0, 0.0])


def test_what_came_into_view_was_seen(service: Service) -> None:
    service.put("views", learner="greedy", features=names(3), exposure="full", window_seconds=600)
    found = shown(service.rank("views", items(4), request_id="v1"))
    assert statuses(send(service, event("v1", "impression", found[1]))) == ["accepted"]


def test_what_says_nothing_is_told_one_by_one(service: Service) -> None:
    service.put("odd", learner="greedy", features=names(3), exposure="full")
    found = shown(service.rank("odd", items(4), request_id="o1"))
    results = send(
        service,
        event("o1", "click", found[0]),
        event("nobody", "click", found[0]),
        event(None, "click", found[0]),
        event("o1", "click", None),
        event("o1", "hover", found[0]),
        event("o1", "click", "stranger"),
        {"query_id": "o1"},
    )
    assert statuses(results) == ["accepted", "orphan", *["rejected"] * 5]
    reasons = ["nobody", "no query_id", "object_id", "'hover' has no value", "stranger", "action_name"]
    assert all(words in one["reason"] for words, one in zip(reasons, results[1:], strict=True))
    events = service.status("odd")["events"]
    assert (events["rejected"], events["needs_attention"]) == (1, 1)
    lost = fine(service.http.get("/v1/service"))["events"]
    assert lost["orphan"] >= 1, "an unknown query"
    assert lost["rejected"] >= 1, "an event that cannot be read"


def test_lines_and_single_events_of_any_content_type(service: Service) -> None:
    service.put("lines", learner="greedy", features=names(3), exposure="full")
    found = shown(service.rank("lines", items(4), request_id="l1"))
    lines = "\n".join(json.dumps(event("l1", "click", item)) for item in found[:2]) + "\n"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert fine(service.http.post("/ubi/events", content=lines, headers=form))["counts"] == {"accepted": 2}
    one = json.dumps(event("l1", "click", found[2]), indent=1)
    assert fine(service.http.post("/ubi/events", content=one))["counts"] == {"accepted": 1}
    refused(service.http.post("/ubi/events", content=b" "), 422)
    refused(service.http.post("/ubi/events", content=b"[1"), 400, error="malformed")
