"""Sweeps on a Dask cluster of real processes: the same results, bit for bit, whoever carries them out or dies."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankloop.cli import main
from rankloop.core.cluster import ClusterError, connect
from rankloop.core.errors import RankloopError
from rankloop.lab.runs import results, workers
from rankloop.lab.runs.bandit_trial import BanditTrial
from rankloop.lab.runs.sweep import carry_out, load_sweep
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.workers import Event, Runnable
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


@pytest.fixture(autouse=True)
def _two_workers(processes: Processes) -> None:
    """A worker that an earlier test killed has been started again."""
    processes.wait_for(2)


def some(rounds: int = 200, seeds: int = 2, **more: Any) -> list[Runnable]:
    names = ("pairrank", "pdgd", "offline-ranknet", "dbgd")
    return [Trial(name, data, rounds=rounds, seed=s, **more) for data in DATA for name in names for s in range(seeds)]


def data_sets_read() -> int:
    return workers._open_there.cache_info().misses


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


def test_the_same_parquet_though_a_worker_is_killed_in_the_middle(processes: Processes, tmp_path: Path) -> None:
    trials = [*some(trace=True), BanditTrial("BubbleRank", "bubblerank", "generated", "PBM", "3", rounds=2000)]
    local = carry_out(trials, tmp_path / "local.parquet", processes=2)
    events: list[Event] = []
    with connect(processes.address) as cluster:
        victim, *_ = cluster.everywhere(os.getpid).values()
        assert isinstance(victim, int)

        def on_event(event: Event) -> None:
            events.append(event)
            if event.kind == "started" and sum(e.kind == "started" for e in events) == 6:
                os.kill(victim, signal.SIGKILL)

        found = carry_out(trials, tmp_path / "dask.parquet", on_event=on_event, cluster=cluster)
        reads = cluster.everywhere(data_sets_read)
    assert stored(found) == stored(local) == stored(results.read_results(tmp_path / "dask.parquet"))
    traces = [stored(results.read_traces(tmp_path / name)) for name in ("local.parquet", "dask.parquet")]
    assert traces[0] == traces[1]
    ended = Counter(event.trial.id for event in events if event.kind == "finished")
    assert ended == Counter(trial.id for trial in trials)
    begun = Counter(event.trial.id for event in events if event.kind == "started")
    assert sum(begun.values()) <= len(trials) + 2, "what it was at began again, and what it had not handed over"
    assert events[-1].share == 1.0
    assert set(reads.values()) <= {0, 1, 2}, "each data set once a worker; one that came late may have read less"


def test_stopped_on_a_cluster_it_goes_on_anywhere(processes: Processes, tmp_path: Path) -> None:
    out, trials = tmp_path / "some.parquet", some(rounds=50, seeds=1)

    def impatient(event: Event) -> None:
        if event.kind == "finished" and event.done == 3:
            raise KeyboardInterrupt

    with connect(processes.address) as cluster:
        with pytest.raises(KeyboardInterrupt):
            carry_out(trials, out, on_event=impatient, cluster=cluster)
        kept: list[Event] = []
        found = carry_out(trials[:4], out, on_event=kept.append, cluster=cluster)
    assert sum(event.kind == "kept" for event in kept) == 3
    whole = carry_out(trials, out)
    assert stored(whole) == stored(carry_out(trials, None))
    assert stored(found) == stored(carry_out(trials[:4], None))


def test_a_run_that_fails_there_is_told_with_its_reason_and_costs_no_other(
    processes: Processes, tmp_path: Path
) -> None:
    bad = Trial("pdgd", DATA[0], user="grader", rounds=20, world="stationary?queries=1000")
    with connect(processes.address) as cluster, pytest.raises(RankloopError, match="1 of 3 runs failed") as failed:
        carry_out([bad, *some(rounds=20, seeds=1)[:2]], tmp_path / "some.parquet", cluster=cluster)
    with pytest.raises(RankloopError) as here:
        carry_out([bad], None)
    assert str(here.value).splitlines()[1:] == str(failed.value).splitlines()[1:]
    assert set(results.read_results(tmp_path / "some.parquet")["label"].to_pylist()) == {"pairrank", "pdgd"}


def test_workers_with_other_code_or_other_files_are_refused_by_name(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{grade} qid:{q} 1:{0.1 * grade + 0.01 * q} 2:{0.3 * q}" for q in range(1, 11) for grade in (0, 1, 2)]
    (tmp_path / "mine.txt").write_text("\n".join(rows))
    learner = (
        "from rankloop.learners.baselines.random_order import RandomOrder\n"
        "class Mine(RandomOrder):\n    '''Mine.'''\n    extra = {}\n"
    )
    (tmp_path / "mine_to_learn.py").write_text(learner.format(1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with connect(processes.address) as cluster:
        trials = [Trial("pdgd", "mine.txt", rounds=5, seed=seed) for seed in range(3)]
        with pytest.raises(ClusterError, match=r"tcp://\S+ has files none of mine\.txt instead of [0-9a-f]{24}"):
            carry_out(trials, None, cluster=cluster)
        (processes.folder / "mine.txt").write_text("\n".join(rows[:-1]))
        with pytest.raises(ClusterError, match=r"has files [0-9a-f]{24} of mine\.txt instead of [0-9a-f]{24}") as other:
            carry_out(trials, None, cluster=cluster)
        assert str(other.value).count("tcp://") == len(cluster.threads()), "a line for each worker, not for each run"
        (processes.folder / "mine.txt").write_text("\n".join(rows))
        assert stored(carry_out(trials, None, cluster=cluster)) == stored(carry_out(trials, None))

        (processes.folder / "mine_to_learn.py").write_text(learner.format(2))
        own = [Trial("mine_to_learn:Mine", DATA[0], rounds=5)]
        with pytest.raises(ClusterError, match=r"has code [0-9a-f]{24} of mine_to_learn:Mine instead of [0-9a-f]{24}"):
            carry_out(own, None, cluster=cluster)


def test_one_that_came_later_with_other_files_stops_the_sweep(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_check_workers", lambda *_: None)  # as if it had not been there yet
    (tmp_path / "later.txt").write_text("\n".join(f"{g} qid:{q} 1:{g + q}" for q in range(10) for g in (0, 1)))
    monkeypatch.chdir(tmp_path)
    with (
        connect(processes.address) as cluster,
        pytest.raises(RankloopError, match=r"tcp://\S+: it has files none of later\.txt instead of"),
    ):
        carry_out([Trial("pdgd", "later.txt", rounds=5)], None, cluster=cluster)


def test_the_commands_take_an_address(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["compare", "pairrank", "pdgd", "--data", DATA[0], "--rounds", "50", "--seeds", "2", "--json"]
    said = []
    for more in (["--processes", "1"], ["--on", processes.address]):
        assert run(*call, *more) == 0
        shown = capsys.readouterr()
        said.append([_without_times(summary) for summary in json.loads(shown.out)])
    assert said[0] == said[1]
    assert "2 workers of tcp://127.0.0.1:" in shown.err
    assert "/status" in shown.err
    sweep = "[shared]\nrounds = 30\nseeds = 2\ndata = 'synthetic:mq2008?queries=20'\n[[learners]]\nname = 'pdgd'\n"
    Path("few.toml").write_text(sweep)
    assert run("sweep", "few.toml", "--on", processes.address) == 0
    there = results.read_results(Path("results", "few.parquet"))
    assert stored(there) == stored(carry_out(load_sweep("few.toml").trials, None))
    assert run("compare", "pdgd", "--on", "somewhere") == 2
    assert "on is 'somewhere'; it must be the address of a Dask scheduler" in capsys.readouterr().err


def test_a_paper_s_experiment_takes_an_address(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = replace(TINY, drawings=())
    monkeypatch.setattr("rankloop.papers.open_paper", lambda _: paper)
    assert run("reproduce", "pairrank", "--out", str(tmp_path / "there"), "--on", processes.address) == 0
    assert "4 claims: 2 seen, 1 not seen, 1 not tested." in capsys.readouterr().out
    engine.reproduce(paper, tmp_path / "here")
    for name in ("main.parquet", "main-choice-1.parquet", "main-choice-2.parquet"):
        here, there = (stored(results.read_results(tmp_path / place / name)) for place in ("here", "there"))
        assert here == there


def test_local_workers_are_a_cluster_too(tmp_path: Path) -> None:
    trials = some(rounds=30, seeds=1)[:2]
    with connect("local:1") as cluster:
        found = carry_out(trials, tmp_path / "some.parquet", cluster=cluster)
    assert stored(found) == stored(carry_out(trials, None))


def _without_times(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in TIMES}
