"""/readyz: 503 if requests should go to another process, `degraded` if some rankers do not serve as they should."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Clock, Service, fine, items, names, until

SPEC: dict[str, Any] = {"learner": "greedy", "features": names(3), "exposure": "full"}


def reasons(service: Service, status: int) -> dict[str, list[str]]:
    """The rankers of each reason, if the answer has this status; else nothing."""
    answer = service.http.get("/readyz")
    if answer.status_code != status:
        return {}
    return {reason["code"]: reason["rankers"] for reason in answer.json()["reasons"]}


def test_a_store_that_takes_no_writes_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.control.views.SILENT_SECONDS", 0.5, raising=False)
    store = tmp_path / "store.db"
    with Service(store, refresh_seconds=0.1) as service:
        service.ready().put("shop", **SPEC)
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else can write
            until(lambda: "store" in reasons(service, 503), "the reason")
            assert service.http.get("/readyz").json()["error"] == "not-ready"
            other.execute("ROLLBACK")
        until(lambda: service.http.get("/readyz").status_code == 200, "the store to be back")


@pytest.mark.parametrize("owner", ["learning", "follower", "writer"])
def test_a_thread_that_has_ended_is_an_obstacle(owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(tmp_path / "store.db") as service:
        service.ready()
        assert reasons(service, 200) == {}
        part = getattr(service.engine, owner)
        assert part.dead_threads() == []
        monkeypatch.setattr(part, "dead_threads", lambda: ["rankloop-ended"])
        assert "thread" in reasons(service, 503)
        assert "rankloop-ended" in service.http.get("/readyz").json()["message"]


def test_rankers_without_a_model_are_an_obstacle_only_if_all_are(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with Service(store) as service:
        service.ready().put("one", **SPEC)
        service.put("two", **SPEC)
        service.engine.writer.do(lambda c: c.run("UPDATE snapshots SET state = ? WHERE ranker = 'one'", b"rubbish"))
    with Service(store) as service:
        service.ready()
        assert reasons(service, 200)["damaged"] == ["one"]
        assert service.http.get("/readyz").json()["status"] == "degraded"
        service.engine.writer.do(lambda c: c.run("UPDATE snapshots SET state = ?", b"rubbish"))
    with Service(store) as service:
        service.ready()
        assert reasons(service, 503)["rankers"] == ["one", "two"]
        answer = service.rank("one", items(3))
        assert (answer["fallback"], answer["reason"]) == (True, "damaged")


def test_a_model_that_is_behind_is_degraded_and_no_obstacle(tmp_path: Path) -> None:
    clock = Clock()
    with Service(tmp_path / "store.db", clock, learn=False) as service:
        service.ready().put("shop", **SPEC)
        assert fine(service.http.get("/readyz")) == {"status": "ready", "reasons": []}
        answer = service.rank("shop", items(3))
        assert service.report(answer, ["i1"]) == "accepted"  # and nobody learns it
        clock.ahead = 120.0
        until(lambda: service.status("shop")["model_age_seconds"] > 100, "the age of the model")
        assert service.metric("rankloop_model_age_seconds", ranker="shop") > 100
        assert reasons(service, 200) == {"stale": ["shop"]}
        assert service.http.get("/readyz").json()["status"] == "degraded"
