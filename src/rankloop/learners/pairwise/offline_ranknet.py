"""Offline RankNet: the ceiling of the linear pairwise learners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.rng import as_rng
from rankloop.core.learner import checked_values, load_state, make_impression, require_number, resolve_k, state_of
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels.metrics import ranknet_loss
from rankloop.learners.pairwise._linear import CARRIES, adopted, best_of


@dataclass
class OfflineRankNet:
    """Linear RankNet fitted on true grades: what a pairwise learner could know if users told it everything.

    It needs `fit` with labelled data before it is of use (the lab calls it) and learns nothing from clicks.

    Parameters
    ----------
    ridge
        Weight of ‖θ‖²/2 against the loss, which is averaged over the pairs of a query and then over queries, so that
        long lists do not drown short ones.

    Examples
    --------
    >>> learner = OfflineRankNet()
    >>> learner.fit(np.array([[1.0, 0.0], [0.0, 1.0]]), grades=np.array([0, 1]), offsets=np.array([0, 2]))
    >>> learner.best(Candidates(features=[[1.0, 0.0], [0.0, 1.0]]), 2)
    array([1, 0])

    Notes
    -----
    The "offline RankNet" of Jia et al., PairRank, WWW 2021, sections 4.1 and 4.2.3 (Burges 2010, single layer), found
    exactly by L-BFGS.
    """

    ridge: float = 1e-4

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def __post_init__(self) -> None:
        require_number("ridge", self.ridge, 0, above=True)
        self.theta_: Array = np.zeros(0)

    def fit(self, features: Array, grades: Array, offsets: Array) -> None:
        """Find θ for queries whose documents stand one after the other, query q's from offsets[q] to offsets[q+1]."""
        from scipy.optimize import minimize  # half a second to import, needed only here

        def objective(theta: Array) -> tuple[float, Array]:
            scores = features @ theta
            loss, slopes = ranknet_loss(scores, grades, offsets)
            return loss + 0.5 * self.ridge * float(theta @ theta), slopes @ features + self.ridge * theta

        start = np.zeros(features.shape[1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
        self.theta_ = np.ascontiguousarray(found.x)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """What it knows to be best."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        return make_impression(candidates, best_of(self.theta_, candidates, k), log_propensity=0.0)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """One list is certain, no other ever comes."""
        return 0.0 if np.array_equal(order, best_of(self.theta_, candidates, len(order))) else -np.inf

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told."""
        return adopted(self.theta_, candidates, order)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Checks the feedback and forgets it."""
        checked_values(self, impression, feedback)

    def remap(self, columns: FeatureMap) -> None:
        """θ in other columns."""
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        """θ."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        load_state(self, state, {"theta_": ("d",)})
