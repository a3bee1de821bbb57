"""The baseline ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.core.learner import make_impression, resolve_k
from rankloop.core.rng import as_rng
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

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The first k as they came."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        return make_impression(candidates, np.arange(k), log_propensity=0.0)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:  # noqa: ARG002
        """One list is certain, no other ever comes."""
        return 0.0 if np.array_equal(order, np.arange(len(order))) else -np.inf
