"""The experiments of the paper on top-k feedback (Chaudhuri and Tewari, JMLR 2017, section 4), and its claims.

Figures 1 to 3: 20 items, block counts, amounts of feedback, full information. Figures 4 and 5: four surrogates, ListNet
with all grades and random lists on data sets, the numerators of step and exploration chosen for each as in the paper.
Beside them what the paper proves and does not measure: the growth of regret up to a million rounds. All runs are
compiled (`rankloop.lab.runs.compiled_grades`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rankloop.lab.data.sources import open_split
from rankloop.lab.papers.topk_jobs import Job, Measured, Opened
from rankloop.lab.papers.topk_report import write
from rankloop.lab.papers.topk_settings import (
    BLOCKS,
    CONTENDERS,
    FEEDBACK,
    FORMULA,
    FULL,
    FULL_INFORMATION,
    HARDER,
    LEADER,
    NUMERATORS,
    QUICK,
    ROUNDS,
    SMALL,
    SMALL_RADIUS,
    TUNED,
    WORLD,
    Scale,
    blocks_label,
    feedback_label,
)
from rankloop.lab.runs.compiled_grades import Progress, run_contextual, run_items
from rankloop.lab.runs.hindsight import best_ranker, queries_drawn
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.workers import OnEvent
from rankloop.lab.worlds.item_worlds import open_sequence
from rankloop.registry import make
from rankloop.types import Array

Numerators = tuple[float, ...]
Chosen = dict[tuple[str, str], dict[str, Any]]  # (data, contender) -> parameters
_TUNING_SEEDS = (1000, 1001, 1002)  # no run that is reported has one of them
_SECOND_LOOKS = 5  # numerators of a contender that are tried at length, with all of these seeds


def reproduce(
    out: Path,
    data: list[str] | None = None,
    quick: bool = False,
    processes: int = 1,
    on_event: OnEvent | None = None,
) -> Path:
    """Run the experiments into the folder `out`, or go on with them; returns the path of the report."""
    scale = QUICK if quick else FULL
    return carry_out_at(replace(scale, data=tuple(data)) if data else scale, Path(out), processes, on_event)


def carry_out_at(scale: Scale, out: Path, processes: int = 1, on_event: OnEvent | None = None) -> Path:
    """The experiments at any scale: items, slopes, choice of numerators, data sets; draw, judge, write."""
    items = carry_out(list(item_jobs(scale)), out / "items.parquet", processes, on_event)
    slopes = carry_out(list(slope_jobs(scale)), out / "slopes.parquet", processes, on_event)
    chosen = choose(scale, out, processes, on_event)
    context = carry_out(list(context_jobs(scale, chosen)), out / "context.parquet", processes, on_event)
    return write(out, scale, items, slopes, context, chosen)


# -- Figures 1 to 3 --------------------------------------------------------------------------------------------------


def item_jobs(scale: Scale) -> Iterator[Job]:
    """Every curve of Figures 1 to 3, and ours with the block count of Corollary 10, once with the leader below."""
    fixed = {"grades": 1, "horizon": ROUNDS}
    paper = {**fixed, "below": "random"}
    curves: list[tuple[str, str, dict[str, Any]]] = [
        *((blocks_label(blocks), "rtopk-items", {**paper, "blocks": blocks}) for blocks in BLOCKS),
        *((feedback_label(top), "rtopk-items", {**paper, "blocks": 200, "top": top}) for top in FEEDBACK),
        (FULL_INFORMATION, "ftpl-full", fixed),
        (FORMULA, "rtopk-items", paper),
        (LEADER, "rtopk-items", fixed),
    ]
    for (label, learner, params), seed in product(curves, range(scale.item_seeds)):
        yield Job(label, learner, params, WORLD, ROUNDS, seed, item_measures)


def marks(rounds: int, count: int = 60) -> Array:
    """(≤ count,) rounds to measure after: dense at first, the last among them."""
    return np.unique(np.geomspace(min(100, rounds), rounds, count).round().astype(np.int64))


def item_measures(job: Job, _opened: Opened, on_progress: Progress) -> Measured:
    """Regret under DCG, in all and a round."""
    world = replace(open_sequence(job.data), seed=job.seed)  # other items are relevant for each seed
    learner: Any = make(job.learner, **job.params)
    found = run_items(learner, world, job.rounds, job.seed, ("dcg",), marks(job.rounds), on_progress=on_progress)
    regret = found.regret["dcg"]
    return Measured(found.rounds, {"regret": regret, "average_regret": regret / found.rounds})


# -- how regret grows ------------------------------------------------------------------------------------------------


def slope_jobs(scale: Scale) -> Iterator[Job]:
    """Regret over time up to the longest horizon, for items and for the surrogates that are convex."""
    horizons, longest = scale.horizons, scale.horizons[-1]
    items: list[tuple[str, str, dict[str, Any]]] = [
        ("horizon unknown, top 1", "rtopk-items", {"grades": 1}),
        ("horizon unknown, top 5", "rtopk-items", {"grades": 1, "top": 5}),
        ("all grades", "ftpl-full", {"grades": 1}),
    ]
    for world, (label, learner, params), seed in product((WORLD, *HARDER), items, range(scale.slope_seeds)):
        yield Job(label, learner, params, world, longest, seed, slope_measures, horizons)
    for horizon, seed in product(horizons, range(scale.slope_seeds)):
        params = {"grades": 1, "horizon": horizon}
        yield Job("horizon known, top 1", "rtopk-items", params, WORLD, horizon, seed, slope_measures, (horizon,))
    surrogates = ("squared", "kl", "ranksvm")
    for surrogate, mismatch, seed in product(surrogates, ("exact", "gamma"), range(scale.slope_seeds)):
        params = {
            "surrogate": surrogate,
            "top": 2 if surrogate == "ranksvm" else 1,
            "mismatch": mismatch,
            "rate": 0.01,
            "radius": SMALL_RADIUS,
        }
        yield Job(f"{surrogate}, {mismatch}", "rtopk", params, SMALL, longest, seed, surrogate_measures, horizons)


def slope_measures(job: Job, _opened: Opened, on_progress: Progress) -> Measured:
    """Regret under each measure that the learner's own order is about, at the horizons."""
    world = replace(open_sequence(job.data), seed=job.seed)
    learner: Any = make(job.learner, **job.params)
    names = ("dcg", "sumloss", "precision")
    found = run_items(learner, world, job.rounds, job.seed, names, job.at, on_progress=on_progress)
    every = {f"regret.{name}": found.regret[name] for name in names}
    return Measured(found.rounds, {"regret": found.regret["dcg"], **every})


def surrogate_measures(job: Job, opened: Opened, on_progress: Progress) -> Measured:
    """The surrogate's regret against the best fixed ranker of the rounds so far."""
    dataset, at = opened(job.data).train, np.array(job.at)
    learner: Any = make(job.learner, **job.params)
    run = run_contextual(learner, dataset, job.rounds, job.seed, losses=True, on_progress=on_progress)
    lost = np.cumsum(run.losses)[at - 1]
    best = [
        best_ranker(
            dataset, queries_drawn(dataset, int(t), job.seed), learner.surrogate, learner.radius, learner.grades
        ).loss
        for t in at
    ]
    return Measured(at, {"regret": lost - np.array(best), "loss": lost})


# -- Figures 4 and 5 -------------------------------------------------------------------------------------------------


def choose(scale: Scale, out: Path, processes: int, on_event: OnEvent | None) -> Chosen:
    """For each data set and contender the numerators with the highest mean NDCG@10 over a few runs of their own.

    All have a short run; the best few then have several of half the length of those that are reported: numerators that
    seldom explore look well until a random list comes, and is divided by its small probability.
    """
    asked = list(product(scale.data, TUNED))
    short = {key: tuning_jobs(*key, scale.tuning_rounds, _TUNING_SEEDS[:1]) for key in asked}
    ends = _ends(carry_out(_all(short), out / "first-choice.parquet", processes, on_event))
    long = {}
    for key in asked:
        jobs = tuning_jobs(*key, scale.rounds // 2, _TUNING_SEEDS)
        long[key] = {values: jobs[values] for values in _best_first(short[key], ends)[:_SECOND_LOOKS]}
    ends = _ends(carry_out(_all(long), out / "choice.parquet", processes, on_event))
    chosen: Chosen = {}
    for key in asked:
        chosen[key] = dict(zip(TUNED[key[1]].tuned, _best_first(long[key], ends)[0], strict=True))
    return chosen


def tuning_jobs(data: str, name: str, rounds: int, seeds: Sequence[int]) -> dict[Numerators, list[Job]]:
    """The runs of a contender with each of its numerators, one a seed."""
    contender = TUNED[name]
    found = {}
    for values in product(NUMERATORS, repeat=len(contender.tuned)):
        params = {**contender.params, "grades": _highest_grade(data), **dict(zip(contender.tuned, values, strict=True))}
        found[values] = [Job(name, contender.learner, params, data, rounds, seed, context_end) for seed in seeds]
    return found


def _all(jobs: Mapping[Any, Mapping[Numerators, list[Job]]]) -> list[Job]:
    return [job for tried in jobs.values() for group in tried.values() for job in group]


def _best_first(jobs: Mapping[Numerators, list[Job]], ends: Mapping[str, float]) -> list[Numerators]:
    """By the mean over seeds."""
    return sorted(jobs, key=lambda values: -float(np.mean([ends[job.id] for job in jobs[values]])))


def _ends(table: pa.Table) -> dict[str, float]:
    return dict(zip(table["run"].to_pylist(), table["online.ndcg"].to_pylist(), strict=True))


def context_jobs(scale: Scale, chosen: Chosen) -> Iterator[Job]:
    """Every curve of Figures 4 and 5."""
    for data, contender, seed in product(scale.data, CONTENDERS, range(scale.seeds)):
        params = contender.params
        if contender.name in TUNED:
            params = {**params, **chosen[data, contender.name], "grades": _highest_grade(data)}
        yield Job(contender.name, contender.learner, params, data, scale.rounds, seed, context_measures)


@lru_cache(maxsize=32)
def _highest_grade(data: str) -> int:
    return open_split(data).train.highest_grade


def context_measures(job: Job, opened: Opened, on_progress: Progress) -> Measured:
    """Average NDCG@10 of the lists shown so far."""
    learner: Any = make(job.learner, **job.params)
    run = run_contextual(learner, opened(job.data).train, job.rounds, job.seed, on_progress=on_progress)
    at = marks(job.rounds, 40)
    return Measured(at, {"online.ndcg": np.cumsum(run.ndcg)[at - 1] / at})


def context_end(job: Job, opened: Opened, on_progress: Progress) -> Measured:
    """The same at the end alone."""
    at, values = context_measures(job, opened, on_progress)
    return Measured(at[-1:], {name: series[-1:] for name, series in values.items()})
