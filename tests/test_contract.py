"""Every learner keeps the contract: its defaults every rule, other configurations the checks of REDUCED."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop import checks
from rankloop.checks import contract
from rankloop.checks.helpers import some_candidates
from rankloop.core.errors import InvalidInput
from rankloop.core.registry import LEARNERS, make

# Configurations that run other code than the defaults of their learner.
CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    ("pairrank", {"explore": "blocks"}),
    ("pairrank", {"pairs": "adjacent", "alpha": 0.1}),
    ("pairrank", {"forget": 0.99}),
    ("pairrank", {"init": "base"}),
    ("pairrank", {"confidence": "diagonal"}),
    ("pairrank", {"confidence": "diagonal", "forget": 0.95, "explore": "blocks"}),
    ("pairrank-paper", {"explore": "blocks", "pairs": "matched", "alpha": "theory"}),
    ("pairrank-paper", {"loss": "mean"}),
    ("pairrank-paper", {"update": "onepass", "pairs": "all"}),
    ("hybrid", {"confidence": "diagonal", "init": "base", "forget": 0.99}),
    ("hybrid", {"init": "base", "forget": 0.99, "max_queries": 6}),
    ("adaptive", {"fast_forget": 0.9, "past_models": 1, "init": "base"}),
    ("pdgd", {"init": "base", "rate": 0.5}),  # the order of these worlds is random: faster steps leave it sooner
    ("greedy", {"init": "base"}),
    ("greedy", {"pairs": "matched"}),
    ("epsilon-greedy", {"epsilon": 0.5}),
    ("bubblerank", {"horizon": 100, "max_queries": 6, "max_items": 8}),
    ("cascade-klucb", {"variant": "published", "observe": "last", "ties": "base"}),
    ("batchrank", {"horizon": 3, "variant": "merge", "max_items": 10}),
    ("rtopk", {"surrogate": "squared", "top": 1, "rate": 0.02, "known": "exact", "random_propensity": "exact"}),
    ("rtopk", {"surrogate": "kl", "top": 3, "rate": 0.02}),
    ("rtopk", {"surrogate": "smoothdcg", "top": 1, "temperature": 0.2}),
    ("rtopk-items", {"top": 3, "horizon": 50, "below": "random", "measure": "precision"}),
    ("olranknet", {"init": "base", "width": 20}),
    ("olranknet-paper", {"update": "replay", "prior": 100.0, "rate": 0.1, "width": 20}),
    ("olranknet-paper", {"loss": "lambdarank", "restart": True, "width": 10}),
    ("perturbed-ensemble", {"nets": 2, "width": 20}),
    ("neural-dbgd", {"mixing": "team-draft", "width": 20}),
]


# The defaults keep every rule; the other configurations those that a change of parameters can break.
REDUCED: list[checks.Check] = [
    contract.rank_changes_nothing,
    contract.results_depend_only_on_inputs,
    contract.restored_learner_continues_bit_exactly,
    contract.remap_keeps_what_was_learned,
    contract.propensities_are_probabilities,
]

CASES = [
    *(
        pytest.param(name, {}, check, id=f"{name}-{check.__name__}")
        for name in LEARNERS
        for check in checks.CHECKS
        if LEARNERS[name].learns or check is not checks.beats_random
    ),
    *(
        pytest.param(name, parameters, check, id=f"{name}{parameters}-{check.__name__}")
        for name, parameters in CONFIGURATIONS
        for check in REDUCED
    ),
]


@pytest.mark.parametrize(("name", "parameters", "check"), CASES)
def test_contract(name: str, parameters: dict[str, Any], check: checks.Check) -> None:
    check(lambda: make(name, **parameters))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_seed_is_as_good_as_a_generator(name: str) -> None:
    learner, candidates = make(name), some_candidates(0)
    k = 1 if name == "squarecb" else 2 if not name.endswith("-items") and name != "ftpl-full" else candidates.n
    by_seed, by_generator = (learner.rank(candidates, k, rng) for rng in (7, np.random.default_rng(7)))
    assert by_seed.order.tolist() == by_generator.order.tolist()
    with pytest.raises(InvalidInput, match="rng is 'now'"):
        make("pairrank").rank(candidates, k, "now")  # type: ignore[arg-type]
