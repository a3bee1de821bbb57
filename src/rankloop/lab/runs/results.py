"""The results of a sweep: one Parquet file, made from a journal to which each finished run is added at once.

`pairrank.parquet` has a row for each run and checkpoint. `pairrank.parquet.runs` has a line of JSON for each finished
run, and is what an interrupted sweep continues from.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankloop import __version__
from rankloop.core import files
from rankloop.core.errors import DataError
from rankloop.core.types import Array
from rankloop.evaluation import statistics
from rankloop.lab.runs.provenance import Provenance
from rankloop.lab.runs.record import Record

Row = dict[str, Any]
_REQUIRED = ("run", "label", "data", "user", "seed", "round")
_SETTINGS = ("rounds", "k", "gamma", "delays", "world", "evaluate_on")  # what may differ between runs of one label


# -- rows and files ------------------------------------------------------------------------------------------------


def rows_of(record: Record, made: Provenance | None = None) -> list[Row]:
    """A record's rows, with the version, code and files that made it and what its numbers mean."""
    made = made or Provenance("", "")
    more = {"version": __version__, **made._asdict(), "conventions": json.dumps(record.conventions)}
    return [{**row, **more} for row in record.rows()]


def journal_of(out: Path) -> Path:
    """The journal of the sweep whose Parquet file is `out`."""
    return out.with_name(f"{out.name}.runs")


def append(out: Path, rows: Sequence[Row]) -> None:
    """Add a finished run to the journal; when this returns, it is on the disk."""
    with journal_of(out).open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the last line was cut off: end it, so that this one stands alone
                file.write(b"\n")
        file.write(json.dumps(rows, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def finished_runs(out: Path) -> dict[str, dict[Provenance, list[Row]]]:
    """Run id -> rows, for each provenance; the newest last."""
    found: dict[str, dict[Provenance, list[Row]]] = {}
    if not journal_of(out).exists():
        return found
    with journal_of(out).open("rb") as file:
        for line in file:
            try:
                rows = json.loads(line)
                made = Provenance(rows[0].get("code", ""), rows[0].get("files", ""))
                found.setdefault(rows[0]["run"], {})[made] = rows
            except (ValueError, LookupError, TypeError, AttributeError):  # cut off
                continue
    return found


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table with the columns of all of them; what a run did not measure is null."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(_REQUIRED)
    conventions = sorted({row["conventions"] for row in rows if row.get("conventions")})
    about = {"rankloop.version": __version__, "rankloop.conventions": f"[{', '.join(conventions)}]"}
    return pa.table({name: [row.get(name) for row in rows] for name in names}).replace_schema_metadata(about)


def write_results(out: Path, table: pa.Table) -> None:
    """Write a table, whole or not at all."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    files.write(out, buffer.getvalue())


def read_results(path: Path) -> pa.Table:
    """Read the table that a sweep wrote."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: not a Parquet file that can be read ({error}); give the file of a sweep") from None
    missing = set(_REQUIRED) - set(table.column_names)
    if missing:
        raise DataError(f"{path}: no column {', '.join(sorted(missing))}; give the Parquet file that a sweep wrote")
    return table


def relabeled(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The table with labels replaced by the names that figures show, in the order of `names`."""
    order = {name: i for i, name in enumerate(dict.fromkeys(names.values()))}
    shown = [names.get(label, label) for label in table["label"].to_pylist()]
    position = np.argsort([order.get(name, len(order)) for name in shown], kind="stable")
    column = table.column_names.index("label")
    return table.set_column(column, "label", pa.array(shown, pa.string())).take(position)


# -- means over runs -----------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A measure over the rounds of one learner: its mean over runs and the standard error of that mean.

    Runs differ in their seed, and where there are folds of one data set in those: then folds are clusters, since the
    runs of a fold share its queries, and a run is called (fold, seed).
    """

    rounds: Array  # (c,)
    mean: Array  # (c,) NaN where no run has a value
    error: Array  # (c,) NaN where fewer than two runs, or folds, have one
    seeds: int  # runs: seeds, or folds x seeds
    values: dict[Hashable, Array]  # run -> (c,)
    clusters: dict[Hashable, Hashable]  # run -> its fold, or the seed itself: what `statistics.paired` asks for


def curves(table: pa.Table, measure: str) -> dict[tuple[str, str, str], Curve]:
    """(data, user, label) -> curve, in the table's order; learners without the measure are left out.

    Folds of one data set are one: the key has the spec without its fold. Where runs of one label differ in another
    setting, such as k or the delays, the label says which they have.
    """
    if measure not in table.column_names:
        return {}
    runs: dict[tuple[str, str, str], dict[tuple[str, int], dict[int, float]]] = {}
    whose: dict[tuple[Any, ...], str] = {}
    columns = [table[name].to_pylist() for name in ("data", "user", "run", "seed", "round", measure)]
    for label, data, user, run, seed, at, value in zip(_series(table), *columns, strict=True):
        whole, fold = without_fold(data)
        key = (whole, user, label)
        if whose.setdefault((*key, fold, seed), run) != run:
            raise DataError(
                f"{label!r} is the name of two learners: {whose[(*key, fold, seed)]} and {run}; call one otherwise"
            )
        runs.setdefault(key, {}).setdefault((fold, seed), {})[at] = np.nan if value is None else value
    found = {key: _curve(values) for key, values in runs.items()}
    return {key: curve for key, curve in found.items() if np.isfinite(curve.mean).any()}


def without_fold(data: str) -> tuple[str, str]:
    """A data spec without its fold, and the fold.

    >>> without_fold("MSLR-WEB10K?fold=2&vali=0.2"), without_fold("synthetic:mslr")
    (('MSLR-WEB10K?vali=0.2', '2'), ('synthetic:mslr', ''))
    """
    name, _, rest = data.partition("?")
    options = [option for option in rest.split("&") if option]
    folds = [option for option in options if option.startswith("fold=")]
    others = "&".join(option for option in options if option not in folds)
    return f"{name}?{others}" if others else name, folds[0].removeprefix("fold=") if folds else ""


def summarize(table: pa.Table, measures: Sequence[str]) -> list[Row]:
    """Where each learner ended: mean and standard error over runs of each measure, for each (data, user, label).

    >>> rows = [{"run": str(s), "data": "d", "user": "u", "label": "a", "seed": s, "round": 9, "cosine": c}
    ...         for s, c in enumerate((0.2, 0.4))]
    >>> row, = summarize(table_of(rows), ["cosine"])
    >>> round(row["cosine"], 3), round(row["cosine ±"], 3), row["seeds"]
    (0.3, 0.1, 2)
    """
    found: dict[tuple[str, str, str], Row] = {}
    for measure in measures:
        for key, curve in curves(table, measure).items():
            row = found.setdefault(key, dict(zip(("data", "user", "label"), key, strict=True)))
            row["seeds"] = max(curve.seeds, row.get("seeds", 0))
            row["round"] = int(curve.rounds[-1])
            row[measure], row[f"{measure} ±"] = _number(curve.mean[-1]), _number(curve.error[-1])
    return [
        {**row, **{m: row.get(m) for measure in measures for m in (measure, f"{measure} ±")}} for row in found.values()
    ]


def _series(table: pa.Table) -> list[str]:
    """Each row's label, with those settings that differ within the table."""
    labels: list[str] = table["label"].to_pylist()
    present = {name: table[name].to_pylist() for name in _SETTINGS if name in table.column_names}
    differing = {name: values for name, values in present.items() if len(set(values)) > 1}
    if not differing:
        return labels
    settings = zip(*differing.values(), strict=True)
    said = [", ".join(f"{name}={value}" for name, value in zip(differing, row, strict=True)) for row in settings]
    return [f"{label} [{text}]" for label, text in zip(labels, said, strict=True)]


def _curve(runs: Mapping[tuple[str, int], Mapping[int, float]]) -> Curve:
    rounds = sorted({at for values in runs.values() for at in values})
    matrix = np.array([[values.get(at, np.nan) for at in rounds] for values in runs.values()])
    matrix[np.isinf(matrix)] = np.nan
    folds = [fold for fold, _ in runs]
    several = len(set(folds)) > 1
    names: list[Hashable] = [run if several else run[1] for run in runs]
    found = statistics.means(matrix)
    error = found.error
    if several:
        error = np.array([statistics.clustered(column, folds).error for column in matrix.T])
    clusters = dict(zip(names, folds if several else names, strict=True))
    values = dict(zip(names, matrix, strict=True))
    return Curve(np.array(rounds), found.value, error, len(runs), values, clusters)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
