"""The figures of the online learning-to-rank papers, from the results of a sweep.

Each function returns a matplotlib `Figure` made without any global state; `save` writes it as PNG and SVG, the same
bytes every time. A row of panels for each data set, a column for each user, and one legend for all of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rankloop.core import files
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.types import Array
from rankloop.lab.runs.probes import BLOCK_RANKS
from rankloop.lab.runs.results import Curve, curves
from rankloop.lab.runs.tracking import WINDOWS
from rankloop.lab.worlds.world import change_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "offline.ndcg@10": "held-out NDCG@10",
    "online.cndcg": "cumulative NDCG",
    "online.ndcg": "mean NDCG shown",
    "online.regret": "sum of 1 - NDCG shown",  # not DR(T) of the dueling papers, which counts lost duels
    "online.misordered": "mis-ordered pairs, summed",
    "regret": "regret",
    "online.window_ndcg": "NDCG shown, over time",
    "online.recovery": "rounds to recover",
    "cosine": "cosine to the offline model",
    "average_regret": "average regret",
    "blocks": "blocks",
    "certain@10": "certain pairs of the first ten",
    "state_bytes": "bytes of state",
    "ms_per_round": "milliseconds a round",
    "unsafe": "unsafe lists",
    "harmful": "harmful changes",
}
# Okabe and Ito's colours, told apart with any kind of colour vision, without the yellow that paper swallows
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E", "#8C564B")
MARKS = {"offline": ("#333333", (0, (4, 2))), "random": ("#999999", (0, (1, 1.5)))}  # what learners are compared with
CHANGE: dict[str, Any] = {"color": "#777777", "linestyle": (0, (1, 2)), "linewidth": 0.9, "zorder": 1}
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",  # text stays text: smaller, searchable, read aloud
    "svg.hashsalt": "rankloop",  # ids would be random otherwise
    "xtick.color": "#555555",
    "xtick.labelsize": 8,
    "ytick.color": "#555555",
    "ytick.labelsize": 8,
}
_DPI = 160  # of the PNG: sharp at twice the width of a README

_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}  # the same bytes on every day

Lines = Mapping[tuple[str, str], Mapping[str, Curve]]  # (data, user) -> what the legend says -> curve


def title_of(measure: str) -> str:
    """What figures and tables call a measure.

    >>> title_of("cosine"), title_of("block_size@5"), title_of("regret.ndcg")
    ('cosine to the offline model', 'block size at rank 5', 'regret.ndcg')
    """
    rank = measure.removeprefix("block_size@")
    return TITLES.get(measure, measure if rank == measure else f"block size at rank {rank}")


# -- the papers' figures -------------------------------------------------------------------------------------------


def learning_curves(table: pa.Table, measure: str, *, log_x: bool = False) -> Figure:
    """A measure over the rounds, a line a learner: Figures 3, 4 and 5 of PairRank, by measure.

    `measure` is "offline.ndcg@10", "online.cndcg", "cosine" or any other column of the table. Where all runs are of one
    world, dotted lines mark its changes.
    """
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    for (data, user, label), curve in curves(table, measure).items():
        lines.setdefault((data, user), {})[label] = curve
    nothing = f"no run has a value of {measure!r}"
    return _grid(lines, title_of(measure), log_x=log_x, nothing=nothing, changes=_changes(table))


def comparison(table: pa.Table) -> Figure:
    """Held-out and cumulative NDCG side by side, for one data set and one user: what `rankloop compare` draws.

    In a world that changes: NDCG over time, as shown and held out, and the regret, with dotted lines at the changes.
    """
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    changing = bool(curves(table, "online.window_ndcg"))
    over_time = ("online.window_ndcg", "offline.ndcg@10", "online.regret")
    for measure in over_time if changing else ("offline.ndcg@10", "online.cndcg"):
        for (_, _, label), curve in curves(table, measure).items():
            lines.setdefault((TITLES[measure], ""), {})[label] = curve
    return _grid(lines, "", log_x=False, nothing="no run has any NDCG", across=True, changes=_changes(table))


def paired_bars(panels: Mapping[str, Mapping[str, float]], pairs: Mapping[str, str]) -> Figure:
    """Two bars for each pair of learners, a panel a quantity: Figure 1 of the paper on non-stationary dueling bandits.

    `panels` is title -> label -> value, `pairs` is a learner's label -> that of the one made from it.
    """
    shown = [pair for pair in pairs.items() if all(label in panel for panel in panels.values() for label in pair)]
    if not shown:
        raise InvalidParameter("no pair of learners has values; there is nothing to draw")
    matplotlib = _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * len(panels) + 0.6, 0.5 * len(shown) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, (title, values) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            for row, pair in enumerate(shown):
                for j, label in enumerate(pair):
                    at, value = row + 0.4 * j - 0.2, values[label]
                    axes.barh(at, value, height=0.36, color=COLOURS[j])
                    axes.annotate(f" {label} {value:.3g}", (value, at), va="center", fontsize=8)
            axes.set_yticks([])
            axes.invert_yaxis()
            axes.margins(x=0.45)
            axes.set_xlabel(title)
    return figure


def block_sizes(table: pa.Table, label: str, *, log_x: bool = True) -> Figure:
    """The size of one learner's blocks at ranks 1, 5 and 10 over the rounds: Figure 6 of PairRank."""
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    for rank in BLOCK_RANKS:
        for (data, user, found), curve in curves(table, f"block_size@{rank}").items():
            if found == label:
                lines.setdefault((data, user), {})[f"rank {rank}"] = curve
    return _grid(lines, "documents in the block", log_x=log_x, log_y=True, nothing=f"{label!r} has no block sizes")


def block_counts(table: pa.Table, label: str, *, log_x: bool = True) -> Figure:
    """The number of one learner's blocks over the rounds, a line a user: Figure 7b of PairRank."""
    return by_user(table, "blocks", label, "blocks in a list", log_x=log_x)


def profiles(panels: Mapping[str, Mapping[str, tuple[Array, Array]]], x: str, y: str) -> Figure:
    """Plain lines (x, y) by panel and label, on a logarithmic y axis: Figure 7a of PairRank."""
    if not panels:
        raise InvalidParameter("there are no lines to draw; run something that measures them")
    matplotlib = _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(panels) + 0.6, 3.0), layout="constrained")
        FigureCanvasAgg(figure)
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
            for i, (label, points) in enumerate(lines.items()):
                axes.plot(*points, color=COLOURS[i % len(COLOURS)], label=label)
            axes.set_title(title, loc="left", color="#222222")
            axes.set_xlabel(x)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
        all_axes[0].set_ylabel(y)
        all_axes[-1].legend(loc="upper right")
    return figure


def by_user(table: pa.Table, measure: str, label: str, title: str, *, log_x: bool = False) -> Figure:
    """A measure of one learner over the rounds, a line a user, the data sets side by side: Figure 6 of olRankNet."""
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    counted = {key: curve for key, curve in curves(table, measure).items() if key[2] == label}
    users = short_names(user for _, user, _ in counted)
    for (data, user, _), curve in counted.items():
        lines.setdefault((data, ""), {})[users[user]] = curve
    return _grid(lines, title, log_x=log_x, nothing=f"{label!r} has no {measure}", across=True)


def scatter(panels: Mapping[str, tuple[Array, Array]], most: int = 1500) -> Figure:
    """Points (N, 2) of different kinds (N,), a panel a data set: Figure 3 of olRankNet. At most `most` are drawn."""
    matplotlib = _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(panels) + 0.6, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, (points, kinds)) in zip(all_axes, panels.items(), strict=True):
            some = np.linspace(0, len(kinds) - 1, min(most, len(kinds))).astype(np.int64)
            for i, kind in enumerate(np.unique(kinds[some])):
                mine = some[kinds[some] == kind]
                axes.scatter(*points[mine].T, s=7, alpha=0.6, linewidths=0, color=COLOURS[i % len(COLOURS)], label=kind)
            axes.set_title(title, loc="left", color="#222222")
            axes.set_xlabel("first discriminant")
        all_axes[0].set_ylabel("second discriminant")
        all_axes[-1].legend(title="grade", loc="upper right", handletextpad=0.2, frameon=True)
    return figure


def save(figure: Figure, stem: Path | str) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg, each whole or not at all, and say where they are."""
    written = Path(f"{stem}.png"), Path(f"{stem}.svg")
    for path in written:
        save_as(figure, path)
    return written


def save_as(figure: Figure, path: Path) -> None:
    """Write one file, whole or not at all, of the kind that its name ends in."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InvalidParameter(f"{path} ends in {path.suffix!r}; figures are written as .png or .svg")
    buffer = io.BytesIO()
    with _matplotlib().rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, buffer.getvalue())


# -- panels --------------------------------------------------------------------------------------------------------


def _grid(
    lines: Lines,
    title: str,
    *,
    nothing: str,
    log_x: bool,
    log_y: bool = False,
    across: bool = False,
    changes: Sequence[int] = (),
) -> Figure:
    """Panels for all (data, user), rows by columns; `across` puts the data sets side by side instead."""
    if not lines:
        raise InvalidParameter(f"{nothing}; there is nothing to draw")
    matplotlib = _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datas, users = _distinct(key[0] for key in lines), _distinct(key[1] for key in lines)
    labels = _distinct(label for panel in lines.values() for label in panel)
    looks, data_names, user_names = _looks(labels), short_names(datas), short_names(users)
    shape = (1, len(datas)) if across else (len(datas), len(users))
    rows_of_legend = -(-len(labels) // max(2, 2 * shape[1]))
    columns_of_legend = -(-len(labels) // rows_of_legend)
    size = (max(4.6, 3.1 * shape[1] + 0.5), 2.35 * shape[0] + 0.45 + 0.22 * rows_of_legend)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(*shape, squeeze=False, sharex=True, sharey=False if across else "row")
        for i, data in enumerate(datas):
            for j, user in enumerate(users):
                axes = panels[0, i] if across else panels[i, j]
                _panel(axes, lines.get((data, user), {}), looks, log_x, log_y)
                for change in changes:
                    axes.axvline(change, label="_change", **CHANGE)
                if i == 0 or across:
                    axes.set_title(data_names[data] if across else user_names[user], loc="left", color="#222222")
                if across or i == len(datas) - 1:
                    axes.set_xlabel("rounds (dotted: the world changes)" if changes else "rounds")
                if (i if across else j) == 0:
                    axes.set_ylabel(title if across or len(datas) == 1 else f"{data_names[data]}\n{title}")
        for row in panels if log_y else ():
            top = max(axes.dataLim.y1 for axes in row)
            row[0].set_ylim(0.9, 1.2 * top)  # a block has one document at least
        handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        figure.legend(
            [handles[label] for label in labels],
            labels,
            loc="outside lower center",
            ncols=columns_of_legend,
            handlelength=2.2,
            columnspacing=1.6,
        )
    return figure


def _panel(axes: Axes, panel: Mapping[str, Curve], looks: Mapping[str, Any], log_x: bool, log_y: bool) -> None:
    from matplotlib.ticker import LogLocator

    for label, curve in panel.items():
        look = looks[label]
        axes.plot(curve.rounds, curve.mean, label=label, **look)
        if curve.seeds > 1:
            low, high = curve.mean - curve.error, curve.mean + curve.error
            axes.fill_between(curve.rounds, low, high, color=look["color"], alpha=0.18, linewidth=0)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")  # 100, not 10²
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.margins(x=0.02)


def _changes(table: pa.Table) -> list[int]:
    """The rounds to mark; none where runs of several worlds are drawn together, or lines would hide the curves."""
    worlds = set(table["world"].to_pylist()) if "world" in table.column_names else set()
    if len(worlds) != 1:
        return []
    changes = change_points(worlds.pop(), max(table["round"].to_pylist()))
    return [int(change) for change in changes] if len(changes) < WINDOWS else []


def _looks(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and stroke of each label; what is only a mark to compare with is grey and broken."""
    looks: dict[str, dict[str, Any]] = {}
    learners = 0
    for label in labels:
        mark = next((look for word, look in MARKS.items() if label.lower().startswith(word)), None)
        if mark:
            looks[label] = {"color": mark[0], "linestyle": mark[1], "linewidth": 1.3}
        else:
            stroke = ("-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)))[learners // len(COLOURS) % 3]
            looks[label] = {"color": COLOURS[learners % len(COLOURS)], "linestyle": stroke, "zorder": 3}
            learners += 1
    return looks


def short_names(specs: Iterable[str]) -> dict[str, str]:
    """Specs as titles show them: the last folder of a path, and of the options as few as tell them apart.

    >>> short_names(["synthetic:mslr?queries=50", "data/MSLR-WEB10K?fold=1&k=5", "data/MSLR-WEB10K?fold=2&k=5"])
    {'synthetic:mslr?queries=50': 'synthetic:mslr',
     'data/MSLR-WEB10K?fold=1&k=5': 'MSLR-WEB10K?fold=1',
     'data/MSLR-WEB10K?fold=2&k=5': 'MSLR-WEB10K?fold=2'}
    """
    specs = _distinct(specs)
    folders = {spec: spec.partition("?")[0].rstrip("/").rpartition("/")[2] for spec in specs}
    found = {}
    for spec, name in folders.items():
        options = [_options(other) for other in specs if folders[other] == name]
        shared = set(options[0]).intersection(*options)
        own = [[option for option in given if option not in shared] for given in options]
        most = max(map(len, own))
        enough = (n for n in range(most) if len({tuple(given[:n]) for given in own}) == len(own))
        kept = [option for option in _options(spec) if option not in shared][: next(enough, most)]
        found[spec] = "?".join(filter(None, (name, "&".join(kept))))
    return found


def _options(spec: str) -> list[str]:
    return list(filter(None, spec.partition("?")[2].split("&")))


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _matplotlib() -> Any:
    """Imported when a figure is drawn: it takes half a second and is not needed to run anything."""
    try:
        import matplotlib
    except ImportError:
        raise RankloopError("figures need matplotlib; install it with: pip install 'rankloop[lab]'") from None
    return matplotlib
