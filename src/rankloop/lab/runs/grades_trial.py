"""One run of a learner of grades in compiled code: what was asked for, and what came out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import make
from rankloop.core.types import Array
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.runs.compiled_grades import Progress, run_contextual, run_items
from rankloop.lab.runs.hindsight import best_ranker, queries_drawn
from rankloop.lab.runs.trial import Trial
from rankloop.lab.worlds.item_worlds import open_sequence

CONVENTIONS = {
    "online.ndcg": "mean NDCG@10 of the lists shown so far; gain 2^grade - 1, a query with nothing relevant counts 0",
    "regret": "against the best fixed ranking (items, under DCG), or ranker (surrogates), of the rounds so far",
    "average_regret": "regret over rounds",
    "feedback": "the true grades of the first positions, at once",
}
Opened = Callable[[str], Split]


@dataclass(frozen=True)
class GradesTrial:
    """A run as data.

    `measure` says what of: "items" (regret under DCG, SumLoss and Precision of one set of items, other items relevant
    for each seed), "surrogate" (the surrogate's regret against the best ranker in hindsight) or "ndcg" (of the lists
    shown), both on the queries of a data set.

    >>> GradesTrial("items", "rtopk-items", "corrupted", {"grades": 1}, rounds=500).id
    'items|rtopk-items(grades=1)|corrupted|grader|500x10|seed=0'
    """

    measure: str
    learner: str
    data: str  # a data set, or a sequence of relevance vectors
    params: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 10_000
    seed: int = 0
    at: tuple[int, ...] = ()  # rounds to measure after; without, 60 of them, dense at first
    user: str = "grader"

    def __post_init__(self) -> None:
        if self.measure not in _MEASURES:
            raise InvalidParameter(f"measure is {self.measure!r}; it must be one of {', '.join(_MEASURES)}")
        if self.rounds < 1 or (self.at and not 1 <= min(self.at) <= max(self.at) <= self.rounds):
            raise InvalidParameter(
                f"rounds is {self.rounds}, at is {self.at}; measure after rounds from 1 up to the last"
            )

    @property
    def label(self) -> str:
        """The learner with what was set of it."""
        return self._trial.label

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        marks = f"|at={','.join(map(str, self.at))}" if self.at else ""
        return f"{self.measure}|{self._trial.id}{marks}"

    @property
    def marks(self) -> Array:
        """(c,) the rounds to measure after."""
        spread = np.geomspace(min(100, self.rounds), self.rounds, 60).round()
        return np.unique(np.array(self.at or spread, dtype=np.int64))

    def carry_out(self, opened: Opened, on_progress: Progress) -> GradesRecord:
        """Run it."""
        begin = time.perf_counter()
        values = _MEASURES[self.measure](self, opened, on_progress)
        return GradesRecord(self, values, time.perf_counter() - begin)

    @property
    def _trial(self) -> Trial:
        return Trial(self.learner, self.data, self.user, self.params, self.rounds, seed=self.seed)


class GradesRecord(NamedTuple):
    """What a run gave: (c,) values of each measure at the trial's marks."""

    trial: GradesTrial
    values: dict[str, Array]
    seconds: float

    @property
    def conventions(self) -> dict[str, Any]:
        """What the numbers mean."""
        return dict(CONVENTIONS)

    def rows(self) -> list[dict[str, Any]]:
        """A row a checkpoint."""
        trial = self.trial
        shared = {
            "run": trial.id,
            "learner": trial.learner,
            "label": trial.label,
            "data": trial.data,
            "user": trial.user,
            "params": json.dumps(dict(trial.params)),
            "rounds": trial.rounds,
            "seed": trial.seed,
            "seconds": self.seconds,
            "rounds_per_second": trial.rounds / self.seconds,
        }
        return [
            {**shared, "round": int(t), **{name: float(values[i]) for name, values in self.values.items()}}
            for i, t in enumerate(trial.marks)
        ]


def _items(trial: GradesTrial, _opened: Opened, on_progress: Progress) -> dict[str, Array]:
    world, names = replace(open_sequence(trial.data), seed=trial.seed), ("dcg", "sumloss", "precision")
    learner: Any = make(trial.learner, **trial.params)
    found = run_items(learner, world, trial.rounds, trial.seed, names, trial.marks, on_progress=on_progress)
    every = {f"regret.{name}": found.regret[name] for name in names}
    return {"regret": found.regret["dcg"], "average_regret": found.regret["dcg"] / found.rounds, **every}


def _surrogate(trial: GradesTrial, opened: Opened, on_progress: Progress) -> dict[str, Array]:
    dataset, marks = opened(trial.data).train, trial.marks
    learner: Any = make(trial.learner, **trial.params)
    run = run_contextual(learner, dataset, trial.rounds, trial.seed, losses=True, on_progress=on_progress)
    lost = np.cumsum(run.losses)[marks - 1]
    drawn = [queries_drawn(dataset, int(t), trial.seed) for t in marks]
    best = [best_ranker(dataset, counts, learner.surrogate, learner.radius, learner.grades).loss for counts in drawn]
    return {"regret": lost - np.array(best), "loss": lost, "online.ndcg": np.cumsum(run.ndcg)[marks - 1] / marks}


def _ndcg(trial: GradesTrial, opened: Opened, on_progress: Progress) -> dict[str, Array]:
    learner: Any = make(trial.learner, **trial.params)
    run = run_contextual(learner, opened(trial.data).train, trial.rounds, trial.seed, on_progress=on_progress)
    return {"online.ndcg": np.cumsum(run.ndcg)[trial.marks - 1] / trial.marks}


_MEASURES = {"items": _items, "surrogate": _surrogate, "ndcg": _ndcg}
