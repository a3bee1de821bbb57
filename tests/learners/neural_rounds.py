"""Small lists, rounds and a crossed world for the tests of the neural learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.lab.datasets.dataset import Dataset
from rankloop.learners.models.gate import GATES, SCALES, Evidence

D, M = 4, 6


def lists(count: int, n: int = 8) -> list[Candidates]:
    return [Candidates(f"q{t}", features=np.random.default_rng(t).random((n, D))) for t in range(count)]


def one_round(learner: Any, candidates: Candidates, t: int, k: int = 4) -> tuple[Impression, Array]:
    shown = learner.rank(candidates, k, np.random.default_rng([1, t]))
    clicks = np.random.default_rng([2, t]).integers(0, 2, shown.k).astype(np.float64)
    learner.learn(shown, Feedback.clicks(clicks), np.random.default_rng([3, t]))
    return shown, clicks


def taught(learner: Any, rounds: int = 20) -> Any:
    for t, candidates in enumerate(lists(rounds)):
        one_round(learner, candidates, t)
    return learner


def evidence(gate: float, sums: float = 1e6) -> Evidence:
    """Evidence after which so much of the network counts for every query: one of `GATES`, at the line's own scale."""
    found = Evidence.none()
    found.gains[:, SCALES.size * GATES.tolist().index(gate) + SCALES.tolist().index(1.0)] = sums
    return found


def crossed(queries: int, seed: int, straight: bool = False) -> Dataset:
    """A document is relevant iff both of two features are high or both low: every linear ranker is at chance.

    Or, `straight`, iff their sum is high, which is what a line can say.
    """
    rows = np.random.default_rng(seed).random((queries * 8, D))
    alike = (rows[:, 0] > 0.5) == (rows[:, 1] > 0.5)
    grades = (rows[:, 0] + rows[:, 1] > 1.0 if straight else alike).astype(np.int64)
    return Dataset("crossed", rows, grades, np.arange(queries + 1) * 8, np.arange(queries).astype(str))
