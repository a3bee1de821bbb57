"""Runs of the learners of grades as data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.lab.runs.grades_trial import GradesTrial
from rankloop.lab.runs.sweep import run_trials

DATA = "synthetic:mq2008?queries=20&docs=8&features=6&vali=1&test=1"
ITEMS = GradesTrial(
    "items", "rtopk-items", "corrupted?items=6&relevant=2", {"grades": 1}, rounds=400, checkpoints=(100, 400)
)
SURROGATE = GradesTrial(
    "surrogate", "rtopk", DATA, {"surrogate": "squared", "radius": 20.0}, rounds=200, checkpoints=(200,)
)
NDCG = GradesTrial("ndcg", "rtopk", DATA, {"surrogate": "kl"}, rounds=300, seed=7)


@pytest.mark.slow
def test_runs_are_the_same_in_other_processes(tmp_path: Path) -> None:
    trials = [ITEMS, SURROGATE, NDCG]
    here, there = (run_trials(trials, tmp_path / f"{n}.parquet", n) for n in (1, 2))
    timed = ("seconds", "rounds_per_second")
    assert here.drop_columns(timed).equals(there.drop_columns(timed))
    assert set(here["run"].to_pylist()) == {trial.id for trial in trials}


def test_each_measure_has_a_row_a_checkpoint() -> None:
    first, last = ITEMS.run().rows()
    assert (first["round"], last["round"]) == (100, 400)
    assert last["average_regret"] == pytest.approx(last["regret"] / 400)
    assert last["regret"] == last["regret.dcg"] > first["regret"] > 0
    (row,) = SURROGATE.run().rows()
    assert 0 <= row["regret"] <= row["loss"]
    rows = NDCG.run().rows()
    assert [row["round"] for row in rows] == NDCG.at.tolist()
    assert all(0 < row["online.ndcg"] < 1 for row in rows)
    assert np.all(np.diff(NDCG.at) > 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measure": "clicks"}, "measure is 'clicks'"),
        ({"rounds": 0}, "rounds is 0"),
        ({"checkpoints": (5, 900)}, "they must lie within"),
    ],
)
def test_what_cannot_be_run_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        GradesTrial(**{"measure": "items", "learner": "rtopk-items", "data": "corrupted", "rounds": 10, **change})  # type: ignore[arg-type]
