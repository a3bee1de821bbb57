"""How far a ranker has moved from the caller's order, what it remembers, what it has noticed."""

from __future__ import annotations

import logging
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.cli import main
from rankloop.core import codec
from rankloop.core.capabilities import Drift
from rankloop.core.types import Candidates
from rankloop.service.control import views
from tests.service.app_fixtures import (
    Body,
    Service,
    fine,
    items,
    model_of,
    names,
    refused,
    service,
    shown,
    teach,
    until,
)

__all__ = ["service"]  # fixture

SPEC: Body = {"learner": "pairrank", "features": names(3), "normalisation": "none", "exposure": "full", "k": 4}
FLIPPED = [3.0, 0.0, 0.0]  # weights that put what has most of f0 first


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is given twice."""
    monkeypatch.setattr(views, "FRESH", -1.0)


def movement(service: Service, name: str, **query: Any) -> Any:
    return fine(service.http.get(f"/v1/rankers/{name}/movement", params=query))


def candidates(*values: float) -> list[Body]:
    """In this order, told apart by f0 alone."""
    return [{"id": f"i{i}", "features": [value, 0.0, 0.0]} for i, value in enumerate(values)]


def test_nothing_is_told_before_the_first_list_and_nothing_has_moved_at_it(service: Service) -> None:
    service.put("first", **SPEC)
    found = movement(service, "first")
    nothing = dict.fromkeys(("displacement", "agreement", "same_first", "brought_up", "memory", "drift"))
    assert found == {"ranker": "first", "version": "live@0", "lists": 0, **nothing}
    answer = service.rank("first", items(6))
    assert shown(answer) == ["i0", "i1", "i2", "i3"]  # init="base", if nothing else is said
    found = movement(service, "first")
    assert (found["lists"], found["displacement"], found["agreement"], found["same_first"]) == (1, 0.0, 1.0, 1.0)
    assert found["brought_up"] == 0.0


def test_figures_are_of_what_is_believed_now_against_the_order_of_the_same_items(service: Service) -> None:
    """Shown in shadow, so that what was shown is the caller's order and belief is all that has moved."""
    start = {"init": FLIPPED, "prior_strength": 1e6}
    service.put("shadow", **{**SPEC, "exposure": "shadow", "parameters": start})
    service.rank("shadow", candidates(0.2, 0.9, 0.5, 0.1))  # believed: i1 i2 i0 i3
    service.rank("shadow", candidates(0.9, 0.7, 0.5, 0.1))  # believed: as it came
    found = movement(service, "shadow")
    assert found["lists"] == 2
    assert found["displacement"] == pytest.approx((2 + 1 + 1 + 0) / 4 / 2)
    assert found["agreement"] == pytest.approx((4 + 6) / (6 + 6))
    assert found["same_first"] == 0.5
    assert movement(service, "shadow", limit=1)["displacement"] == 0.0  # the newest


def test_it_is_worked_out_once_in_a_while_however_many_look(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("looked", **SPEC)
    monkeypatch.setattr(views, "FRESH", 60.0)
    assert movement(service, "looked")["lists"] == 0
    service.rank("looked", items(5))
    assert movement(service, "looked")["lists"] == 0
    monkeypatch.setattr(views, "FRESH", 0.0)
    assert movement(service, "looked")["lists"] == 1


def test_items_from_below_the_end_of_the_list_are_told(service: Service) -> None:
    service.put("lifts", **{**SPEC, "parameters": {"init": FLIPPED, "prior_strength": 1e6}, "k": 2})
    answer = service.rank("lifts", candidates(0.1, 0.2, 0.8, 0.9))
    assert shown(answer) == ["i3", "i2"]
    found = movement(service, "lifts")
    assert (found["brought_up"], found["displacement"], found["agreement"]) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("learner", ["pdgd", "hybrid", "bubblerank", "batchrank", "olranknet"])
def test_any_learner_is_asked_what_it_believes_best(service: Service, learner: str) -> None:
    """By its own `best`, of the items shown in the caller's order."""
    name = f"asked-{learner}"
    service.put(name, **{**SPEC, "learner": learner, "exposure": "shadow", "k": 6})
    teach(service, name, 30)
    model = model_of(service.engine.rankers[name])
    moved, agreed, firsts = [], [], []
    for t in range(5):
        service.rank(name, items(6, seed=900 + t), query=f"q{t % 3}")
    bodies = service.engine.database.read(
        lambda c: [bytes(row[0]) for row in c.rows("SELECT body FROM impressions WHERE ranker = ? AND open = 1", name)]
    )
    assert len(bodies) == 5
    for body in bodies:
        impression = codec.load_impression(body)
        order = model.learner.best(
            Candidates(impression.query, impression.items, impression.features), impression.k
        ).tolist()
        moved.append(np.mean([abs(order.index(i) - i) for i in range(6)]))
        agreed.append(np.mean([order.index(i) < order.index(j) for i, j in combinations(range(6), 2)]))
        firsts.append(order[0] == 0)
    found = movement(service, name, limit=5)
    assert found["lists"] == 5
    assert found["displacement"] == pytest.approx(np.mean(moved))
    assert found["agreement"] == pytest.approx(np.mean(agreed))
    assert found["same_first"] == pytest.approx(np.mean(firsts))


def test_the_model_that_ranks_is_asked_and_lists_of_before_a_reset_are_not(service: Service) -> None:
    service.put("pinned", **SPEC)
    teach(service, "pinned", 3)
    service.act("pinned", "promote")
    before = movement(service, "pinned")
    assert before["version"] == "v1"
    service.act("pinned", "reset")
    assert movement(service, "pinned")["lists"] == 0


def tell_of_drift(service: Service) -> None:
    assert service.engine.learning is not None
    service.engine.maintenance.reports.report_drift()


def test_queries_that_come_back_are_remembered(service: Service) -> None:
    service.put("remembers", **{**SPEC, "learner": "hybrid"})
    assert movement(service, "remembers")["memory"] == {"queries": 0, "share": None}
    teach(service, "remembers", 6)  # q0, q1 and q2 in turn
    assert movement(service, "remembers")["memory"] == {"queries": 3, "share": 1.0}
    for t in range(2):
        service.rank("remembers", items(6), query=f"new {t}")
    assert movement(service, "remembers", limit=4)["memory"] == {"queries": 3, "share": 0.5}
    tell_of_drift(service)
    assert service.metric("rankloop_remembered_queries", ranker="remembers") == 3


def test_drift_is_told_to_who_asks_who_scrapes_and_who_reads_the_log(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.put("follows", **{**SPEC, "learner": "adaptive"})
    teach(service, "follows", 2)
    assert movement(service, "follows")["drift"] == {"alarms": 0, "latest": [], "since": 0, "lists": 2}
    tell_of_drift(service)
    assert service.metric("rankloop_drift_alarms", ranker="follows") == 0
    assert service.engine.learning is not None
    learners = [model_of(service.engine.rankers["follows"]).learner, service.engine.learning.folds["follows"].learner]
    for learner in learners:  # what ranks, and what learns
        monkeypatch.setattr(learner, "drift", lambda: Drift(500, 410, 2, np.array([120, 400])))
    with caplog.at_level(logging.WARNING, "rankloop"):
        for _ in range(2):  # once is enough
            tell_of_drift(service)
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert warned == ["ranker follows: users have changed, at list 400 of 500"]
    assert service.metric("rankloop_drift_alarms", ranker="follows") == 2
    told = {"alarms": 2, "latest": [120, 400], "since": 410, "lists": 500}
    assert movement(service, "follows")["drift"] == told


def test_a_learner_that_is_busy_or_fails_spoils_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("trouble", **{**SPEC, "learner": "hybrid"})  # which changes under those who rank: by parts
    teach(service, "trouble", 2)
    model = model_of(service.engine.rankers["trouble"])
    with model.locked():
        refused(service.http.get("/v1/rankers/trouble/movement"), 503, error="busy")
        tell_of_drift(service)

    def fails(_: object) -> None:
        raise ValueError("not today")

    def lists_with_an_error() -> int:
        with monkeypatch.context() as patch:
            patch.setattr(model_of(service.engine.rankers["trouble"]).learner, "parts", fails)
            found: int = movement(service, "trouble")["lists"]
            return found

    # A model that is published meanwhile does not have the error: try again.
    until(lambda: lists_with_an_error() == 0, "an answer of the model with the error")
    assert movement(service, "trouble")["lists"] == 2


def test_inspect_prints_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "inspected.db"
    with Service(store) as running:
        running.ready().put("memory", **{**SPEC, "learner": "hybrid", "parameters": {"init": FLIPPED}})
        running.put("follower", **{**SPEC, "learner": "adaptive"})
        for name in ("memory", "follower"):
            teach(running, name, 4)
        asked = movement(running, "memory")
    assert asked["displacement"] > 0
    pages = {}
    for name in ("memory", "follower"):
        with pytest.raises(SystemExit) as ended:
            main(["inspect", str(store), name])
        assert ended.value.code == 0
        pages[name] = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"{asked['displacement']:.1f} places; {asked['agreement']:.0%} of pairs as you had them" in pages["memory"]
    assert "queries remembered 3, 100% of these lists" in pages["memory"]
    assert "drift alarms" not in pages["memory"]
    assert "drift alarms 0" in pages["follower"]
