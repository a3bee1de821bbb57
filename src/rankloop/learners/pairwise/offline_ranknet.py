"""Offline RankNet: the oracle of the linear pairwise learners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.core.learner import checked_values, make_impression, require_number
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.metrics import ranknet_loss
from rankloop.learners.composed import GradientLearner
from rankloop.learners.models.gradient import GradientModel


@dataclass
class OfflineRankNet(GradientLearner):
    """Linear RankNet fitted on true grades: what a pairwise learner could know if users told it everything.

    It needs `fit` with labeled data before it is of use (the lab calls it) and learns nothing from clicks.

    Parameters
    ----------
    ridge
        Weight of ‖θ‖²/2 against the loss, which is averaged over the pairs of a query and then over queries, so that
        every query counts the same.

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

    def __post_init__(self) -> None:
        require_number("ridge", self.ridge, 0, above=True)
        self.model_ = GradientModel()

    def fit(self, features: Array, grades: Array, offsets: Array) -> None:
        """Find θ for queries whose documents follow each other, query q's from offsets[q] to offsets[q+1]."""
        from scipy.optimize import minimize  # half a second to import, needed only here

        def objective(theta: Array) -> tuple[float, Array]:
            scores = features @ theta
            loss, slopes = ranknet_loss(scores, grades, offsets)
            return loss + 0.5 * self.ridge * float(theta @ theta), slopes @ features + self.ridge * theta

        start = np.zeros(features.shape[1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
        self.theta_ = np.ascontiguousarray(found.x)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:  # noqa: ARG002
        """The believed best ranking."""
        return make_impression(candidates, self.best(candidates, k), log_propensity=0.0)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """One ranking is certain."""
        return 0.0 if np.array_equal(order, self.best(candidates, len(order))) else -np.inf

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Check the feedback, and learn nothing."""
        checked_values(self, impression, feedback)
