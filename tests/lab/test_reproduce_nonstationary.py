"""The experiment on users who change in small, its table's arithmetic, and the verdicts on its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rankloop.lab.papers.nonstationary_claims import claims, with_milliseconds
from rankloop.lab.papers.nonstationary_report import improvement, table_two
from rankloop.lab.papers.nonstationary_settings import (
    CONTENDERS,
    EVERY,
    FULL,
    GAMMA,
    PAIRS,
    QUICK,
    RATES,
    USERS,
    WORLD,
    Scale,
)

from rankloop import cli
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers import nonstationary
from rankloop.lab.runs.results import read_results, table_of
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.runs.workers import Event

DATA = "synthetic:mq2008?queries=20&vali=6&test=6&features=6"
TINY = Scale((DATA,), ("perfect", "informational"), 20, 2, (DATA,), EVERY + 20, 1)


def results(
    values: dict[str, list[float]], users: tuple[str, ...] = USERS, data: tuple[str, ...] = ("a", "b"), **more: Any
) -> pa.Table:
    """Label -> cumulative NDCG of each seed, the same for all users and data sets; `more` are columns by label."""
    rows: list[dict[str, Any]] = [
        {
            "run": f"{label}{name}{user}{seed}",
            "label": label,
            "data": name,
            "user": user,
            "seed": seed,
            "round": 1000,
            "online.cndcg": value,
            **{column: by_label[label] for column, by_label in more.items()},
        }
        for label, seeds in values.items()
        for name in data
        for user in users
        for seed, value in enumerate(seeds)
    ]
    return table_of(rows)


def found(table: pa.Table, words: str) -> Claim:
    (claim,) = [claim for claim in claims(table) if words in claim.expected]
    return claim


# -- the table -----------------------------------------------------------------------------------------------------


def test_improvement_is_relative_to_the_base() -> None:
    assert improvement(100.3, 118.1) == "+17.7%"  # NP2003, perfect users, DBGD in the paper's Table 2
    assert improvement(112.9, 126.9) == "+12.4%"
    assert improvement(80.0, 72.0) == "-10.0%"
    assert improvement(float("-inf"), 72.0) == improvement(0.0, 1.0) == "–"


def test_the_table_has_the_papers_layout() -> None:
    table = table_two(results({"DBGD": [99.0, 101.0], "DM²L": [110.0, 110.0], "PDGD": [120.0, 124.0]}))
    assert table.columns == ("user", "learner", "a", "b")
    assert list(table.rows[:4]) == [
        ("perfect", "DBGD", "100.0 (1.4)", "100.0 (1.4)"),
        ("perfect", "DM²L", "110.0 (0.0)", "110.0 (0.0)"),
        ("perfect", "DM²L over DBGD", "+10.0%", "+10.0%"),
        ("perfect", "PDGD", "122.0 (2.8) ★", "122.0 (2.8) ★"),
    ]
    assert [row[0] for row in table.rows] == [user for user in USERS for _ in range(4)]


def test_what_did_not_run_is_a_dash() -> None:
    one = results({"DBGD": [100.0], "DM²L": [110.0]}, data=("a",))
    table = table_two(pa.concat_tables([one, results({"DBGD": [90.0]}, data=("b",))]))
    assert list(table.rows[:3]) == [
        ("perfect", "DBGD", "100.0", "90.0 ★"),
        ("perfect", "DM²L", "110.0 ★", "–"),
        ("perfect", "DM²L over DBGD", "+10.0%", "–"),
    ]


def test_settings_are_the_papers() -> None:
    trials, names = nonstationary.table_trials(FULL)
    assert len(trials) == 5 * 3 * 10 * len(CONTENDERS)
    assert {(t.rounds, t.k, t.gamma, t.world) for t in trials} == {(1000, 10, 0.995, "swap?probability=0.3")}
    assert {t.params.get("horizon") for t in trials if t.learner in ("dm2l", "m3l", "nm2l", "pm2l")} == {1000}
    assert {t.learner: dict(t.params) for t in trials}["nsgd"] == {}
    assert list(names.values()) == [c.name for c in CONTENDERS]
    assert set(names) == {t.label for t in trials}


# -- the claims ----------------------------------------------------------------------------------------------------

PAPER = {
    "DBGD": [100.0, 101.0],
    "DM²L": [118.0, 119.1],
    "MGD": [107.0, 108.0],
    "M³L": [127.0, 128.1],
    "NSGD-DSP": [126.0, 127.0],
    "NM²L": [139.0, 140.1],
    "PDGD": [131.0, 132.2],
}


def test_what_the_paper_saw_is_seen() -> None:
    informational = results({**PAPER, "PDGD": [110.0, 111.0]}, ("informational",))
    table = pa.concat_tables([results(PAPER, ("perfect",)), informational])
    verdicts = {claim.expected: claim.verdict for claim in claims(table)}
    assert list(verdicts.values()) == ["seen"] * 8 + ["not tested"] * 2
    assert "surely higher in 2, surely lower in 0 of 2" in found(table, "For informational users").seen


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"DM²L": [99.0, 99.9]}, "DM²L improves"),
        ({"DM²L": [99.0, 99.9]}, "consistently"),
        ({"M³L": [106.0, 107.1]}, "M³L improves"),
        ({"NM²L": [125.0, 126.1]}, "NM²L improves"),
        ({"PDGD": [141.0, 142.0]}, "largest cumulative NDCG"),
        ({"MGD": [127.0, 128.1]}, "always outperforms"),
        ({"PDGD": [120.0, 121.1]}, "For perfect users"),
    ],
)
def test_the_opposite_is_not_seen(change: dict[str, list[float]], words: str) -> None:
    assert found(results(PAPER), words).verdict == "seen"
    assert found(results({**PAPER, **change}), words).verdict == "not seen"


def test_one_setting_that_is_not_higher_is_not_consistent() -> None:
    table = pa.concat_tables([results(PAPER), results({**PAPER, "DM²L": [100.0, 100.9]}, data=("c",))])
    assert found(table, "consistently").verdict == "not seen"
    assert "in 24 of 27" in found(table, "consistently").seen


def test_time_and_memory() -> None:
    def table(rate: float, size: float) -> pa.Table:
        return results(
            {"DBGD": [1.0], "DM²L": [1.0]},
            rounds_per_second={"DBGD": 1000.0, "DM²L": rate},
            state_bytes={"DBGD": 1000.0, "DM²L": size},
        )

    light, heavy = table(900.0, 7000.0), table(500.0, 900_000.0)
    assert found(light, "The time").verdict == found(light, "The memory").verdict == "seen"
    assert found(heavy, "The time").verdict == found(heavy, "The memory").verdict == "not seen"
    assert "+1 (DM²L / DBGD - 1, a, perfect)" in found(heavy, "The time").seen
    np.testing.assert_allclose(sorted(set(with_milliseconds(heavy)["ms_per_round"].to_pylist())), [1.0, 2.0])


def test_bars_need_a_pair() -> None:
    with pytest.raises(ValueError, match="no pair of learners"):
        figures.paired_bars({"ms": {"DBGD": 1.0}}, PAIRS)


# -- the whole -----------------------------------------------------------------------------------------------------


def test_memory_is_that_of_the_state() -> None:
    def size(learner: str, **params: Any) -> float:
        return run(Trial(learner, DATA, params=params, rounds=20, probes=("memory",))).last("state_bytes")

    assert size("dbgd") == 6 * 8
    assert size("dm2l", horizon=1000) == (6 + 6 * 6 + 6 + 1 + 1) * 8  # mean, six experts and weights, rounds, horizon


def test_the_command_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nonstationary, "QUICK", TINY)
    call = ["reproduce", "nonstationary", "--quick", "--out", str(tmp_path), "--processes", "1"]
    with pytest.raises(SystemExit) as ended:
        cli.main(call)
    assert not ended.value.code
    printed, page = capsys.readouterr().out, (tmp_path / "report.html").read_text("utf-8")
    rows = ("| perfect | NM²L over NSGD-DSP |", "| informational | PM²L over PDGD |", "| perfect | DBGD, 0.01 |")
    for text in ("10 claims", *rows):
        assert text in printed
    assert page.count("<img") == 2
    for contender in CONTENDERS:
        assert contender.name in page

    table, tracking = read_results(tmp_path / "nonstationary.parquet"), read_results(tmp_path / "tracking.parquet")
    assert len(set(table["run"].to_pylist())) == len(CONTENDERS) * 2 * 2
    assert (set(table["world"].to_pylist()), set(table["gamma"].to_pylist())) == ({WORLD}, {GAMMA})
    assert len(set(tracking["run"].to_pylist())) == (1 + len(RATES)) * 2
    ends = [row["online.recovery"] for row in tracking.to_pylist() if row["round"] == TINY.tracking_rounds]
    assert len(ends) == (1 + len(RATES)) * 2
    assert all(0 <= value <= 20 for value in ends)  # one change, and 20 rounds to recover from it

    events: list[Event] = []
    nonstationary.carry_out_at(TINY, tmp_path, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert (tmp_path / "report.html").read_text("utf-8") == page


def test_data_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scales: list[Scale] = []
    monkeypatch.setattr(nonstationary, "carry_out_at", lambda scale, *_: scales.append(scale))
    nonstationary.reproduce(tmp_path, ["x", "y", "z"])
    nonstationary.reproduce(tmp_path, quick=True)
    assert (scales[0].data, scales[0].tracking_data, scales[0].seeds) == (("x", "y", "z"), ("x", "y"), 10)
    assert scales[1] == QUICK
