"""The guardrail: a ranking that users like less than the base order goes back to shadow, once, with the evidence."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankloop.service.settings import Settings
from rankloop.service.storage import rankers
from rankloop.service.supervisor.run import opened, prepare_ranker
from rankloop.wire.rankers import Guardrail, Spec
from tests.service import misbehaving
from tests.service.app_fixtures import Service, fine, refused, shown, until

GUARD = {"share": 0.5, "alpha": 0.05}
ASK = [{"id": c} for c in "abcdef"]


@pytest.fixture(autouse=True)
def reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    misbehaving.install(monkeypatch)


def trials(service: Service, name: str = "shop") -> list[Any]:
    found: list[Any] = fine(service.http.get(f"/v1/rankers/{name}/experiments"))
    return found


def visit(service: Service, likes: str, visits: int = 1, name: str = "shop") -> None:
    """Users who click the first of the list that they like."""
    for _ in range(visits):
        answer = service.rank(name, ASK)
        liked = [item for item in shown(answer) if item in likes][:1]
        assert service.report(answer, liked) == "accepted"
    service.settle(name)


def demoted(service: Service, name: str = "shop") -> Any:
    until(lambda: service.status(name)["demoted"] is not None, "the guardrail to act")
    return service.status(name)


def test_a_worse_ranker_is_demoted_with_evidence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        (guard,) = trials(service)
        assert (guard["kind"], guard["against"], guard["share"], guard["state"]) == (
            "guardrail",
            "base",
            0.5,
            "running",
        )
        assert service.status("shop")["demoted"] is None
        with caplog.at_level(logging.WARNING, "rankloop"):
            for _ in range(12):
                visit(service, "ab", 10)
                if service.status("shop")["spec"]["exposure"] == "shadow":
                    break
            status = demoted(service)
        assert status["spec"]["exposure"] == "shadow"
        assert status["spec"]["guardrail"] == GUARD
        evidence = status["demoted"]
        assert evidence["preference"] == -1.0
        assert evidence["interval"][1] < 0.0
        assert 8 <= evidence["lists"] <= 20
        (guard,) = trials(service)
        assert (guard["state"], guard["verdict"], guard["evidence"]) == ("demoted", "worse", evidence)
        assert guard["ended"] >= evidence["when"] >= guard["started"]
        assert "prefer" in guard["reason"]
        assert service.metric("rankloop_demotions_total", ranker="shop") == 1
        told = [record.getMessage() for record in caplog.records if "exposure is shadow now" in record.getMessage()]
        assert len(told) == 1
        assert f"over {evidence['lists']} lists" in told[0]
        change = fine(service.http.get("/v1/audit?ranker=shop"))[0]
        assert (change["key"], change["action"], change["request_id"]) == ("(rankloop)", "demote", "")
        assert change["text"] in told[0]
        answer = service.rank("shop", ASK)
        assert (shown(answer), answer["exposure"], answer["experiment"]) == (list("abcd"), "shadow", None)
        visit(service, "ab", 20)  # nothing more comes of it
        assert [one["number"] for one in trials(service)] == [1]
        assert service.metric("rankloop_demotions_total", ranker="shop") == 1


def test_a_demotion_whose_audit_entry_cannot_be_written_does_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Any] = []

    def broken(*_: Any) -> None:
        tries.append("to write an entry")
        raise ZeroDivisionError("made for this test")

    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        with monkeypatch.context() as patch:
            patch.setattr("rankloop.service.storage.audit.add", broken)
            while not tries:
                visit(service, "ab", 10)
            assert service.status("shop")["spec"]["exposure"] == "full"
        visit(service, "ab")
        assert demoted(service)["spec"]["exposure"] == "shadow"
        assert [one["action"] for one in fine(service.http.get("/v1/audit?ranker=shop"))] == ["demote", "put"]


def test_better_and_equal_rankers_are_not_demoted(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("better", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        service.put("equal", learner="base", exposure="full", k=4, guardrail=GUARD)
        visit(service, "ef", 60, "better")
        visit(service, "ab", 60, "equal")
        until(lambda: trials(service, "better")[0]["verdict"] == "better", "the verdict")
        for name in ("better", "equal"):
            status = service.status(name)
            assert (status["spec"]["exposure"], status["demoted"]) == ("full", None)
            assert trials(service, name)[0]["state"] == "running"
        assert trials(service, "equal")[0]["decided"] == 0  # lists on which both agree say nothing


def test_a_guardrail_survives_a_restart_and_starts_over_after_a_demotion(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with Service(store) as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        visit(service, "ab", 10)  # too few
        counted = trials(service)[0]["lists"]
    with Service(store) as service:
        service.ready()
        (guard,) = trials(service)
        assert (guard["state"], guard["lists"] >= counted) == ("running", True)
        visit(service, "ab", 60)
        evidence = demoted(service)["demoted"]
        assert evidence["lists"] > counted  # what was counted before counts on
    with Service(store) as service:
        service.ready()
        assert service.status("shop")["demoted"] == evidence
        assert service.status("shop")["spec"]["exposure"] == "shadow"
        spec = service.status("shop")["spec"]
        service.put("shop", **{**spec, "window_seconds": 60.0})  # still in shadow: still demoted
        assert service.status("shop")["demoted"] == evidence
        for exposure in ("shadow", "full", "shadow"):  # by hand and without a guardrail: nobody was demoted
            service.put("shop", **{**spec, "exposure": exposure, "guardrail": None})
            assert service.status("shop")["demoted"] is None
        service.put("shop", **{**spec, "exposure": "bounded"})
        assert service.status("shop")["demoted"] is None
        fresh, old = trials(service)
        assert (fresh["number"], fresh["state"], fresh["lists"], fresh["exposure"]) == (2, "running", 0, "bounded")
        assert old["state"] == "demoted"
        visit(service, "ab", 150)
        assert demoted(service)["demoted"]["when"] > evidence["when"]
        assert [one["state"] for one in trials(service)] == ["demoted", "demoted"]


def test_a_guardrail_is_changed_in_the_spec(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        refused(service.http.post("/v1/rankers/shop/experiments/1/stop"), 409, '"guardrail"')
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail={"share": 0.1})
        second, first = trials(service)
        assert (first["state"], first["reason"]) == ("stopped", "the guardrail was changed")
        assert (second["state"], second["share"], second["alpha"]) == ("running", 0.1, 0.05)
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=None)
        assert [one["state"] for one in trials(service)] == ["stopped", "stopped"]
        visit(service, "ab", 40)
        assert service.status("shop")["spec"]["exposure"] == "full"
        for bad in ({"share": 0.0}, {"share": 2}, {"alpha": 0}, {"other": 1}):
            spec = {"learner": "reverse", "guardrail": bad}
            refused(service.http.put("/v1/rankers/bad", json=spec), 400)


def test_a_guardrail_starts_for_rankers_without_one(tmp_path: Path) -> None:
    """Of an older release, or made while no service ran: the process that learns sees to it."""
    store = tmp_path / "a.db"
    spec = Spec(learner="reverse", exposure="full", k=4, guardrail=Guardrail(share=0.4))
    prepare_ranker(Settings(store=str(store)), "shop", spec)
    with Service(store) as service:
        service.ready()
        until(lambda: len(trials(service)) == 1, "a guardrail")
        until(lambda: any(service.rank("shop", ASK)["experiment"] == 1 for _ in range(9)), "it to take part")


def test_a_demotion_reaches_other_processes(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with Service(store, refresh_seconds=0.1) as one, Service(store, refresh_seconds=0.1, learn=False) as two:
        one.ready()
        two.ready()
        one.put("shop", learner="reverse", exposure="full", k=4, guardrail={"share": 1.0})
        until(lambda: two.rank("shop", ASK)["experiment"] == 1, "the other process to take part")
        for _ in range(25):  # it ranks and takes the feedback, but does not learn
            answer = two.rank("shop", ASK)
            two.report(answer, [item for item in shown(answer) if item in "ab"][:1])
        assert demoted(two)["spec"]["exposure"] == "shadow"
        until(lambda: shown(two.rank("shop", ASK)) == list("abcd"), "the base order")
        assert one.status("shop")["demoted"] == two.status("shop")["demoted"]


def test_the_guardrail_of_a_bounded_ranker_stays_within_the_bound(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="bounded", displacement=1, k=4, guardrail={"share": 1.0})
        for _ in range(30):
            answer = service.rank("shop", ASK)
            assert all(abs(place - "abcdef".index(item)) <= 1 for place, item in enumerate(shown(answer)))
        visit(service, "a", 60)
        assert demoted(service)["demoted"]["preference"] < 0.0


def test_guardrail_defaults_apply_without_a_spec(tmp_path: Path) -> None:
    """A stored spec of an older release has no guardrail: it loads with today's default."""
    store = tmp_path / "a.db"
    settings = Settings(store=str(store))
    prepare_ranker(settings, "shop", Spec(learner="base", exposure="full"))
    with opened(settings) as writer:
        row = writer.do(lambda c: rankers.get_ranker(c, "shop"))
        assert row is not None
        old = msgspec.json.decode(msgspec.json.encode(row.spec))
        del old["guardrail"]
        writer.do(lambda c: c.run("UPDATE rankers SET spec = ?", msgspec.json.encode(old)))
    with Service(store) as service:
        service.ready()
        expected = msgspec.to_builtins(Spec().guardrail)
        assert service.status("shop")["spec"]["guardrail"] == expected


def test_a_running_experiment_ends_with_the_demotion(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        service.put("shop", learner="reverse", exposure="full", k=4, guardrail=GUARD)
        too_large = service.http.post("/v1/rankers/shop/experiments", json={"share": 0.7})
        refused(too_large, 409, "guardrail", "0.5")
        fine(service.http.post("/v1/rankers/shop/experiments", json={"share": 0.5}))
        answers = [service.rank("shop", ASK) for _ in range(40)]
        assert {answer["experiment"] for answer in answers} == {1, 2}  # between them they take all
        visit(service, "ab", 60)
        demoted(service)
        experiment, _ = trials(service)
        assert (experiment["kind"], experiment["state"]) == ("experiment", "stopped")
        assert "exposure from full to shadow" in experiment["reason"]
