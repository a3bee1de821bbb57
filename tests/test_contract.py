"""Every learner of the registry, in every configuration that takes another path, keeps every rule of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from rankloop import checks
from rankloop.registry import LEARNERS, make

CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LEARNERS),
    ("pairrank", {"explore": "random"}),
    ("pairrank", {"update": "refit", "pairs": "matched"}),
    ("pairrank", {"certainty": "probability", "alpha": 0.1, "pairs": "adjacent", "debias": "none", "scale": "one"}),
    (
        "pairrank",
        {"certainty": "probability", "alpha": "theory", "update": "refit", "debias": "none", "explore": "random"},
    ),
    ("pairrank", {"forget": 0.99}),
    ("greedy", {"update": "refit"}),
    ("epsilon-greedy", {"update": "refit", "epsilon": 0.5}),
]


def _id(configuration: tuple[str, dict[str, Any]]) -> str:
    name, parameters = configuration
    return name + "".join(f",{key}={value}" for key, value in parameters.items())


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=_id)
def test_contract(configuration: tuple[str, dict[str, Any]], check: checks.Check) -> None:
    name, parameters = configuration
    if check is checks.beats_random and not LEARNERS[name].learns:
        pytest.skip(f"{name} only sets a mark to compare with")
    check(lambda: make(name, **parameters))
