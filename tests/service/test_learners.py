"""Every learner of the registry can be served: the same story over HTTP for each, and another start in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankloop.core.registry import LEARNERS, learner_class
from rankloop.service.ranking.model import fresh_state
from tests.service import misbehaving
from tests.service.app_fixtures import (
    Clock,
    Service,
    items,
    model_of,
    names,
    refused,
    service,
    shown,
    slow_except,
    teach,
    until,
)

__all__ = ["service"]  # a fixture

WIDTH = 4
EXPOSURES = ("shadow", "bounded", "full")


def give_feedback(service: Service, answer: dict[str, Any], kind: str, final: bool, **more: Any) -> str:
    """A click on the second item, or grades for all, by the kind that the learner takes."""
    if kind == "clicks":
        return service.report(answer, [answer["items"][1]["id"]], final=final, **more)
    grades = {str(item["id"]): float(item["position"] % 3) for item in answer["items"]}
    return service.report(answer, final=final, grades=grades, **more)


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid", "bubblerank", "rtopk"))
def test_every_learner_is_served(name: str, tmp_path: Path) -> None:
    cls = learner_class(name)
    spec: dict[str, Any] = {"learner": name, "features": names(WIDTH), "k": 4, "seed": 3}
    if hasattr(cls, "fit") or hasattr(cls, "label"):  # of whole data sets: no scale is learned
        spec["normalization"] = "query-minmax"
    store, learned = tmp_path / f"{name}.db", 0
    with Service(store) as service:
        service.ready()
        for exposure in EXPOSURES:
            service.put("shop", **spec, exposure=exposure, displacement=2)
            for t in range(4):
                answer = service.rank("shop", items(7, WIDTH, seed=learned), query=f"q{t % 2}")
                assert (answer["fallback"], answer["exposure"]) == (False, exposure)
                assert len(set(shown(answer))) == 4
                assert give_feedback(service, answer, cls.feedback, final=True, event_id=f"e{learned}") == "accepted"
                assert give_feedback(service, answer, cls.feedback, final=True, event_id=f"e{learned}") == "duplicate"
                assert give_feedback(service, answer, cls.feedback, final=True) == "late"
                learned += 1
        assert service.settle("shop") == learned
        assert service.metric("rankloop_learn_errors_total", ranker="shop") == 0
        assert service.metric("rankloop_learned_total", ranker="shop") == learned

        answer = service.rank("shop", items(7, WIDTH), explain=True)
        linear = cls.contextual and hasattr(cls(), "theta_")
        for item in answer["items"]:
            assert (item["score"] is not None) == linear
            assert ("features" in item) == linear
        state = service.state("shop")
        again = service.rank("shop", items(7, WIDTH, seed=50), request_id="the same")

    with Service(store) as service:
        service.ready()
        assert service.snapshot("shop") == service.state("shop") == state
        assert service.status("shop")["learned_impressions"] == learned
        assert service.rank("shop", items(7, WIDTH, seed=50), request_id="the same") == again
        assert give_feedback(service, again, cls.feedback, final=True) == "accepted"
        assert service.settle("shop") == learned + 1
        if LEARNERS[name].learns:
            assert service.state("shop") != fresh_state(service.engine.rankers["shop"].row.spec)
        assert service.act("shop", "reset")["unlearned_impressions"] == 0
        assert give_feedback(service, answer, cls.feedback, final=True) == "late"


@pytest.mark.parametrize("name", LEARNERS)
def test_features_are_required_by_contextual_learners(name: str, service: Service) -> None:
    response = service.http.put(f"/v1/rankers/asks-{name}", json={"learner": name})
    if learner_class(name).contextual:
        refused(response, 422, "features", repr(name))
    else:
        assert response.status_code == 201
        assert len(shown(service.rank(f"asks-{name}", [{"id": 1}, {"id": 2}]))) == 2


PAIRWISE = [name for name, entry in LEARNERS.items() if entry.learns and entry.family == "pairwise"]


@pytest.mark.parametrize("name", slow_except(PAIRWISE, "hybrid", "pdgd"))
def test_the_clicked_feature_gets_the_largest_weight(name: str, service: Service) -> None:
    """The loop closes: users like feature 0, and after forty lists the learner knows it."""
    service.put(f"likes-{name}", learner=name, features=names(3), exposure="full")
    teach(service, f"likes-{name}", 40)
    first = service.rank(f"likes-{name}", items(6), explain=True)["items"][0]
    weight = [first["features"][name]["weight"] for name in names(3)]  # beside them: the order and the query
    assert weight[0] == max(weight) > 0


def test_a_learner_that_takes_grades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grades count from the top down to the first item that nobody graded."""
    misbehaving.install(monkeypatch)
    store, clock = tmp_path / "grades.db", Clock()
    with Service(store, clock) as service:
        service.ready().put("shop", learner="grader", exposure="full", window_seconds=600.0)
        answer = service.rank("shop", [{"id": i} for i in range(4)])
        assert shown(answer) == [3, 2, 1, 0]
        bad: list[dict[str, Any]] = [{"grades": {"9": 1.0}}, {"grades": {"3": -1.0}}, {"grades": {"3": -1e-9}}]
        assert service.report(answer, ["3"], event_id="bad") == "rejected"
        assert [service.report(answer, event_id="bad", **one) for one in bad] == ["rejected"] * 3
        assert service.report(answer, grades={"3": 2.0}, final=False, event_id="bad") == "accepted"  # corrected
        assert service.report(answer, grades={"2": 1.5, "0": 9.0}, final=False) == "accepted"  # nothing about 1
        assert service.report(answer, grades={"3": 3.0}, final=True) == "accepted"  # thought better of it
        assert service.settle("shop") == 1
        assert model_of(service.engine.rankers["shop"]).learner.state()["learned_"][0] == 3.0 + 1.5
        service.rank("shop", [{"id": 1}])
        service.rank("shop", [{"id": 2}])
        clock.ahead = 601.0  # silence about grades is no outcome, whatever silence means for clicks
        until(lambda: service.status("shop")["open_impressions"] == 0)
        assert service.settle("shop") == 1
        state = service.state("shop")
    with Service(store) as service:
        service.ready()
        assert service.state("shop") == state


@pytest.mark.parametrize(
    "grades",
    [[2.0, 9.0], [2.0]],  # above the scale, and too few
)
def test_grades_that_the_learner_does_not_take(grades: list[float], tmp_path: Path) -> None:
    """The scale and the number of grades are the learner's: the event is kept, not learned, and counted."""
    with Service(tmp_path / "grades.db") as service:
        service.ready().put("shop", learner="rtopk", features=names(3), exposure="full")
        teach(service, "shop", 3)
        before = service.state("shop")
        answer = service.rank("shop", items(6))
        told = dict(zip(map(str, shown(answer)), grades, strict=False))
        assert service.report(answer, grades=told) == "accepted"
        service.settle("shop")
        assert service.state("shop") == before
        assert service.metric("rankloop_learn_errors_total", ranker="shop") == 1
        teach(service, "shop", 1, seed=9)
        assert service.state("shop") != before
