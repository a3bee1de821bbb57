"""The table of learners in changing worlds: what its runs measure, and over which of them it compares."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.changing import Shown, Values, _row, _told, _with_seeds

from rankloop.lab.data.sources import open_split
from rankloop.lab.runs.trial import Trial, run

DATA = "synthetic:mq2008?queries=20&vali=1&test=9"


def shown(learner: str, params: dict[str, Any], world: str = "piecewise?every=40") -> Any:
    trial = Shown(learner, DATA, "perfect", params, 120, seed=3, world=world)
    return trial.carry_out(open_split, lambda _: None)


def test_lists_are_measured_as_in_a_trial() -> None:
    plain = run(Trial("pairrank", DATA, "perfect", {}, 120, seed=3, world="piecewise?every=40"))
    assert shown("pairrank", {}).last("online.ndcg") == pytest.approx(plain.last("online.ndcg"), rel=1e-12)
    assert shown("pairrank", {}).last("handovers") == 0.0
    assert Shown("pairrank").id != Trial("pairrank").id  # they measure different things: not to be taken for each other


def test_hand_overs_are_counted() -> None:
    """At a bar of nothing there is one nearly every list that teaches, at a high one there is none."""
    assert shown("adaptive", {"bar": 1e-9}).last("handovers") > 20.0
    assert shown("adaptive", {"bar": 1e9}).last("handovers") == 0.0


def test_seeds_stand_behind_the_name() -> None:
    assert _with_seeds("synthetic:mslr?queries=200@200-202") == ("synthetic:mslr?queries=200", [200, 201, 202])
    assert _with_seeds("pm2l?horizon=3000@7") == ("pm2l?horizon=3000", [7])
    assert _with_seeds("pdgd") == ("pdgd", [])


def test_a_learner_that_ran_on_some_seeds_is_compared_on_these() -> None:
    def runs(*ndcg: float) -> dict[tuple[str, int, str], dict[str, Any]]:
        return {("d", seed, "u"): {"online.ndcg": it, "handovers": seed, "alarms": 0} for seed, it in enumerate(ndcg)}

    values: Values = {("a", "w"): runs(0.5, 0.7, 0.9), ("b", "w"): runs(0.4, 0.4)}
    row = _row("w", ["a", "b"], values)
    assert row["a"] == "0.7000"
    # gaps .1 and .3: mean .2, standard error .1
    assert row["b"] == "0.4000 (+0.2000 ± 0.1000; +50.0%, n=2)"
    assert _told("w", "a", values)["handovers"] == "1.00 a run, 2 runs with any"
