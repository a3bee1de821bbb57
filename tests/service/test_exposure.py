"""Exposure keeps its promise, whatever the learner: the base order, bounded moves, or all."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankloop.core.registry import LEARNERS
from rankloop.service.ranking.exposure import explored_positions
from tests.service import misbehaving
from tests.service.app_fixtures import Service, check_bounded, items, names, service, shown, slow_except, teach

__all__ = ["service"]  # a fixture

LEARNING = [name for name, entry in LEARNERS.items() if entry.learns]
WIDTH = 3


@pytest.fixture(scope="module", params=slow_except(LEARNING, "hybrid", "bubblerank", "rtopk"))
def taught(request: pytest.FixtureRequest, service: Service) -> tuple[Service, str]:
    """A learner of the registry, twice: one that knows nothing yet, and one that has learned."""
    name: str = request.param
    for state in ("cold", "taught"):
        service.put(f"{name}-{state}", learner=name, features=names(WIDTH), exposure="full", timeout_ms=60_000.0)
    teach(service, f"{name}-taught", 12, WIDTH)
    return service, name


@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 40),
    k=st.integers(1, 45),
    s=st.integers(0, 12),
    seed=st.integers(0, 1000),
    state=st.sampled_from(["cold", "taught"]),
    ties=st.booleans(),
)
def test_every_learner_keeps_within_its_exposure_mode(
    taught: tuple[Service, str], n: int, k: int, s: int, seed: int, state: str, ties: bool
) -> None:
    service, learner = taught
    name = f"{learner}-{state}"
    rows = np.random.default_rng(seed).random((n, WIDTH))
    rows = rows.round(1) if ties else rows
    candidates = [{"id": f"i{i}", "features": row} for i, row in enumerate(rows.tolist())]
    base = [candidate["id"] for candidate in candidates]
    spec: dict[str, Any] = {"learner": learner, "features": names(WIDTH), "timeout_ms": 60_000.0}
    for exposure in ("shadow", "bounded", "full"):
        service.put(name, **spec, exposure=exposure, displacement=s)
        answer = service.rank(name, candidates, k=k)
        assert not answer["fallback"], answer
        found = shown(answer)
        if exposure == "shadow":
            assert found == base[:k]
        elif exposure == "bounded":
            check_bounded(base, found, k, s)
        else:
            assert len(set(found)) == len(found) == min(n, k)
            assert set(found) <= set(base)


def test_bounded_exposure_uses_the_whole_displacement(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that only ever showed the base order would keep its promise, too."""
    misbehaving.install(monkeypatch)
    base = [f"i{i}" for i in range(8)]
    moved = {}
    for s in (0, 1, 2, 3, 100):
        service.put(f"reverse-{s}", learner="reverse", exposure="bounded", displacement=s, k=5)
        moved[s] = shown(service.rank(f"reverse-{s}", items(8, 1)))
        check_bounded(base, moved[s], 5, s)
    assert moved[0] == base[:5]
    assert moved[1] == ["i1", "i0", "i3", "i2", "i5"]
    assert moved[3][0] == "i3"
    assert moved[100] == base[::-1][:5]


def moves(order: list[int], best: list[int]) -> int:
    """By trying: the largest set of items that stand in the same order in both rankings need not be moved."""
    for kept in range(len(order), -1, -1):
        for some in combinations(order, kept):
            if list(some) == [item for item in best if item in some]:
                return len(order) - kept
    raise AssertionError


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n)))), st.data())
def test_explored_positions_are_the_fewest_moves(both: tuple[list[int], list[int]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(both[0])))
    order, best = (one[:k] for one in both)
    assert explored_positions(np.array(order), np.array(best)) == moves(order, best)


@pytest.mark.parametrize(
    ("order", "count"),
    [
        ([0, 1, 2, 3, 4], 0),
        ([1, 0, 2, 3, 4], 1),  # two items change places
        ([4, 0, 1, 2, 3], 1),  # one comes to the top, the others shift
        ([1, 2, 3, 4, 0], 1),  # one goes to the bottom
        ([1, 2, 3, 4, 9], 1),  # one is left out, and another comes in
        ([2, 1, 0, 3, 4], 2),
        ([4, 3, 2, 1, 0], 4),
    ],
)
def test_shifted_items_do_not_count_as_explored(order: list[int], count: int) -> None:
    assert explored_positions(np.array(order), np.arange(5)) == count
