"""Figures of the papers, from the results of their experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array
from rankloop.lab.plots.cells import Cell, Results, after, estimate
from rankloop.lab.plots.figures import (
    Line,
    color_of,
    curve_grid,
    draw_line,
    learning_curves,
    panels,
    short_names,
)
from rankloop.lab.runs.probes import BLOCK_PERCENTILES, BLOCK_RANKS
from rankloop.lab.runs.results import Curve, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def some_curves(table: pa.Table, labels: tuple[str, ...], measure: str) -> Figure:
    """The learning curves of some labels."""
    return learning_curves(table.filter(pc.is_in(table["label"], pa.array(labels))), measure, log_x=True)


# -- PairRank ------------------------------------------------------------------------------------------------------


def block_sizes(table: pa.Table, label: str, *, log_x: bool = True) -> Figure:
    """Figure 6: the size of one learner's blocks at ranks 1, 5 and 10 over the rounds."""
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    for rank in BLOCK_RANKS:
        for (data, user, found), curve in curves(table, f"block_size@{rank}").items():
            if found == label:
                lines.setdefault((data, user), {})[f"rank {rank}"] = curve
    return curve_grid(lines, "documents in the block", log_x=log_x, log_y=True, nothing=f"{label!r} has no block sizes")


def block_profile(results: Results, label: str) -> Figure:
    """Figure 7a: the size of the block at each position of the ranking, early, later and at the end."""
    cells = results.cells("main", "blocks", ("informational",)) or results.cells("main", "blocks")[:1]
    names = short_names(cell.data for cell in cells)
    with panels(1, len(cells), (3.4 * len(cells) + 0.6, 3.0), list(names.values())) as (figure, (row,)):
        for axes, cell in zip(row, cells, strict=True):
            axes.set_yscale("log")
            for i, share in enumerate((0.01, 0.1, 1.0)):
                sizes = [
                    np.mean(list(results.values("main", f"block_size@{at}%", label, cell, after(share)).values()))
                    for at in BLOCK_PERCENTILES
                ]
                line = Line(np.array(BLOCK_PERCENTILES), np.array(sizes))
                draw_line(axes, line, f"after {share:.0%} of the rounds", color_of(i))
            axes.set_xlabel("position in the ranking, %")
            axes.yaxis.set_major_formatter("{x:g}")
        row[0].set_ylabel("documents in the block")
        row[-1].legend(loc="upper right")
    return figure


# -- olRankNet -----------------------------------------------------------------------------------------------------


def scatter(points: Mapping[str, tuple[Array, Array]], most: int = 1500) -> Figure:
    """Figure 3: points (N, 2) of different kinds (N,), a panel per data set. At most `most` are drawn."""
    with panels(1, len(points), (3.4 * len(points) + 0.6, 3.4), list(points)) as (figure, (row,)):
        for axes, (places, kinds) in zip(row, points.values(), strict=True):
            some = np.linspace(0, len(kinds) - 1, min(most, len(kinds))).astype(np.int64)
            for i, kind in enumerate(np.unique(kinds[some])):
                mine = some[kinds[some] == kind]
                axes.scatter(*places[mine].T, s=7, alpha=0.6, linewidths=0, color=color_of(i), label=kind)
            axes.set_xlabel("first discriminant")
        row[0].set_ylabel("second discriminant")
        row[-1].legend(title="grade", loc="upper right", handletextpad=0.2, frameon=True)
    return figure


# -- non-stationary dueling bandits --------------------------------------------------------------------------------


def costs(results: Results, pairs: Mapping[str, str]) -> Figure:
    """Figure 1: time and memory of each learner (a label) and of the meta learner over it."""
    measures = {"milliseconds per round": ("ms_per_round", 1.0), "kilobytes of state": ("state_bytes", 1e3)}
    ends: dict[str, dict[str, list[float]]] = {title: {} for title in measures}
    for title, (measure, unit) in measures.items():
        for (_, label), runs in results.runs("main", measure).items():
            ends[title].setdefault(label, []).extend(run.values[-1] / unit for run in runs.values())
    shown = [pair for pair in pairs.items() if all(label in values for values in ends.values() for label in pair)]
    if not shown:
        raise InvalidParameter("no pair of learners has values; there is nothing to draw")
    with panels(1, len(ends), (3.6 * len(ends) + 0.6, 0.5 * len(shown) + 0.9)) as (figure, (row,)):
        for axes, (title, values) in zip(row, ends.items(), strict=True):
            for number, pair in enumerate(shown):
                for j, label in enumerate(pair):
                    at, value = number + 0.4 * j - 0.2, float(np.mean(values[label]))
                    axes.barh(at, value, height=0.36, color=color_of(j))
                    axes.annotate(f" {label} {value:.3g}", (value, at), va="center", fontsize=8)
            axes.set_yticks([])
            axes.invert_yaxis()
            axes.margins(x=0.45)
            axes.set_xlabel(title)
    return figure


# -- BubbleRank ----------------------------------------------------------------------------------------------------


def regret_over_time(results: Results, part: str, data: str = "") -> Figure:
    """Figures 1 and 2: a panel per click model, a line per learner, both axes logarithmic, over one query or all."""
    found = _regret_lines(results, part, data)
    if not found:
        raise InvalidParameter("there is no regret to draw; run some learners first")
    labels = list(dict.fromkeys(label for lines in found.values() for label in lines))
    with panels(1, len(found), (3.7 * len(found) + 0.4, 3.3), list(found)) as (figure, (row,)):
        for axes, lines in zip(row, found.values(), strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("rounds")
            for label, line in lines.items():
                draw_line(axes, line, label, color_of(labels.index(label)))
        row[0].set_ylabel("regret")
        handles = {line.get_label(): line for axes in row for line in axes.get_lines()}
        figure.legend([handles[label] for label in labels], labels, loc="outside lower center", ncols=3)
    return figure


def regret_by_hardness(results: Results, who: str) -> Figure:
    """Figure 3: regret of single runs against |V0|, and over time where the last positions are seldom examined."""
    cells = results.cells("regret", "regret", pooled=True)
    titles = [*(cell.user for cell in cells), "PBM, last examined"]
    with panels(1, len(titles), (3.1 * len(titles) + 0.4, 3.0), titles) as (figure, (row,)):
        for axes, cell in zip(row, cells, strict=False):
            wrong, regret = (results.values("regret", name, who, Cell("", cell.user)) for name in ("wrong", "regret"))
            names = list(dict.fromkeys(data for data, _ in wrong))
            x, y = np.array([wrong[unit] for unit in wrong]), np.array([regret[unit] for unit in wrong])
            query = np.array([names.index(data) for data, _ in wrong])
            axes.scatter(x, y, s=9, c=[color_of(q) for q in query], alpha=0.7, linewidths=0)
            own = [(x[query == q], y[query == q]) for q in range(len(names))]
            slopes = [float(np.polyfit(at, value, 1)[0]) for at, value in own if np.unique(at).size > 2]
            if slopes:
                ends, slope = np.array([x.min(), x.max()]), float(np.mean(slopes))
                axes.plot(ends, slope * (ends - x.mean()) + y.mean(), color="#333333", linewidth=1.2)
            axes.set_xlabel("misordered pairs at the start, |V0|")
            axes.set_ylim(bottom=0)
        last = row[-1]
        for i, (label, line) in enumerate(_regret_lines(results, "examination").get("PBM", {}).items()):
            last.plot(line.x, line.y, color=color_of(i), label=label)
        last.set_yscale("log")
        last.set_xlabel("rounds")
        last.legend(loc="lower right", fontsize=7)
        row[0].set_ylabel("regret")
    return figure


def _regret_lines(results: Results, part: str, data: str = "") -> dict[str, dict[str, Line]]:
    """Model -> learner -> regret over the rounds: of one query, or of all, which are then clusters."""
    grouped: dict[tuple[str, str], dict[tuple[str, int], Line]] = {}
    for (cell, label), units in results.runs(part, "regret").items():
        if data in ("", cell.data):
            runs = grouped.setdefault((cell.user, label), {})
            runs |= {(cell.data, seed): Line(run.rounds, run.values) for (_, seed), run in units.items()}
    lines: dict[str, dict[str, Line]] = {}
    for (user, label), runs in grouped.items():
        rounds = next(iter(runs.values())).x
        ends = [estimate({unit: run.y[i] for unit, run in runs.items()}) for i in range(rounds.size)]
        line = Line(rounds, np.array([end.value for end in ends]), np.array([end.error for end in ends]))
        lines.setdefault(user, {})[label] = line
    return lines
