"""How far a ranker has moved from the caller's order, what it remembers, what it has noticed."""

from __future__ import annotations

import logging
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.capabilities import Drift, Report
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

SPEC: Body = {"learner": "pairrank", "features": names(3), "normalization": "none", "exposure": "full", "k": 4}
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


def test_movement_is_empty_before_the_first_ranking(service: Service) -> None:
    service.put("first", **SPEC)
    found = movement(service, "first")
    nothing = dict.fromkeys(("displacement", "agreement", "same_first", "brought_up", "memory", "drift"))
    assert found == {"ranker": "first", "version": "live@0", "lists": 0, **nothing}
    answer = service.rank("first", items(6))
    assert shown(answer) == ["i0", "i1", "i2", "i3"]  # init="base", if nothing else is said
    found = movement(service, "first")
    assert (found["lists"], found["displacement"], found["agreement"], found["same_first"]) == (1, 0.0, 1.0, 1.0)
    assert found["brought_up"] == 0.0


def test_movement_compares_the_best_order_with_the_baseline(service: Service) -> None:
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


@pytest.mark.parametrize("learner", ["pdgd", "hybrid", "bubblerank", "batchrank", "olranknet"])
def test_movement_uses_best_of_any_learner(service: Service, learner: str) -> None:
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


def test_movement_uses_the_promoted_version_and_ignores_rankings_before_a_reset(service: Service) -> None:
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


def test_remembered_queries_are_counted(service: Service) -> None:
    service.put("remembers", **{**SPEC, "learner": "hybrid"})
    assert movement(service, "remembers")["memory"] == {"queries": 0, "share": None}
    teach(service, "remembers", 6)  # q0, q1 and q2 in turn
    assert movement(service, "remembers")["memory"] == {"queries": 3, "share": 1.0}
    for t in range(2):
        service.rank("remembers", items(6), query=f"new {t}")
    assert movement(service, "remembers", limit=4)["memory"] == {"queries": 3, "share": 0.5}
    tell_of_drift(service)
    assert service.metric("rankloop_remembered_queries", ranker="remembers") == 3


def test_drift_is_reported_in_api_metrics_and_log(
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
        monkeypatch.setattr(learner, "report", lambda: Report(drift=Drift(500, 410, 2, np.array([120, 400]))))
    with caplog.at_level(logging.WARNING, "rankloop"):
        for _ in range(2):  # once is enough
            tell_of_drift(service)
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert warned == ["ranker follows: users have changed, at ranking 400 of 500"]
    assert service.metric("rankloop_drift_alarms", ranker="follows") == 2
    told = {"alarms": 2, "latest": [120, 400], "since": 410, "lists": 500}
    assert movement(service, "follows")["drift"] == told


def test_movement_with_a_busy_or_failing_learner(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
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
            patch.setattr(model_of(service.engine.rankers["trouble"]).learner, "score_terms", fails)
            found: int = movement(service, "trouble")["lists"]
            return found

    # A model that is published meanwhile does not have the error: try again.
    until(lambda: lists_with_an_error() == 0, "an answer of the model with the error")
    assert movement(service, "trouble")["lists"] == 2
