"""`rankloop plan` for people and programs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from tests.capacity.made_up import constants


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "here.json"
    constants().save(path)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with suppress(SystemExit):
        main(["plan", *arguments])
    found = capsys.readouterr()
    assert "rankloop: " not in found.err
    return found.out


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["plan", *arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_a_plan_for_people(capsys: pytest.CaptureFixture[str], file: str) -> None:
    asked = ("--requests", "10000", "--candidates", "100", "--features", "136", "--constants", file)
    text = printed(capsys, *asked)
    assert "ranking processes" in text
    assert "nobody's machine" in text
    assert "! the busiest ranker" in text
    assert "hold_list + rank" not in text
    assert "hold_list + rank" in printed(capsys, *asked, "--why")


def test_a_plan_for_programs(capsys: pytest.CaptureFixture[str], file: str) -> None:
    told = printed_json(capsys, "--requests", "100", "--store", "sqlite", "--constants", file)
    assert told["load"]["requests"] == 100
    line = next(one for one in told["lines"] if one["name"] == "ranking processes")
    assert line["value"] == 1
    assert told["lines"][0]["constants"]["hold_list"] == "900 µs"


def test_the_constants_that_ship_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed_json(capsys, "--requests", "10000", "--learner", "hybrid")
    assert "cores" in told["machine"]
    assert told["lines"]


def test_a_machine(capsys: pytest.CaptureFixture[str], file: str) -> None:
    asked = (
        "machine",
        "--cores",
        "2",
        "--workers",
        "1",
        "--workers",
        "4",
        "--clicks-per-list",
        "0",
        "--constants",
        file,
    )
    told = printed_json(capsys, *asked, "--sender")
    assert [(one["workers"], one["limit"]) for one in told] == [(1, "processes"), (4, "cores")]
    assert "what ends it" in printed(capsys, *asked)


def test_a_simulation(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    asked = ("simulate", "--requests", "300", "--seconds", "6", "--machines", "3", "--constants", file)
    told = printed_json(capsys, *asked, "--lose", "0.33", "--at", "3", "--figure", str(tmp_path / "lost.svg"))
    assert len(told["seconds"]) == 6
    assert told["fleet"]["machines"] == 3
    assert sum(one["retried"] for one in told["seconds"]) > 0
    assert "<svg" in (tmp_path / "lost.svg").read_text()
    assert "under way" in printed(capsys, *asked, "--surge", "1.5")


def test_what_is_wrong_is_told_in_a_line(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    assert "requests is -1.0; give a number" in refused(capsys, "--requests", "-1")
    assert "no learner 'nsgd'" in refused(capsys, "--learner", "nsgd", "--constants", file)
    assert "check the path" in refused(capsys, "--constants", str(tmp_path / "none.json"))
    assert "lose is 1.0" in refused(capsys, "simulate", "--lose", "1", "--constants", file)
    assert "store is 'x.db'; give sqlite or a postgresql:// URL" in refused(
        capsys, "measure", "o.json", "--store", "x.db"
    )
    assert "turns is 0" in refused(capsys, "measure", "o.json", "--turns", "0")
