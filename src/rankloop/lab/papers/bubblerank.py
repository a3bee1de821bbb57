"""The experiments of BubbleRank (Li et al., section 5), and their claims.

BubbleRank from a random list and from CascadeKL-UCB's, CascadeKL-UCB and BatchRank serve the queries of click models
for ten million rounds: Figures 1 and 2; TopRank, which is younger than the paper, runs beside them. Regret against the
number of pairs that start the wrong way round, and against how seldom the last position is examined: Figure 3. How many
lists were unsafe is counted in shorter runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankloop.errors import DataError
from rankloop.lab.papers.bubblerank_report import write
from rankloop.lab.papers.bubblerank_settings import (
    BUBBLE0,
    CONTENDERS,
    FULL,
    MODELS,
    POWERS,
    QUICK,
    SAFETY_ROUNDS,
    Scale,
)
from rankloop.lab.runs.bandit_trial import BanditTrial
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.workers import OnEvent
from rankloop.lab.users.bandit_models import Users, open_models


def reproduce(
    out: Path,
    data: list[str] | None = None,
    quick: bool = False,
    processes: int = 1,
    on_event: OnEvent | None = None,
) -> Path:
    """Run the experiment into the folder `out`, or go on with it; `data` are sources of click models."""
    scale = QUICK if quick else FULL
    if data:
        scale = replace(scale, models=tuple(data))
    return carry_out_at(scale, Path(out), processes, on_event)


def carry_out_at(scale: Scale, out: Path, processes: int = 1, on_event: OnEvent | None = None) -> Path:
    """The experiment at any scale: regret over time, seldom examined positions, safety; draw, judge, write."""
    trials = regret_trials(scale)
    table = carry_out(trials, out / "regret.parquet", processes, on_event)
    faint = carry_out(faint_trials(scale), out / "examination.parquet", processes, on_event)
    safety = carry_out(safety_trials(scale), out / "safety.parquet", processes, on_event)
    return write(out, scale, table, faint, safety)


def users_of(scale: Scale) -> dict[str, Users]:
    """Source -> the users of its that take part: CM and PBM if it has them, else all of them."""
    found: dict[str, Users] = {}
    for source in scale.models:
        users = open_models(source)
        found[source] = {model: users[model] for model in MODELS if model in users} or users
    kinds = [(model, query) for users in found.values() for model, queries in users.items() for query in queries]
    if len(set(kinds)) < len(kinds):
        twice = next(kind for kind in kinds if kinds.count(kind) > 1)
        raise DataError(f"{twice[0]} of query {twice[1]} stands in two of {', '.join(scale.models)}; give each once")
    return found


def regret_trials(scale: Scale, *, rounds: int | None = None, safety: bool = False) -> list[BanditTrial]:
    """The runs of Figures 1 and 2 and of the first two panels of Figure 3."""
    rounds = rounds or scale.rounds
    return [
        BanditTrial(
            contender.name,
            contender.learner,
            source,
            model,
            query,
            contender.params(rounds),
            contender.start,
            rounds,
            seed,
            safety=safety,
        )
        for source, users in users_of(scale).items()
        for model, queries in users.items()
        for query in queries
        for contender in CONTENDERS
        for seed in range(min(scale.runs, scale.runs_of(contender.name)) if safety else scale.runs_of(contender.name))
    ]


def safety_trials(scale: Scale) -> list[BanditTrial]:
    """Shorter runs, in which every list is looked at; all from the list that BubbleRankKL starts from."""
    trials = regret_trials(scale, rounds=min(scale.rounds, SAFETY_ROUNDS), safety=True)
    return [trial if trial.label == BUBBLE0 else replace(trial, start="warm") for trial in trials]


def faint_trials(scale: Scale) -> list[BanditTrial]:
    """The runs of the last panel of Figure 3: the best document starts where hardly anyone looks."""
    rounds = scale.faint_rounds
    return [
        BanditTrial(
            f"0.5^{power}",
            "bubblerank",
            f"fading?power={power}",
            "PBM",
            "fading",
            {"horizon": rounds},
            "given",
            rounds,
            seed,
            top=10,
        )
        for power in POWERS
        for seed in range(scale.faint_runs)
    ]
