"""Uniformly random rankings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.compiled_rounds import GradedQueries
from rankloop.core.learner import checked_order, checked_values, load_state, make_impression, resolve_k, state_of
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import topk_loop
from rankloop.kernels.ranking import epsilon_greedy_log_probability, top_k


@dataclass
class RandomOrder:
    """Show a uniformly random list and learn nothing: the lower reference.

    Examples
    --------
    >>> learner = RandomOrder()
    >>> sorted(learner.rank(Candidates(items=["a", "b", "c"]), 3, np.random.default_rng(0)).items.tolist())
    ['a', 'b', 'c']
    """

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = False

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A uniformly random prefix of a permutation."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        keys = rng.random(candidates.n)
        order = top_k(keys, keys, k)
        return make_impression(candidates, order, log_propensity=self.log_propensity(candidates, order))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """(n - k)! / n!, whatever the list."""
        return float(epsilon_greedy_log_probability(np.zeros(candidates.n), order, 1.0))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        return np.arange(resolve_k(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Checks the feedback and forgets it."""
        checked_values(self, impression, feedback)

    def compiled_queries(self, world: GradedQueries) -> Callable[[int, Array, Array], Array]:
        """Rounds over a data set without Python between them, for the lab."""

        def play(first: int, ndcg: Array, losses: Array) -> Array:  # noqa: ARG001
            topk_loop.random_rounds(world.grades, world.offsets, world.ideal, world.keys, first, world.k, ndcg)
            return np.zeros(0)

        return play

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {})
