"""Tables of where learners ended and how their regret grew, as lines of a paper's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from rankloop.evaluation.statistics import Estimate
from rankloop.lab.plots.cells import END, Cell, Reading, Results, estimate, growth
from rankloop.lab.plots.figures import short_names
from rankloop.lab.plots.report import Table, plus_minus


@dataclass(frozen=True)
class Ends:
    """A measure at the end of the runs: users and learners down, data sets across; pooled, users across.

    `over` is a learner -> the one that it is built on: a row says by how much of the other's value it is above.
    """

    caption: str
    measure: str
    _: KW_ONLY
    part: str = "main"
    digits: int = 3
    pooled: bool = False
    reading: Reading = END
    over: Mapping[str, str] = field(default_factory=dict)
    who: tuple[str, ...] = ()  # all, if none is named

    def table(self, results: Results) -> Table:
        """Mean ± standard error over the runs."""
        cells = results.cells(self.part, self.measure, pooled=self.pooled)
        labels = list(dict.fromkeys(label for _, label in results.runs(self.part, self.measure)))
        labels = [label for label in labels if not self.who or label in self.who]
        users = list(dict.fromkeys(cell.user for cell in cells))
        if self.pooled:
            rows = [(label, *(self._cell(results, label, Cell("", user)) for user in users)) for label in labels]
            return Table(f"{self.caption}, mean ± standard error (queries are clusters)", ("learner", *users), rows)
        names, rows = short_names(cell.data for cell in cells), []
        for user in users:
            for label in labels:
                rows.append((user, label, *(self._cell(results, label, Cell(data, user)) for data in names)))
                if label in self.over:
                    more = [self._more(results, label, Cell(data, user)) for data in names]
                    rows.append((user, f"{label} over {self.over[label]}", *more))
        return Table(f"{self.caption}, mean ± standard error", ("user", "learner", *names.values()), rows, words=2)

    def _cell(self, results: Results, label: str, cell: Cell) -> str:
        values = results.values(self.part, self.measure, label, cell, self.reading)
        return _shown(estimate(values), self.digits) if values else "–"

    def _more(self, results: Results, label: str, cell: Cell) -> str:
        meta, base = (
            np.mean(list(results.values(self.part, self.measure, name, cell, self.reading).values()) or [np.nan])
            for name in (label, self.over[label])
        )
        return f"{100 * (meta / base - 1):+.1f}%" if np.isfinite(meta / base) else "–"


@dataclass(frozen=True)
class Growth:
    """A sum at several rounds of each run, and the power of the rounds by which it grew over their last decade."""

    caption: str
    measure: str
    _: KW_ONLY
    part: str
    rounds: tuple[int, ...]

    def table(self, results: Results) -> Table:
        """Means over the runs; learners that know the horizon have one column each."""
        rows, found = [], results.runs(self.part, self.measure)
        names = short_names(cell.data for cell, _ in found)
        for (cell, label), runs in found.items():
            at = {t: [run.values[run.rounds == t] for run in runs.values()] for t in self.rounds}
            means = {t: np.mean(np.concatenate(values)) for t, values in at.items() if sum(v.size for v in values)}
            powers = estimate(results.values(self.part, self.measure, label, cell, growth()))
            power = _shown(powers, 2) if np.isfinite(powers.value) and len(means) > 1 else "–"
            cells = [f"{means[t]:,.0f}" if t in means else "" for t in self.rounds]
            rows.append((names[cell.data], label, *cells, power))
        columns = ("world", "learner", *(f"{t:,}" for t in self.rounds), "∝ T^")
        return Table(self.caption, columns, rows, words=2)


def _shown(found: Estimate, digits: int) -> str:
    return plus_minus(found.value, found.error, digits)
