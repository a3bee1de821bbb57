"""Rankers compared by interleaving on simulated users: equal ones draw, better ones win, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from cyclopts import App, Parameter

from rankloop.cli import interleave as cli
from rankloop.clicks.users import open_user
from rankloop.core.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.core.registry import make, save
from rankloop.core.types import Array, Candidates
from rankloop.evaluation.interleaving import METHODS, Method
from rankloop.evaluation.metrics import ndcg
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots.figures import interleaving_figure
from rankloop.lab.runs.interleave import Ranker, check_ranker, compare, interleave, open_ranker, rank_all

DATA = "synthetic:mq2008?queries=40&vali=5&test=30"


@pytest.fixture(scope="module")
def split() -> Split:
    return open_split(DATA)


def oracle(split: Split, sign: int) -> Ranker:
    """Ranks by the grades themselves, best or worst first."""
    grades = {str(query): split.test.grades_of(q) for q, query in enumerate(split.test.queries)}

    def rank(candidates: Candidates, ties: Array) -> Array:
        return np.lexsort((ties, -sign * grades[candidates.query]))

    return Ranker("oracle" if sign > 0 else "worst", rank)


# -- comparisons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("user", ["perfect", "navigational", "informational"])
def test_equal_rankers_draw(split: Split, method: Method, user: str) -> None:
    found = interleave(["feature:3", "feature:3", "feature:3"], split, user, rounds=400, method=method)
    for r in (1, 2):
        for interval in (found.preference(r), found.lead(r)):
            assert interval.low <= 0 <= interval.high
        assert found.verdict(r) == "undecided"
        assert found.ndcg[r] == found.ndcg[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("user", ["perfect", "navigational"])
def test_the_better_ranker_wins(split: Split, method: Method, user: str) -> None:
    someone = open_user(user, split.test.highest_grade)
    found = compare([oracle(split, -1), oracle(split, 1)], split.test, someone, rounds=400, method=method)
    assert found.verdict(1) == "better"
    assert found.preference(1).low > 0
    assert found.win[:, 1].sum() > found.loss[:, 1].sum()
    assert found.ndcg[1] == pytest.approx(1.0)
    back = compare([oracle(split, 1), oracle(split, -1)], split.test, someone, rounds=400, method=method)
    assert back.verdict(1) == "worse"


def test_ndcg_is_that_of_the_rankings(split: Split) -> None:
    rankers = [open_ranker(spec, split, open_user("perfect", 2)) for spec in ("feature:3", "feature:-3")]
    found = compare(rankers, split.test, open_user("perfect", 2), rounds=2, k=5, seed=4)
    for r, expected in enumerate(found.ndcg):
        values = []
        for q, rankings in enumerate(rank_all(rankers, split.test, seed=4)):
            grades = split.test.grades_of(q)
            values.append(ndcg(grades[rankings[r]][:5], 5, candidates=grades, empty="skip"))
        assert expected == pytest.approx(np.nanmean(values))


def test_same_seed_same_result_and_another_seed_another(split: Split) -> None:
    one, two, other = (
        interleave(["feature:1", "feature:2"], split, "navigational", rounds=50, seed=seed) for seed in (1, 1, 2)
    )
    assert one.credit.tobytes() == two.credit.tobytes()
    assert one.credit.tobytes() != other.credit.tobytes()


def test_summary_adds_up(split: Split) -> None:
    found = interleave(["feature:1", "feature:2", "feature:-2"], split, "informational", rounds=60)
    rows = found.summary()
    assert [row["ranker"] for row in rows] == ["feature:2", "feature:-2"]
    for row in rows:
        assert row["against"] == "feature:1"
        assert row["wins"] + row["losses"] + row["ties"] == pytest.approx(60)
        assert row["preference"]["mean"] == pytest.approx((row["wins"] - row["losses"]) / 60)
        assert row["ndcg difference"] == pytest.approx(row["ndcg"] - found.ndcg[0])


# -- rankers -------------------------------------------------------------------------------------------------------


def test_features_rank_both_ways_and_ties_are_drawn(split: Split) -> None:
    rows = Candidates(features=[[0.0, 5.0], [0.0, 7.0], [0.0, 6.0]])
    user, ties = open_user("perfect", 2), np.array([0.5, 0.9, 0.1])
    assert open_ranker("feature:2", split, user).rank(rows, ties).tolist() == [1, 2, 0]
    assert open_ranker("feature:-2", split, user).rank(rows, ties).tolist() == [0, 2, 1]
    assert open_ranker("feature:1", split, user).rank(rows, ties).tolist() == [2, 0, 1]


def test_learners_are_trained_and_files_are_not(split: Split, tmp_path: Path) -> None:
    user, query = open_user("perfect", 2), split.test.candidates(0)
    told: list[tuple[str, int, int]] = []

    def note(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    trained = open_ranker("pdgd?rate=0.2", split, user, train_rounds=60, on_progress=note)
    fresh = open_ranker("pdgd?rate=0.2", split, user, train_rounds=0)
    assert trained.rank(query, np.zeros(query.n)).tolist() != fresh.rank(query, np.zeros(query.n)).tolist()
    assert told[-1] == ("training pdgd?rate=0.2", 60, 60)
    graded, cold = (open_ranker("rtopk", split, user, train_rounds=rounds) for rounds in (60, 0))
    assert graded.rank(query, np.zeros(query.n)).tolist() != cold.rank(query, np.zeros(query.n)).tolist()
    learner = make("pdgd")
    learner.load({"theta_": np.eye(split.train.width)[2], "rate_": np.array([0.1])})
    save(learner, tmp_path / "mine.rankloop")
    saved = open_ranker(str(tmp_path / "mine.rankloop"), split, user)
    assert saved.rank(query, np.zeros(query.n)).tolist() == learner.best(query, query.n).tolist()


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("pairank", UnknownName, "no ranker is called 'pairank'; did you mean 'pairrank'"),
        ("no/such/file", UnknownName, "there are feature:NUMBER, the learners and files with a saved learner"),
        ("feature:0", InvalidParameter, "'feature:0' has no feature number"),
        ("feature:x", InvalidParameter, "write feature:12, or feature:-12"),
        ("feature:--1", InvalidParameter, "has no feature number"),
        ("pdgd?rate=-1", InvalidParameter, "rate is -1"),
    ],
)
def test_rankers_that_are_none(spec: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_ranker(spec)


def test_what_does_not_fit_the_data_is_named(split: Split, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="feature:999 asks for feature 999, but the data has 46 features"):
        interleave(["feature:1", "feature:999"], split)
    narrow = make("pdgd")
    narrow.load({"theta_": np.ones(3), "rate_": np.array([0.1])})
    save(narrow, tmp_path / "narrow")
    with pytest.raises(InvalidInput, match="46 features, but this learner has learned with 3"):
        interleave(["feature:1", str(tmp_path / "narrow")], split)


@pytest.mark.parametrize(
    ("setting", "error", "words"),
    [
        ({"rounds": 1}, InvalidParameter, "rounds is 1"),
        ({"k": 0}, InvalidParameter, "k is 0"),
        ({"train_rounds": -1}, InvalidParameter, "train_rounds is -1"),
        ({"method": "balanced"}, UnknownName, "no interleaving method is called 'balanced'"),
        ({"user": "nobody"}, UnknownName, "no user is called 'nobody'"),
        ({"seed": -1}, InvalidParameter, "seed is -1"),
    ],
)
def test_settings_that_cannot_be(split: Split, setting: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        interleave(["feature:1", "feature:2"], split, **setting)


# -- the command ---------------------------------------------------------------------------------------------------


def run(*arguments: str) -> None:
    app = App(name="rankloop", default_parameter=Parameter(negative=()), result_action="return_value")
    cli.add_to(app)
    app(["interleave", *arguments], exit_on_error=False, print_error=False)


SMALL = ("--data", DATA, "--rounds", "60", "--train-rounds", "30")


def test_the_command_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "lead.svg"
    run("feature:1", "feature:-12", "pairrank?alpha=0.1", *SMALL, "--figure", str(figure))
    out = capsys.readouterr().out
    for words in ("against feature:1", "feature:-12", "pairrank?alpha=0.1", "wins", "true NDCG@10", "60 impressions"):
        assert words in out
    drawn = figure.read_text()
    assert "lead in credit over feature:1" in drawn
    assert "pairrank?alpha=0.1" in drawn


@pytest.mark.parametrize("method", METHODS)
def test_the_command_prints_json(capsys: pytest.CaptureFixture[str], split: Split, method: Method) -> None:
    run("feature:1", "feature:2", *SMALL, "--method", method, "--k", "5", "--seed", "3", "--user", "perfect", "--json")
    found = json.loads(capsys.readouterr().out)
    expected = interleave(["feature:1", "feature:2"], split, "perfect", 60, method, k=5, seed=3)
    assert found["comparisons"] == expected.summary()
    assert found["first"] == {"ranker": "feature:1", "ndcg": expected.ndcg[0]}
    assert (found["method"], found["rounds"], found["k"], found["seed"]) == (method, 60, 5, 3)


def test_the_command_knows_the_methods() -> None:
    assert get_args(cli.Method) == METHODS


def test_the_figure_ends_at_the_interval(split: Split) -> None:
    found = interleave(["feature:1", "feature:2"], split, "informational", rounds=80)
    axes = interleaving_figure(found).axes[0]
    line = next(line for line in axes.get_lines() if line.get_label() == "feature:2")
    lead = found.lead(1)
    assert np.asarray(line.get_ydata(), float)[-1] == pytest.approx(lead.mean)
    corners = np.concatenate([path.vertices for path in axes.collections[0].get_paths()])
    last = np.asarray(corners)[np.asarray(corners)[:, 0] == 80][:, 1]
    assert last.min() == pytest.approx(lead.low)
    assert last.max() == pytest.approx(lead.high)
