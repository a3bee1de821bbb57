"""Published configurations: named, made, told, and taken wherever a learner is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop import checks
from rankloop.checks import contract
from rankloop.core import registry
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.core.learner import params
from rankloop.core.presets import PUBLISHED
from rankloop.lab.runs.interleave import check_ranker
from rankloop.lab.runs.sweep import load_sweep
from rankloop.lab.runs.trial import Trial, run
from rankloop.learners.pairwise.pairrank_paper import PairRankPaper
from tests.learners.neural_rounds import M, lists, one_round, taught

PAGES = Path(__file__).parents[1] / "docs" / "learners"
GIVEN: dict[str, Any] = {"horizon": 200}
RULES = (
    contract.rank_returns_distinct_positions,
    contract.learns_from_no_clicks_and_all_clicks,
    contract.restored_learner_continues_bit_exactly,
)


def given(name: str) -> dict[str, Any]:
    """What an experiment tells a learner that its name cannot."""
    return {need: GIVEN[need] for need in PUBLISHED[name].needs}


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_made_as_the_table_says(name: str) -> None:
    found, published = registry.make(name, **given(name)), PUBLISHED[name]
    assert published.learner == registry.name_of(found)
    assert published.params.items() <= params(found).items()
    assert published.source
    assert published.note


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_differs_is_what_is_set_otherwise(name: str) -> None:
    """The differences alone, put on the default, give the configuration."""
    changed = {key: its for key, (_, its) in registry.differences(name).items()}
    plain = registry.make(PUBLISHED[name].learner, **changed, **given(name))
    assert params(plain) == params(registry.make(name, **given(name)))


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_it_keeps_the_contract(name: str, rule: checks.Check) -> None:
    small: dict[str, Any] = {}
    if registry.entry_of(name).family == "neural":
        small = {"width": 10, "passes": 2} if name.startswith("lambdarank-labels") else {"width": 10}
    rule(lambda: registry.make(name, **given(name), **small))


@pytest.mark.parametrize("name", PUBLISHED)
def test_its_familys_page_tells_of_it(name: str) -> None:
    page = (PAGES / f"{registry.entry_of(name).family}.md").read_text("utf-8")
    assert f"`{name}`" in page


def test_own_parameters_win() -> None:
    learner = registry.make("pairrank@paper", alpha=0.001)
    assert isinstance(learner, PairRankPaper)
    assert (learner.alpha, learner.update, learner.prior) == (0.001, "refit", 0.1)
    assert registry.parse_learner("pairrank@paper?alpha=.1") == ("pairrank@paper", {"alpha": 0.1})


def test_the_table_is_not_changed_by_who_is_made_from_it() -> None:
    learner: Any = registry.make("m3l@paper", horizon=100)
    learner.base_parameters["candidates"] = 3
    assert PUBLISHED["m3l@paper"].params["base_parameters"]["candidates"] == 9


def test_what_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(InvalidParameter, match=r"'bubblerank@paper' needs horizon.*'bubblerank@paper\?horizon=…'"):
        registry.make("bubblerank@paper")
    with pytest.raises(UnknownName, match="no published learner is called 'pairrank@papr'; did you mean 'pairrank@pa"):
        registry.make("pairrank@papr")
    with pytest.raises(UnknownName, match="did you mean 'pairrank@paper'"):
        registry.learner_class("pairank@paper")
    with pytest.raises(InvalidParameter, match="learner 'mgd@paper' has no parameter 'speed'"):
        registry.make("mgd@paper", speed=1)


def test_bytes_hold_the_plain_learner_and_all_it_is() -> None:
    before = registry.make("pairrank@code")
    after = registry.loads(registry.dumps(before))
    assert registry.name_of(after) == "pairrank-paper"
    assert params(after) == params(before)


def test_a_trial_goes_by_the_name_and_runs_as_spelled_out() -> None:
    data = "synthetic:mq2007?queries=20&vali=5&test=5"
    named = Trial("mgd@paper", data, params={"candidates": 4}, rounds=50)
    spelled = Trial(
        "mgd", data, params={"candidates": 4, "mixing": "team-draft", "rate": 0.03, "delta": 1.0}, rounds=50
    )
    assert dataclasses.replace(named, params={}).label == "mgd@paper"
    assert named.label == "mgd@paper(candidates=4)"
    ours, theirs = run(named).measures, run(spelled).measures
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_sweeps_and_interleaving_take_the_names(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('[[learners]]\nname = "pairrank@code"\n[[learners]]\nname = "dm2l@paper"\nparams = {horizon = 9}\n')
    assert [trial.label for trial in load_sweep(path).trials] == ["pairrank@code", "dm2l@paper(horizon=9)"]
    check_ranker("pairrank@paper?alpha=0.1")
    with pytest.raises(UnknownName, match="did you mean 'pairrank@paper'"):
        check_ranker("pairrank@papre")


def test_the_service_keeps_what_the_name_stands_for() -> None:
    """A later release may have another table; a ranker that was made stays what it was."""
    from rankloop.service.control.rankers import complete
    from rankloop.wire.rankers import Spec

    spec = complete(Spec(learner="pairrank@code", parameters={"alpha": 0.2}, features=["price"]))
    assert spec.learner == "pairrank-paper"
    assert spec.parameters == params(registry.make("pairrank@code", alpha=0.2))


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli.learners import learners

    learners(published=True, json=True)
    told = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(told) == set(PUBLISHED)
    assert told["mgd@code"]["differs"]["rate"] == {"default": 0.03, "published": 0.01}
    learners(published=True)
    table = capsys.readouterr().out
    assert "rate=0.01 (not 0.03)" in " ".join(table.replace("│", " ").split())
    assert "horizon: yours to give" in " ".join(table.split())


@pytest.mark.parametrize(
    ("name", "shown", "length", "seen"),
    [
        ("olranknet@paper", "5104 7014 1360 3527 2573 7264 6013", 10.757970186467293, 14.827308429814238),
        ("olranknet@code", "2750 7240 7045 1372 0412 1345 4267", 9.491941078963917, 17.074610939778964),
        ("ollambdarank@paper", "5104 7014 6451 2356 2574 2760 6031", 10.134148240808651, 18.555193408972535),
    ],
)
def test_published_networks_learn_what_they_always_did(name: str, shown: str, length: float, seen: float) -> None:
    """The last of 15 rankings, the weights' absolute sum and that of A."""
    learner = taught(registry.make(name, width=M), 15)
    again = registry.make(name, width=M)
    found = ["".join(map(str, one_round(again, candidates, t)[0].order)) for t, candidates in enumerate(lists(15))]
    assert found[8:] == shown.split()
    assert (np.abs(learner.state()["weights_"]).sum(), learner.state()["spread_"].sum()) == (
        pytest.approx(length),
        pytest.approx(seen),
    )
