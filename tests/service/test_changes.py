"""Changes of a ranker: some of its fields, only as it was seen, and never a demotion undone unawares."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from rankloop.service.ranking import kernel_compilation
from rankloop.service.ranking import model as models
from rankloop.wire.rankers import Spec
from tests.service import misbehaving
from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, teach, until
from tests.service.running import PATIENCE
from tests.service.test_guardrail import ASK, GUARD, demoted, visit

__all__ = ["service"]  # a fixture


def patch(service: Service, name: str, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
    return service.http.patch(f"/v1/rankers/{name}", json=changes, headers=headers)


# -- PATCH ---------------------------------------------------------------------------------------------------------


def test_what_a_patch_leaves_out_stays(service: Service) -> None:
    made = service.put("patched", features=names(3), k=7, learner="pairrank", parameters={"alpha": 0.3})
    answer = patch(service, "patched", exposure="full", guardrail={"share": 0.5})
    after = fine(answer)["spec"]
    assert after == made["spec"] | {"exposure": "full", "guardrail": {"share": 0.5, "alpha": 0.05}}
    assert after["parameters"]["alpha"] == 0.3
    assert fine(answer)["changed"]["fields"] == ["exposure", "guardrail"]
    again = fine(patch(service, "patched"))
    assert again["changed"]["fields"] == []
    assert again["spec"] == after
    assert fine(patch(service, "patched", guardrail=None))["spec"]["guardrail"] is None


def test_a_patch_keeps_the_rules_of_put(service: Service) -> None:
    service.put("ruled", features=names(3), exposure="full")
    teach(service, "ruled", 2)
    refused(patch(service, "ruled", seed=4), 409, "seed")
    refused(patch(service, "ruled", exposure="ful"), 400, "'bounded'", "'full'", "'shadow'", error="malformed")
    refused(patch(service, "ruled", k=0), 400, "$.k")
    refused(patch(service, "ruled", color="red"), 400, "color")
    refused(patch(service, "nobody", k=3), 404, "nobody", "ruled")
    assert service.status("ruled")["spec"]["exposure"] == "full"


def test_another_learner_begins_with_its_own_parameters(service: Service) -> None:
    service.put("turned", features=names(3), learner="pairrank", parameters={"alpha": 0.3})
    turned = fine(patch(service, "turned", learner="pdgd"))
    assert turned["spec"]["learner"] == "pdgd"
    assert "alpha" not in turned["spec"]["parameters"]
    assert turned["origin"]["how"] == "changed"


def test_a_put_keeps_what_it_leaves_out(service: Service) -> None:
    file = {"features": names(3), "learner": "pairrank", "parameters": {"alpha": 0.3}}
    made = fine(service.http.put("/v1/rankers/deployed", json=file))
    assert made["changed"] is None
    fine(patch(service, "deployed", exposure="full", guardrail=None, pinned={"i2": 1}, parameters={"prior": 3.0}))
    again = fine(service.http.put("/v1/rankers/deployed", json=file))
    assert again["changed"]["fields"] == []
    spec = again["spec"]
    assert (spec["exposure"], spec["guardrail"], spec["pinned"]) == ("full", None, {"i2": 1})
    assert (spec["parameters"]["alpha"], spec["parameters"]["prior"]) == (0.3, 3.0)
    told = fine(service.http.put("/v1/rankers/deployed", json={**file, "exposure": "shadow", "k": 5}))
    assert told["changed"]["fields"] == ["k", "exposure"]


# -- If-Match ------------------------------------------------------------------------------------------------------


def test_a_change_meant_for_another_state_is_refused(service: Service) -> None:
    made = service.put("matched", features=names(3))
    seen = service.http.get("/v1/rankers/matched").headers["etag"]
    assert seen == made["etag"] == service.status("matched")["etag"]
    changed = patch(service, "matched", {"If-Match": seen}, k=5, exposure="full")
    assert fine(changed)["etag"] == changed.headers["etag"] != seen
    old = {"If-Match": seen}
    whole = {"features": names(3)}
    for answer in (
        patch(service, "matched", old, k=6),
        service.http.put("/v1/rankers/matched", json=whole, headers=old),
        service.http.delete("/v1/rankers/matched", headers=old),
        *(service.http.post(f"/v1/rankers/matched/{what}", headers=old) for what in ("promote", "reset", "pause")),
    ):
        refused(answer, 412, changed.headers["etag"], error="changed")
    assert service.versions("matched") == []  # promote keeps a version: not of a ranker that it refuses
    service.act("matched", "versions")
    served = service.http.post(
        "/v1/rankers/matched/promote", json={"version": 1}, headers={"If-Match": changed.headers["etag"]}
    )
    assert fine(served)["serving"] == "v1"
    again = service.http.post("/v1/rankers/matched/rollback", headers={"If-Match": changed.headers["etag"]})
    refused(again, 412)
    weak = {"If-Match": f'"other", W/{served.headers["etag"]}'}  # what a proxy that packs answers makes of it
    assert fine(service.http.post("/v1/rankers/matched/pause", headers=weak))["learning"] is False


def test_if_match_of_nothing_and_of_anything(service: Service) -> None:
    body = {"learner": "base"}
    refused(service.http.put("/v1/rankers/unmade", json=body, headers={"If-Match": "*"}), 412, "'unmade'")
    service.put("made-up", **body)
    assert fine(patch(service, "made-up", {"If-Match": "*"}, k=3))["spec"]["k"] == 3
    refused(patch(service, "made-up", {"If-Match": '"rubbish"'}, k=4), 412)


def test_two_who_change_different_fields_at_once_both_have_their_way(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch reads, thinks and writes; what another has written meanwhile must not be lost."""
    service.put("both", features=names(3))
    true, held, go = models.fresh_state, threading.Event(), threading.Event()

    def slow(spec: Spec) -> bytes:
        if spec.k == 4 and not held.is_set():
            held.set()
            assert go.wait(PATIENCE)
        return true(spec)

    monkeypatch.setattr(models, "fresh_state", slow)
    answers: list[httpx.Response] = []
    first = threading.Thread(target=lambda: answers.append(patch(service, "both", k=4)))
    first.start()
    assert held.wait(PATIENCE)
    fine(patch(service, "both", timeout_ms=77.0))
    go.set()
    first.join(PATIENCE)
    spec = fine(answers[0])["spec"]
    assert (spec["k"], spec["timeout_ms"]) == (4, 77.0)


def test_a_learner_that_takes_its_time_to_load_stops_nobody(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion tries the version first: outside of the transaction, or every write of the service would wait."""
    service.put("patient", features=names(3), exposure="full")
    service.put("bystander", learner="base")
    teach(service, "patient", 2)
    service.act("patient", "versions")
    true, held, go = models.load_learner, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        if "version 1 of ranker 'patient'" in arguments:
            held.set()
            assert go.wait(PATIENCE)
        return true(*arguments)

    monkeypatch.setattr(models, "load_learner", slow)
    for action in ("promote", "rollback"):
        held.clear()
        go.clear()
        body = {"version": 1}
        answers: list[httpx.Response] = []
        call = threading.Thread(
            target=lambda: answers.append(service.http.post(f"/v1/rankers/patient/{action}", json=body))  # noqa: B023
        )
        call.start()
        assert held.wait(PATIENCE)
        answer = service.rank("bystander", items(3))
        assert service.report(answer, ["i1"]) == "accepted"  # in a transaction it would wait until `go`, for ever
        go.set()
        call.join(PATIENCE)
        fine(answers[0])


# -- demotion ------------------------------------------------------------------------------------------------------


def test_a_deploy_that_puts_the_same_file_again_does_not_undo_a_demotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misbehaving.install(monkeypatch)
    file = {"learner": "reverse", "exposure": "full", "k": 4, "guardrail": GUARD, "timeout_ms": 60_000.0}
    with Service(tmp_path / "a.db") as service:
        service.ready().put("shop", **file)
        visit(service, "ab", 40)
        status = demoted(service)
        path = "/v1/rankers/shop"
        words = ("shadow", "acknowledge_demotion=true", "nothing was changed")
        refused(service.http.put(path, json={**file, "timeout_ms": 5.0}), 409, *words, error="demoted")
        refused(patch(service, "shop", exposure="bounded"), 409, *words, error="demoted")
        refused(service.http.put(path, json=file, headers={"If-Match": "*"}), 409, error="demoted")
        changing: dict[str, Any] = {"model_age_seconds": None}
        assert service.status("shop") | changing == status | changing
        assert fine(patch(service, "shop", timeout_ms=50_000.0))["spec"]["exposure"] == "shadow"  # all else may change
        assert shown(service.rank("shop", ASK)) == list("abcd")
        seen = service.status("shop")["etag"]
        up = service.http.put(path, json=file, headers={"If-Match": seen})  # whoever has seen it may put it up
        assert (fine(up)["spec"]["exposure"], fine(up)["demoted"]) == ("full", None)
        visit(service, "ab", 40)
        demoted(service)
        up = service.http.put(f"{path}?acknowledge_demotion=true", json=file)
        assert fine(up)["spec"]["exposure"] == "full"


# -- lineage -------------------------------------------------------------------------------------------------------


def test_after_a_rollback_it_says_what_it_came_from_and_what_it_learned_since(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready().put("shop", features=names(3), exposure="full")
        teach(service, "shop", 4)
        service.act("shop", "versions", note="good")
        teach(service, "shop", 3)
        rolled = service.act("shop", "rollback", version=1)
        assert rolled["origin"] | {"since": 0} == {
            "generation": 2,
            "how": "rollback",
            "version": 1,
            "kept": 2,
            "since": 0,
            "impressions_since": 0,
        }
        teach(service, "shop", 2)
        status = service.status("shop")
        assert (status["learned_impressions"], status["model_impressions"], status["unlearned_impressions"]) == (
            9,
            6,
            0,
        )  # v1 knew 4
        assert status["origin"]["impressions_since"] == 2
        service.act("shop", "versions")
        shares = ("version", "learned_impressions", "generation", "model_impressions")
        kept = [tuple(one[key] for key in shares) for one in service.versions("shop")]
        assert kept == [(3, 9, 2, 6), (2, 7, 1, 7), (1, 4, 1, 4)]
        service.act("shop", "reset")
        third, second, first = fine(service.http.get("/v1/rankers/shop/lineage"))
        told = ("generation", "how", "version", "kept", "closed_impressions", "versions")
        assert [third[key] for key in told] == [3, "reset", None, 4, 0, []]
        assert [second[key] for key in told] == [2, "rollback", 1, 2, 2, [3, 4]]
        assert [first[key] for key in told] == [1, "made", None, None, 7, [1, 2]]
        assert service.status("shop")["model_impressions"] == 0
        assert service.act("shop", "rollback", version=3)["model_impressions"] == 6
        assert (third["ended"], second["ended"], first["ended"]) == (None, third["began"], second["began"])


# -- kernel compilation --------------------------------------------------------------------------------------------


def test_a_put_answers_while_kernels_are_compiled_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true, go = kernel_compilation.compile_kernels, threading.Event()

    def slow(spec: Spec) -> None:
        if spec.learner != "base":
            assert go.wait(PATIENCE)
        true(spec)

    monkeypatch.setattr(kernel_compilation, "compile_kernels", slow)
    with Service(tmp_path / "a.db") as service:
        service.ready()
        made = service.put_cold("cold", features=names(3), exposure="full")
        assert (made["ready"], made["waiting_for"]) == (False, service.status("cold")["waiting_for"])
        assert "compiled" in made["waiting_for"]
        service.put_cold("same", features=names(3), exposure="full")
        assert len([one for one in threading.enumerate() if one.name == "rankloop-compile"]) == 1  # one for both
        (reason,) = fine(service.http.get("/readyz"))["reasons"]
        assert (reason["code"], reason["count"], reason["rankers"]) == ("compiling", 2, ["cold", "same"])
        service.put("other", learner="base")
        assert service.status("other")["ready"] is True
        assert service.rank("cold", items(3))["reason"] == "compiling"
        go.set()
        until(lambda: service.status("cold")["ready"] and service.status("same")["ready"], "the kernels")
        assert service.status("cold")["waiting_for"] is None
        assert service.rank("cold", items(3))["fallback"] is False
        assert fine(service.http.get("/readyz")) == {"status": "ready", "reasons": []}


def test_with_keys_readyz_names_rankers_to_those_who_may_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(kernel_compilation, "compile_kernels", lambda _: go.wait(PATIENCE))
    key = "an-admin-key-0123456789"
    with Service(tmp_path / "a.db", keys=f"{key}:admin") as service:
        service.ready()
        own = {"Authorization": f"Bearer {key}"}
        fine(service.http.put("/v1/rankers/secret", json={"features": names(2)}, headers=own))
        (reason,) = fine(service.http.get("/readyz"))["reasons"]
        assert (reason["code"], reason["count"], reason["rankers"]) == ("compiling", 1, [])
        (reason,) = fine(service.http.get("/readyz", headers=own))["reasons"]
        assert reason["rankers"] == ["secret"]
        go.set()


def test_not_ready_until_the_kernels_of_the_start_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For at most compile_seconds; they are compiled side by side, so none waits for one that hangs."""
    store, go = tmp_path / "a.db", threading.Event()
    with Service(store) as service:
        service.ready().put("a-slow-one", features=names(3))
        service.put("quick", learner="base")

    def slow(spec: Spec) -> None:
        if spec.learner != "base":
            assert go.wait(PATIENCE)

    monkeypatch.setattr(kernel_compilation, "compile_kernels", slow)
    with Service(store) as service:
        until(lambda: service.status("quick")["ready"], "the quick one")
        assert service.status("a-slow-one")["ready"] is False
        assert service.http.get("/readyz").status_code == 503
        go.set()
        service.ready()
        assert fine(service.http.get("/readyz")) == {"status": "ready", "reasons": []}
