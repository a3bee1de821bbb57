"""The command line: what it prints for people and programs, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main

SMALL = ["--data", "synthetic:mq2008?queries=20&vali=5&test=8", "--rounds", "60"]


def run(*arguments: str) -> int:
    """Exit code of the command in this process."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_learners(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {entry["name"]: entry for entry in printed_json(capsys, "learners")}
    assert listed["pairrank"]["feedback"] == "clicks"
    assert listed["pairrank"]["contextual"] is True
    assert listed["random"]["contextual"] is False
    assert listed["pdgd"]["params"] == {"rate": 0.1, "decay": 0.9999977, "init": "zero", "examine_next": True}
    assert run("learners") == 0
    out = capsys.readouterr().out
    for name, entry in listed.items():
        assert name in out
        assert entry["summary"] in out


def test_simulate_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    result = printed_json(
        capsys, "simulate", "pdgd", *SMALL, "--user", "navigational?stop_requires_click=false", "--param", "rate=0.05"
    )
    assert result["learner"] == "pdgd"
    assert result["params"] == {"rate": 0.05, "decay": 0.9999977, "init": "zero", "examine_next": True}
    assert result["user"] == "navigational?stop_requires_click=false"
    assert result["rounds"] == 60
    assert result["seed"] == 0
    assert 0 < result["online"]["ndcg"] < 1
    assert 0 < result["online"]["cndcg"] < 60
    assert 0 < result["offline"]["ndcg@10"] < 1
    assert result["rounds_per_second"] > 0
    assert result["seconds"] > 0
    assert result["conventions"]["stop_requires_click"] is False


def test_parameters_may_follow_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    result = printed_json(capsys, "simulate", "pdgd?rate=0.2", *SMALL, "--param", "decay=0.9")
    assert (result["learner"], result["params"]["rate"], result["params"]["decay"]) == ("pdgd", 0.2, 0.9)
    assert printed_json(capsys, "check", "base")["ok"]


@pytest.mark.parametrize(
    ("command", "goes_on"),
    [("sweep few.toml", True), ("compare pdgd --out a.parquet", True), ("compare pdgd", False), ("replay shop", False)],
)
def test_ctrl_c_says_whether_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, goes_on: bool
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankloop.cli.build", lambda: interrupted)
    assert run(*command.split()) == 130
    said = capsys.readouterr().err
    assert "rankloop: stopped" in said
    assert ("the same command continues" in said) == goes_on


def test_several_seeds_give_means_and_standard_errors(capsys: pytest.CaptureFixture[str]) -> None:
    single = [printed_json(capsys, "simulate", "pdgd", *SMALL, "--seed", str(seed)) for seed in (3, 4)]
    both = printed_json(capsys, "simulate", "pdgd", *SMALL, "--seed", "3", "--seeds", "2")
    assert both["seeds"] == [3, 4]
    values = [result["online"]["cndcg"] for result in single]
    assert both["online"]["cndcg"] == pytest.approx(sum(values) / 2)
    assert both["standard_error"]["online"]["cndcg"] == pytest.approx(abs(values[0] - values[1]) / 2)


def test_compare_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "curves.svg"
    learners = ["pairrank", "pairrank?explore=blocks", "random"]
    assert run("compare", *learners, *SMALL, "--seeds", "2", "--figure", str(figure)) == 0
    out = capsys.readouterr().out
    assert "pairrank(explore=blocks)" in out
    assert "±" in out
    drawing = figure.read_text()
    assert "explore=blocks" in drawing
    assert "cumulative NDCG" in drawing


def test_compare_can_be_stored_and_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "some.parquet"
    asked = ["compare", "pdgd", "greedy", *SMALL, "--out", str(out), "--seeds"]
    assert run(*asked, "2") == 0
    table = capsys.readouterr().out
    assert "nothing relevant counts 0 online and is left out held-out" in " ".join(table.split())
    monkeypatch.setattr("rankloop.lab.runs.trial.run", None)  # what is stored is not run again
    assert run(*asked, "2") == 0
    assert capsys.readouterr().out == table
    assert printed_json(capsys, *asked, "2")[0]["seeds"] == [0, 1]
    assert run(*asked, "3") == 2
    assert "2 of 6 runs failed" in capsys.readouterr().err


def test_what_is_run_again_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "some.parquet"
    asked = ["simulate", "pdgd", *SMALL, "--out", str(out)]
    assert run(*asked) == 0
    journal = tmp_path / "some.parquet.runs"
    journal.write_text(journal.read_text().replace('"code":"', '"code":"x'))
    capsys.readouterr()
    assert run(*asked) == 0
    assert "outdated and run again: 1 of other code" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_do_not_change_results(capsys: pytest.CaptureFixture[str]) -> None:
    def numbers(processes: str) -> list[Any]:
        results = printed_json(capsys, "compare", "pairrank", "pdgd", *SMALL, "--processes", processes)
        return [(result["online"], result["offline"]) for result in results]

    assert numbers("1") == numbers("2")


def test_compare_shares_parameters_with_those_that_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    results = printed_json(capsys, "compare", "pdgd", "greedy", "random", *SMALL, "--param", "rate=0.3")
    assert [result["params"].get("rate") for result in results] == [0.3, 0.3, None]
    assert [result["label"] for result in results] == ["pdgd(rate=0.3)", "greedy(rate=0.3)", "random"]


def test_sweep(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(
        'name = "tiny"\n[shared]\nrounds = 30\ndata = "synthetic:mq2008?queries=10&vali=3&test=3"\n'
        '[vary]\nuser = ["perfect", "navigational"]\n[[learners]]\nname = "pdgd"\n'
    )
    assert run("sweep", str(file), "--out", str(tmp_path / "out"), "--processes", "1") == 0
    assert "navigational" in capsys.readouterr().out
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"tiny.parquet", "tiny-online.png", "tiny-online.svg", "tiny-offline.png"} <= written


def test_data_info_and_convert(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = "synthetic:mq2007?queries=6&vali=2&test=2"
    assert run("data", "convert", spec, str(tmp_path / "mq")) == 0
    capsys.readouterr()
    made, read = (printed_json(capsys, "data", "info", name) for name in (spec, str(tmp_path / "mq")))
    assert made["parts"] == read["parts"]
    assert made["parts"]["train"]["queries"] == 6
    assert run("data", "info", spec) == 0
    assert "queries" in capsys.readouterr().out


def test_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("check", "random") == 0
    assert "rules hold" in capsys.readouterr().out
    result = printed_json(capsys, "check", "base")
    assert result["ok"]
    assert len(result["checks"]) >= 19

    from rankloop.learners.baselines.random_order import RandomOrder

    monkeypatch.setattr(RandomOrder, "best", lambda self, candidates, k: [0] * k)  # noqa: ARG005
    assert run("check", "random") == 1
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "pairank"], "no learner is called 'pairank'; did you mean 'pairrank'"),
        (["simulate", "pdgd", "--param", "speed=3"], "no parameter 'speed'; it has rate, decay, init, examine_next"),
        (["simulate", "pdgd", "--param", "rate=-1"], "rate is -1; it must be above 0"),
        (["simulate", "pdgd", "--param", "rate"], "is not key=value"),
        (["simulate", "pdgd", "--user", "nobody"], "no user is called 'nobody'; there are perfect"),
        (
            ["simulate", "pdgd", "--data", "synthetic:msrl"],
            "no synthetic data set is called 'msrl'; did you mean 'mslr'?",
        ),
        (["simulate", "pdgd", "--data", "no/such/file"], "no such file or folder"),
        (["simulate", "pdgd", "--rounds", "0"], "rounds is 0; it must be at least 1"),
        (["simulate", "pdgd", "--seeds", "0"], "seeds is 0; it must be at least 1"),
        (["simulate", "pdgd", "--delays", "late?lost=3"], "lost is 3.0; it is a probability"),
        (["simulate", "pdgd", "--rounds", "many"], "many"),
        (["simulate", "pdgd", "--seed", "-1"], "seed is -1; it must be an integer of at least 0"),
        (["simulate", "pdgd", "--processes", "0", "--seeds", "2"], "processes is 0; it must be at least 1"),
        (["simulate", "pdgd", "--param", "rate=1", "--param", "rate=2"], "'rate' is given twice in 'pdgd'"),
        (["simulate", "pdgd", "--data", "synthetic:mslr?queries=9999999999"], "ask for at most 16 GB"),
        (["compare", "pdgd", "pdgd"], "is asked for twice"),
        (["compare", "pdgd", "--figure", "x.bmp"], "figures are written as .png or .svg"),
        (["check", "pdgd", "--param", "rate=-1"], "rate is -1; it must be above 0"),
        (["compare"], "no learners to compare; try: rankloop compare"),
        (["compare", "pdgd", "greedy", "--param", "epsilon=1"], "has the parameter of 'epsilon=1'"),
        (["data", "convert", "synthetic:mslr", "x.txt"], "looks like a file; give a folder for all parts"),
        (["sweep", "nowhere.toml"], "nowhere.toml: No such file"),
        (["fly"], "fly"),
    ],
)
def test_errors_are_one_line_with_the_remedy(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("rankloop: ")
    assert "\n" not in error
    assert words in error


def test_a_malformed_file_is_named_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("1 qid:1 1:0.5\n2 qid:1 1:oops\n")
    assert run("data", "info", str(bad)) == 2
    assert f"{bad}:2" in capsys.readouterr().err.replace("line ", ":").replace(", :", ":").replace(" :", ":")


def test_help_does_not_import_the_heavy_libraries() -> None:
    """Why `rankloop --help` is quick: neither numba nor matplotlib nor pyarrow nor numpy is loaded for it."""
    code = (
        "import sys\nfrom rankloop.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'numba', 'scipy', 'pyarrow', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip().endswith("[]")


def test_compile_says_how_long_it_took_and_where_the_code_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankloop.kernels import _jit
    from rankloop.service.ranking import kernel_compilation
    from rankloop.wire.rankers import Spec

    found = printed_json(capsys, "compile", "random", "pairrank?pairs=matched")
    assert found["folder"] == str(_jit.cache_folder())
    assert list(found["seconds"]) == ["random", "pairrank?pairs=matched"]
    assert found["failed"] == {}
    assert run("compile", "base") == 0
    printed = capsys.readouterr().out
    assert "1 of 1 learners" in printed
    assert str(_jit.cache_folder()) in printed
    assert run("compile", "pairank") == 2
    assert "pairrank" in capsys.readouterr().err  # did you mean

    def fail(spec: Spec) -> None:
        if spec.learner == "pdgd":
            raise RuntimeError("no compiler")

    monkeypatch.setattr(kernel_compilation, "compile_kernels", fail)
    assert run("compile", "pdgd", "base") == 1
    told = capsys.readouterr()
    assert "pdgd: RuntimeError: no compiler" in told.err
    assert "1 of 2 learners" in told.out
    monkeypatch.setattr(_jit, "cache_folder", lambda: None)
    assert run("compile", "base") == 1
    assert "it cannot be kept" in capsys.readouterr().out
