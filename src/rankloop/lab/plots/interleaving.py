"""The figure of an interleaved comparison: who leads, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankloop.evaluation import statistics
from rankloop.lab.plots import learning as figures
from rankloop.lab.runs.interleave import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawing(comparison: Comparison) -> Figure:
    """How the lead in credit over the first ranker settles: its running mean, and the 95 % interval as a band."""
    matplotlib = figures._matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rounds = np.arange(1, len(comparison.win) + 1)
    start = min(max(9, len(rounds) // 50), len(rounds) - 1)  # few impressions say nothing and would fill the panel
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(5.6, 3.0), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.axhline(0.0, color="#333333", linewidth=0.8)
        for r in range(1, len(comparison.labels)):
            lead = comparison.credit[:, r] - comparison.credit[:, 0]
            found = statistics.running(lead)
            low, high = found.interval()
            colour = figures.COLOURS[(r - 1) % len(figures.COLOURS)]
            axes.plot(rounds[start:], found.value[start:], color=colour, label=comparison.labels[r])
            axes.fill_between(rounds[start:], low[start:], high[start:], color=colour, alpha=0.18, linewidth=0)
        axes.set_xlabel("impressions")
        axes.set_ylabel(f"lead in credit over {comparison.labels[0]}")
        axes.margins(x=0.02)
        axes.legend()
    return figure
