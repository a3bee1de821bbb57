"""The checks can fail: learners broken on purpose are caught by the rule they break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from rankloop.checks import BrokenContract, check_learner, yield_checks
from rankloop.checks.rules import memory_is_bounded
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import show
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.learners.pairwise.pdgd import PDGD


@dataclass
class Counts(PDGD):
    """Keeps a number of its own while ranking."""

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        self.calls = getattr(self, "calls", 0) + 1
        return super().rank(candidates, k, rng)


@dataclass
class OwnChance(PDGD):
    """Draws from a generator that nobody gave it."""

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:  # noqa: ARG002
        return super().rank(candidates, k, np.random.default_rng())


@dataclass
class Twice(PDGD):
    """Shows its best item twice."""

    def best(self, candidates: Candidates, k: int) -> Array:
        order = super().best(candidates, k)
        order[-1] = order[0]
        return order


@dataclass
class Scribbles(PDGD):
    """Writes into the impression it learns from."""

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        super().learn(impression, feedback, rng)
        impression.memo["scores"][:] = 0.0


@dataclass
class Forgets(PDGD):
    """Does not save its step size."""

    def state(self) -> dict[str, Array]:
        return {"theta_": self.theta_.copy()}

    def load(self, state: Mapping[str, Array]) -> None:
        super().load({**state, "rate_": np.array([self.rate])})


@dataclass
class HandsOut(PDGD):
    """Gives away its own arrays."""

    def state(self) -> dict[str, Array]:
        return {"theta_": self.theta_, "rate_": self.rate_}


@dataclass
class Hoards(PDGD):
    """Keeps everything it is told: grows and grows, and a docstring is no excuse."""

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        super().learn(impression, feedback, rng)
        self.rate_ = np.append(self.rate_, 0.0)


@dataclass
class SaysWhy(Hoards):
    """Keeps everything it is told, and says so."""

    grows: ClassVar[str] = "keeps a number for every event, to be counted"


@dataclass
class Explodes(SaysWhy):
    """Doubles what it keeps every few events."""

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        super().learn(impression, feedback, rng)
        if self.rate_.size % 30 == 0:
            self.rate_ = np.append(self.rate_, np.zeros(self.rate_.size * 3))


@dataclass
class Mute(PDGD):
    """Has a parameter that it says nothing about, though a sentence may hold the word volume."""

    volume: float = 1.0


@dataclass
class Backwards(PDGD):
    """Believes the worst to be best."""

    def best(self, candidates: Candidates, k: int) -> Array:
        return super().best(candidates, candidates.n)[::-1][:k]


@dataclass
class Trusts(PDGD):
    """Does not look at what it is told."""

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        pass


@dataclass
class KnowsBetter(PDGD):
    """Shows its own best where it was told what to show."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return super().adopt(candidates, self.best(candidates, len(order)))


@dataclass
class Tallies(PDGD):
    """Keeps a number of its own while adopting."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        self.calls = getattr(self, "calls", 0) + 1
        return super().adopt(candidates, order)


@dataclass
class Dices(PDGD):
    """Makes up what it would have scored."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        shown = super().adopt(candidates, order)
        return shown._replace(memo={**shown.memo, "scores": np.random.default_rng().random(shown.k)})


@dataclass
class Bare(PDGD):
    """Adopts without writing down what it will need."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return super().adopt(candidates, order)._replace(memo={})


@dataclass
class AllOrNothing(PDGD):
    """Adopts only lists of all candidates, which its own are not."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return super().adopt(candidates, np.array(order).reshape(candidates.n))


@dataclass
class Credulous(PDGD):
    """Adopts whatever numpy can index with."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return show(candidates, np.array(order), super().adopt(candidates, np.arange(len(order))).memo)


@dataclass
class Boasts(PDGD):
    """Takes every list for twice as likely as it is."""

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        return super().log_propensity(candidates, order) + 0.7


@dataclass
class Claims(PDGD):
    """Says of a list that it was told to show how likely it was."""

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        shown = super().adopt(candidates, order)
        return shown._replace(memo={**shown.memo, "log_propensity": np.zeros(1)})


@dataclass
class Scatters(PDGD):
    """Forgets its weights when features change."""

    def remap(self, columns: FeatureMap) -> None:
        self.theta_ = np.ones(columns.source.size)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Counts, "rank_is_pure"),
        (OwnChance, "same_rng_same_result"),
        (Twice, "ranking_is_a_permutation_prefix"),
        (Scribbles, "inputs_are_untouched"),
        (Forgets, "restore_is_bit_exact"),
        (Scatters, "a_change_of_features_keeps_the_rest"),
        (HandsOut, "state_is_plain_arrays"),
        (Hoards, "memory_is_bounded"),
        (Mute, "it_is_documented"),
        (Backwards, "beats_random"),
        (Trusts, "bad_input_is_named"),
        (Trusts, "a_broken_impression_is_refused"),
        (KnowsBetter, "adopt_shows_what_it_is_told"),
        (Tallies, "adopt_is_pure"),
        (Dices, "adopt_is_pure"),
        (Dices, "adopted_lists_repeat"),
        (Bare, "adopted_lists_teach"),
        (AllOrNothing, "its_own_list_can_be_adopted"),
        (Credulous, "a_bad_order_is_named"),
        (Boasts, "propensities_are_probabilities"),
        (Claims, "propensities_are_probabilities"),
    ],
)
def test_a_broken_learner_is_caught(broken: type[PDGD], rule: str) -> None:
    failed = {outcome.name for outcome in yield_checks(broken) if outcome.error is not None}
    assert rule in failed


def test_a_good_learner_passes() -> None:
    assert [outcome.name for outcome in yield_checks(PDGD) if outcome.error is not None] == []


def test_check_learner_checks_when_it_is_called() -> None:
    """As written, without a loop around it."""
    check_learner(PDGD)
    with pytest.raises(BrokenContract, match="memory_is_bounded: the state grew from") as broken:
        check_learner(Hoards)
    assert "memory_is_bounded" in [outcome.name for outcome in broken.value.failures]
    assert all(outcome.error for outcome in broken.value.failures)
    memory_is_bounded(SaysWhy)


def test_a_state_may_not_outgrow_the_events_whatever_it_says() -> None:
    with pytest.raises(AssertionError, match="faster than they came"):
        memory_is_bounded(Explodes)
