"""The results of a sweep: a journal to which each finished run is added at once, and the Parquet file made of it.

`pairrank.parquet` has a row for each run and checkpoint; beside it, `pairrank.parquet.runs` has a line of JSON for each
finished run and is what an interrupted sweep goes on from. A line that was being written when the machine died is
ignored. Where only the Parquet file is there, the journal is made from it.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankloop import __version__, codec, statistics
from rankloop.errors import DataError
from rankloop.lab.runs.probes import BLOCK_RANKS
from rankloop.lab.runs.workers import Result
from rankloop.types import Array

Row = dict[str, Any]

_TEXT = (
    "run",
    "learner",
    "label",
    "data",
    "user",
    "params",
    "delays",
    "world",
    "evaluate_on",
    "probes",
    "version",
    "conventions",
)
_WHOLE = ("rounds", "k", "seed", "evaluations", "round")
_BLOCKS = (*(f"block_size@{rank}" for rank in (*BLOCK_RANKS, "middle", "last")), "blocks")
_ONLINE = ("online.cndcg", "online.ndcg", "online.regret", "online.window_ndcg", "online.recovery")
# every file has these columns, whichever probes ran; other measures come after them
_MEASURES = (*_ONLINE, "offline.ndcg@10", "cosine", *_BLOCKS)
_SETTINGS = ("rounds", "k", "gamma", "delays", "world", "evaluate_on")  # what may tell two runs of one label apart


# -- rows and files ------------------------------------------------------------------------------------------------


def rows_of(record: Result) -> list[Row]:
    """A record's rows, each with the version that made it and what its numbers mean."""
    made = {"version": __version__, "conventions": json.dumps(record.conventions)}
    return [{**row, **made} for row in record.rows()]


def journal_of(out: Path) -> Path:
    """Where the finished runs of the sweep that ends in `out` are kept."""
    return out.with_name(f"{out.name}.runs")


def append(out: Path, rows: Sequence[Row]) -> None:
    """Add a finished run to the journal; when this returns, it is on the disk."""
    with journal_of(out).open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the line before was cut off: close it, so that this one stands alone
                file.write(b"\n")
        file.write(json.dumps(rows, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def finished_runs(out: Path) -> dict[str, list[Row]]:
    """Run id -> rows, of all that this version of rankloop has already carried out for the sweep."""
    if not journal_of(out).exists() and out.exists():
        for rows in _by_run(read_results(out)).values():
            append(out, rows)
    if not journal_of(out).exists():
        return {}
    found: dict[str, list[Row]] = {}
    with journal_of(out).open("rb") as file:
        for line in file:
            try:
                rows = json.loads(line)
                found.update({rows[0]["run"]: rows} if rows[0]["version"] == __version__ else {})
            except (ValueError, LookupError, TypeError):  # cut off
                continue
    return found


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table whose columns do not depend on which probes ran; what a run did not measure is null."""
    rows = [{"world": "stationary", **row} for row in rows]  # runs from before there were other worlds say nothing
    known = {*_TEXT, *_WHOLE, *_MEASURES, "gamma", "seconds", "rounds_per_second"}
    others = sorted({name for row in rows for name in row} - known)
    fields = [pa.field(name, pa.string()) for name in _TEXT] + [pa.field(name, pa.int64()) for name in _WHOLE]
    numbers = ["gamma", "seconds", "rounds_per_second", *_MEASURES, *others]
    fields += [pa.field(name, pa.float64()) for name in numbers]
    conventions = sorted({row["conventions"] for row in rows if row.get("conventions")})
    about = {"rankloop.version": __version__, "rankloop.conventions": f"[{', '.join(conventions)}]"}
    return pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata=about))


def write_results(out: Path, table: pa.Table) -> None:
    """Put a table at `out`, whole or not at all."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    codec.write(out, buffer.getvalue())


def read_results(path: Path) -> pa.Table:
    """The table that a sweep wrote."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: not a Parquet file that can be read ({error}); give the file of a sweep") from None
    missing = {"run", "label", "data", "user", "seed", "round"} - set(table.column_names)
    if missing:
        raise DataError(f"{path}: no column {', '.join(sorted(missing))}; give the Parquet file that a sweep wrote")
    return table


def relabelled(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The table with labels replaced by the names that figures and tables should show, in the order of `names`."""
    order = {name: i for i, name in enumerate(dict.fromkeys(names.values()))}
    shown = [names.get(label, label) for label in table["label"].to_pylist()]
    position = np.argsort([order.get(name, len(order)) for name in shown], kind="stable")
    column = table.column_names.index("label")
    return table.set_column(column, "label", pa.array(shown, pa.string())).take(position)


def _by_run(table: pa.Table) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = {}
    for row in table.to_pylist():
        runs.setdefault(row["run"], []).append({name: value for name, value in row.items() if value is not None})
    return runs


# -- means over seeds ----------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A measure over the rounds of one learner: its mean over seeds and the standard error of that mean."""

    rounds: Array  # (c,)
    mean: Array  # (c,) NaN where no seed has a value
    error: Array  # (c,) NaN where fewer than two seeds have one
    seeds: int
    values: dict[int, Array]  # seed -> (c,)


def curves(table: pa.Table, measure: str) -> dict[tuple[str, str, str], Curve]:
    """(data, user, label) -> curve, in the table's order; learners without the measure are left out.

    Where runs of one label differ in another setting, such as k or the delays, the label says which they have.
    """
    if measure not in table.column_names:
        return {}
    runs: dict[tuple[str, str, str], dict[int, dict[int, float]]] = {}
    columns = {name: table[name].to_pylist() for name in ("data", "user", "seed", "round", measure)}
    keys = zip(columns["data"], columns["user"], _series(table), strict=True)
    for key, seed, at, value in zip(keys, columns["seed"], columns["round"], columns[measure], strict=True):
        runs.setdefault(key, {}).setdefault(seed, {})[at] = np.nan if value is None else value
    found = {key: _mean(seeds) for key, seeds in runs.items()}
    return {key: curve for key, curve in found.items() if np.isfinite(curve.mean).any()}


def summarise(table: pa.Table, measures: Sequence[str]) -> list[Row]:
    """Where each learner ended: mean and standard error over seeds of each measure, for each (data, user, label).

    >>> rows = [{"run": str(s), "data": "d", "user": "u", "label": "a", "seed": s, "round": 9, "cosine": c}
    ...         for s, c in enumerate((0.2, 0.4))]
    >>> row, = summarise(table_of(rows), ["cosine"])
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


def _mean(seeds: Mapping[int, Mapping[int, float]]) -> Curve:
    rounds = sorted({at for values in seeds.values() for at in values})
    found = {seed: np.array([values.get(at, np.nan) for at in rounds]) for seed, values in seeds.items()}
    matrix = np.array(list(found.values()))
    curve = statistics.means(np.where(np.isfinite(matrix), matrix, np.nan))
    return Curve(np.array(rounds), curve.value, curve.error, len(seeds), found)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
