"""Figures of one paper each, from the results of its experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rankloop.core.types import Array
from rankloop.lab.plots import learning
from rankloop.lab.plots.cells import Results, after
from rankloop.lab.runs.probes import BLOCK_PERCENTILES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def block_profile(results: Results, label: str) -> Figure:
    """Figure 7a of PairRank: the size of the block at each place of the list, early, later and at the end."""
    panels: dict[str, dict[str, tuple[Array, Array]]] = {}
    cells = results.cells("main", "blocks", ("informational",)) or results.cells("main", "blocks")[:1]
    names = learning.short_names(cell.data for cell in cells)
    for cell in cells:
        for share in (0.01, 0.1, 1.0):
            sizes = [
                np.mean(list(results.values("main", f"block_size@{place}%", label, cell, after(share)).values()))
                for place in BLOCK_PERCENTILES
            ]
            points = np.array(BLOCK_PERCENTILES), np.array(sizes)
            panels.setdefault(names[cell.data], {})[f"after {share:.0%} of the rounds"] = points
    return learning.profiles(panels, "place in the list, %", "documents in the block")


def costs(pairs: Mapping[str, str]) -> Callable[[Results], Figure]:
    """Figure 1 of the dueling paper: time and memory of each learner and of the meta learner over it."""

    def draw(results: Results) -> Figure:
        panels: dict[str, dict[str, float]] = {}
        for title, measure, unit in (
            ("milliseconds a round", "ms_per_round", 1.0),
            ("kilobytes of state", "state_bytes", 1e3),
        ):
            ends: dict[str, list[float]] = {}
            for (_, label), runs in results.runs("main", measure).items():
                ends.setdefault(label, []).extend(run.values[-1] / unit for run in runs.values())
            panels[title] = {label: float(np.mean(values)) for label, values in ends.items()}
        return learning.paired_bars(panels, pairs)

    return draw
