"""Experiments over the API: what is refused, what ends one, who may, and that two processes agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankloop.service.serving.experiments import LiveExperiment, RankerExperiments
from rankloop.service.storage.experiments import Experiment, Kind, Tally
from rankloop.service.storage.rankers import Ranker
from rankloop.wire.experiments import ExperimentRequest
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Body, Service, fine, refused, service, shown, until
from tests.service.experimenting import counted, look, refuse, start, stop

__all__ = ["service"]  # a fixture


def test_one_experiment_per_ranker(service: Service) -> None:
    service.put("single", learner="random", exposure="full", guardrail=None)
    first = start(service, "single")["number"]
    refuse(service, "single", 409, f"experiment {first}", f"/experiments/{first}/stop")
    stop(service, "single", first)
    second = start(service, "single", against="base")
    assert [one["number"] for one in fine(service.http.get("/v1/rankers/single/experiments"))] == [
        second["number"],
        first,
    ]


def test_experiments_in_shadow_need_an_exposure(service: Service) -> None:
    name = "shadow-tried"
    service.put(name, learner="random", exposure="shadow", k=4)
    refuse(service, name, 409, "is in shadow", '"exposure": "full"')
    number = start(service, name, exposure="bounded", share=0.5)["number"]
    ask = [{"id": c} for c in "abcdefgh"]
    answers = [service.rank(name, ask) for _ in range(60)]
    assert {(answer["exposure"], answer["experiment"]) for answer in answers} == {("shadow", None), ("bounded", number)}
    assert all(shown(answer) == list("abcd") for answer in answers if answer["experiment"] is None)
    assert any(shown(answer) != list("abcd") for answer in answers)


def test_probabilistic_interleaving_needs_full_exposure(service: Service) -> None:
    service.put("careful", learner="random", exposure="bounded", guardrail=None)
    refuse(service, "careful", 422, "probabilistic", "team-draft", mixing="probabilistic")
    assert start(service, "careful", mixing="probabilistic", exposure="full")["exposure"] == "full"


@pytest.mark.parametrize(
    "terms",
    [
        {"share": 0},
        {"share": 1.1},
        {"alpha": 0},
        {"alpha": 0.7},
        {"effect": 0},
        {"effect": 2},
        {"mixing": "balanced"},
        {"against": ""},
        {"against": 0},
        {"against": 1.5},
        {"exposure": "shadow"},
        {"unknown": 1},
        {"note": "x" * 600},
    ],
)
def test_bad_terms_are_refused(service: Service, terms: Body) -> None:
    service.put("strict", learner="random", exposure="full", guardrail=None)
    refuse(service, "strict", 400, **terms)
    refused(service.http.get("/v1/rankers/strict/experiments/77"), 404, "77")
    refused(service.http.post("/v1/rankers/strict/experiments/77/stop"), 404, "77")
    refuse(service, "strict", 422, "NUL", note="a\0b")


@pytest.mark.parametrize("action", ["exposure", "promote", "rollback", "reset", "pause"])
def test_what_ends_an_experiment(service: Service, action: str) -> None:
    name = f"ends-{action}"
    spec: Body = {"learner": "random", "k": 3, "guardrail": None}
    service.put(name, exposure="full", **spec)
    service.act(name, "versions")
    number = start(service, name, share=1.0)["number"]
    if action == "exposure":
        service.put(name, exposure="shadow", **spec)
    else:
        service.act(name, action)
    found = look(service, name, number)
    answer = service.rank(name, [{"id": c} for c in "abcd"])
    if action == "pause":  # it is about what is shown, not about what is learned
        assert found["state"] == "running"
        assert answer["experiment"] == number
    else:
        assert found["state"] == "stopped"
        assert "the ranker has changed" in found["reason"]
        assert answer["experiment"] is None


def test_experiments_run_in_every_process(tmp_path: Path) -> None:
    """Started in one, mixed in both, counted by the one that learns, told by either; killed or not, once."""
    store = tmp_path / "two.db"
    with Service(store, refresh_seconds=0.1) as one, Service(store, refresh_seconds=0.1) as two:
        one.ready()
        two.ready()
        one.put("both", learner="random", exposure="full", k=3, guardrail=None)
        ask = [{"id": c} for c in "abcdef"]
        number = start(one, "both", share=1.0)["number"]
        until(lambda: two.rank("both", ask)["experiment"] == number, "the other process to take part")
        for i in range(20):
            side = (one, two)[i % 2]
            answer = side.rank("both", ask)
            assert answer["experiment"] == number
            (two, one)[i % 2].report(answer, [shown(answer)[0]])
        counted(one, "both", number, 20)
        assert counted(two, "both", number, 20)["preference"] == look(one, "both", number)["preference"]
        stop(two, "both", number)
        until(lambda: one.rank("both", ask)["experiment"] is None, "the other process to stop")


def test_guardrail_has_priority_and_changing_rankers_take_no_part() -> None:
    row = Ranker("shop", Spec(), 0.0, 0, 0, 3, True, None)
    kinds: list[Kind] = ["experiment", "guardrail"]
    parts = [
        Experiment("shop", number, kind, ExperimentRequest(share=share), b"", "running", None, 0.0, None, 0, Tally())
        for number, (kind, share) in enumerate(zip(kinds, (1.0, 0.25), strict=True), 1)
    ]
    mixed = RankerExperiments(row, [LiveExperiment(one, "full", None) for one in parts])
    drawn = [mixed.assign(number, 3, row) for number in range(400)]
    assert all(one is not None and one.coins.shape == (3,) for one in drawn)
    guarded = sum(one is not None and one.experiment.row.kind == "guardrail" for one in drawn)
    assert guarded == pytest.approx(100, abs=35)  # four standard deviations
    assert mixed.assign(0, 3, row._replace(revision=4)) is None
