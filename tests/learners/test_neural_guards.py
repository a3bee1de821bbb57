"""The neural learners guard what they have learned: divergence, bad values, states that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.checks.helpers import same_state
from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import Diverged, InvalidInput, InvalidParameter
from rankloop.core.registry import make
from rankloop.core.types import Candidates
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.world import Stationary
from rankloop.learners.neural.lambdarank_labels import LambdaRankLabels
from rankloop.learners.neural.olranknet import OLRankNet
from tests.learners.neural_rounds import M, crossed, lists, taught

# -- divergence, and bad values --------------------------------------------------------------------------------------


def network_of(learner: Any) -> Any:
    return getattr(learner.model_, "network", learner.model_)


def set_rate(learner: Any, rate: float) -> None:
    """Change the step size wherever a learner keeps it."""
    learner.rate = network_of(learner).rate = rate
    if hasattr(network_of(learner), "rate_"):
        network_of(learner).rate_ = np.array([rate])


@pytest.mark.parametrize("name", ["olranknet", "ollambdarank", "neural-pdgd", "neural-dbgd"])
def test_divergence_is_an_error_and_the_last_good_state_stays(name: str) -> None:
    learner, untouched = (taught(make(name, width=M), 15) for _ in range(2))
    events, rate = int(network_of(learner).events_[0]), learner.rate
    set_rate(learner, 1e9)
    with pytest.raises(Diverged, match=f"{type(learner).__name__} diverged at event {events + 1}:"):
        taught(learner, 15)
    state = learner.state()
    assert all((state[key] == value).all() for key, value in untouched.state().items() if key != "rate_")
    for again in (learner, untouched):
        set_rate(again, rate)
        taught(again, 5)
    assert same_state(learner, untouched)


@pytest.mark.parametrize("name", ["olranknet", "lambdarank-labels"])
def test_a_run_that_diverges_names_learner_and_round(name: str) -> None:
    learner: Any = make(name, width=M, rate=1e9)
    steps = simulate(learner, Stationary(crossed(5, 0)), DependentClickUser.named("perfect", 1), 50)
    seen: list[int] = []
    with pytest.raises(Diverged) as caught:
        seen.extend(step.t for step in steps)
    assert str(caught.value).startswith(f"round {len(seen) + 1}: {type(learner).__name__} diverged at event 1: ")
    assert network_of(learner).weights_.size == 0, "nothing of the event is kept"


def test_bad_values_are_named() -> None:
    for parameters, words in (
        ({"width": 7}, "width is 7; it must be even"),
        ({"width": 0}, "width is 0; it must be a whole number of at least 2"),
        ({"seed": -1}, "seed is -1"),
        ({"replay_size": 1.5}, "replay_size is 1.5; it must be a whole number"),
        ({"prior": 0}, "prior is 0; it must be above 0"),
        ({"init": "best"}, "must be zero, base or a list of weights"),
        ({"prior_strength": 0}, "prior_strength is 0; it must be above 0"),
    ):
        with pytest.raises(InvalidParameter, match=words.replace("(", r"\(")):
            make("olranknet", **parameters)
    huge = Candidates(features=[[1.0, 2.0], [3.0, 1e20]])
    with pytest.raises(InvalidInput, match=r"features\[1, 1\] is 1e\+20"):
        OLRankNet().rank(huge, 2, np.random.default_rng(0))


def test_a_state_whose_parts_do_not_fit_is_refused() -> None:
    learner = taught(OLRankNet(width=M))
    state = learner.state()
    for name, value in (
        ("sizes_", state["sizes_"] + 10),
        ("sizes_", state["sizes_"] - 10),
        ("spread_", state["spread_"][:, :-1]),
        ("spread_", np.zeros((0, 0))),
        ("rows_", state["rows_"][:, :, :-1]),
    ):
        with pytest.raises(InvalidInput, match=f"state '{name}'"):
            learner.load({**state, name: value})
    assert same_state(learner, taught(OLRankNet(width=M)))
    skyline = LambdaRankLabels(width=M)
    skyline.label(lists(1)[0], np.arange(8) % 2, np.random.default_rng(0))
    for offsets in (np.array([0, 9]), np.array([-1, 8]), np.array([0, 4, 8])):
        with pytest.raises(InvalidInput, match="state 'offsets_'"):
            skyline.load({**skyline.state(), "offsets_": offsets})
