"""Runs in worlds that change: regret, NDCG over time, recovery; in records, files, figures and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rankloop.cli import main
from rankloop.clicks.users import DependentClickUser
from rankloop.core import registry
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.evaluation.metrics import mean_ndcg, ndcg
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots import figures
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.results import curves, read_results, rows_of, summarize, table_of
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.sweep import load_sweep, run_trials
from rankloop.lab.runs.tracking import recovery, window_ends
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.world import open_world

SMALL = "synthetic:mq2008?queries=30&vali=5&test=10"
WORLDS = ["swap", "piecewise?every=40", "drift?period=40", "recurring?every=30"]
CLICKED = [name for name in registry.LEARNERS if registry.learner_class(name).feedback == "clicks"]


def command(*arguments: str) -> int:
    """Exit code of the command in this process."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


# -- windows and recovery ------------------------------------------------------------------------------------------


def test_windows_are_even_and_none_spans_a_change() -> None:
    assert window_ends(100, np.array([], int), 4).tolist() == [25, 50, 75, 100]
    ends = window_ends(5000, np.array([700, 1400, 4100]), 50)
    assert {700, 1400, 4100, 5000} <= set(ends.tolist())
    assert 45 <= len(ends) <= 55
    assert set(np.diff(ends, prepend=0)) <= {99, 100, 101}
    assert window_ends(3, np.array([], int), 50).tolist() == [1, 2, 3]  # fewer rounds than windows
    assert window_ends(20, np.array([3]), 2).tolist() == [3, 12, 20]  # a short segment has a window too


ENDS = np.arange(10, 121, 10)
#                  1    2    3    4 | 5    6    7    8  | 9    10   11   12
SERIES = np.array([0.2, 0.5, 0.7, 0.8, 0.3, 0.6, 0.76, 0.9, 0.4, 0.5, 0.8, 0.86])


def test_recovery_by_hand() -> None:
    """Change at 40: .95 · .8 = .76, reached by the window that begins at 60. At 80: .95 · .9 = .855, by that at 110."""
    assert recovery(SERIES, ENDS, [40, 80]) == (20 + 30) / 2
    assert recovery(SERIES, ENDS, [40, 80], share=0.5) == (10 + 10) / 2
    assert recovery(SERIES, ENDS, [80]) == 20  # the last quarter of the 8 windows before is two: .95 · .83 = .79
    assert recovery(SERIES[:11], ENDS[:11], [40, 80]) == (20 + 30) / 2  # not yet: all the 30 rounds since


def test_who_does_not_suffer_recovers_at_once_and_who_does_not_recover_takes_all_there_is() -> None:
    assert recovery(np.full(12, 0.7), ENDS, [40, 80]) == 0
    assert recovery(np.where(ENDS <= 40, 0.7, 0.1), ENDS, [40]) == 80
    falling = np.repeat([0.8, 0.4, 0.1], 4)
    assert recovery(falling, ENDS, [40, 80]) == 40


# -- runs ----------------------------------------------------------------------------------------------------------


def test_regret_and_windows_are_those_of_the_lists_shown() -> None:
    split = open_split(SMALL)
    record = run(Trial("pdgd", SMALL, "navigational", rounds=90, k=5, seed=2, world="piecewise?every=40"), split)
    world, learner = open_world("piecewise?every=40", split.train, 5, seed=2), registry.make("pdgd")
    values = [
        ndcg(step.round.grades[step.impression.order], 5, step.round.grades, empty="skip")
        for step in simulate(learner, world, DependentClickUser.named("navigational", 2), 90, seed=2)
    ]
    assert np.isnan(values).any()  # queries with nothing relevant: no NDCG to be had, and nothing to regret
    assert record.last("online.regret") == pytest.approx(np.nansum(1 - np.array(values)))
    assert record.measures["online.regret"][0] == pytest.approx(np.nansum(1 - np.array(values[: record.at[0]])))
    last = slice(record.at[-2], record.at[-1])
    assert record.last("online.window_ndcg") == pytest.approx(np.nan_to_num(values)[last].mean())
    assert {40, 80, 90} <= set(record.at.tolist())


@pytest.mark.parametrize(
    ("name", "world"), [*((name, WORLDS[0]) for name in CLICKED), *(("pairrank", world) for world in WORLDS[1:])]
)
def test_every_learner_runs_in_a_changing_world_and_one_in_every_world(name: str, world: str) -> None:
    record = run(Trial(name, SMALL, rounds=70, world=world))
    assert record.at[-1] == 70
    assert len(record.at) >= 45
    assert 0 < record.last("online.window_ndcg") <= 1
    assert 0 <= record.last("online.regret") <= 70
    assert ("online.recovery" in record.measures) == ("every" in world)
    assert record.conventions["world"] == world


def test_held_out_goes_by_the_grades_of_the_time() -> None:
    """After a change, the same learner is worth something else; the best lists of before are worth what they were."""
    split = open_split(SMALL)
    world, learner = open_world("recurring?every=40&tastes=2", split.train, seed=3), registry.make("pdgd")
    taste = world.taste(0)  # type: ignore[attr-defined]
    learner.load({"theta_": taste, "rate_": np.array([0.1])})
    probe = held_out(split.test, world=world)
    assert probe(learner, 0) == probe(learner, 39) == probe(learner, 80)
    assert probe(learner, 0)["offline.ndcg@10"] == pytest.approx(1.0)  # it knows the taste
    there = mean_ndcg(split.test.features @ taste, world.grades(split.test, 40), split.test.offsets)
    assert probe(learner, 40)["offline.ndcg@10"] == pytest.approx(there)
    assert there < 0.9


def test_a_run_measures_held_out_lists_by_the_round_just_served() -> None:
    """`base` never learns: its curve has one level for each taste, and changes after the first round of a segment."""
    record = run(Trial("base", SMALL, rounds=100, world="recurring?every=25&tastes=2"))
    levels = [set(record.measures["offline.ndcg@10"][(record.at - 1) // 25 % 2 == turn]) for turn in (0, 1)]
    assert [len(level) for level in levels] == [1, 1]
    assert levels[0] != levels[1]


def test_a_fitted_learner_knows_the_first_taste() -> None:
    data = "synthetic:mq2007?queries=60&vali=5&test=20"
    record = run(Trial("offline-ranknet", data, rounds=100, world="piecewise?every=50"))
    found = record.measures["offline.ndcg@10"]
    assert found[record.at <= 50].min() > 0.9
    assert found[record.at > 50].max() < 0.8


def test_closeness_to_a_model_of_other_grades_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"probe closeness in world 'drift'"):
        Trial("pdgd", probes=("closeness",), world="drift")


def test_who_forgets_recovers_sooner() -> None:
    """PairRank with a confidence that fades, against one that only grows, after a change: on each of four seeds.

    All pairs count in full: with `tempered` evidence is a third of that here, and beside the prior there is less of it
    that could fade.
    """
    data = "synthetic:mq2007?queries=100&vali=2&test=4&features=10"
    split = open_split(data)

    def measured(forget: float) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "params": {"forget": forget, "prior": 1.0},
            "rounds": 1200,
            "world": "piecewise?every=600",
        }
        records = [run(Trial("pairrank", data, "perfect", seed=seed, **settings), split) for seed in range(4)]
        return {name: np.array([record.last(name) for record in records]) for name in records[0].measures}

    keeps, forgets = measured(1.0), measured(0.97)
    assert (forgets["online.recovery"] < keeps["online.recovery"]).all()
    assert (forgets["online.regret"] < 0.8 * keeps["online.regret"]).all()


# -- files, figures, commands --------------------------------------------------------------------------------------

SWEEP = f"""
name = "changing"
[shared]
rounds = 60
data = "{SMALL}"
[vary]
world = ["piecewise?every=20", "stationary"]
[[learners]]
name = "pdgd"
"""


def test_a_sweep_may_vary_the_world(tmp_path: Path) -> None:
    (tmp_path / "changing.toml").write_text(SWEEP)
    sweep = load_sweep(tmp_path / "changing.toml")
    assert [trial.world for trial in sweep.trials] == ["piecewise?every=20", "stationary"]
    table = run_trials(sweep.trials, tmp_path / "changing.parquet")
    assert set(read_results(tmp_path / "changing.parquet")["world"].to_pylist()) == {"piecewise?every=20", "stationary"}
    labels = [row["label"] for row in summarize(table, ["online.regret"])]
    assert labels == ["pdgd [world=piecewise?every=20]", "pdgd [world=stationary]"]
    assert [key[2] for key in curves(table, "online.window_ndcg")] == ["pdgd [world=piecewise?every=20]"]
    (tmp_path / "wrong.toml").write_text(SWEEP.replace("stationary", "static"))
    with pytest.raises(UnknownName, match="no world is called 'static'"):
        load_sweep(tmp_path / "wrong.toml")


def test_figures_mark_the_changes() -> None:
    records = [run(Trial(name, SMALL, rounds=90, world="piecewise?every=30")) for name in ("pdgd", "random")]
    table = table_of(row for record in records for row in rows_of(record))
    figure = figures.comparison(table)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["online NDCG, over time", "held-out NDCG@10", "sum of 1 - online NDCG"]
    for axes in figure.axes:
        marks = [line for line in axes.get_lines() if line.get_label() == "_change"]
        assert [list(np.asarray(line.get_xdata())) for line in marks] == [[30, 30], [60, 60]]
        assert axes.get_xlabel() == "rounds (dotted: the world changes)"
    shown = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    assert np.asarray(shown["pdgd"].get_ydata()) == pytest.approx(records[0].measures["online.window_ndcg"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pdgd", "random"]


def test_compare_prints_and_draws_a_world_that_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "pdgd", "random", "--data", SMALL, "--rounds", "80", "--world", "piecewise?every=40"]
    assert command(*asked, "--figure", str(tmp_path / "x.svg")) == 0
    out = capsys.readouterr().out
    assert "regret" in out
    assert "piecewise?every=40" in out
    nodes = list(ElementTree.parse(tmp_path / "x.svg").iter())
    texts = {"".join(node.itertext()).strip() for node in nodes if node.tag.endswith("text")}
    assert {"online NDCG, over time", "sum of 1 - online NDCG", "pdgd", "rounds (dotted: the world changes)"} <= texts
    assert command(*asked, "--figure", str(tmp_path / "x.png")) == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert command(*asked, "--json") == 0
    for result in json.loads(capsys.readouterr().out):
        assert result["world"] == "piecewise?every=40"
        assert result["online"]["regret"] > 0
        assert 0 <= result["online"]["recovery"] <= 40
