"""What people who watch see: curves, latest lists, weights, as they are told over HTTP."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.service.control import views
from rankloop.service.errors import StoreUnavailable
from tests.service.app_fixtures import (
    Clock,
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

SPEC: dict[str, Any] = {
    "learner": "pairrank",
    "parameters": {"init": "zero"},  # from the first list on there is something that it is not sure of
    "features": names(3),
    "exposure": "full",
    "k": 5,
    "guardrail": None,
}


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is given twice, unless a test wants it."""
    monkeypatch.setattr(views, "FRESH", -1.0)


def remember(service: Service) -> None:
    """Write what was counted now rather than in two seconds."""
    engine = service.engine
    engine.count_answered()
    assert engine.learning is not None
    engine.maintenance.reports.record_lag()
    engine.history.store(engine.writer, engine.clock())


def watch(service: Service, name: str, what: str, **query: Any) -> Any:
    remember(service)
    return fine(service.http.get(f"/v1/rankers/{name}/{what}", params=query))


def test_curves_say_what_was_shown_clicked_and_explored(service: Service) -> None:
    service.put("curves", **SPEC)
    clicks = [[0], [2], [], [1, 3]]  # slots
    for t, slots in enumerate(clicks):
        answer = service.rank("curves", items(6, seed=t))
        service.report(answer, [shown(answer)[slot] for slot in slots])
    service.rank("curves", items(6))  # stays open
    service.settle("curves")
    series = watch(service, "curves", "series", seconds=600, step=60)
    assert series["ranker"] == "curves"
    assert series["step"] == 60
    assert series["since"] % 60 == 0
    assert series["since"] <= series["now"] - 600
    points = series["points"]
    assert sum(point["lists"] for point in points) == 5
    assert sum(point["closed_impressions"] for point in points) == 4
    (point,) = points if len(points) == 1 else [None]
    if point is not None:  # unless a minute has just begun
        assert point["clicks"] == 4 / 4
        assert point["reciprocal_rank"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)
        assert point["fallbacks"] == 0.0
        assert 0.0 <= point["explored"] <= 1.0
        assert 0.0 < point["uncertain"] <= 1.0
        assert point["unlearned_impressions"] == 0
        assert "ndcg" not in point
    rates = {rate["position"]: (rate["shown"], rate["clicked"]) for rate in series["positions"]}
    assert rates == {1: (4, 1), 2: (4, 1), 3: (4, 1), 4: (4, 1), 5: (4, 0)}


def test_the_total_is_over_the_whole_period(service: Service) -> None:
    service.put("whole", **SPEC)
    for t in range(6):
        answer = service.rank("whole", items(6, seed=t))
        service.report(answer, shown(answer)[: t % 3])
    service.settle("whole")
    found = watch(service, "whole", "series", seconds=3600)
    total, points = found["total"], found["points"]
    assert (total["start"], total["lists"], total["closed_impressions"]) == (found["since"], 6, 6)
    assert total["clicks"] == pytest.approx((0 + 1 + 2 + 0 + 1 + 2) / 6)
    mean = sum(point["explored"] * point["lists"] for point in points) / 6  # every ranking has the same length
    assert total["explored"] == pytest.approx(mean)


def test_fallbacks_are_a_share_of_all_lists(service: Service) -> None:
    service.put("falls", **SPEC)
    live = service.engine.rankers["falls"]
    service.rank("falls", items(3))
    live.compiled = False
    assert service.rank("falls", items(3))["fallback"]
    live.compiled = True
    (point,) = watch(service, "falls", "series", step=86400)["points"][-1:]
    assert (point["lists"], point["fallbacks"]) == (2, 0.5)
    first, second = watch(service, "falls", "impressions")
    assert (first["reason"], first["learned"], first["pairs"]) == ("compiling", False, None)
    assert (second["reason"], second["learned"]) == (None, True)


@pytest.mark.parametrize(
    ("seconds", "step", "width"),
    [
        (900, None, 10),
        (3600, None, 60),
        (6 * 3600, None, 300),
        (86400, None, 1200),
        (30 * 86400, None, 43200),
        (900, 25, 20),
        (86400, 10, 600),
        (7 * 86400, 3600, 3600),
    ],
)
def test_steps_are_of_what_is_kept_for_so_long(service: Service, seconds: int, step: int | None, width: int) -> None:
    service.put("steps", **SPEC)
    query = {"seconds": seconds} if step is None else {"seconds": seconds, "step": step}
    assert watch(service, "steps", "series", **query)["step"] == width


def test_too_many_points_and_other_nonsense_is_refused(service: Service) -> None:
    service.put("asked", **SPEC)
    get = service.http.get
    refused(get("/v1/rankers/asked/series", params={"seconds": 7776000, "step": 600}), 422, "3000", "step")
    refused(get("/v1/rankers/asked/series", params={"seconds": 1}), 400, "seconds")
    refused(get("/v1/rankers/asked/impressions", params={"limit": 0}), 400, "limit")
    for what in ("series", "impressions", "weights", "movement"):
        refused(get(f"/v1/rankers/none-such/{what}"), 404, "none-such", error="unknown")
    service.put("none-such", **SPEC)  # a refusal is not remembered
    assert fine(get("/v1/rankers/none-such/weights"))["weights"] == []


def test_latest_lists_tell_moves_clicks_and_what_became_of_them(service: Service) -> None:
    service.put("lists", **{**SPEC, "silence": "no-click"})
    candidates = items(6, seed=3)
    answers = [service.rank("lists", candidates, query=f"q{i}", user="nobody's business") for i in range(3)]
    service.report(answers[0], [shown(answers[0])[1]])
    service.report(answers[1], [shown(answers[1])[0]], final=False)
    service.settle("lists")
    found = watch(service, "lists", "impressions", limit=3)
    assert [one["query"] for one in found] == ["q2", "q1", "q0"]
    assert [one["outcome"] for one in found] == ["open", "open", "final"]
    base = [candidate["id"] for candidate in candidates]
    for one, answer in zip(found, reversed(answers), strict=True):
        assert one["impression_id"] == answer["impression_id"]
        assert [item["id"] for item in one["items"]] == shown(answer)
        assert [item["base"] for item in one["items"]] == [base.index(item) + 1 for item in shown(answer)]
        assert sorted(item["best"] for item in one["items"]) == [1, 2, 3, 4, 5]
    assert [item["value"] for item in found[2]["items"]] == [0, 1, 0, 0, 0]
    assert [item["value"] for item in found[1]["items"]] == [1, 0, 0, 0, 0]
    assert [item["value"] for item in found[0]["items"]] == [None] * 5
    assert "nobody" not in service.http.get("/v1/rankers/lists/impressions").text


def test_what_was_tried_in_a_list_is_what_stands_against_belief(service: Service) -> None:
    service.put("tried", **{**SPEC, "parameters": {"alpha": 0.6}})
    teach(service, "tried", 30)
    for t in range(10):
        service.rank("tried", items(6, seed=500 + t))
    for one in watch(service, "tried", "impressions", limit=10):
        best = {item["position"]: item["best"] for item in one["items"]}
        pairs = {(doubt["upper"], doubt["lower"]): doubt["swapped"] for doubt in one["doubts"]}
        assert one["uncertain"] == len(pairs) <= one["pairs"] == 10
        for (upper, lower), swapped in pairs.items():
            assert swapped == (best[upper] > best[lower])
        # What stands against belief was uncertain: a certain pair is never shown the wrong way round.
        wrong = {(p, q) for p, q in itertools.combinations(range(1, 6), 2) if best[p] > best[q]}
        adjacent = {pair for pair in wrong if pair[1] == pair[0] + 1}
        assert adjacent <= {pair for pair, swapped in pairs.items() if swapped}
        order = [doubt["swapped"] for doubt in one["doubts"]]
        assert order == sorted(order, reverse=True)


def test_a_silent_window_is_an_outcome_or_ignored(tmp_path: Path) -> None:
    clock = Clock()
    with Service(tmp_path / "silent.db", clock) as service:
        service.ready()
        service.put("counts", **SPEC, window_seconds=1.0)
        service.put("ignores", **SPEC, window_seconds=1.0, silence="ignore")
        for name in ("counts", "ignores"):
            service.rank(name, items(5))
        clock.ahead = 10.0
        until(
            lambda: (
                service.status("counts")["closed_impressions"] == 1
                and service.status("ignores")["open_impressions"] == 0
            )
        )
        (counted,) = watch(service, "counts", "impressions")
        (ignored,) = watch(service, "ignores", "impressions")
        assert (counted["outcome"], counted["learned"]) == ("silent", True)
        assert [item["value"] for item in counted["items"]] == [0.0] * 5
        assert (ignored["outcome"], ignored["learned"]) == ("ignored", False)
        assert [item["value"] for item in ignored["items"]] == [None] * 5
        assert sum(p.get("closed_impressions", 0) for p in watch(service, "ignores", "series")["points"]) == 0


def test_a_mixed_list_says_for_what_and_blames_no_one_for_its_order(service: Service) -> None:
    service.put("mixed", **SPEC)
    teach(service, "mixed", 10)
    fine(service.http.post("/v1/rankers/mixed/experiments", json={"share": 1.0}))
    service.rank("mixed", items(6, seed=1))
    one, before = watch(service, "mixed", "impressions", limit=2)
    assert (one["experiment"], one["pairs"], one["doubts"]) == (1, None, [])
    assert sorted(item["best"] for item in one["items"]) == [1, 2, 3, 4, 5]
    assert (before["experiment"], before["pairs"]) == (None, 10)


def test_a_learner_that_is_busy_keeps_nobody_waiting_who_only_looks(service: Service) -> None:
    service.put("busy", **{**SPEC, "learner": "hybrid"})  # which changes under those who rank: by parts
    teach(service, "busy", 5)
    with model_of(service.engine.rankers["busy"]).locked():
        refused(service.http.get("/v1/rankers/busy/weights"), 503, error="busy")
        found = watch(service, "busy", "impressions", limit=1)
    assert [item["best"] for item in found[0]["items"]] == [None] * 5
    assert watch(service, "busy", "weights")["weights"]


def test_a_learner_without_scores_says_nothing_of_beliefs(service: Service) -> None:
    service.put("plain", learner="base", exposure="full", k=5)
    service.rank("plain", [{"id": i} for i in range(6)])
    (one,) = watch(service, "plain", "impressions")
    assert [item["best"] for item in one["items"]] == [None] * 5
    assert watch(service, "plain", "weights") == {
        "ranker": "plain",
        "version": "live@0",
        "linear": False,
        "features": 0,
        "weights": [],
    }


def test_weights_are_the_learners_own_with_its_confidence(service: Service) -> None:
    service.put("weighs", **SPEC)
    assert watch(service, "weighs", "weights")["weights"] == []
    teach(service, "weighs", 50)
    found = watch(service, "weighs", "weights")
    arrays, _ = codec.loads(service.state("weighs"))
    theta, inverse = arrays["theta_"], arrays["inverse_"]
    order = np.argsort(-np.abs(theta))
    assert [weight["feature"] for weight in found["weights"]] == [f"f{j}" for j in order]
    assert [weight["weight"] for weight in found["weights"]] == theta[order].tolist()
    widths = [weight["confidence"] for weight in found["weights"]]
    assert widths == pytest.approx(0.2 * np.sqrt(np.diagonal(inverse)[order]))  # PairRank's alpha
    assert found["weights"][0]["feature"] == "f0"  # what the user likes
    assert found["version"] == "live@50"
    assert len(watch(service, "weighs", "weights", limit=1)["weights"]) == 1
    service.act("weighs", "promote")
    teach(service, "weighs", 5, seed=900)
    pinned = watch(service, "weighs", "weights")
    assert (pinned["version"], pinned["weights"]) == ("v1", found["weights"])
    service.put("weighs2", learner="pdgd", features=names(3))
    teach(service, "weighs2", 3)
    assert {weight["confidence"] for weight in watch(service, "weighs2", "weights")["weights"]} == {None}


def test_counts_survive_a_store_that_is_away(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("waits", **SPEC)
    service.engine.cycle()
    remember(service)
    service.rank("waits", items(3))

    def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(service.engine.writer, "do", away)
        with pytest.raises(StoreUnavailable):
            remember(service)
    points = watch(service, "waits", "series", step=86400)["points"]
    assert sum(point["lists"] for point in points) == 1


def test_two_processes_add_to_the_same_curve(tmp_path: Path) -> None:
    with Service(tmp_path / "two.db") as one, Service(tmp_path / "two.db") as two:
        one.ready().put("both", **SPEC)
        two.ready()
        for service in (one, two):
            service.report(service.rank("both", items(5)))
            remember(service)
        for service in (one, two):
            points = watch(service, "both", "series", step=86400)["points"]
            assert sum(point["lists"] for point in points) == 2
            assert sum(point["closed_impressions"] for point in points) == 2


def test_the_keeper_writes_by_itself_and_what_is_left_is_written_at_the_end(tmp_path: Path) -> None:
    with Service(tmp_path / "end.db") as service:
        service.ready().put("kept", **SPEC)
        service.rank("kept", items(5))
        until(lambda: bool(fine(service.http.get("/v1/rankers/kept/series"))["points"]), "the keeper to write")
        service.rank("kept", items(5))
    with sqlite3.connect(tmp_path / "end.db") as database:
        bodies = [row[0] for row in database.execute("SELECT body FROM metric_history WHERE step = 600")]
    assert sum(json.loads(body)["lists"] for body in bodies) == 2


def test_many_who_look_at_once_cost_one_look(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "FRESH", 60.0)
    service.put("looked", **SPEC)
    first = fine(service.http.get("/v1/rankers/looked/impressions"))
    service.rank("looked", items(5))
    assert [fine(service.http.get("/v1/rankers/looked/impressions")) for _ in range(3)] == [first] * 3 == [[]] * 3
    assert len(fine(service.http.get("/v1/rankers/looked/impressions?limit=5"))) == 1  # another question
    monkeypatch.setattr(views, "FRESH", -1.0)
    assert len(fine(service.http.get("/v1/rankers/looked/impressions"))) == 1
