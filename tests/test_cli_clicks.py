"""`rankloop clicks`: what it prints for people and programs, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from rankloop.cli import clicks, main
from rankloop.clicks import MODELS, load
from rankloop.clicks.readers import FORMATS
from tests.clicks.truths import pages, truth


def run(*arguments: str | Path) -> int:
    """Exit code of the command in this process."""
    try:
        main(["clicks", *map(str, arguments)])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    assert run(*arguments, "--json") == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def serps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of position-based users, with pages of 2 to 5 documents."""
    rng = np.random.default_rng(0)
    log = truth("pbm").simulate(pages(3000, rng, shortest=2), rng)
    queries, documents = log.pairs.names()
    path = tmp_path_factory.mktemp("clicks") / "serps.tsv"
    with path.open("w") as file:
        file.write("session\tquery\tdocs\tclicks\n")
        for i, n in enumerate(log.lengths):
            shown, flags = ",".join(documents[log.shown[i, :n]]), ",".join(map(str, log.clicks[i, :n]))
            file.write(f"{log.session_names[log.sessions[i]]}\t{queries[log.shown[i, 0]]}\t{shown}\t{flags}\n")
    return path


def test_the_choices_are_those_of_the_library() -> None:
    assert get_args(clicks.Model) == (*MODELS, "all")
    assert get_args(clicks.Format) == FORMATS


def test_fit_save_score_and_show(serps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "fit", serps, "--model", "pbm", "--out", tmp_path / "pbm.model", "--prior", "2")
    (row,) = found["models"]
    assert (found["log"]["pages"], found["log"]["format"], found["log"]["queries"]) == (3000, "clara", 3)
    assert row["train"]["pages"] == pytest.approx(2250, abs=1)
    assert row["train"]["pages"] + row["test"]["pages"] == 3000
    assert found["numbers"]["examination"] == pytest.approx(np.linspace(1.0, 0.3, 5), abs=0.1)
    assert load(tmp_path / "pbm.model").options()["prior"] == 2.0
    (kind,) = found["log"]["noticed"]
    assert kind.startswith("page of other than")
    assert kind.endswith("(2 to 5)")

    scored = printed(capsys, "score", tmp_path / "pbm.model", serps)
    assert scored["model"] == "pbm"
    assert len(scored["perplexity_by_rank"]) == 5
    parts = row["train"], row["test"]
    whole = sum(part["log_likelihood"] * part["pages"] for part in parts) / 3000
    assert scored["log_likelihood"] == pytest.approx(whole)

    figure = tmp_path / "bias.svg"
    bias, model = printed(capsys, "show", serps, tmp_path / "pbm.model", "--figure", figure)
    assert bias["position bias"]["examination"] == pytest.approx(np.linspace(1.0, 0.3, 5), abs=0.15)
    assert bias["position bias"]["pairs"] == 18
    assert model["average examination"] == model["examination"]
    drawn = figure.read_text()
    assert "serps.tsv" in drawn
    assert "pbm.model (pbm)" in drawn


def test_all_models_in_one_table(serps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["model"]: row for row in printed(capsys, "fit", serps, "--model", "all", "--seed", "2")["models"]}
    assert [*found] == [*MODELS]
    best = max(found, key=lambda name: found[name]["test"]["log_likelihood"])
    assert best in ("pbm", "ubm")
    assert run("fit", serps, "--model", "all", "--seed", "2") == 0
    out = capsys.readouterr().out
    for name, row in found.items():
        assert name in out
        assert f"{row['test']['perplexity']:.4f}" in out
    assert printed(capsys, "fit", serps, "--model", "all", "--seed", "3")["models"][5]["test"] != found["pbm"]["test"]


def test_tables_for_people(serps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", serps, "--model", "ubm", "--test-share", "0", "--out", tmp_path / "ubm.model") == 0
    out, err = capsys.readouterr()
    assert "3,000 pages to fit, 0 to test" in out
    assert "perplexity by rank" in out
    assert "rank of the last click" in out
    assert f"wrote {tmp_path / 'ubm.model'}" in err.replace("\n", "")
    assert run("show", tmp_path / "ubm.model", serps) == 0
    out = capsys.readouterr().out
    assert "examination" in out
    assert "±" in out
    assert run("score", tmp_path / "ubm.model", serps) == 0
    assert "given clicks above" in capsys.readouterr().out


def test_bad_lines_stop_or_are_counted(serps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = serps.read_text().splitlines()
    bad = tmp_path / "bad.tsv"
    bad.write_text("\n".join([*lines[:50], "1\tq\ta,b\t0", *lines[50:90], "nothing", *lines[90:]]))
    assert run("fit", bad, "--model", "cm") == 2
    err = capsys.readouterr().err
    assert f"{bad}, line 51: malformed line: 2 documents but 1 click flags" in err
    assert "--skip-bad" in err
    found = printed(capsys, "fit", bad, "--model", "cm", "--skip-bad")
    assert found["log"]["skipped"] == {"malformed line": {"count": 2, "lines": [51, 92]}}
    assert found["log"]["pages"] == 3000
    assert run("fit", bad, "--model", "cm", "--skip-bad") == 0
    assert "skipped: malformed line: 2 (line 51, 92)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "LOG", "--model", "all", "--out", "x"], "--out takes one model"),
        (["fit", "LOG", "--test-share", "1"], "test_share is 1.0; it must be from 0 to below 1"),
        (["fit", "LOG", "--prior", "-1"], "prior is -1.0; it must be at least 0"),
        (["fit", "LOG", "--model", "pmb"], "pmb"),
        (["fit", "nothing.tsv"], "nothing.tsv: No such file"),
        (["fit", "LOG", "--format", "jsonl"], "line 1: malformed line: not a page as JSON"),
        (["score", "LOG", "LOG"], "not a rankloop file"),
        (["show"], "give a log or a fitted model"),
        (["show", "nothing.tsv"], "nothing.tsv: No such file"),
        (["show", "LOG", "--figure", "bias.pdf"], "figures are written as .png or .svg"),
    ],
)
def test_wrong_calls_are_one_line(
    arguments: list[str], words: str, serps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(str(serps) if argument == "LOG" else argument for argument in arguments)) == 2
    err = capsys.readouterr().err.strip()
    assert words in err
    assert err.count("\n") == 0
