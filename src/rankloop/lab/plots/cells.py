"""Results cell by cell: values of single runs, from which claims and tables are estimated.

A cell is a data set and a user, a unit is a run of it. Folds of one data set (`path?fold=2`) share a cell and are its
clusters; if pooled, so are all data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rankloop.core.errors import DataError
from rankloop.core.types import Array
from rankloop.evaluation.statistics import Estimate, clustered, mean
from rankloop.lab.runs.results import without_fold

Unit = tuple[str, int]  # cluster, seed
Values = dict[Unit, float]


class Cell(NamedTuple):
    """Where runs belong."""

    data: str
    user: str


class Reading(NamedTuple):
    """One number of a run's curve: its name, and how it is found from (c,) rounds and (c,) values."""

    name: str
    of: Callable[[Array, Array], float]


class Run(NamedTuple):
    """A measure of one run over its rounds."""

    rounds: Array
    values: Array


# -- readings --------------------------------------------------------------------------------------------------------

END = Reading("", lambda _, values: float(values[-1]))
LOG2 = Reading(", log2", lambda _, values: float(np.log2(values[-1])) if values[-1] > 0 else np.nan)


def after(share: float) -> Reading:
    """The last value within that share of the rounds."""
    return Reading(f" after {share:.0%} of the rounds", lambda rounds, values: float(values[_at(rounds, share)]))


def by_round(last: int) -> Reading:
    """The last value up to a round."""
    return Reading(f" by round {last:,}", lambda rounds, values: float(values[_at(rounds, last / rounds[-1])]))


def rise(share: float) -> Reading:
    """How much the end is above the value after that share of the rounds."""
    name = f", at the end less after {share:.0%} of the rounds"
    return Reading(name, lambda rounds, values: float(values[-1] - values[_at(rounds, share)]))


def mean_until(share: float = 1.0) -> Reading:
    """The mean over the checkpoints up to that share of the rounds."""
    name = f", mean over the first {share:.0%} of the rounds" if share < 1 else ", mean over the rounds"
    return Reading(name, lambda rounds, values: float(np.mean(values[: _at(rounds, share) + 1])))


def growth(little: float = 0.0) -> Reading:
    """The power of the rounds by which a sum grew over their last decade: 1 is linear, 0 is not at all.

    One that ends below `little` a round has not grown to speak of.

    >>> growth().of(np.array([10, 100]), np.array([3.0, 30.0]))
    1.0
    """

    def of(rounds: Array, values: Array) -> float:
        begin = _at(rounds, 0.1)
        if values[-1] <= little * rounds[-1]:
            return 0.0
        if rounds[begin] == rounds[-1] or values[begin] <= 0:
            return np.nan
        return float(np.log(values[-1] / values[begin]) / np.log(rounds[-1] / rounds[begin]))

    return Reading(", growth over the last decade of rounds (1 is linear)", of)


def _at(rounds: Array, share: float) -> int:
    return max(int(np.searchsorted(rounds, share * rounds[-1] * (1 + 1e-12), side="right")) - 1, 0)


# -- values ----------------------------------------------------------------------------------------------------------


class Results:
    """The tables of an experiment's parts, as values of runs."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self.tables = tables
        self._runs: dict[tuple[str, str], dict[tuple[Cell, str], dict[Unit, Run]]] = {}

    def runs(self, part: str, measure: str) -> dict[tuple[Cell, str], dict[Unit, Run]]:
        """(cell, label) -> unit -> run, of the runs that have the measure."""
        if (part, measure) not in self._runs:
            self._runs[part, measure] = _runs(self.tables[part], measure) if part in self.tables else {}
        return self._runs[part, measure]

    def cells(self, part: str, measure: str, users: Sequence[str] = (), pooled: bool = False) -> list[Cell]:
        """The cells that have the measure, of these users or of all; pooled, one a user."""
        found = [cell for cell, _ in self.runs(part, measure) if not users or cell.user in users]
        return list(dict.fromkeys(cell._replace(data="") if pooled else cell for cell in found))

    def values(self, part: str, measure: str, label: str, cell: Cell, reading: Reading = END) -> Values:
        """Unit -> the reading of its run; a cell without data is all data sets of the user, each a cluster."""
        found = {}
        for (where, name), runs in self.runs(part, measure).items():
            if name == label and where.user == cell.user and cell.data in ("", where.data):
                for (fold, seed), run in runs.items():
                    unit = (fold if cell.data else where.data + fold, seed)
                    found[unit] = reading.of(run.rounds, run.values)
        return {unit: value for unit, value in found.items() if np.isfinite(value)}


def estimate(values: Values) -> Estimate:
    """The mean, with an error that allows for runs of one cluster going together."""
    clusters = [cluster for cluster, _ in values]
    return clustered(list(values.values()), clusters) if len(set(clusters)) > 1 else mean(list(values.values()))


def _runs(table: pa.Table, measure: str) -> dict[tuple[Cell, str], dict[Unit, Run]]:
    if measure not in table.column_names:
        return {}
    found: dict[tuple[Cell, str], dict[Unit, list[tuple[int, float]]]] = {}
    names = ("data", "user", "label", "seed", "round", measure)
    for data, user, label, seed, at, value in zip(*(table[name].to_pylist() for name in names), strict=True):
        if value is not None and np.isfinite(value):
            whole, fold = without_fold(data)
            found.setdefault((Cell(whole, user), label), {}).setdefault((fold, seed), []).append((at, value))
    return {key: {unit: _run(points) for unit, points in units.items()} for key, units in found.items()}


def _run(points: list[tuple[int, float]]) -> Run:
    points = sorted(points)
    if len({at for at, _ in points}) < len(points):
        raise DataError(f"round {points[0][0]} stands twice in one run; are two learners called by one name?")
    return Run(np.array([at for at, _ in points]), np.array([value for _, value in points]))
