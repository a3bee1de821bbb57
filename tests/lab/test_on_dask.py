"""Sweeps on a Dask cluster of real processes: the same results, bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankloop.cli import main
from rankloop.core.errors import RankloopError
from rankloop.core.executors import ClusterError, open_executor
from rankloop.lab.runs import results
from rankloop.lab.runs.bandit_trial import BanditTrial
from rankloop.lab.runs.record import Runnable
from rankloop.lab.runs.sweep import Event, load_sweep, run_trials
from rankloop.lab.runs.trial import Trial
from rankloop.papers import engine
from tests.dask_processes import Processes, dask_processes
from tests.lab.test_papers import TINY

TIMES = ("seconds", "rounds_per_second")  # of a run; all else in a file is the same
DATA = ("synthetic:mq2008?queries=40&vali=5&test=5", "synthetic:mq2007?queries=30&vali=5&test=5")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with dask_processes(tmp_path_factory.mktemp("dask"), workers=2) as started:
        yield started


def some(rounds: int = 200, seeds: int = 2) -> list[Runnable]:
    names = ("pairrank", "pdgd", "offline-ranknet", "dbgd")
    return [Trial(name, data, rounds=rounds, seed=s) for data in DATA for name in names for s in range(seeds)]


def run(*arguments: str) -> int:
    """Exit code of the command in this process."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def stored(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file, without how long runs took."""
    buffer = io.BytesIO()
    pq.write_table(table.drop_columns([name for name in TIMES if name in table.column_names]), buffer)
    return buffer.getvalue()


def test_the_parquet_file_is_the_one_of_local_processes(processes: Processes, tmp_path: Path) -> None:
    trials = [*some(), BanditTrial("BubbleRank", "bubblerank", "generated", "PBM", "3", rounds=2000)]
    local = run_trials(trials, tmp_path / "local.parquet", processes=2)
    with open_executor(cluster=processes.address) as executor:
        found = run_trials(trials, tmp_path / "dask.parquet", executor=executor)
    assert stored(found) == stored(local) == stored(results.read_results(tmp_path / "dask.parquet"))


def test_stopped_on_a_cluster_it_goes_on_anywhere(processes: Processes, tmp_path: Path) -> None:
    out, trials = tmp_path / "some.parquet", some(rounds=50, seeds=1)

    def impatient(event: Event) -> None:
        if event.kind == "finished" and event.done == 3:
            raise KeyboardInterrupt

    with open_executor(cluster=processes.address) as executor, pytest.raises(KeyboardInterrupt):
        run_trials(trials, out, on_event=impatient, executor=executor)
    kept: list[Event] = []
    whole = run_trials(trials, out, on_event=kept.append)
    assert sum(event.kind == "kept" for event in kept) == 3
    assert stored(whole) == stored(run_trials(trials, None))


def test_a_run_that_fails_there_costs_no_other(processes: Processes, tmp_path: Path) -> None:
    bad = Trial("pdgd", DATA[0], user="grader", rounds=20, world="stationary?queries=1000")
    with open_executor(cluster=processes.address) as executor, pytest.raises(RankloopError, match="1 of 3") as failed:
        run_trials([bad, *some(rounds=20, seeds=1)[:2]], tmp_path / "some.parquet", executor=executor)
    with pytest.raises(RankloopError) as here:
        run_trials([bad], None)
    assert str(here.value).splitlines()[1:] == str(failed.value).splitlines()[1:]
    assert set(results.read_results(tmp_path / "some.parquet")["label"].to_pylist()) == {"pairrank", "pdgd"}


def test_workers_with_other_code_or_other_files_are_refused(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "\n".join(f"{grade} qid:{q} 1:{grade + 0.1 * q}" for q in range(1, 11) for grade in (0, 1, 2))
    learner = (
        "from rankloop.learners.baselines.random_order import RandomOrder\n"
        "class Mine(RandomOrder):\n    '''Mine.'''\n    extra = {}\n"
    )
    (tmp_path / "mine.txt").write_text(rows)
    (tmp_path / "mine_to_learn.py").write_text(learner.format(1))
    (processes.folder / "mine_to_learn.py").write_text(learner.format(2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with open_executor(cluster=processes.address) as executor:
        trials = [Trial("pdgd", "mine.txt", rounds=5)]
        with pytest.raises(ClusterError, match="has other files none for pdgd"):
            run_trials(trials, None, executor=executor)
        (processes.folder / "mine.txt").write_text(rows)
        assert stored(run_trials(trials, None, executor=executor)) == stored(run_trials(trials, None))
        with pytest.raises(ClusterError, match=r"has other code [0-9a-f]{24} for mine_to_learn:Mine"):
            run_trials([Trial("mine_to_learn:Mine", DATA[0], rounds=5)], None, executor=executor)


def test_the_commands_take_an_address(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["compare", "pairrank", "pdgd", "--data", DATA[0], "--rounds", "50", "--seeds", "2", "--json"]
    outputs = []
    for more in (["--processes", "1"], ["--cluster", processes.address]):
        assert run(*call, *more) == 0
        shown = capsys.readouterr()
        outputs.append([_without_times(summary) for summary in json.loads(shown.out)])
    assert outputs[0] == outputs[1]
    assert "2 workers of tcp://127.0.0.1:" in shown.err
    sweep = "[shared]\nrounds = 30\nseeds = 2\ndata = 'synthetic:mq2008?queries=20'\n[[learners]]\nname = 'pdgd'\n"
    Path("few.toml").write_text(sweep)
    assert run("sweep", "few.toml", "--cluster", processes.address) == 0
    there = results.read_results(Path("results", "few.parquet"))
    assert stored(there) == stored(run_trials(load_sweep("few.toml").trials, None))
    assert run("compare", "pdgd", "--cluster", "somewhere") == 2
    paper = replace(TINY, figures=())
    monkeypatch.setattr("rankloop.papers.open_paper", lambda _: paper)
    assert run("reproduce", "pairrank", "--out", "there", "--cluster", processes.address) == 0
    engine.reproduce(paper, tmp_path / "here")
    for name in ("main.parquet", "main-choice-1.parquet", "main-choice-2.parquet"):
        one, other = (stored(results.read_results(tmp_path / place / name)) for place in ("here", "there"))
        assert one == other


def _without_times(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in TIMES}
