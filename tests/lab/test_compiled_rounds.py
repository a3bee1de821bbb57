"""Compiled rounds of linear learners are those of the plain loop, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.clicks.users import open_user
from rankloop.core.registry import make
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.compiled import _CLICK_ROUNDS, compiled_rounds
from rankloop.lab.runs.simulate import Delays, simulate
from rankloop.lab.worlds.world import Stationary, Swap

ROUNDS = 2 * _CLICK_ROUNDS + 17
LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("pdgd", {}),
    ("pdgd", {"examine_next": False, "decay": 0.99}),
    ("dbgd", {}),
    ("dbgd", {"radius": 0.05, "delta": 0.5}),
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Lists of 5 to 121 documents, some with nothing relevant."""
    return open_split("synthetic:mq2008?queries=60&vali=1&test=1").train


@pytest.mark.parametrize(("name", "params"), LEARNERS)
@pytest.mark.parametrize("user", ["navigational", "informational?stop_requires_click=false"])
def test_rounds_are_those_of_the_plain_loop(data: Dataset, name: str, params: dict[str, Any], user: str) -> None:
    someone, world = open_user(user, 2), Stationary(data)
    plain, quick = make(name, **params), make(name, **params)
    steps = list(simulate(plain, world, someone, ROUNDS, seed=3))
    advance = compiled_rounds(quick, world, someone, 3, None)
    assert advance is not None
    batches = [*advance(0, 100), *advance(100, ROUNDS)]  # wherever it is stopped
    assert sum(len(batch.ndcg) for batch in batches) == ROUNDS
    for key, value in plain.state().items():
        assert value.tobytes() == quick.state()[key].tobytes(), key
    ndcg = [dcg(s.round.grades[s.impression.order], 10) / s.round.ideal if s.round.ideal else 0.0 for s in steps]
    assert np.concatenate([batch.ndcg for batch in batches]).tolist() == ndcg
    orders = [row[row >= 0].tolist() for batch in batches for row in batch.rounds.orders]
    assert orders == [step.impression.order.tolist() for step in steps]
    clicks = np.concatenate([batch.rounds.clicks for batch in batches])
    assert clicks.sum(1).tolist() == [step.feedback.values.sum() for step in steps]


def test_what_has_no_compiled_loop_takes_the_plain_one(data: Dataset) -> None:
    someone, world = open_user("perfect", 2), Stationary(data)
    for learner in (make("mgd"), make("dbgd", dsp=True), make("dbgd", mixing="team-draft"), make("pairrank")):
        assert compiled_rounds(learner, world, someone, 0, None) is None
    assert compiled_rounds(make("pdgd"), Swap(data), someone, 0, None) is None
    assert compiled_rounds(make("pdgd"), world, open_user("pbm", 2), 0, None) is None
    assert compiled_rounds(make("pdgd"), world, someone, 0, Delays(mean=3)) is None
