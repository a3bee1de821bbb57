"""Results of runs: means over seeds and folds, frames, new names, files that are none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rankloop.core.errors import DataError, RankloopError
from rankloop.evaluation.statistics import paired
from rankloop.lab.runs.results import curves, read_results, summarize, table_of
from rankloop.lab.runs.trial import Trial, run

TINY = "synthetic:mq2008?queries=20&vali=4&test=6&features=6"


def rows(label: str, values: dict[int, list[float | None]], **more: Any) -> list[dict[str, Any]]:
    """A row for each seed and round 1, 2, …"""
    return [
        {
            "run": f"{label}{seed}",
            "data": "d",
            "user": "u",
            "label": label,
            "seed": seed,
            "round": i + 1,
            "cosine": v,
            **more,
        }
        for seed, series in values.items()
        for i, v in enumerate(series)
    ]


def test_means_and_standard_errors() -> None:
    table = table_of(rows("a", {0: [0.0, 1.0], 1: [0.0, 2.0], 2: [0.0, 6.0]}) + rows("b", {0: [0.5, 0.7]}))
    a, b = summarize(table, ["cosine", "blocks"])
    assert (a["label"], a["seeds"], a["round"], a["cosine"]) == ("a", 3, 2, 3.0)
    # deviations -2, -1, 3: variance 14 / 2, standard error √(7 / 3)
    assert a["cosine ±"] == pytest.approx((7 / 3) ** 0.5)
    assert (b["cosine"], b["cosine ±"], b["blocks"]) == (0.7, None, None)


def test_a_seed_without_a_value_does_not_count() -> None:
    table = table_of(rows("a", {0: [float("nan"), 1.0], 1: [0.5, 2.0], 2: [None, 3.0]}) + rows("b", {0: [None, None]}))
    found = curves(table, "cosine")
    assert list(found) == [("d", "u", "a")]
    assert found["d", "u", "a"].mean.tolist() == [0.5, 2.0]
    assert np.isnan(found["d", "u", "a"].error[0])
    assert found["d", "u", "a"].error[1] == pytest.approx(1 / 3**0.5)


def test_runs_that_differ_in_a_setting_are_not_mixed() -> None:
    table = table_of(rows("a", {0: [1.0]}, k=5) + rows("a", {0: [3.0]}, k=10))
    assert [(row["label"], row["cosine"]) for row in summarize(table, ["cosine"])] == [
        ("a [k=5]", 1.0),
        ("a [k=10]", 3.0),
    ]


def test_folds_of_a_data_set_are_clusters() -> None:
    """Runs of a fold share its queries: six runs of three folds say no more than three numbers."""
    folds: dict[str, dict[int, list[float | None]]] = {
        "1": {0: [1.0], 1: [1.0]},
        "2": {0: [2.0], 1: [2.0]},
        "3": {0: [6.0], 1: [6.0]},
    }
    table = table_of(row for fold, seeds in folds.items() for row in rows("a", seeds, data=f"set?fold={fold}&vali=0.2"))
    (row,) = summarize(table, ["cosine"])
    assert (row["data"], row["seeds"], row["cosine"]) == ("set?vali=0.2", 6, 3.0)
    assert row["cosine ±"] == pytest.approx((7 / 3) ** 0.5)  # as of 1, 2, 6
    ((_, curve),) = curves(table, "cosine").items()
    assert curve.clusters[("2", 1)] == "2"
    assert paired(
        {run: v[-1] for run, v in curve.values.items()}, dict.fromkeys(curve.values, 0.0), curve.clusters
    ).error == (pytest.approx((7 / 3) ** 0.5))
    (one,) = curves(table_of(rows("a", folds["1"], data="set?fold=1")), "cosine").values()
    assert (list(one.values), one.error.tolist()) == ([0, 1], [0.0])


def test_a_record_as_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(Trial("pdgd", TINY, rounds=30, evaluations=3))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RankloopError, match="to_pandas needs pandas"):
        record.to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert [row["round"] for row in record.to_pandas()] == record.at.tolist()


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no", "utf-8")
    with pytest.raises(DataError, match=r"text.parquet: not a Parquet file"):
        read_results(tmp_path / "text.parquet")
    pq.write_table(table_of([]).select(["run"]), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="no column data, label"):
        read_results(tmp_path / "other.parquet")
