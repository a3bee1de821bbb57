"""Experiments over the API, as tests use them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankloop.core.types import Candidates
from tests.service import misbehaving
from tests.service.app_fixtures import Body, Service, fine, refused, service, until
from tests.service.truths import read

__all__ = ["service"]  # a fixture


def sent(service: Service, name: str, candidates: list[Body]) -> Candidates:
    """Candidates as the learner of a ranker gets them."""
    schema = service.engine.rankers[name].schema
    return schema.candidates(schema.parse(json.dumps({"candidates": candidates}).encode()))


def start(service: Service, name: str, **terms: Any) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/experiments", json=terms))


def refuse(service: Service, name: str, status: int, *words: str, **terms: Any) -> str:
    return refused(service.http.post(f"/v1/rankers/{name}/experiments", json=terms), status, *words)


def look(service: Service, name: str, number: int) -> Any:
    return fine(service.http.get(f"/v1/rankers/{name}/experiments/{number}"))


def stop(service: Service, name: str, number: int) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/experiments/{number}/stop"))


def counted(service: Service, name: str, number: int, lists: int) -> Any:
    until(lambda: look(service, name, number)["lists"] >= lists, f"{lists} lists to be counted")
    return look(service, name, number)


def owners(service: Service, name: str) -> dict[str, tuple[int | None, list[float] | None]]:
    """Impression -> its experiment and who put what there, as stored."""
    sql = "SELECT id, experiment, credit FROM impressions WHERE ranker = ?"
    rows = read(service.engine.settings.store, sql, name)
    return {key: (number, None if text is None else json.loads(text)) for key, number, text in rows}


@pytest.fixture
def reverse(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """With learners that turn the base order round, or misbehave."""
    misbehaving.install(monkeypatch)
    return service
