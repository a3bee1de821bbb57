"""The proof of `benchmarks/guardrail.py`, in small: power, false alarms, and forecasts that are kept."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks import guardrail as proof

from rankloop.wire.rankers import Guardrail

pytestmark = pytest.mark.slow

GUARD = Guardrail(share=0.3)


def lives(kind: str, deployments: int, requests: int) -> list[proof.Life]:
    async def run() -> list[proof.Life]:  # requests know the loop they belong to
        return [proof.live(kind, "full", GUARD, requests, seed) for seed in range(deployments)]

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def short_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SHADOW", 200)


def test_a_sabotaged_ranker_is_demoted() -> None:
    deployments = 3
    found = lives("sabotaged", deployments, 1500)
    assert all(life.demoted is not None for life in found)
    assert all(life.preference < -0.1 for life in found)


def test_a_good_ranker_is_not() -> None:
    deployments = 2
    found = lives("good", deployments, 800)
    assert [life.demoted for life in found] == [None] * deployments
    assert all(life.lists > 150 for life in found)
    assert sum(life.preference for life in found) > 0.0


def test_one_that_breaks_is() -> None:
    deployments = 1
    for life in lives("breaks", deployments, 1200):
        assert life.demoted is not None
        assert life.demoted > 0
        assert life.lists > 300  # it was good until then


def test_the_better_one_wins_at_the_predicted_size() -> None:
    seeds = 2
    name = proof.PAIRS[0]

    async def run() -> list[proof.Comparison]:
        return [proof.compare(name, "team-draft", seed) for seed in range(seeds)]

    for found in asyncio.run(run()):
        assert found.at(found.predicted(0.2)) == "better"
        assert proof.PILOT <= found.predicted(0.2) <= found.predicted(proof.DEFAULT)
