"""BubbleRank's experiments in small, the arithmetic of its report, and the verdicts on its claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rankloop.lab.papers.bubblerank_claims import averages, claims, growth, line_of, lists
from rankloop.lab.papers.bubblerank_report import regret_table, safety_table
from rankloop.lab.papers.bubblerank_settings import BATCH, BUBBLE0, BUBBLEKL, CONTENDERS, FULL, KLUCB, TOP, Scale

from rankloop import cli
from rankloop.clicks import Pairs, PositionBased, save
from rankloop.errors import DataError, InvalidParameter, UnknownName
from rankloop.kernels.click_models import CASCADE, POSITION
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers import bubblerank
from rankloop.lab.runs.bandit_trial import WARM_ROUNDS, BanditTrial, _checkpoints
from rankloop.lab.runs.results import curves, read_results, table_of
from rankloop.lab.runs.workers import Event
from rankloop.lab.users.bandit_models import given_order, open_models

TINY = Scale(("generated?queries=2&documents=5",), 3000, 2, 3, 2000, 2)
ROUNDS = (1000, 10_000, 100_000)


def results(regret: dict[tuple[str, str], Any], **more: float) -> pa.Table:
    """(learner, model) -> regret at the three checkpoints, of each of two seeds; the same for all queries."""
    rows = [
        {
            "run": f"{label}{model}{query}{seed}",
            "label": label,
            "data": f"query {query}",
            "user": model,
            "seed": seed,
            "round": at,
            "regret": value + seed,
            "wrong": float(10 * query + seed),
            "rounds_per_second": 2e6,
            **more,
        }
        for (label, model), values in regret.items()
        for query in range(3)
        for seed in range(2)
        for at, value in zip(ROUNDS, values, strict=True)
    ]
    return table_of(rows)


PAPER = {  # what section 5 tells, in numbers
    (BUBBLE0, "CM"): (500, 1500, 2500),
    (BUBBLEKL, "CM"): (50, 300, 541),
    (KLUCB, "CM"): (10, 20, 30),
    (BATCH, "CM"): (400, 1000, 1475),
    (TOP, "CM"): (100, 200, 300),
    (BUBBLE0, "PBM"): (900, 6000, 9000),
    (BUBBLEKL, "PBM"): (400, 2000, 4409),
    (KLUCB, "PBM"): (70, 700, 7000),
    (BATCH, "PBM"): (800, 4000, 6833),
    (TOP, "PBM"): (200, 500, 900),
}
FAINT = table_of(
    [
        {
            "run": f"{i}",
            "label": f"0.5^{i}",
            "data": "query fading",
            "user": "PBM",
            "seed": 0,
            "round": 9,
            "regret": 2.0**i,
        }
        for i in range(1, 6)
    ]
)


def safe_table(**more: float) -> pa.Table:
    learners = {(label, "CM"): (1, 2, 3) for label in (BUBBLE0, BUBBLEKL, TOP)}
    return results(learners, **{"unsafe": 0.0, "harmful": 0.0, **more})


def found(table: pa.Table, words: str, faint: pa.Table = FAINT, safety: pa.Table | None = None) -> Claim:
    told = claims(table, faint, safe_table() if safety is None else safety)
    (claim,) = [claim for claim in told if words in claim.expected]
    return claim


# -- users and runs ------------------------------------------------------------------------------------------------


def test_sources_of_click_models(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    tables = {
        "CM": {"7": {"attraction": [0.2, 0.1]}},
        "PBM": {"7": {"attraction": [0.5, 0.8], "examination": [1, 0.5]}},
        "UBM": {"7": {"attraction": [0.5, 0.8], "examination": [[1, 1], [1, 1]]}},
    }
    path.write_text(json.dumps(tables))
    users = bubblerank.users_of(Scale((str(path),), 1, 1, 1, 1, 1))[str(path)]
    assert list(users) == ["CM", "PBM"]  # those of the paper, if they are there
    assert (users["CM"]["7"].kind, users["PBM"]["7"].kind) == (CASCADE, POSITION)
    assert users["PBM"]["7"].attraction.tolist() == [0.5, 0.8]
    turned = given_order(users["CM"]["7"], np.array([1, 0]))
    assert (turned.attraction.tolist(), turned.after_click.tolist()) == ([0.1, 0.2], [0.0, 0.0])
    twin = tmp_path / "twin.json"
    twin.write_text(path.read_text())
    with pytest.raises(DataError, match="CM of query 7 stands in two"):
        bubblerank.users_of(Scale((str(path), str(twin)), 1, 1, 1, 1, 1))


def test_a_fitted_model_gives_its_longest_queries_and_their_best_documents(tmp_path: Path) -> None:
    queries = ["short"] * 3 + ["long"] * 12
    pairs = Pairs.of(queries, [f"d{i:02d}" for i in [*range(3), *range(12)]])
    attraction = np.linspace(0.05, 0.75, 15)  # "long" comes first: its twelve have .05 to .6
    model = PositionBased().given(pairs, attraction_=attraction, examination_=np.linspace(1, 0.4, 10))
    save(model, tmp_path / "pbm.model")
    users = open_models(str(tmp_path / "pbm.model"))
    assert {name: list(queries) for name, queries in users.items()} == {"PBM": ["long"]}
    assert users["PBM"]["long"].attraction == pytest.approx(attraction[2:12])
    with pytest.raises(DataError, match="no such file"):
        open_models(str(tmp_path / "nothing.json"))
    with pytest.raises(InvalidParameter, match="no option 'docs'"):
        open_models("generated?docs=3")


def test_generated_users_have_the_papers_shape() -> None:
    users = open_models("generated")
    assert {model: len(queries) for model, queries in users.items()} == {"CM": 10, "PBM": 10}
    assert {user.attraction.size for queries in users.values() for user in queries.values()} == {10}
    assert (np.diff(users["PBM"]["1"].examination[:, 0]) < 0).all()


def test_runs_repeat_and_start_where_they_should() -> None:
    def run(**changed: Any) -> Any:
        settings = {"start": "random", "rounds": 2000, "seed": 3, **changed}
        trial = BanditTrial("x", "bubblerank", "generated?documents=6", "CM", "2", **settings)
        return trial.carry_out(None, lambda _: None)

    one, again, other = run(), run(), run(seed=4)
    assert one.outcome.regret.tolist() == again.outcome.regret.tolist() != other.outcome.regret.tolist()
    assert run(start="warm").wrong < run(start="random", seed=5).wrong
    assert run(safety=True).outcome.regret.tolist() == one.outcome.regret.tolist()  # looking changes nothing
    assert (run(safety=True).outcome.unsafe, WARM_ROUNDS) == (0, 20_000)
    with pytest.raises(UnknownName, match="no query is called '99'"):
        BanditTrial("x", "toprank", "generated", "CM", "99", rounds=5).carry_out(None, lambda _: None)
    with pytest.raises(InvalidParameter, match="rounds is 0"):
        BanditTrial("x", "toprank", "generated", "CM", "1", rounds=0)


def test_checkpoints_are_multiples_of_a_thousand_and_the_end() -> None:
    assert _checkpoints(10_000_000, 5).tolist() == [1000, 10_000, 100_000, 1_000_000, 10_000_000]
    assert _checkpoints(2500, 50).tolist() == [1000, 2000, 2500]
    assert _checkpoints(7, 50).tolist() == [7]


def test_settings_are_the_papers() -> None:
    trials = bubblerank.regret_trials(FULL)
    assert {trial.rounds for trial in trials} == {10_000_000}
    assert {trial.top for trial in trials} == {5}
    assert {dict(trial.params).get("horizon") for trial in trials if trial.learner == "bubblerank"} == {10_000_000}
    starts = {trial.label: trial.start for trial in trials}
    assert (starts[BUBBLE0], starts[BUBBLEKL]) == ("random", "warm")
    assert sum(trial.label == BUBBLE0 for trial in trials) == 10 * 2 * 10  # ten lists of each query and model
    faint = bubblerank.faint_trials(FULL)
    assert {(trial.rounds, trial.top, trial.start) for trial in faint} == {(1_000_000, 10, "given")}
    assert len({trial.id for trial in [*trials, *faint, *bubblerank.safety_trials(FULL)]}) == len(trials) + len(
        faint
    ) + len(bubblerank.safety_trials(FULL))


# -- arithmetic ----------------------------------------------------------------------------------------------------


def test_growth_is_the_power_of_the_last_decade() -> None:
    found = averages(
        results({("linear", "CM"): (1, 10, 100), ("root", "CM"): (1, 10, 10**1.5), ("flat", "CM"): (5, 9, 9)})
    )
    seedless = {label: average._replace(mean=average.mean - 0.5) for (_, label), average in found.items()}
    assert growth(seedless["linear"]) == pytest.approx(1.0)
    assert growth(seedless["root"]) == pytest.approx(0.5)
    assert growth(seedless["flat"]) == pytest.approx(0.0)


def test_averages_are_over_queries_and_runs() -> None:
    average = averages(results({(TOP, "CM"): (1, 2, 3)}))["CM", TOP]
    assert (average.mean.tolist(), average.runs) == ([1.5, 2.5, 3.5], 6)
    assert average.error == pytest.approx(np.std([0, 1] * 3, ddof=1) / np.sqrt(6))


def test_the_line_against_misordered_pairs_has_each_querys_level_taken_out() -> None:
    rng = np.random.default_rng(0)
    wrong, query = rng.integers(0, 40, 200), np.repeat(np.arange(10), 20)
    line = line_of(wrong, 50.0 * wrong + 1e5 * query + rng.normal(0, 10, 200), query)
    assert line.slope == pytest.approx(50, abs=4 * line.error)
    assert 0.01 < line.error < 0.2
    assert line.explained > 0.99 > 0.01 > line.bend
    assert line_of(wrong, (wrong - 20.0) ** 2, query).bend > 0.5


def test_the_lists_of_bubblerank0_are_its_runs() -> None:
    wrong, regret, query = lists(results(PAPER), "CM")
    assert wrong.tolist() == [0, 1, 10, 11, 20, 21]
    assert regret.tolist() == [2500, 2501] * 3
    assert query.tolist() == [0, 0, 1, 1, 2, 2]


# -- the claims ----------------------------------------------------------------------------------------------------


def test_what_the_paper_saw_is_seen() -> None:
    table = results(PAPER)
    values = {("query 0"): 0.0, ("query 1"): 1000.0, ("query 2"): 2000.0}  # regret of random lists that grows with |V0|
    rows = table.to_pylist()
    for row in rows:
        if row["label"] == BUBBLE0 and row["round"] == ROUNDS[-1]:
            row["regret"] += values[row["data"]] + 100 * row["seed"]
    told = claims(table_of(rows), FAINT, safe_table())
    assert {claim.expected: claim.verdict for claim in told if claim.verdict != "seen"} == {}
    assert len(told) == 20
    assert "63% less: 542 ± 0 and 1476 ± 0" in found(table, "In the CM BubbleRankKL has 63%").seen


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({(TOP, "CM"): (1, 2, 3)}, "nobody has less regret"),
        ({(KLUCB, "PBM"): (700, 5000, 7000)}, "may have linear regret"),
        ({(BATCH, "CM"): (4, 10, 14)}, "much higher regret than CascadeKL-UCB"),
        ({(BATCH, "PBM"): (68, 680, 6833)}, "BatchRank learns the best list in the PBM"),
        ({(BUBBLE0, "CM"): (50, 150, 250)}, "BubbleRank0 has a higher regret than BatchRank in the CM"),
        ({(BUBBLEKL, "PBM"): (800, 4000, 6900)}, "BubbleRankKL has a lower regret than BatchRank in the PBM"),
        ({(BUBBLEKL, "CM"): (5, 50, 541)}, "BubbleRankKL can learn the best list in the CM"),
        ({(BUBBLEKL, "CM"): (50, 300, 1000)}, "In the CM BubbleRankKL has 63%"),
    ],
)
def test_what_is_otherwise_is_not_seen(change: dict[tuple[str, str], Any], words: str) -> None:
    assert found(results(PAPER), words).verdict == "seen"
    assert found(results(PAPER | change), words).verdict == "not seen"


@pytest.mark.parametrize(("odd_one", "verdict"), [(700.0, "seen"), (-3000.0, "not seen")])
def test_one_query_may_say_otherwise_if_the_mean_is_sure(odd_one: float, verdict: str) -> None:
    """BatchRank less BubbleRankKL in the CM is 934 in two queries, and so much more in the third."""
    rows = results(PAPER).to_pylist()
    for row in rows:
        if (row["label"], row["data"]) == (BATCH, "query 2"):
            row["regret"] += odd_one
    told = found(table_of(rows), "BubbleRankKL has a lower regret than BatchRank in the CM")
    assert told.verdict == verdict
    assert f"higher in {3 if odd_one > 0 else 2} of them" in told.seen


def test_regret_that_does_not_double_is_not_seen_to() -> None:
    rows = FAINT.to_pylist()
    rows[3]["regret"] = rows[2]["regret"]
    assert found(results(PAPER), "doubles").verdict == "seen"
    assert found(results(PAPER), "doubles", table_of(rows)).verdict == "not seen"


def test_one_unsafe_list_or_harmful_change_is_enough() -> None:
    assert found(results(PAPER), "cautious", safety=safe_table(unsafe=1.0)).verdict == "not seen"
    assert found(results(PAPER), "Any base list", safety=safe_table(harmful=1.0)).verdict == "not seen"


# -- all of it -----------------------------------------------------------------------------------------------------


def test_the_experiment_in_small_goes_on_where_it_stopped(tmp_path: Path) -> None:
    events: list[Event] = []
    path = bubblerank.carry_out_at(TINY, tmp_path, on_event=events.append)
    assert path == tmp_path / "report.html"
    page = path.read_text("utf-8")
    for words in ("Figure 1: one query", "Figure 3: what makes it hard", "harmful changes", "CascadeKL-UCB"):
        assert words in page
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("one-query", "all-queries", "hard") for kind in ("png", "svg")
    }
    assert (tmp_path / "claims.md").read_text("utf-8").startswith("# BubbleRank, the experiments repeated\n\n20 claims")
    table = read_results(tmp_path / "regret.parquet")
    runs = 2 * 2 * sum(TINY.runs_of(contender.name) for contender in CONTENDERS)
    assert len(set(table["run"].to_pylist())) == runs
    first = {key: curve.mean.tolist() for key, curve in curves(table, "regret").items()}
    (tmp_path / "report.html").unlink()
    events.clear()
    bubblerank.carry_out_at(TINY, tmp_path, processes=2, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    again = read_results(tmp_path / "regret.parquet")
    assert {key: curve.mean.tolist() for key, curve in curves(again, "regret").items()} == first
    assert len(regret_table(table).rows) == len(CONTENDERS)
    assert {row[3] for row in safety_table(read_results(tmp_path / "safety.parquet")).rows} == {"0.00", "–"}


def test_the_command_takes_a_file_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fake(out: Path, data: Any, quick: bool, processes: int, on_event: Any) -> Path:  # noqa: ARG001
        asked.update(data=data, quick=quick, processes=processes)
        out.mkdir(parents=True)
        for name in ("claims.md", "table.md", "report.html"):
            (out / name).write_text("text")
        return out / "report.html"

    monkeypatch.setattr("rankloop.lab.papers.bubblerank.reproduce", fake)
    out = str(tmp_path / "out")
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "bubblerank", "--quick", "--models", "a.json", "--models", "b.model", "--out", out])
    assert ended.value.code == 0
    assert asked == {"data": ["a.json", "b.model"], "quick": True, "processes": 2}
