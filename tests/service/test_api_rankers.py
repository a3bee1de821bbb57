"""Making and changing rankers over HTTP, and what is refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, teach

__all__ = ["service"]  # a fixture


def test_a_new_ranker_is_created_with_every_default_spelled_out(service: Service) -> None:
    response = service.http.put("/v1/rankers/put-new", json={"learner": "pdgd", "features": ["a", "b"]})
    assert response.status_code == 201
    status = response.json()
    assert status["name"] == "put-new"
    assert status["spec"] == {
        "learner": "pdgd",
        "parameters": {"rate": 0.1, "decay": 0.9999977, "init": "base", "examine_next": True},
        "features": ["a", "b"],
        "catalog": None,
        "unknown": "default",
        "defaults": {},
        "width": 0,
        "normalization": "stream",
        "k": 10,
        "exposure": "shadow",
        "displacement": 3,
        "window_seconds": 1800.0,
        "silence": "no-click",
        "reward": None,
        "click_reward": 1.0,
        "reward_aggregation": "max",
        "interactions": {},
        "default_reward": 0.0,
        "pinned": {},
        "excluded": [],
        "quotas": [],
        "timeout_ms": 100.0,
        "seed": 0,
        "guardrail": {"share": 0.1, "alpha": 0.05},
    }
    assert (status["serving"], status["learning"], status["closed_impressions"], status["unlearned_impressions"]) == (
        "live",
        True,
        0,
        0,
    )
    assert status["learner_process"] == service.engine.worker
    assert fine(service.http.get("/v1/rankers/put-new"))["spec"] == status["spec"]
    assert service.http.put("/v1/rankers/put-new", json=status["spec"]).status_code == 200


def test_a_ranker_that_learned_nothing_may_change_altogether(service: Service) -> None:
    service.put("put-free", features=names(2))
    answer = service.rank("put-free", items(4, 2))
    assert service.put("put-free", learner="greedy", features=names(3), seed=4)["spec"]["learner"] == "greedy"
    assert shown(service.rank("put-free", items(4, 3))) == ["i0", "i1", "i2", "i3"]
    assert service.report(answer, ["i1"]) == "late"  # a list of the ranker that was


def test_what_was_learned_protects_what_it_hangs_on(service: Service) -> None:
    service.put("put-kept", features=names(3))
    teach(service, "put-kept", 3)
    before = service.state("put-kept")
    for change in (
        {"learner": "greedy"},
        {"seed": 5},
        {"parameters": {"alpha": 0.9}},
    ):
        spec: dict[str, Any] = {"features": names(3), **change}
        changed = next(iter(change))
        response = service.http.put("/v1/rankers/put-kept", json=spec)
        told = f"depends on its {changed}", "/v1/rankers/put-kept/reset", "another name"
        refused(response, 409, *told, error="conflict")
    assert service.state("put-kept") == before

    free = {"k": 3, "exposure": "full", "displacement": 1, "window_seconds": 5.0, "silence": "ignore"}
    spec = service.put("put-kept", features=names(3), **free, timeout_ms=5000.0)["spec"]
    assert {key: spec[key] for key in free} == free
    answer = service.rank("put-kept", items(6))
    assert len(answer["items"]) == 3
    assert answer["exposure"] == "full"
    assert answer["version"] == "live@3"
    assert service.state("put-kept") == before

    service.act("put-kept", "reset")
    assert service.put("put-kept", learner="greedy", features=names(3))["spec"]["learner"] == "greedy"


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"learner": "pairank", "features": ["a"]}, 422, ["'pairank'", "'pairrank'", "pdgd"]),
        ({"features": ["a", "b"], "parameters": {"init": [1.0]}}, 422, ["weights", "features"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"speed": 1}}, 422, ["'pdgd'", "'speed'"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": -1}}, 422, ["rate", "-1"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": "fast"}}, 422, ["rate", "'fast'"]),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"rate": 10**400}}, 422, []),
        ({"learner": "pdgd", "features": ["a"], "parameters": {"examine_next": [[]]}}, 422, ["examine_next"]),
        ({"learner": "pdgd"}, 422, ["features", "'pdgd'"]),
        ({"features": ["a", "b", "a"]}, 422, ["'a'"]),
        ({"features": ["a", ""]}, 400, ["$.features[1]"]),
        ({"features": ["a"], "k": 0}, 400, ["$.k"]),
        ({"features": ["a"], "exposure": "fully"}, 400, ["$.exposure"]),
        ({"features": ["a"], "window_seconds": 0}, 400, ["$.window_seconds"]),
        ({"features": ["a"], "seed": -1}, 400, ["$.seed"]),
        ({"features": ["a"], "seed": 2**63}, 400, ["$.seed"]),
        ({"features": ["a"], "sed": 1}, 400, []),
        ({"features": [f"f{j}" for j in range(4097)]}, 413, ["4097", "features", "max_features", "4096"]),
        ([], 400, []),
    ],
)
def test_a_spec_that_breaks_a_rule_is_refused_by_name(
    service: Service, spec: Any, status: int, words: list[str]
) -> None:
    refused(service.http.put("/v1/rankers/put-wrong", json=spec), status, *words)
    refused(service.http.get("/v1/rankers/put-wrong"), 404)


@pytest.mark.parametrize("name", ["-a", ".a", "a" * 65, "a b", "ä", "a\nb", "a\n", "a%00"])
def test_a_ranker_name_must_be_plain(service: Service, name: str) -> None:
    refused(service.http.put(f"/v1/rankers/{quote(name)}", json={"learner": "base"}), 400, "name")
    refused(service.http.post(f"/v1/rankers/{quote(name)}/rank", json={"candidates": [{"id": 1}]}), 400, "name")


def test_rankers_are_listed_and_deleted(service: Service) -> None:
    service.put("list-b", learner="base")
    service.put("list-a", learner="base")
    listed = [ranker["name"] for ranker in fine(service.http.get("/v1/rankers"))]
    assert listed == sorted(listed)
    assert {"list-a", "list-b"} <= set(listed)

    answer = service.rank("list-a", [{"id": 1}, {"id": 2}], request_id="r")
    response = service.http.delete("/v1/rankers/list-a")
    assert (response.status_code, response.content) == (204, b"")
    for again in (
        service.http.delete("/v1/rankers/list-a"),
        service.http.get("/v1/rankers/list-a"),
        service.http.get("/v1/rankers/list-a/versions"),
        service.http.post("/v1/rankers/list-a/rank", json={"candidates": [{"id": 1}]}),
        service.http.post("/v1/rankers/list-a/reset"),
    ):
        refused(again, 404, "'list-a'", "'list-b'", error="unknown")
    assert service.report(answer, [1]) == "orphan"

    assert (
        service.put("list-a", learner="base")["closed_impressions"] == 0
    )  # a new one of that name knows nothing of the old
    assert service.rank("list-a", [{"id": 3}], request_id="r")["items"][0]["id"] == 3
