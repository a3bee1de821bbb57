"""Where queries and grades come from, round by round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from rankloop.kernels.metrics import ragged_ideal_dcg
from rankloop.lab.dataset import Dataset
from rankloop.types import Array, Candidates


class Round(NamedTuple):
    """One query as a user brings it."""

    candidates: Candidates
    grades: Array  # (n,) what this user thinks of each candidate, now
    ideal: float  # the highest DCG@k that these grades allow


class World(Protocol):
    """A source of rounds: a function of the round number and its random numbers."""

    k: int

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """Round t."""


@dataclass
class Stationary:
    """Queries drawn uniformly from a data set whose grades never change, those without relevant documents too.

    >>> from rankloop.lab.dataset import Dataset
    >>> tiny = Dataset("tiny", np.eye(3), np.array([2, 0, 1]), np.array([0, 2, 3]), np.array(["a", "b"]))
    >>> Stationary(tiny).at(0, np.random.default_rng(0)).candidates.query
    'b'
    """

    dataset: Dataset
    k: int = 10
    _ideal: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._ideal = ragged_ideal_dcg(self.dataset.grades, self.dataset.offsets, self.k)

    def at(self, t: int, rng: np.random.Generator) -> Round:  # noqa: ARG002  (the world does not change)
        """A query drawn uniformly."""
        q = int(rng.random() * len(self.dataset))
        return Round(self.dataset.candidates(q), self.dataset.grades_of(q), self._ideal[q])
