"""Sweeps: read from TOML, carried out once, stopped and gone on with, alone and in parallel."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rankloop
from rankloop.core.errors import DataError, InvalidParameter, RankloopError, UnknownName
from rankloop.lab.runs.bandit_trial import BanditTrial
from rankloop.lab.runs.record import Record
from rankloop.lab.runs.results import finished_runs, journal_of, read_results
from rankloop.lab.runs.sweep import Event, load_sweep, run_trials
from rankloop.lab.runs.trial import Trial, run
from tests.waiting import wait_for

TINY = "synthetic:mq2008?queries=20&vali=4&test=6&features=6"
OTHER = "synthetic:mq2007?queries=15&vali=4&test=6&features=6&docs=12"

SWEEP = f"""
name = "small"
[shared]
rounds = 40
seeds = 2
evaluations = 3
[vary]
data = ["{TINY}", "{OTHER}"]
user = ["perfect", "navigational"]
[[learners]]
name = "pdgd"
label = "PDGD"
params = {{ rate = 0.05 }}
[[learners]]
name = "random"
"""


def small(count: int = 4, **settings: Any) -> list[Trial]:
    return [Trial("pdgd", TINY, rounds=30, evaluations=3, seed=seed, **settings) for seed in range(count)]


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def bits(table: pa.Table) -> list[str]:
    """All that a run determines, which leaves out how long it took; as texts, in which NaN equals NaN."""
    return [repr(row) for row in table.drop_columns(["seconds", "rounds_per_second"]).to_pylist()]


@pytest.fixture
def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the runs that are really carried out in this process."""
    ran: list[str] = []

    def counted(trial: Trial, *rest: Any) -> Record:
        ran.append(trial.id)
        return run(trial, *rest)

    monkeypatch.setattr("rankloop.lab.runs.trial.run", counted)
    return ran


# -- sweeps as data ------------------------------------------------------------------------------------------------


def test_a_sweep_is_the_product_of_what_varies(tmp_path: Path) -> None:
    sweep = load_sweep(written(tmp_path / "any.toml", SWEEP))
    assert sweep.name == "small"
    assert len(sweep.trials) == 2 * 2 * 2 * 2  # data, users, learners, seeds
    assert len({trial.id for trial in sweep.trials}) == len(sweep.trials)
    assert {trial.seed for trial in sweep.trials} == {0, 1}
    assert {trial.rounds for trial in sweep.trials} == {40}
    assert sweep.names["pdgd(rate=0.05)"] == "PDGD"


def test_seeds_may_be_listed_and_the_file_names_the_sweep(tmp_path: Path) -> None:
    text = SWEEP.replace("seeds = 2", "seeds = [7, 3]\nprobes = ['closeness']").replace('name = "small"', "", 1)
    sweep = load_sweep(written(tmp_path / "mine.toml", text))
    assert sweep.name == "mine"
    assert {trial.seed for trial in sweep.trials} == {3, 7}
    assert sweep.trials[0].probes == ("closeness",)


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("rounds = 40", "round = 40", InvalidParameter, ["'round'", "rounds"]),
        ("rounds = 40", "rounds = 'many'", InvalidParameter, ["rounds", "many", "whole number"]),
        ("rounds = 40", "rounds = true", InvalidParameter, ["rounds", "True"]),
        ("rounds = 40", "rounds = 0", InvalidParameter, ["rounds", "0"]),
        ("rounds = 40", "probes = [1]", InvalidParameter, ["no probe is called 1"]),
        ("seeds = 2", "seeds = 0", InvalidParameter, ["seeds", "0"]),
        ("seeds = 2", "seeds = [1, 1]", InvalidParameter, ["seeds", "different"]),
        ("seeds = 2", "seeds = ['a']", InvalidParameter, ["seed", "a"]),
        ("seeds = 2", "seeds = 2\nuser = 'perfect'", InvalidParameter, ["user", "[shared]", "[vary]"]),
        ('"perfect", "nav', '"prefect", "nav', UnknownName, ["prefect", "perfect"]),
        ('user = ["perfect", "navigational"]', 'user = "perfect"', InvalidParameter, ["user", "list"]),
        ('name = "pdgd"', 'name = "pdgt"', UnknownName, ["pdgt", "pdgd"]),
        ("rate = 0.05", "speed = 1", InvalidParameter, ["speed", "rate"]),
        ('name = "random"', 'name = "pdgd"\nparams = { rate = 0.05 }', InvalidParameter, ["twice"]),
        ('label = "PDGD"', "color = 1", InvalidParameter, ["color", "label"]),
        ('name = "random"', 'name = "random"\nlabel = "PDGD"', InvalidParameter, ["'PDGD'", "two learners"]),
        ("[vary]", "[varied]", InvalidParameter, ["varied", "vary"]),
        ("[shared]", "[shared", DataError, ["TOML"]),
    ],
)
def test_a_wrong_sweep_is_told_before_anything_runs(
    tmp_path: Path, old: str, new: str, error: type[RankloopError], words: list[str]
) -> None:
    path = written(tmp_path / "wrong.toml", SWEEP.replace(old, new))
    assert path.read_text() != SWEEP
    with pytest.raises(error) as caught:
        load_sweep(path)
    for word in [*words, "wrong.toml"]:
        assert word in str(caught.value)


# -- carrying them out ---------------------------------------------------------------------------------------------


def test_results_are_one_file_with_a_row_for_each_run_and_checkpoint(tmp_path: Path) -> None:
    trials = [*small(2, probes=("closeness",)), Trial("random", TINY, rounds=30, evaluations=3)]
    out = tmp_path / "new" / "folder" / "some.parquet"
    table = run_trials(trials, out)
    assert bits(read_results(out)) == bits(table)
    assert table.num_rows == 3 * 3
    rows = table.to_pylist()
    assert [row["run"] for row in rows[::3]] == [trial.id for trial in trials]
    assert np.isfinite(rows[2]["cosine"])
    assert rows[-1]["cosine"] is None  # not measured, which is not the same as not a number
    metadata = pq.read_schema(out).metadata
    assert metadata[b"rankloop.version"] == rankloop.__version__.encode()
    assert "gain 2^grade - 1" in json.loads(metadata[b"rankloop.conventions"])[0]["online.ndcg"]


def test_nothing_is_run_twice(tmp_path: Path, count_runs: list[str]) -> None:
    out = tmp_path / "some.parquet"
    first = run_trials(small(2), out)
    events: list[Event] = []
    second = run_trials(small(4), out, on_event=events.append)
    assert count_runs == [trial.id for trial in small(4)]
    assert second.slice(0, first.num_rows).equals(first)
    assert [event.kind for event in events[:3]] == ["kept", "kept", "progress"]
    assert (events[1].done, events[1].runs, events[1].share) == (2, 4, 0.5)
    shares = [event.share for event in events]
    assert shares == sorted(shares)
    assert (events[-1].done, shares[-1]) == (4, 1.0)
    run_trials(small(4), out)
    assert len(count_runs) == 4


def test_a_run_that_was_being_written_when_the_machine_died_is_repeated(tmp_path: Path, count_runs: list[str]) -> None:
    out = tmp_path / "some.parquet"
    whole = run_trials(small(2), out)
    content = journal_of(out).read_bytes()
    out.unlink()
    journal_of(out).write_bytes(content[:-40])
    again = run_trials(small(2), out)
    assert count_runs[2:] == [small(2)[1].id]
    assert again["offline.ndcg@10"].equals(whole["offline.ndcg@10"])
    assert len(finished_runs(out)) == 2


def test_ctrl_c_leaves_what_is_done(tmp_path: Path, count_runs: list[str]) -> None:
    out = tmp_path / "some.parquet"

    def impatient(event: Event) -> None:
        if event.kind == "progress" and "seed=2" in event.trial.id:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_trials(small(4), out, on_event=impatient)
    assert set(read_results(out)["seed"].to_pylist()) == {0, 1}
    run_trials(small(4), out)
    assert count_runs == [trial.id for trial in (*small(3), *small(4)[2:])]


def test_a_failing_run_does_not_lose_the_others(tmp_path: Path) -> None:
    trials = [
        *small(1),
        Trial("pdgd", "synthetic:none", rounds=30),
        Trial("pdgd", TINY, rounds=30, params={"rate": "x"}),
    ]
    events: list[Event] = []
    with pytest.raises(RankloopError) as caught:
        run_trials([*trials, *small(2)], tmp_path / "some.parquet", on_event=events.append)
    said = str(caught.value)
    assert "2 of 4 runs failed" in said
    assert all(trial.id in said for trial in trials[1:])
    assert "some.parquet" in said
    assert set(read_results(tmp_path / "some.parquet")["seed"].to_pylist()) == {0, 1}
    assert [event.kind for event in events].count("failed") == 2
    assert all(event.reason for event in events if event.kind == "failed")


def test_an_error_that_is_ours_brings_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Record:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr("rankloop.lab.runs.trial.run", broken)
    with pytest.raises(RankloopError, match="ZeroDivisionError: by accident") as caught:
        run_trials(small(1), tmp_path / "some.parquet")
    assert "in broken" in caught.value.__notes__[0]


def test_two_learners_with_one_label_are_refused_before_anything_runs(tmp_path: Path) -> None:
    def called(learner: str, **more: Any) -> BanditTrial:
        settings = {"models": "generated", "model": "CM", "query": "1", "rounds": 1000, **more}
        return BanditTrial("Best", learner, **settings)

    out = tmp_path / "some.parquet"
    with pytest.raises(
        InvalidParameter, match=r"label 'Best' stands for two learners, toprank\(\) and cascade-ucb1\(\)"
    ):
        run_trials([called("toprank"), called("cascade-ucb1")], out)
    with pytest.raises(InvalidParameter, match=r"toprank\(\) and toprank\(horizon=5\)"):
        run_trials([called("toprank"), called("toprank", params={"horizon": 5})], out)
    twins = [Trial("pdgd", TINY, params={"rate": 1, "decay": value}) for value in ("1", 1)]
    with pytest.raises(InvalidParameter, match="two different runs are called"):
        run_trials(twins, out)
    assert not out.exists()


# -- several processes ---------------------------------------------------------------------------------------------


def test_processes_give_the_same_bits_and_survive_a_failing_run(tmp_path: Path) -> None:
    trials = [
        Trial(learner, data, rounds=40, evaluations=3, seed=seed, probes=("closeness",))
        for data in (TINY, OTHER)
        for learner in ("pdgd", "greedy")
        for seed in range(2)
    ]
    before = dict(os.environ)
    events: list[Event] = []
    one = run_trials(trials, tmp_path / "one.parquet")
    with pytest.raises(RankloopError, match=r"1 of 9 runs failed.*\n.*synthetic:none"):
        run_trials([Trial("pdgd", "synthetic:none"), *trials], tmp_path / "two.parquet", 2, events.append)
    assert bits(one) == bits(read_results(tmp_path / "two.parquet"))
    assert dict(os.environ) == before
    kinds = Counter(event.kind for event in events)
    assert kinds == {"finished": 8, "failed": 1}
    assert events[-1].share == 1.0


@dataclass(frozen=True)
class Endless:
    """A run that writes the id of its process into a file and does not end."""

    file: str
    data: str = ""
    rounds: int = 1

    @property
    def id(self) -> str:
        return self.file

    def run(self, _on_progress: Any = None) -> Record:
        Path(self.file).write_text(str(os.getpid()))
        while True:
            time.sleep(0.01)


def process_of(trial: Endless) -> int:
    """The process that runs it, when it does."""
    file = Path(trial.file)
    return int(wait_for(lambda: file.read_text() if file.exists() else "", "the run to begin"))


@pytest.mark.slow
def test_a_process_that_dies_costs_its_run_only(tmp_path: Path) -> None:
    endless = Endless(str(tmp_path / "pid"))
    killer = threading.Thread(target=lambda: os.kill(process_of(endless), signal.SIGKILL))
    killer.start()
    with pytest.raises(RankloopError, match="1 of 4 runs failed") as caught:
        run_trials([endless, *small(3)], tmp_path / "some.parquet", 2)
    killer.join()
    assert "the process died" in str(caught.value)
    assert set(read_results(tmp_path / "some.parquet")["seed"].to_pylist()) == {0, 1, 2}


@pytest.mark.slow
def test_ctrl_c_stops_the_processes(tmp_path: Path) -> None:
    endless = Endless(str(tmp_path / "pid"))

    def impatient(event: Event) -> None:
        assert event.kind == "finished"
        process_of(endless)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_trials([*small(1), endless], tmp_path / "some.parquet", 2, impatient)
    pid = process_of(endless)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the process to end")
    assert read_results(tmp_path / "some.parquet").num_rows == 3
