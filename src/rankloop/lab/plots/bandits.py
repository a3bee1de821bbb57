"""The figures of the click bandits' papers: regret over time, and against what makes a problem hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array
from rankloop.lab.plots.cells import Cell, Results, estimate
from rankloop.lab.plots.learning import COLOURS, STYLE, _matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Regret(NamedTuple):
    """Regret over the rounds, with its standard error (NaN where there is none)."""

    rounds: Array
    mean: Array
    error: Array


class Dots(NamedTuple):
    """A number a run, the line through them, and a group that gives each its colour."""

    x: Array
    y: Array
    group: Array
    line: tuple[float, float] | None = None  # slope, intercept


def _panels(titles: Sequence[str], width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * len(titles) + 0.4, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, loc="left", color="#222222")
    return figure, axes


def regret_over_time(panels: Mapping[str, Mapping[str, Regret]]) -> Figure:
    """A panel a click model, a line a learner, both axes logarithmic; bands are one standard error: Figures 1 and 2."""
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    if not labels:
        raise InvalidParameter("there is no regret to draw; run some learners first")
    with _matplotlib().rc_context(STYLE):
        figure, axes = _panels(list(panels), 3.7, 3.3)
        handles = {}
        for panel, lines in zip(axes, panels.values(), strict=True):
            for label, regret in lines.items():
                colour = COLOURS[labels.index(label) % len(COLOURS)]
                (handles[label],) = panel.plot(regret.rounds, regret.mean, color=colour, label=label)
                low, high = regret.mean - regret.error, regret.mean + regret.error
                floor = regret.mean.min() / 10  # a band may reach below 0, which a logarithm does not have
                if np.isfinite(low).all():
                    panel.fill_between(regret.rounds, low.clip(floor), high, color=colour, alpha=0.2, linewidth=0)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("rounds")
        axes[0].set_ylabel("regret")
        figure.legend([handles[label] for label in labels], labels, loc="outside lower center", ncols=3)
    return figure


def regret_against(panels: Mapping[str, Dots], over_time: Mapping[str, Regret], titles: tuple[str, str]) -> Figure:
    """Regret of single runs against |V0|, a panel a click model, and over time for several examination probabilities
    in a last panel: Figure 3. `titles` are the x axis of the first panels and the title of the last."""
    with _matplotlib().rc_context(STYLE):
        figure, axes = _panels([*panels, titles[1]], 3.1, 3.0)
        for panel, dots in zip(axes, panels.values(), strict=False):
            colours = [COLOURS[int(group) % len(COLOURS)] for group in dots.group]
            panel.scatter(dots.x, dots.y, s=9, c=colours, alpha=0.7, linewidths=0)
            if dots.line:
                ends = np.array([dots.x.min(), dots.x.max()])
                panel.plot(ends, dots.line[0] * ends + dots.line[1], color="#333333", linewidth=1.2)
            panel.set_xlabel(titles[0])
            panel.set_ylim(bottom=0)
        last = axes[-1]
        for i, (label, regret) in enumerate(over_time.items()):
            last.plot(regret.rounds, regret.mean, color=COLOURS[i % len(COLOURS)], label=label)
        last.set_yscale("log")
        last.set_xlabel("rounds")
        last.legend(loc="lower right", fontsize=7)
        axes[0].set_ylabel("regret")
    return figure


def pooled(results: Results, part: str, data: str = "") -> dict[str, dict[str, Regret]]:
    """Model -> learner -> regret over the rounds: of one query, or of all, which are then clusters."""
    panels: dict[str, dict[str, Regret]] = {}
    found = results.runs(part, "regret")
    for label in dict.fromkeys(label for _, label in found):
        for user in dict.fromkeys(cell.user for cell, _ in found):
            runs = {
                (cell.data, seed): run
                for (cell, name), units in found.items()
                if (name, cell.user) == (label, user) and data in ("", cell.data)
                for (_, seed), run in units.items()
            }
            if runs:
                rounds = next(iter(runs.values())).rounds
                ends = [estimate({unit: run.values[i] for unit, run in runs.items()}) for i in range(rounds.size)]
                line = Regret(rounds, np.array([e.value for e in ends]), np.array([e.error for e in ends]))
                panels.setdefault(user, {})[label] = line
    return panels


def hard(results: Results, who: str) -> Figure:
    """Figure 3: regret of single lists against |V0|, and over time where the last positions are seldom examined."""
    panels = {}
    for cell in results.cells("regret", "regret", pooled=True):
        wrong, regret = (results.values("regret", name, who, Cell("", cell.user)) for name in ("wrong", "regret"))
        names = list(dict.fromkeys(data for data, _ in wrong))
        x, y = np.array([wrong[unit] for unit in wrong]), np.array([regret[unit] for unit in wrong])
        group = np.array([names.index(data) for data, _ in wrong])
        own = [np.flatnonzero(group == g) for g in range(len(names))]
        slopes = [float(np.polyfit(x[mine], y[mine], 1)[0]) for mine in own if np.unique(x[mine]).size > 2]
        slope = float(np.mean(slopes)) if slopes else 0.0
        panels[cell.user] = Dots(x, y, group, (slope, float(y.mean() - slope * x.mean())) if slopes else None)
    lines = pooled(results, "examination").get("PBM", {})
    return regret_against(panels, lines, ("pairs that start the wrong way round, |V0|", "PBM, last examined"))
