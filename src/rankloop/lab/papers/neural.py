"""The experiment of the paper on neural rankers learned online (Jia and Wang, section 5), and its claims.

olRankNet and olLambdaRank against the paper's baselines, Figures 4, 5 and 6, and the data seen through linear
discriminants, Figure 3. As in the paper settings are chosen on the validation part of each data set, here with the same
number of tries for every learner. Networks learn by replay, a few steps a round; the paper refits on all pairs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from rankloop.lab.papers.neural_report import write
from rankloop.lab.papers.neural_settings import (
    CHOICE_SEED,
    CONTENDERS,
    FULL,
    QUICK,
    SKYLINE,
    USERS,
    Chosen,
    Contender,
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
    return carry_out_at(replace(scale, data=tuple(data)) if data else scale, Path(out), processes, on_event)


def carry_out_at(scale: Scale, out: Path, processes: int = 1, on_event: OnEvent | None = None) -> Path:
    """The experiment at any scale: choose settings, run, draw, judge, write."""
    chosen = _choose(scale, out, processes, on_event)
    trials, names = trials_of(scale, chosen)
    table = relabelled(carry_out(trials, out / "neural.parquet", processes, on_event), names)
    return write(out, scale, chosen, table)


def trials_of(scale: Scale, chosen: Chosen) -> tuple[list[Trial], dict[str, str]]:
    """The runs of the paper's figures, and what each of their labels is called in them."""
    trials = {
        (contender.name, data): [
            Trial(
                contender.learner,
                data,
                user,
                chosen[data, contender.name],
                scale.rounds,
                seed=seed,
                probes=("certain",) if contender.learner.startswith("ol") else (),
            )
            for seed in range(scale.seeds)
            for user in USERS
        ]
        for data in scale.data
        for contender in CONTENDERS  # in the order of the legends
    }
    names = {made[0].label: name for (name, _), made in trials.items()}
    return [trial for made in trials.values() for trial in made], names


def _choose(scale: Scale, out: Path, processes: int, on_event: OnEvent | None) -> Chosen:
    """(data, contender) -> the settings with the highest NDCG@10 on the vali part, mean over the users."""
    trials = {
        (data, contender.name, i, user): Trial(
            contender.learner,
            data,
            user,
            settings,
            scale.choice_rounds,
            seed=CHOICE_SEED,
            evaluate_on="vali",
            evaluations=1,
        )
        for data in scale.data
        for contender in CONTENDERS
        for i, settings in enumerate(contender.settings)
        for user in _users(contender)
    }
    table = carry_out(list(trials.values()), out / "choice.parquet", processes, on_event)
    quality = dict(zip(table["run"].to_pylist(), table["offline.ndcg@10"].to_pylist(), strict=True))

    def best(data: str, contender: Contender) -> int:
        means = [
            np.mean([quality[trials[data, contender.name, i, user].id] for user in _users(contender)])
            for i in range(len(contender.settings))
        ]
        return int(np.argmax(means))

    return {(data, c.name): c.settings[best(data, c)] for data in scale.data for c in CONTENDERS}


def _users(contender: Contender) -> tuple[str, ...]:
    """Users to choose settings for; the skyline hears nothing of them."""
    return USERS[:1] if contender.name == SKYLINE else USERS
