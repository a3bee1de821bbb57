"""Runs of the learners of grades in compiled code: hundreds of thousands of rounds a second.

The same kernels as in the learners, with the random numbers of the plain loop, so the runs are those of
`rankloop.lab.runs.simulate`, bit for bit, without Python between the rounds. A learner that can be run so has a method
for it (`rankloop.core.compiled_rounds.CompiledItems`, `CompiledQueries`). Feedback comes at once here; where it is
late or lost,
take the plain loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core.compiled_rounds import CompiledItems, CompiledQueries, GradedItems, GradedQueries
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.metrics import ragged_ideal_dcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.runs.regret import Regret
from rankloop.lab.worlds import item_worlds as relevance

CHUNK = 8192  # rounds between two looks at the clock
Progress = Callable[[int], None]  # called with the number of rounds done


class ItemsRun(NamedTuple):
    """What a run over one set of items gave."""

    rounds: Array  # (c,) rounds done at each checkpoint
    regret: dict[str, Array]  # (c,) by measure


class ContextualRun(NamedTuple):
    """What a run over the queries of a data set gave."""

    ndcg: Array  # (T,) NDCG@k of each list shown, 0 where nothing is relevant
    losses: Array  # (T,) the surrogate's loss under all grades, empty if not asked for
    theta: Array  # (d,) what was learned


def run_items(
    learner: Learner,
    world: relevance.Relevance,
    rounds: int,
    seed: int = 0,
    measures: Sequence[str] = ("dcg",),
    at: Sequence[int] | Array | None = None,
    cut: int = 10,
    on_progress: Progress | None = None,
) -> ItemsRun:
    """Let a fresh learner order the items of `world`, whole lists; regret by measure after the rounds `at`.

    >>> from rankloop.core.registry import make
    >>> world = relevance.Corrupted(items=6, relevant=2)
    >>> run = run_items(make("rtopk-items", grades=1, horizon=1000), world, 1000, at=[100, 1000])
    >>> bool(run.regret["dcg"][1] / 1000 < run.regret["dcg"][0] / 100)
    True
    """
    marks = np.unique(np.asarray([rounds] if at is None else at, dtype=np.int64))
    if marks.size == 0 or marks[0] < 1 or marks[-1] > rounds:
        raise InvalidParameter(f"checkpoints {marks.tolist()}; they must lie between 1 and {rounds}, the rounds")
    if not isinstance(learner, CompiledItems):
        raise _no_loop(learner, "items without features", "compiled_items")
    streams, found = Rng(seed), {name: Regret(name, world.items, cut) for name in measures}
    step = learner.compiled_items(GradedItems(world.items, streams.key("rank")))
    orders = np.empty((CHUNK, world.items), np.int64)
    values: dict[str, list[float]] = {name: [] for name in measures}
    done = 0
    for mark in marks:
        while done < mark:
            size = min(CHUNK, int(mark) - done)
            grades = world.vectors(streams, done, size)
            step(grades, done, orders[:size])
            for regret in found.values():
                regret.add(orders[:size], grades)
            done += size
            if on_progress:
                on_progress(done)
        for name, regret in found.items():
            values[name].append(regret.value)
    return ItemsRun(marks, {name: np.array(series) for name, series in values.items()})


def run_contextual(
    learner: Learner,
    dataset: Dataset,
    rounds: int,
    seed: int = 0,
    k: int = 10,
    losses: bool = False,
    on_progress: Progress | None = None,
) -> ContextualRun:
    """Let a fresh learner serve queries drawn uniformly from a data set; graders reveal what it asks for.

    `listnet-full` is shown, and told, whole lists; the others show k. `losses` asks for the surrogate's, too.
    """
    if not isinstance(learner, CompiledQueries):
        raise _no_loop(learner, "queries with features", "compiled_queries")
    streams = Rng(seed)
    keys = np.array([streams.key("world"), streams.key("rank")])
    features, grades, offsets = np.asarray(dataset.features), dataset.grades.astype(np.float64), dataset.offsets
    ideal = ragged_ideal_dcg(dataset.grades, offsets, k)
    ndcg, lost, theta = np.empty(rounds), np.empty(rounds if losses else 0), np.zeros(0)
    play = learner.compiled_queries(GradedQueries(features, grades, offsets, ideal, keys, k))
    for first in range(0, rounds, CHUNK):
        part = ndcg[first : first + CHUNK]
        theta = play(first, part, lost[first : first + CHUNK])
        if on_progress:
            on_progress(first + part.size)
    return ContextualRun(ndcg, lost, theta)


def _no_loop(learner: Learner, what: str, method: str) -> InvalidParameter:
    return InvalidParameter(
        f"{type(learner).__name__} has no compiled loop over {what}; simulate it with rankloop.lab.runs.simulate, or "
        f"give it a method {method}"
    )
