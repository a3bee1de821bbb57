"""The experiment of the paper on non-stationary dueling bandits (Lu et al., section 6), and its claims.

Every base learner and the meta learner over it serve users of whom three in ten have all labels swapped: Table 2 and
Figure 1. PM²L, the meta learner over PDGD that the paper leaves as an open question, runs beside them. The second part
is not in the paper: tastes that change at once and then stay, where recovering can be measured, and DM²L against DBGD
at several fixed rates.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rankloop.lab.papers.nonstationary_report import write
from rankloop.lab.papers.nonstationary_settings import (
    CONTENDERS,
    DBGD,
    DM2L,
    EVERY,
    FULL,
    GAMMA,
    QUICK,
    RATES,
    WORLD,
    Scale,
)
from rankloop.lab.runs.results import relabelled
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.workers import OnEvent


def reproduce(
    out: Path,
    data: list[str] | None = None,
    quick: bool = False,
    processes: int = 1,
    on_event: OnEvent | None = None,
) -> Path:
    """Run the experiment into the folder `out`, or go on with it; returns the path of the report."""
    scale = QUICK if quick else FULL
    if data:
        scale = replace(scale, data=tuple(data), tracking_data=tuple(data[:2]))
    return carry_out_at(scale, Path(out), processes, on_event)


def carry_out_at(scale: Scale, out: Path, processes: int = 1, on_event: OnEvent | None = None) -> Path:
    """The experiment at any scale: Table 2, then tastes that change at once; draw, judge, write."""
    trials, names = table_trials(scale)
    table = relabelled(carry_out(trials, out / "nonstationary.parquet", processes, on_event), names)
    return write(out, scale, table, _tracking(scale, out, processes, on_event))


def table_trials(scale: Scale) -> tuple[list[Trial], dict[str, str]]:
    """The runs of Table 2, and what each of their labels is called in it."""
    made = {
        (contender.name, data, user, seed): Trial(
            contender.learner,
            data,
            user,
            contender.params(scale.rounds),
            scale.rounds,
            seed=seed,
            gamma=GAMMA,
            world=WORLD,
            probes=("memory",),
        )
        for data in scale.data
        for user in scale.users
        for seed in range(scale.seeds)
        for contender in CONTENDERS
    }
    names = {made[c.name, scale.data[0], scale.users[0], 0].label: c.name for c in CONTENDERS}
    return list(made.values()), names


def _tracking(scale: Scale, out: Path, processes: int, on_event: OnEvent | None) -> pa.Table:
    rounds = scale.tracking_rounds
    fixed: list[tuple[str, str, dict[str, Any]]] = [(f"{DBGD}, {rate:g}", "dbgd", {"rate": rate}) for rate in RATES]
    trials, names = [], {}
    for name, learner, params in [(DM2L, "dm2l", {"horizon": rounds}), *fixed]:
        made = [
            Trial(learner, data, user, params, rounds, seed=seed, gamma=GAMMA, world=f"piecewise?every={EVERY}")
            for data in scale.tracking_data
            for user in scale.users
            for seed in range(scale.tracking_seeds)
        ]
        trials += made
        names[made[0].label] = name
    return relabelled(carry_out(trials, out / "tracking.parquet", processes, on_event), names)
