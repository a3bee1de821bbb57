"""Figures of results: learning curves and simple panels, in one style.

Each function returns a matplotlib `Figure` made without global state; `save` writes it, the same bytes every time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rankloop.core import files
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.types import Array
from rankloop.evaluation import statistics
from rankloop.lab.runs.interleave import Comparison
from rankloop.lab.runs.results import Curve, curves
from rankloop.lab.runs.tracking import WINDOWS
from rankloop.lab.worlds.world import change_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "offline.ndcg@10": "held-out NDCG@10",
    "online.cndcg": "cumulative NDCG",
    "online.ndcg": "online NDCG",
    "online.regret": "sum of 1 - online NDCG",  # not DR(T) of the dueling papers, which counts lost duels
    "online.misordered": "mis-ordered pairs, summed",
    "regret": "regret",
    "online.window_ndcg": "online NDCG, over time",
    "online.recovery": "rounds to recover",
    "cosine": "cosine to the offline model",
    "average_regret": "average regret",
    "blocks": "blocks",
    "certain@10": "certain pairs of the first ten",
    "state_bytes": "bytes of state",
    "ms_per_round": "milliseconds per round",
    "unsafe": "unsafe rankings",
    "harmful": "harmful changes",
}
# Okabe and Ito's colors, told apart with any kind of color vision, without yellow, which is hard to see on paper
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E", "#8C564B")
REFERENCES = {"offline": ("#333333", (0, (4, 2))), "random": ("#999999", (0, (1, 1.5)))}
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

Lines = Mapping[tuple[str, str], Mapping[str, Curve]]  # (data, user) -> label -> curve


class Line(NamedTuple):
    """Points, and a standard error of y if there is one (NaN draws none)."""

    x: Array
    y: Array
    error: Array | None = None


def title_of(measure: str) -> str:
    """What figures and tables call a measure.

    >>> title_of("cosine"), title_of("block_size@5"), title_of("regret.ndcg")
    ('cosine to the offline model', 'block size at rank 5', 'regret.ndcg')
    """
    rank = measure.removeprefix("block_size@")
    return TITLES.get(measure, measure if rank == measure else f"block size at rank {rank}")


# -- panels --------------------------------------------------------------------------------------------------------


@contextmanager
def panels(
    rows: int, columns: int, size: tuple[float, float], titles: Sequence[str] = (), **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in our style and its (rows, columns) axes; what is drawn inside the block has the style, too."""
    matplotlib = _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        for panel, title in zip(axes[0], titles, strict=False):
            panel.set_title(title, loc="left", color="#222222")
        yield figure, axes


def color_of(number: int) -> str:
    """The color of line number 0, 1, 2 …"""
    return COLORS[number % len(COLORS)]


def draw_line(axes: Axes, line: Line, label: str, color: str, **options: Any) -> None:
    """A line with a band of one standard error."""
    axes.plot(line.x, line.y, color=color, label=label, **options)
    if line.error is not None and np.isfinite(line.error).any():
        low, high = line.y - line.error, line.y + line.error
        if axes.get_yscale() == "log":  # a band may reach below 0, which a logarithm does not have
            low = low.clip(line.y.min() / 10)
        axes.fill_between(line.x, low, high, color=color, alpha=0.18, linewidth=0)


def line_figure(lines: Mapping[str, Line], x: str, y: str) -> Figure:
    """Lines in one panel."""
    if not lines:
        raise InvalidParameter("there are no lines to draw; name something that has some")
    with panels(1, 1, (5.6, 3.2)) as (figure, ((axes,),)):
        for number, (label, line) in enumerate(lines.items()):
            draw_line(axes, line, label, color_of(number))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.margins(x=0.02)
        axes.legend()
    return figure


def position_curves(examination: Mapping[str, tuple[Array, Array | None]]) -> Figure:
    """How often each rank is examined: label -> probabilities by rank, with standard errors if there are some.

    >>> figure = position_curves({"pbm": (np.array([1.0, 0.5]), None)})
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [1.0, 0.5]
    """
    lines = {label: Line(np.arange(1, len(y) + 1), y, error) for label, (y, error) in examination.items()}
    figure = line_figure(lines, "rank", "examination")
    figure.axes[0].set_ylim(bottom=0.0)
    figure.axes[0].set_xticks(np.arange(1, max(len(line.x) for line in lines.values()) + 1))
    return figure


def interleaving_figure(found: Comparison) -> Figure:
    """How the lead in credit over the first ranker settles: its running mean, and the 95 % interval as a band."""
    rounds = np.arange(1, len(found.win) + 1)
    start = min(max(9, len(rounds) // 50), len(rounds) - 1)  # few impressions would fill the panel with their band
    lines = {}
    for r in range(1, len(found.labels)):
        lead = statistics.running(found.credit[:, r] - found.credit[:, 0])
        half = (lead.interval()[1] - lead.interval()[0]) / 2
        lines[found.labels[r]] = Line(rounds[start:], lead.value[start:], half[start:])
    figure = line_figure(lines, "impressions", f"lead in credit over {found.labels[0]}")
    figure.axes[0].axhline(0.0, color="#333333", linewidth=0.8)
    return figure


# -- learning curves -----------------------------------------------------------------------------------------------


def learning_curves(table: pa.Table, measure: str, *, log_x: bool = False) -> Figure:
    """A measure (a column of the table) over the rounds: a line per learner, a panel per data set and user.

    Where all runs are of one world, dotted lines mark its changes.
    """
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    for (data, user, label), curve in curves(table, measure).items():
        lines.setdefault((data, user), {})[label] = curve
    nothing = f"no run has a value of {measure!r}"
    return curve_grid(lines, title_of(measure), log_x=log_x, nothing=nothing, changes=_changes(table))


def comparison(table: pa.Table) -> Figure:
    """Held-out and cumulative NDCG side by side, for one data set and one user: what `rankloop compare` draws.

    In a world that changes: NDCG over time, online and held-out, and the regret, with dotted lines at the changes.
    """
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    changing = bool(curves(table, "online.window_ndcg"))
    over_time = ("online.window_ndcg", "offline.ndcg@10", "online.regret")
    for measure in over_time if changing else ("offline.ndcg@10", "online.cndcg"):
        for (_, _, label), curve in curves(table, measure).items():
            lines.setdefault((TITLES[measure], ""), {})[label] = curve
    return curve_grid(lines, "", nothing="no run has any NDCG", across=True, changes=_changes(table))


def by_user(table: pa.Table, measure: str, label: str, title: str, *, log_x: bool = False) -> Figure:
    """A measure of one learner over the rounds, a line per user, the data sets side by side."""
    lines: dict[tuple[str, str], dict[str, Curve]] = {}
    counted = {key: curve for key, curve in curves(table, measure).items() if key[2] == label}
    users = short_names(user for _, user, _ in counted)
    for (data, user, _), curve in counted.items():
        lines.setdefault((data, ""), {})[users[user]] = curve
    return curve_grid(lines, title, log_x=log_x, nothing=f"{label!r} has no {measure}", across=True)


def curve_grid(
    lines: Lines,
    title: str,
    *,
    nothing: str,
    log_x: bool = False,
    log_y: bool = False,
    across: bool = False,
    changes: Sequence[int] = (),
) -> Figure:
    """Panels for all (data, user), rows by columns; `across` puts the data sets side by side instead."""
    if not lines:
        raise InvalidParameter(f"{nothing}; there is nothing to draw")
    datas, users = _distinct(key[0] for key in lines), _distinct(key[1] for key in lines)
    labels = _distinct(label for panel in lines.values() for label in panel)
    styles, data_names, user_names = _line_styles(labels), short_names(datas), short_names(users)
    rows, columns = (1, len(datas)) if across else (len(datas), len(users))
    rows_of_legend = -(-len(labels) // max(2, 2 * columns))
    size = (max(4.6, 3.1 * columns + 0.5), 2.35 * rows + 0.45 + 0.22 * rows_of_legend)
    titles = [data_names[data] for data in datas] if across else [user_names[user] for user in users]
    with panels(rows, columns, size, titles, sharex=True, sharey=False if across else "row") as (figure, grid):
        for i, data in enumerate(datas):
            for j, user in enumerate(users):
                axes = grid[0, i] if across else grid[i, j]
                _draw_panel(axes, lines.get((data, user), {}), styles, log_x, log_y)
                for change in changes:
                    axes.axvline(change, label="_change", **CHANGE)
                if across or i == len(datas) - 1:
                    axes.set_xlabel("rounds (dotted: the world changes)" if changes else "rounds")
                if (i if across else j) == 0:
                    axes.set_ylabel(title if across or len(datas) == 1 else f"{data_names[data]}\n{title}")
        for row in grid if log_y else ():
            row[0].set_ylim(0.9, 1.2 * max(axes.dataLim.y1 for axes in row))  # a block has at least one document
        handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        columns_of_legend = -(-len(labels) // rows_of_legend)
        shown: dict[str, Any] = {
            "loc": "outside lower center",
            "ncols": columns_of_legend,
            "handlelength": 2.2,
            "columnspacing": 1.6,
        }
        figure.legend([handles[label] for label in labels], labels, **shown)
    return figure


def _draw_panel(axes: Axes, panel: Mapping[str, Curve], styles: Mapping[str, Any], log_x: bool, log_y: bool) -> None:
    from matplotlib.ticker import LogLocator

    for label, curve in panel.items():
        draw_line(
            axes, Line(curve.rounds, curve.mean, curve.error if curve.seeds > 1 else None), label, **styles[label]
        )
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
    worlds = set(table["world"].to_pylist()) - {None} if "world" in table.column_names else set()
    if len(worlds) != 1:
        return []
    changes = change_points(worlds.pop(), max(table["round"].to_pylist()))
    return [int(change) for change in changes] if len(changes) < WINDOWS else []


def _line_styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Color and stroke of each label; references that learners are compared with are gray and broken."""
    styles: dict[str, dict[str, Any]] = {}
    learners = 0
    for label in labels:
        reference = next((style for word, style in REFERENCES.items() if label.lower().startswith(word)), None)
        if reference:
            styles[label] = {"color": reference[0], "linestyle": reference[1], "linewidth": 1.3}
        else:
            stroke = ("-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)))[learners // len(COLORS) % 3]
            styles[label] = {"color": color_of(learners), "linestyle": stroke, "zorder": 3}
            learners += 1
    return styles


# -- files and names -----------------------------------------------------------------------------------------------


def save(figure: Figure, stem: Path | str) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg, each whole or not at all."""
    written = Path(f"{stem}.png"), Path(f"{stem}.svg")
    for path in written:
        save_as(figure, path)
    return written


def save_as(figure: Figure, path: Path) -> None:
    """Write one file, whole or not at all, of the kind that its name ends in."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InvalidParameter(f"figure {path} ends in {path.suffix!r}; figures are written as .png or .svg")
    buffer = io.BytesIO()
    with _matplotlib().rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, buffer.getvalue())


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
