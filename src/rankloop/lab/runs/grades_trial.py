"""One run of a learner of grades in compiled code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import make
from rankloop.core.types import Array
from rankloop.lab.datasets.sources import shared_split
from rankloop.lab.runs.compiled import run_contextual, run_items
from rankloop.lab.runs.hindsight import best_ranker, queries_drawn
from rankloop.lab.runs.record import Progress, Record, common_columns, parameters_as_text
from rankloop.lab.worlds.item_worlds import open_item_world

CONVENTIONS = {
    "online.ndcg": "mean NDCG@10 of the rankings shown so far; gain 2^grade - 1, a query with nothing relevant counts "
    "0",
    "regret": "against the best fixed ranking (items, under DCG), or ranker (surrogates), of the rounds so far",
    "average_regret": "regret over rounds",
    "feedback": "the true grades of the first positions, at once",
}


@dataclass(frozen=True)
class GradesTrial:
    """A run as data.

    `measure` is "items" (regret under DCG, SumLoss and Precision of one set of items, other items relevant for each
    seed), "surrogate" (the surrogate's regret against the best ranker in hindsight) or "ndcg" (of the rankings shown),
    both on the queries of a data set.

    >>> GradesTrial("items", "rtopk-items", "corrupted", {"grades": 1}, rounds=500).id
    'items|rtopk-items(grades=1)|corrupted|500|seed=0'
    """

    measure: str
    learner: str
    data: str  # a data set, or a world of items
    params: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 10_000
    seed: int = 0
    checkpoints: tuple[int, ...] = ()  # rounds to measure after; if empty, 60 of them, log-spaced

    def __post_init__(self) -> None:
        if self.measure not in _MEASURES:
            raise InvalidParameter(f"measure is {self.measure!r}; it must be one of {', '.join(_MEASURES)}")
        if self.rounds < 1 or not all(1 <= at <= self.rounds for at in self.checkpoints):
            raise InvalidParameter(f"rounds is {self.rounds}, checkpoints are {self.checkpoints}; they must lie within")

    @property
    def label(self) -> str:
        """The learner with its parameters."""
        return f"{self.learner}({parameters_as_text(self.params)})" if self.params else self.learner

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        at = f"|at={','.join(map(str, self.checkpoints))}" if self.checkpoints else ""
        return f"{self.measure}|{self.label}|{self.data}|{self.rounds}|seed={self.seed}{at}"

    @property
    def at(self) -> Array:
        """(c,) the rounds to measure after."""
        spread = np.geomspace(min(100, self.rounds), self.rounds, 60).round()
        return np.unique(np.array(self.checkpoints or spread, dtype=np.int64))

    def run(self, on_progress: Progress | None = None) -> Record:
        """Carry it out."""
        begin = time.perf_counter()
        measures = _MEASURES[self.measure](self, on_progress)
        seconds = time.perf_counter() - begin
        columns = {**common_columns(self), "data": self.data, "user": "grader"}
        return Record(self, self.at, measures, CONVENTIONS, seconds, self.rounds / seconds, columns)


def _items(trial: GradesTrial, on_progress: Progress | None) -> dict[str, Array]:
    world, names = replace(open_item_world(trial.data), seed=trial.seed), ("dcg", "sumloss", "precision")
    learner = make(trial.learner, **trial.params)
    found = run_items(learner, world, trial.rounds, trial.seed, names, trial.at, on_progress=on_progress)
    every = {f"regret.{name}": found.regret[name] for name in names}
    return {"regret": found.regret["dcg"], "average_regret": found.regret["dcg"] / found.rounds, **every}


def _surrogate(trial: GradesTrial, on_progress: Progress | None) -> dict[str, Array]:
    dataset, at = shared_split(trial.data).train, trial.at
    learner: Any = make(trial.learner, **trial.params)
    run = run_contextual(learner, dataset, trial.rounds, trial.seed, losses=True, on_progress=on_progress)
    lost = np.cumsum(run.losses)[at - 1]
    drawn = [queries_drawn(dataset, int(t), trial.seed) for t in at]
    best = [best_ranker(dataset, counts, learner.surrogate, learner.radius, learner.grades).loss for counts in drawn]
    return {"regret": lost - np.array(best), "loss": lost, "online.ndcg": np.cumsum(run.ndcg)[at - 1] / at}


def _ndcg(trial: GradesTrial, on_progress: Progress | None) -> dict[str, Array]:
    learner = make(trial.learner, **trial.params)
    train = shared_split(trial.data).train
    run = run_contextual(learner, train, trial.rounds, trial.seed, on_progress=on_progress)
    return {"online.ndcg": np.cumsum(run.ndcg)[trial.at - 1] / trial.at}


_MEASURES = {"items": _items, "surrogate": _surrogate, "ndcg": _ndcg}
