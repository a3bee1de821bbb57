"""Learners by name."""

from __future__ import annotations

import pytest

from rankloop.core import registry
from rankloop.core.errors import InvalidParameter, UnknownName


def test_parameters_may_be_part_of_the_name() -> None:
    assert registry.make("hybrid?init=base&alpha=.1") == registry.make("hybrid", init="base", alpha=0.1)
    assert registry.make("mgd@paper?candidates=19") == registry.make("mgd@paper", candidates=19)
    assert registry.make("hybrid?init=base", alpha=0.1) == registry.make("hybrid", init="base", alpha=0.1)
    for wrong in ("hybrid?strat=base", "hybrid?init", "hybrid?init=base&init=zero"):
        with pytest.raises(InvalidParameter):
            registry.make(wrong)
    with pytest.raises(InvalidParameter, match="'init'"):
        registry.make("hybrid?init=base", init="zero")


def test_a_name_with_parameters_imports_no_more_than_one_without() -> None:
    with pytest.raises(UnknownName):
        registry.require_allowed("strange.module:Thing?x=1")


def test_every_entry_makes_a_learner_that_knows_its_name() -> None:
    for name in registry.LEARNERS:
        assert registry.name_of(registry.make(name)) == name


def test_unknown_names_and_parameters_are_named() -> None:
    with pytest.raises(UnknownName, match="no learner is called 'pairank'; did you mean 'pairrank'"):
        registry.make("pairank")
    with pytest.raises(InvalidParameter, match="learner 'greedy' has no parameter 'speed'"):
        registry.make("greedy", speed=3)
    with pytest.raises(InvalidParameter, match="rate is 'fast'"):
        registry.make("greedy", rate="fast")
    with pytest.raises(InvalidParameter, match="rate is 0; it must be above 0"):
        registry.make("greedy", rate=0)


def test_parameters_from_texts() -> None:
    assert registry.parse_parameters("pairrank", ["alpha=theory", "prior=3", "examine_next=true"]) == {
        "alpha": "theory",
        "prior": 3,
        "examine_next": True,
    }
    with pytest.raises(InvalidParameter, match="'alpha' in 'pairrank' is not key=value"):
        registry.parse_parameters("pairrank", ["alpha"])


def test_a_stranger_is_not_saved() -> None:
    class Stranger:
        pass

    with pytest.raises(UnknownName, match="is not registered"):
        registry.name_of(Stranger())  # type: ignore[arg-type]
