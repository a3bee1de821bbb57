"""The capacity calculator and `rankloop plan`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from rankloop.core.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.service.capacity import Constants, Load, load_constants, make_plan

LOAD = Load(requests=1000, features=50, feedback=0.5, headroom=0.5, cores=4)
COSTS: dict[str, Any] = {
    "rank_busy": {"1": 0.9e-3},
    "event_busy": {"1": 1e-3},
    "rank_cpu": {"1": 0.4e-3},
    "event_cpu": {"1": 0.5e-3},
    "rank_database": {"1": 0.2e-3},
    "event_database": {"1": 0.2e-3},
    "fold": {"1": 0.3e-3},
    "rank_wal": {"k d": 10.0},
    "event_wal": {"1": 2000.0},
    "rank_stored": {"k d": 10.0},
    "event_stored": {"1": 1000.0},
    "commit_seconds": 2e-3,
    "commits": 0.25,
    "memory_ranking": 1e8,
    "memory_learning": 5e7,
}
LEARNERS = {
    "pairrank": {"rank": {"1": 0.1e-3}, "learn": {"1": 0.2e-3}, "state": {"d d": 8.0}},
    "greedy": {"rank": {"1": 0.1e-3}, "learn": {}, "state": {"d": 8.0}},
}
CONSTANTS = Constants("test machine", 2, "today", "0", {"postgresql": COSTS, "sqlite": COSTS}, LEARNERS)


def test_a_plan_by_hand() -> None:
    plan = make_plan(LOAD, CONSTANTS)
    assert plan["rankings per process"] == pytest.approx(1 / 1.5e-3)  # 1 ms, and half an event's 1 ms
    assert plan["ranking processes"] == 3  # 1000 / (667 x 0.5)
    assert plan["cores for ranking"] == pytest.approx(1000 * 0.75e-3 / 0.5)
    assert plan["ranking machines"] == 2  # 3 processes fit 4 cores; one machine may fail
    assert plan["outcomes per second that one ranker can learn"] == pytest.approx(2000)
    assert plan["cores to learn the busiest ranker"] == pytest.approx(500 * 0.5e-3)
    assert plan["learning processes"] == 1
    assert plan["cores for the database"] == pytest.approx(1000 * 0.3e-3 / 0.5)
    assert plan["commits"] == pytest.approx(1500 * 0.25)
    assert plan["write-ahead log"] == pytest.approx(1000 * 5000 + 500 * 2000)
    assert plan["growth of the store"] == pytest.approx(86_400 * (1000 * 5000 + 500 * 1000))
    assert plan["size of the store"] == pytest.approx(30 * 86_400 * 5.5e6)
    assert plan["memory per ranking machine"] == pytest.approx(3 * (1e8 + 20_000) + 5e7 + 40_000)
    assert plan.warnings == ()


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"requests": 10_000, "rankers": 20, "busiest_share": 0.8, "separate_feedback": True},
            "split it into 4 rankers",
        ),
        ({"requests": 20_000, "rankers": 100, "cores": 64}, "120 ms"),
        ({"requests": 10_000, "rankers": 100, "separate_feedback": True}, "the database needs 6.0 cores"),
        ({"requests": 20_000, "rankers": 100, "store": "sqlite", "separate_feedback": True}, "SQLite"),
    ],
)
def test_what_does_not_fit_is_reported(changes: dict[str, Any], warning: str) -> None:
    assert warning in " ".join(make_plan(replace(LOAD, **changes), CONSTANTS).warnings)


def test_events_wait_for_each_other_when_there_are_many() -> None:
    assert make_plan(LOAD, CONSTANTS)["wait of an event for its commit"] == pytest.approx(3 * 2e-3)
    quiet = make_plan(replace(LOAD, requests=500), CONSTANTS)
    assert quiet["wait of an event for its commit"] == pytest.approx(2e-3 / (1 - 0.5))
    apart = make_plan(replace(LOAD, requests=20_000, rankers=100, cores=64, separate_feedback=True), CONSTANTS)
    assert (apart["ranking processes"], apart["feedback processes"], apart.warnings) == (40, 20, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0},
        {"requests": float("nan")},
        {"shown": 101},
        {"headroom": 1},
        {"store": "mysql"},
        {"busiest_share": 0.5},
        {"rankers": 4, "busiest_share": 0.1},
    ],
)
def test_impossible_loads_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Load(**wrong)


def test_constants_survive_a_file_and_damaged_ones_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    CONSTANTS.save(path)
    assert load_constants(path) == CONSTANTS
    good = asdict(CONSTANTS)
    damages: list[dict[str, Any]] = [{"stores": {"sqlite": {}}}, {"learners": {"greedy": {"rank": {"x": 1}}}}]
    for damage in damages:
        path.write_text(json.dumps({**good, **damage}))
        with pytest.raises(InvalidInput):
            load_constants(path)
    path.write_text("[]")
    with pytest.raises(InvalidInput):
        load_constants(path)
    with pytest.raises(UnknownName):
        make_plan(replace(LOAD, learner="nsgd"), CONSTANTS)


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def printed(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["plan", *arguments])
        assert stop.value.code == 0
        return capsys.readouterr().out

    path = tmp_path / "costs.json"
    CONSTANTS.save(path)
    arguments = ("--requests", "10000", "--constants", str(path))
    text = printed(*arguments)
    assert "ranking processes" in text
    assert "test machine" in text
    assert "! the busiest ranker" in text
    assert "rank_busy" in printed(*arguments, "--explain")
    found = json.loads(printed("--requests", "100", "--learner", "hybrid", "--store", "sqlite", "--json"))
    assert found["load"]["requests"] == 100
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--requests", "-1"])
    assert stop.value.code == 2
