"""The OpenAPI document as generators of clients read it: what made one drop routes is not in it, and a client that
`openapi-python-client` makes of it works."""

from __future__ import annotations

import base64
import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rankloop.service.api.openapi import document
from tests.service.app_fixtures import Service, service

__all__ = ["service"]  # a fixture
ALONE = "/v1/rankers/{name}/warm"  # newline-delimited JSON, which the generator does not know


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return document()


def operations(made: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in made["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def test_no_object_is_the_default_of_alternatives(made: dict[str, Any]) -> None:
    fields = [
        (name, field, schema)
        for name, one in made["components"]["schemas"].items()
        for field, schema in one.get("properties", {}).items()
    ]
    assert len(fields) > 50
    assert [(n, f) for n, f, schema in fields if "anyOf" in schema and isinstance(schema.get("default"), dict)] == []
    guardrail = made["components"]["schemas"]["Spec"]["properties"]["guardrail"]
    assert 'default `{"share":0.1,"alpha":0.05}`' in guardrail["description"]


def test_a_body_is_required_where_one_is_needed(made: dict[str, Any]) -> None:
    bodies = {path.rpartition("/")[2]: one["requestBody"] for _, path, one in operations(made) if "requestBody" in one}
    required = {name: body["required"] for name, body in bodies.items()}
    needed = {"rank", "feedback", "beacon", "{name}", "warm", "items", "users", "delete"}
    assert {name for name, must in required.items() if must} == needed
    free = {"promote", "rollback", "reset", "pause", "resume", "versions", "experiments"}
    assert {name for name, must in required.items() if not must} == free
    assert '"null"' not in json.dumps(bodies)


def test_both_forms_of_a_request_to_rank_are_described(made: dict[str, Any]) -> None:
    body = made["paths"]["/v1/rankers/{name}/rank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("RankRequest", "RankColumns")]}
    table = made["components"]["schemas"]["RankColumns"]["properties"]["features"]["anyOf"]
    assert {"type": "string", "contentEncoding": "base64"} in table


# -- a client that was generated -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The client that `openapi-python-client` writes, imported; it warns of one route only."""
    pytest.importorskip("openapi_python_client")
    from openapi_python_client import generate
    from openapi_python_client.config import Config, ConfigFile, MetaType

    folder = tmp_path_factory.mktemp("generated")
    source = folder / "openapi.json"
    source.write_text(json.dumps(made), "utf-8")
    how = ConfigFile(post_hooks=[])
    config = Config.from_sources(how, MetaType.NONE, source, "utf-8", False, folder / "rankloop_generated")
    problems = [one for one in generate(config=config) if "not in PATH" not in str(one.detail)]
    assert all(ALONE in str(one.header) for one in problems), problems
    assert len(problems) <= 1
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("rankloop_generated")
    finally:
        sys.path.remove(str(folder))


def part(name: str) -> Any:
    return importlib.import_module(f"rankloop_generated.{name}")


@pytest.mark.slow
@pytest.mark.usefixtures("generated")
def test_a_generated_client_works(service: Service) -> None:
    """Make a ranker, rank in each form, report, promote without a body, look, delete."""
    models, client = part("models"), part("client").Client(base_url="http://127.0.0.1")
    client.set_httpx_client(service.http)
    put, rank, feedback = (
        part(f"api.{name}").sync for name in ("rankers.put_ranker", "rank.rank", "feedback.feedback")
    )
    spec = models.Spec.from_dict({"learner": "greedy", "features": ["a", "b"], "guardrail": None, "timeout_ms": 6e4})
    status = put("generated", client=client, body=spec)
    assert (status.name, status.spec.features, status.spec.guardrail) == ("generated", ["a", "b"], None)
    rows = [[0.5, 0.25], [1.0, 0.125]]
    candidates = [{"id": item, "features": row} for item, row in zip("pq", rows, strict=True)]
    forms: list[Any] = [
        models.RankRequest.from_dict({"candidates": candidates}),
        models.RankColumns.from_dict({"ids": ["p", "q"], "features": rows}),
        models.RankColumns.from_dict({"ids": ["p", "q"], "features": {"b": [0.25, 0.125], "a": [0.5, 1.0]}}),
        models.RankColumns.from_dict(
            {"ids": ["p", "q"], "features": base64.b64encode(np.array(rows, "<f8").tobytes()).decode()}
        ),
    ]
    answers = [rank("generated", client=client, body=body) for body in forms]
    assert [[item.id for item in answer.items] for answer in answers] == [["p", "q"]] * 4
    event = {"event_id": "g1", "impression_id": answers[0].impression_id, "clicks": ["q"], "final": True}
    receipt = feedback(client=client, body=models.FeedbackEvent.from_dict(event))
    assert [one.status for one in receipt.results] == ["accepted"]
    assert part("api.versions.promote").sync("generated", client=client).serving == "v1"
    assert part("api.rankers.pause").sync("generated", client=client).learning is False
    assert part("api.rankers.get_ranker").sync("generated", client=client).closed_impressions == 1
    problem = part("api.rankers.get_ranker").sync("nobody", client=client)
    assert problem.error == "unknown"
    assert part("api.rankers.delete_ranker").sync_detailed("generated", client=client).status_code == 204
