"""Draws what a simulation saw: latency, what is taken up, and what waits, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rankloop.service.capacity.simulation import Second

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK: dict[str, Any] = {"color": "#777777", "linestyle": (0, (1, 2)), "linewidth": 0.9, "zorder": 1}


def over_time(seconds: Sequence[Second], title: str, moments: Sequence[float] = ()) -> Figure:
    """Three panels over the seconds; `moments` are marked: when machines were lost, when more came."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from rankloop.lab.plots.learning import COLOURS, STYLE, _matplotlib

    matplotlib = _matplotlib()
    at = [one.at for one in seconds]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.2, 2.9), layout="constrained")
        FigureCanvasAgg(figure)
        latency, taken, waits = figure.subplots(1, 3)
        for place, (label, values) in enumerate(
            {"p99": [1e3 * one.p99 for one in seconds], "p50": [1e3 * one.p50 for one in seconds]}.items()
        ):
            latency.plot(at, values, color=COLOURS[1 - place], label=label)
        latency.set_yscale("log")
        latency.yaxis.set_major_formatter("{x:g}")
        latency.set_title("a list takes, ms", loc="left", color="#222222")
        taken.plot(at, [one.ranking for one in seconds], color=COLOURS[0], label="processes that rank")
        taken.plot(at, [one.database for one in seconds], color=COLOURS[1], label="the database's cores")
        taken.set_ylim(0, 1.05)
        taken.set_title("taken up", loc="left", color="#222222")
        waits.plot(at, [one.waiting for one in seconds], color=COLOURS[0], label="lists under way")
        waits.plot(at, [one.lag for one in seconds], color=COLOURS[2], label="outcomes not learned yet")
        waits.set_yscale("symlog", linthresh=10)
        waits.set_ylim(bottom=0)
        waits.set_title("waiting", loc="left", color="#222222")
        for axes in (latency, taken, waits):
            axes.set_xlabel("second")
            axes.legend(loc="best", frameon=False)
            for moment in moments:
                axes.axvline(moment, **MARK)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color="#222222")
    return figure
