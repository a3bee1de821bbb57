"""The experiments on top-k feedback, in small; claims on made-up results; the tables of what can be learned."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rankloop.lab.papers.topk_claims import claims, slopes_of
from rankloop.lab.papers.topk_settings import (
    BLOCKS,
    CONTENDERS,
    FEEDBACK,
    FULL_INFORMATION,
    QUICK,
    TUNED,
    WORLD,
    Scale,
)
from rankloop.lab.papers.topk_theory import GAMES, tables

from rankloop import cli
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers import topk
from rankloop.lab.runs.results import read_results, table_of
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.workers import Event

DATA = "synthetic:mq2008?queries=20&docs=8&features=6&vali=1&test=1"
TINY = Scale((DATA,), rounds=200, tuning_rounds=50, seeds=2, item_seeds=2, horizons=(200, 400), slope_seeds=1)


# -- claims ----------------------------------------------------------------------------------------------------------


def table(measure: str, rows: dict[str, list[float]], data: str = WORLD) -> pa.Table:
    """Curves over rounds 500, 2000 and 10,000, three seeds that differ a little."""
    made = []
    for label, values in rows.items():
        for seed in range(3):
            for at, value in zip((500, 2000, 10_000), values, strict=True):
                row = {"run": f"{label}{seed}", "label": label, "data": data, "user": "grader", "seed": seed}
                made.append({**row, "round": at, measure: value + 0.001 * seed})
    return table_of(made)


def slopes(label: str, data: str, regret: list[float], params: str = "{}") -> list[dict[str, Any]]:
    at = [10**3, 10**4, 10**5]
    return [
        {"run": f"{label}{data}", "label": label, "data": data, "user": "g", "seed": 0, "round": t, "rounds": 10**5}
        | {"params": params, "regret": value}
        for t, value in zip(at, regret, strict=True)
    ]


ITEMS = {
    "K = 10": [0.98, 0.9, 0.5],
    "K = 50": [0.95, 0.7, 0.3],
    "K = 100": [0.92, 0.65, 0.35],
    "K = 200": [0.9, 0.6, 0.45],
    "K = 400": [0.95, 0.8, 0.78],
    "top 1": [0.9, 0.6, 0.45],
    "top 5": [0.5, 0.3, 0.2],
    "top 10": [0.4, 0.2, 0.15],
    FULL_INFORMATION: [0.1, 0.05, 0.02],
}
CONTEXT = {
    "ListNet, all grades": [0.6, 0.7, 0.75],
    "RankSVM, top 2": [0.58, 0.68, 0.72],
    "KL, top 1": [0.57, 0.66, 0.7],
    "Squared, top 1": [0.56, 0.62, 0.66],
    "SmoothDCG, top 1": [0.4, 0.45, 0.5],
    "Random": [0.4, 0.4, 0.4],
}
GROWN = [
    *slopes("horizon unknown, top 1", WORLD, [10, 46, 200]),
    *slopes("horizon unknown, top 1", "switching", [10, 46, 60]),
    *slopes("horizon unknown, top 1", "alternating", [1, 2, 20]),  # next to nothing: a slope of 1 says nothing
    *slopes("kl, exact", "d", [10, 90, 400]),
    *slopes("kl, gamma", "d", [10, 90, 900]),
]


def found(expected: str, **other: Any) -> Claim:
    given = {"items": ITEMS, "slopes": GROWN, "context": CONTEXT, **other}
    made = claims(
        table("average_regret", given["items"]), table_of(given["slopes"]), table("online.ndcg", given["context"], "d")
    )
    return next(claim for claim in made if claim.expected.startswith(expected))


def test_what_the_paper_says_is_seen_where_it_is_so() -> None:
    made = claims(table("average_regret", ITEMS), table_of(GROWN), table("online.ndcg", CONTEXT, "d"))
    assert len(made) == 14
    assert {claim.verdict for claim in made} == {"seen"}


@pytest.mark.parametrize(
    ("expected", "other"),
    [
        ("With K = 200", {"items": {**ITEMS, "K = 100": [0.85, 0.65, 0.35]}}),
        ("With K = 10", {"items": {**ITEMS, "K = 10": [0.98, 0.6, 0.5]}}),
        ("With K = 400", {"items": {**ITEMS, "K = 400": [0.95, 0.5, 0.4]}}),
        ("As more is graded", {"items": {**ITEMS, "top 10": [0.6, 0.4, 0.3]}}),
        ("From round 1,000", {"items": {**ITEMS, FULL_INFORMATION: [0.1, 0.05, 0.5]}}),
        ("Top-1 feedback", {"slopes": [*GROWN, *slopes("horizon unknown, top 1", "x", [10, 90, 800])]}),
        ("The same in the world", {"slopes": slopes("horizon unknown, top 1", WORLD, [10, 90, 800])}),
        ("Unbiased", {"slopes": slopes("kl, exact", "d", [10, 90, 800])}),
        ("ListNet", {"context": {**CONTEXT, "ListNet, all grades": [0.5, 0.7, 0.75]}}),
        ("RankSVM", {"context": {**CONTEXT, "RankSVM, top 2": [0.5, 0.6, 0.65]}}),
        ("KL does", {"context": {**CONTEXT, "KL, top 1": [0.5, 0.5, 0.6]}}),
        ("All three convex", {"context": {**CONTEXT, "Squared, top 1": [0.3, 0.3, 0.3]}}),
        ("All three are", {"context": {**CONTEXT, "Squared, top 1": [0.5, 0.5, 0.5]}}),
        ("SmoothDCG", {"context": {**CONTEXT, "SmoothDCG, top 1": [0.7, 0.7, 0.7]}}),
    ],
)
def test_and_not_seen_where_it_is_not(expected: str, other: dict[str, Any]) -> None:
    assert found(expected, **other).verdict == "not seen"


def test_slopes_of_runs_that_know_their_horizon_come_from_one_run_each() -> None:
    known = [
        {**row, "rounds": rounds, "regret": float(rounds if row["round"] == rounds else -1), "run": f"{rounds}"}
        for rounds in (10**3, 10**4)
        for row in slopes("horizon known, top 1", "w", [1, 1, 1], '{"horizon": 5}')
        if row["round"] <= rounds
    ]
    (slope,) = slopes_of(table_of(known))
    assert (slope.rounds, slope.regret) == ((10**3, 10**4), (1e3, 1e4))
    assert slope.last == slope.overall == pytest.approx(1.0)
    assert np.isnan(slope._replace(regret=(-1.0, 2.0)).last)
    assert not slope._replace(regret=(1.0, 2.0)).tells


# -- the whole -------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "topk", *arguments])
    return int(ended.value.code or 0)


def test_the_command_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topk, "QUICK", TINY)
    monkeypatch.setattr(topk, "ROUNDS", 400)
    assert run("--quick", "--out", str(tmp_path), "--processes", "1") == 0
    printed, page = capsys.readouterr().out, (tmp_path / "report.html").read_text("utf-8")
    for text in ("14 claims", "| K = 200 |", "| horizon known, top 1 |", "| RankSVM, top 2 |", "| 312 | 0 | 2 |"):
        assert text in printed
    assert page.count("<img") == 5

    context, items = read_results(tmp_path / "context.parquet"), read_results(tmp_path / "items.parquet")
    assert len(set(context["run"].to_pylist())) == len(CONTENDERS) * TINY.seeds
    assert len(set(items["run"].to_pylist())) == (len(BLOCKS) + len(FEEDBACK) + 3) * TINY.item_seeds
    random = [row for row in context.to_pylist() if row["label"] == "Random" and row["round"] == TINY.rounds]
    assert all(0.2 < row["online.ndcg"] < 0.9 for row in random)

    events: list[Event] = []
    topk.carry_out_at(TINY, tmp_path, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert events[-1].share == 1.0
    assert (tmp_path / "report.html").read_text("utf-8") == page


def test_what_can_be_learned_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--observability") == 0
    printed = capsys.readouterr().out
    for text in ("Table 1", "Table 2", "best regret", "Lemma 12"):
        assert text in printed
    for game, said in GAMES:  # what was computed is what the paper says, where it says something
        if not said.startswith("open"):
            assert game.regret.removesuffix("at most") in said or "at most" in said or "globally" in said


def test_the_page_on_what_can_be_learned_has_these_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text("utf-8")
    for table in tables():
        assert table.markdown().partition("\n\n")[2].strip() in page, (
            "copy it from `rankloop reproduce topk`: tables.md"
        )


def test_data_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scales: list[Scale] = []
    monkeypatch.setattr(topk, "carry_out_at", lambda scale, *_: scales.append(scale))
    topk.reproduce(tmp_path, ["x", "y"])
    topk.reproduce(tmp_path, quick=True)
    assert (scales[0].data, scales[0].rounds) == (("x", "y"), 100_000)
    assert scales[1] == QUICK


def test_jobs_are_the_same_in_other_processes(tmp_path: Path) -> None:
    jobs = [job for job in topk.slope_jobs(TINY) if job.label in ("all grades", "kl, exact")][:2]
    jobs += next(iter(topk.tuning_jobs(DATA, "KL, top 1", 50, [7]).values()))
    here, there = (carry_out(jobs, tmp_path / f"{n}.parquet", n) for n in (1, 2))
    assert len(set(here["run"].to_pylist())) == 3
    assert here.equals(there)


def test_only_the_best_numerators_get_a_second_look(tmp_path: Path) -> None:
    chosen = topk.choose(TINY, tmp_path, 1, None)
    first, second = (read_results(tmp_path / f"{name}.parquet").to_pylist() for name in ("first-choice", "choice"))
    for name, contender in TUNED.items():
        looks = [[row for row in rows if row["label"] == name] for rows in (first, second)]
        short, long = ({key: [row["online.ndcg"] for row in rows] for key, rows in grouped(look)} for look in looks)
        assert len(short) == 5 ** len(contender.tuned)
        assert set(long) <= set(short)
        assert {len(ends) for ends in long.values()} == {3}
        assert len(long) == 5
        worse = [short[key][0] for key in short if key not in long]
        assert min(short[key][0] for key in long) >= max(worse, default=0.0)
        best = max(long, key=lambda key: np.mean(long[key]))
        assert json.loads(best).items() >= chosen[DATA, name].items()
        assert {row["rounds"] for row in looks[1]} == {TINY.rounds // 2}


def grouped(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(key, list(group)) for key, group in groupby(rows, key=lambda row: str(row["params"]))]
