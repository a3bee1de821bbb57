"""What tests of the clients share: answers of a service, and a call of either client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rankloop.client import AsyncClient, Client, exchange
from tests.service.scripted import Asked, Said
from tests.waiting import PATIENCE

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


def receipts(asked: Asked, status: str = "accepted") -> Said:
    """An answer for every event."""
    results = [{"event_id": event["event_id"], "status": status, "reason": "why"} for event in asked.json]
    return Said(200, {"results": results, "counts": {status: len(results)}})


STATUS = {
    "name": "shop",
    "spec": {"features": ["a"]},
    "serving": "live",
    "learning": True,
    "closed_impressions": 3,
    "learned_impressions": 2,
    "model_impressions": 2,
    "unlearned_impressions": 1,
    "open_impressions": 0,
    "learner_process": None,
    "snapshot_impressions": None,
    "created": 1.0,
    "etag": '"7-00"',
    "ready": True,
    "waiting_for": None,
    "origin": {"generation": 1, "how": "made", "version": None, "kept": None, "since": 1.0, "impressions_since": 2},
}
COLD = {**STATUS, "ready": False, "waiting_for": "kernels"}
VERSION = {"version": 1, "learned_impressions": 5, "created": 1.0, "note": "", "serving": False}
SERIES = {
    "ranker": "shop",
    "now": 9.0,
    "since": 1.0,
    "step": 10,
    "points": [{"start": 1.0}],
    "total": {"start": 1.0},
    "positions": [],
}
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
HATS: list[dict[str, Any]] = [{"id": "hat", "features": [0.1, 2.0]}, {"id": "shoe", "features": {"a": 1, "b": 2}}]
AWAY = Said(503, {"error": "draining", "message": "the service is going down"})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.005)


@pytest.fixture(params=["blocking", "async"])
def go(request: pytest.FixtureRequest) -> Go:
    """Calls a method of either client, which waits for receipts and does not give up on a slow machine."""

    def call(url: str, method: str, *args: Any, settings: dict[str, Any] | None = None, **named: Any) -> Any:
        chosen = {"queue": 0, "rank_timeout": PATIENCE, **(settings or {})}
        if request.param == "blocking":
            with Client(url, **chosen) as client:
                return getattr(client, method)(*args, **named)

        async def main() -> Any:
            async with AsyncClient(url, **chosen) as client:
                return await getattr(client, method)(*args, **named)

        return asyncio.run(main())

    return call
