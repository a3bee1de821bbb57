"""Compiled runs of the learners of grades as data, for `rankloop.lab.runs.sweep.carry_out`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankloop.lab.data.dataset import Split
from rankloop.lab.runs.compiled_grades import Progress
from rankloop.lab.runs.trial import Trial
from rankloop.types import Array

CONVENTIONS = {
    "online.ndcg": "mean NDCG@10 of the lists shown so far; gain 2^grade - 1, a query with nothing relevant counts 0",
    "regret": "against the best fixed ranking, or ranker, of the rounds so far",
    "average_regret": "regret over rounds",
    "feedback": "the true grades of the first positions, at once",
}
Opened = Callable[[str], Split]


class Measured(NamedTuple):
    """What a run gave: a value of each measure at each checkpoint."""

    at: Array  # (c,) rounds
    values: dict[str, Array]  # (c,) by measure


@dataclass(frozen=True)
class Job:
    """A run as data, and the function that makes measures of it: one of a module, so that a process can be sent it."""

    label: str  # what figures call it
    learner: str
    params: dict[str, Any]
    data: str  # a data set, or a sequence of relevance vectors
    rounds: int
    seed: int
    measure: Callable[[Job, Opened, Progress], Measured] = field(compare=False)
    at: tuple[int, ...] = ()  # rounds to measure after, where the function asks for them

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        trial = Trial(self.learner, self.data, "grader", self.params, self.rounds, seed=self.seed)
        return f"{self.label}|{trial.id}"

    def carry_out(self, opened: Opened, on_progress: Progress) -> Done:
        """Run it."""
        return Done(self, self.measure(self, opened, on_progress))


class Done(NamedTuple):
    """A job and what came of it."""

    job: Job
    measured: Measured

    @property
    def conventions(self) -> dict[str, Any]:
        """What the numbers mean."""
        return CONVENTIONS

    def rows(self) -> list[dict[str, Any]]:
        """A row a checkpoint."""
        job = self.job
        shared = {
            "run": job.id,
            "learner": job.learner,
            "label": job.label,
            "data": job.data,
            "user": "grader",
            "params": json.dumps(job.params),
            "rounds": job.rounds,
            "seed": job.seed,
        }
        return [
            {**shared, "round": int(t), **{name: float(values[i]) for name, values in self.measured.values.items()}}
            for i, t in enumerate(self.measured.at)
        ]
