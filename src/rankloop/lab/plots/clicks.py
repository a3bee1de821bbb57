"""The position-bias curve as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array
from rankloop.lab.plots import learning as figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def position_curves(curves: Mapping[str, tuple[Array, Array | None]]) -> Figure:
    """How often each rank is looked at: label -> chances by rank, with standard errors where there are some.

    >>> figure = position_curves({"pbm": (np.array([1.0, 0.5]), None)})
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [1.0, 0.5]
    """
    if not curves:
        raise InvalidParameter("there are no curves to draw; name a log or a fitted model")
    matplotlib = figures._matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for number, (label, (chances, error)) in enumerate(curves.items()):
            ranks, colour = np.arange(1, len(chances) + 1), figures.COLOURS[number % len(figures.COLOURS)]
            axes.plot(ranks, chances, marker="o", markersize=3.5, color=colour, label=label)
            if error is not None:
                axes.fill_between(ranks, chances - error, chances + error, color=colour, alpha=0.18, linewidth=0)
        axes.set_ylim(bottom=0.0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("rank")
        axes.set_ylabel("examination")
        axes.legend()
    return figure
