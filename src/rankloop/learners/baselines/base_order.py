"""The baseline ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.core.learner import cut, drawn
from rankloop.core.types import Array, Candidates, Impression
from rankloop.learners.baselines.random_order import RandomOrder


@dataclass
class BaseOrder(RandomOrder):
    """Show the baseline ranking and learn nothing: what users see today.

    Examples
    --------
    >>> BaseOrder().rank(Candidates(items=["a", "b", "c"]), 2, np.random.default_rng(0)).items
    array(['a', 'b'], dtype='<U1')
    """

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The first k as they came."""
        k = cut(candidates, k, rng)
        return drawn(candidates, np.arange(k), 0.0)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:  # noqa: ARG002
        """One list is certain, no other ever comes."""
        return 0.0 if np.array_equal(order, np.arange(len(order))) else -np.inf
