"""The checks can fail: a learner that breaks a rule on purpose is caught by the check of that rule."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import numpy as np
import pytest

from rankloop.checks import CHECKS, BrokenContract, check_learner, yield_checks
from rankloop.checks.contract import state_size_is_bounded
from rankloop.core.capabilities import Report
from rankloop.core.learner import make_impression
from rankloop.core.types import Candidates
from rankloop.learners.pairwise.pdgd import PDGD


def learner_with(doc: str = PDGD.__doc__ or "", fields: tuple[Any, ...] = (), **methods: Any) -> type[PDGD]:
    """PDGD with some methods replaced."""
    made: type[PDGD] = make_dataclass("Broken", fields, bases=(PDGD,), namespace={**methods, "__doc__": doc})
    return made


def counting(name: str) -> Any:
    """A method that changes the learner before it calls the original."""

    def method(self: Any, *args: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return getattr(PDGD, name)(self, *args)

    return method


def best_twice(self: PDGD, candidates: Candidates, k: int) -> Any:
    order = PDGD.best(self, candidates, k)
    order[-1] = order[0]
    return order


def erases_memo(self: PDGD, impression: Any, feedback: Any, rng: Any) -> None:
    PDGD.learn(self, impression, feedback, rng)
    impression.memo["scores"][:] = 0.0


def grows(self: PDGD, impression: Any, feedback: Any, rng: Any) -> None:
    PDGD.learn(self, impression, feedback, rng)
    self.model_.rate_ = np.append(self.model_.rate_, 0.0)


def grows_faster_than_events(self: PDGD, impression: Any, feedback: Any, rng: Any) -> None:
    grows(self, impression, feedback, rng)
    rate = self.model_.rate_
    if rate.size % 30 == 0:
        self.model_.rate_ = np.append(rate, np.zeros(rate.size * 3))


def adopted_with(**memo: Any) -> Any:
    """An `adopt` that writes other notes into the memo."""

    def adopt(self: PDGD, candidates: Candidates, order: Any) -> Any:
        shown = PDGD.adopt(self, candidates, order)
        return shown._replace(memo={**shown.memo, **{name: make(shown) for name, make in memo.items()}})

    return adopt


def adopts_anything(self: PDGD, candidates: Candidates, order: Any) -> Any:
    return make_impression(candidates, np.array(order), PDGD.adopt(self, candidates, np.arange(len(order))).memo)


own_random_numbers = learner_with(rank=lambda self, c, k, _: PDGD.rank(self, c, k, np.random.default_rng()))
random_notes = learner_with(adopt=adopted_with(scores=lambda shown: np.random.default_rng().random(shown.k)))
deaf = learner_with(learn=lambda *_: None)
BROKEN: list[tuple[type[PDGD], str]] = [
    (learner_with(rank=counting("rank")), "rank_changes_nothing"),
    (own_random_numbers, "results_depend_only_on_inputs"),
    (learner_with(best=best_twice), "rank_returns_distinct_positions"),
    (learner_with(learn=erases_memo), "inputs_are_not_modified"),
    (
        learner_with(
            state=lambda self: {"theta_": self.theta_.copy()},
            load=lambda self, state: PDGD.load(self, {**state, "rate_": np.array([self.rate])}),
        ),
        "restored_learner_continues_bit_exactly",
    ),
    (
        learner_with(remap=lambda self, columns: setattr(self, "theta_", np.ones(columns.source.size))),
        "remap_keeps_what_was_learned",
    ),
    (learner_with(state=lambda self: {"theta_": self.theta_, "rate_": self.model_.rate_}), "state_is_plain_arrays"),
    (learner_with(learn=grows), "state_size_is_bounded"),
    (learner_with(fields=(("volume", float, 1.0),)), "parameters_are_documented"),
    (learner_with(best=lambda self, c, k: PDGD.best(self, c, c.n)[::-1][:k]), "beats_random"),
    (deaf, "invalid_input_is_rejected"),
    (deaf, "invalid_impression_is_rejected"),
    (
        learner_with(adopt=lambda self, c, order: PDGD.adopt(self, c, self.best(c, len(order)))),
        "adopt_shows_the_given_order",
    ),
    (learner_with(adopt=counting("adopt")), "adopt_changes_nothing"),
    (random_notes, "adopt_changes_nothing"),
    (random_notes, "adopted_rankings_give_the_same_state"),
    (
        learner_with(adopt=lambda self, c, order: PDGD.adopt(self, c, order)._replace(memo={})),
        "learns_from_adopted_rankings",
    ),
    (
        learner_with(adopt=lambda self, c, order: PDGD.adopt(self, c, np.array(order).reshape(c.n))),
        "adopts_its_own_ranking",
    ),
    (learner_with(adopt=adopts_anything), "invalid_order_is_rejected"),
    (
        learner_with(log_propensity=lambda self, c, order: PDGD.log_propensity(self, c, order) + 0.7),
        "propensities_are_probabilities",
    ),
    (
        learner_with(adopt=adopted_with(log_propensity=lambda _: np.zeros(1))),
        "propensities_are_probabilities",
    ),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=[f"{i}-{name}" for i, (_, name) in enumerate(BROKEN)])
def test_a_broken_learner_is_caught(broken: type[PDGD], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.checks.CHECKS", [check for check in CHECKS if check.__name__ == name])
    (outcome,) = yield_checks(broken)
    assert outcome.error is not None


def test_check_learner_reports_every_broken_rule() -> None:
    check_learner(PDGD)
    assert len(list(yield_checks(PDGD))) == len(CHECKS)
    with pytest.raises(BrokenContract, match="state_size_is_bounded: the state grew from") as broken:
        check_learner(learner_with(learn=grows))
    assert all(outcome.error for outcome in broken.value.failures)


GROWS: dict[str, Any] = {"report": lambda _: Report(grows="keeps a number per event"), "explain": lambda *_: None}


def test_a_state_may_grow_with_a_reason_but_not_faster_than_the_events() -> None:
    state_size_is_bounded(learner_with(learn=grows, **GROWS))
    with pytest.raises(AssertionError, match="faster than they came"):
        state_size_is_bounded(learner_with(learn=grows_faster_than_events, **GROWS))
