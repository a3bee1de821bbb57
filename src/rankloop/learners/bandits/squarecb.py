"""SquareCB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.capabilities import Explanation, Report, ScoreTerms
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    checked_values,
    load_state,
    make_impression,
    require,
    require_flag,
    require_number,
    resolve_k,
    seen_of,
    state_of,
    wide_rows_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression, SparseRows
from rankloop.kernels import inverse_gap_weighting
from rankloop.kernels.preferences import examined_count
from rankloop.kernels.ranking import linear_scores, top_k
from rankloop.kernels.sparse import sparse_scores


@dataclass
class SquareCB:
    """A contextual bandit: linear regression of the reward, exploration by inverse gap weighting.

    Choose it where one item is shown and has a reward of its own (an offer, a banner, a headline), as with Azure
    Personalizer. Pairwise learners compare the items of a list, so a list of one teaches them nothing. For search
    results choose `pairrank`. Propensities are exact.

    Parameters
    ----------
    gamma
        An item predicted Δ below the best of n has the probability epsilon / (n + γΔ), with γ = gamma · events^growth:
        the larger, the less exploration. 0 ignores Δ.
    growth
        How γ grows with the events learned from; 1/2 in the theory.
    epsilon
        1 is SquareCB. Below 1 the items that are not best share less; `gamma=0&epsilon=0.2` is ε-greedy.
    prior
        How certain the start is that no feature matters, in multiples of the mean squared length of the first list's
        rows.
    noise
        The variance of a reward around its prediction; 0.25 is that of a coin.
    examine_next
        Whether the item below the last click counts as examined, in lists of several items where the client does not
        report what was viewed.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = SquareCB()
    >>> offers = Candidates("", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(offers, 1, rng)
    ...     learner.learn(shown, Feedback.clicks(shown.items == "liked"), rng)
    >>> offers.items[learner.best(offers, 1)], bool(learner.log_propensity(offers, np.array([1])) > -0.05)
    (array(['liked'], dtype='<U5'), True)

    Notes
    -----
    Dylan J. Foster and Alexander Rakhlin. Beyond UCB: optimal and efficient contextual bandits with regression oracles.
    ICML 2020, Algorithm 1, with n in place of their μ. Differences:

    - The regression keeps a Gaussian per weight; the posterior's covariance is cut to its diagonal after each reward,
      as in AROW (Crammer et al. 2009). O(d) memory and time, no step size.
    - Lists of several items are drawn position by position; what is below the last click is not learned from.
    """

    gamma: float = 30.0
    growth: float = 0.5
    epsilon: float = 1.0
    prior: float = 1.0
    noise: float = 0.25
    examine_next: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = (
        "weights and variances of the features that stay, and the intercept; a new feature starts at weight 0 with the "
        "largest variance there is"
    )

    def __post_init__(self) -> None:
        for name in ("gamma", "growth", "epsilon"):
            require_number(name, getattr(self, name), 0)
        for name in ("prior", "noise"):
            require_number(name, getattr(self, name), 0, above=True)
        require(self.epsilon <= 1, "epsilon", self.epsilon, "is a probability and must be at most 1")
        require_flag("examine_next", self.examine_next)
        self.theta_: Array = np.zeros(0)
        self.variance_: Array = np.zeros(0)
        self.level_: Array = np.array([0.0, 1.0 / self.prior])  # the intercept, and its variance
        self.events_: Array = np.zeros(1, np.int64)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list drawn by inverse gaps, position by position."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        uniforms = rng.random(k)
        order, chance = inverse_gap_weighting.drawn_order(self.score(candidates), uniforms, self._gamma(), self.epsilon)
        return make_impression(candidates, order, log_propensity=chance)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The product over positions of each item's probability among those left."""
        return float(
            inverse_gap_weighting.order_log_probability(self.score(candidates), order, self._gamma(), self.epsilon)
        )

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        wide_rows_of(candidates, self.theta_.size)
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        return top_k(self.score(candidates), np.zeros(candidates.n), resolve_k(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        return np.asarray(self._scores(wide_rows_of(candidates, self.theta_.size)) + self.level_[0])

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Rows, weights, and the intercept as each item's own."""
        rows = wide_rows_of(impression, self.theta_.size)
        return ScoreTerms(rows, self.theta_, np.full(len(rows), self.level_[0]))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Regress the rewards of what was seen on its features."""
        rewards, reported = checked_values(self, impression, feedback), seen_of(impression, feedback)
        rows = wide_rows_of(impression, self.theta_.size)
        theta, variance, level = self.theta_.copy(), self.variance_.copy(), self.level_.copy()
        if theta.size == 0:
            numbers = rows.values if isinstance(rows, SparseRows) else rows
            length = math.fsum((numbers * numbers).ravel()) / len(rows)  # exact, so zeros do not matter
            theta, variance = np.zeros(rows.shape[1]), np.full(rows.shape[1], 1.0 / (self.prior * (length or 1.0)))
        seen = max(1 if reported < 0 else reported, examined_count(rewards, self.examine_next, reported))
        if isinstance(rows, SparseRows):
            parts = rows.indptr, rows.indices, rows.values
            inverse_gap_weighting.regress_sparse(theta, variance, level, *parts, rewards[:seen], self.noise)
        else:
            inverse_gap_weighting.regress(theta, variance, level, rows[:seen], rewards[:seen], self.noise)
        self.theta_, self.variance_, self.level_, self.events_ = theta, variance, level, self.events_ + 1

    def half_widths(self) -> Array:
        """Empty: exploration goes by gaps, not by intervals."""
        return np.zeros(0)

    def rescale(self, growth: Array) -> None:
        """Carry weights and variances over to features divided by `growth`."""
        if self.theta_.size:
            self.theta_, self.variance_ = self.theta_ * growth, self.variance_ * growth**2

    def report(self) -> Report:
        """Sparse rows are accepted."""
        return Report(sparse=True)

    def explain(self, impression: Impression) -> Explanation | None:  # noqa: ARG002
        """Pairs are not compared."""
        return None

    def remap(self, columns: FeatureMap) -> None:
        if columns.nothing:
            self.theta_, self.variance_ = np.zeros(0), np.zeros(0)  # the next list says how large variances begin
        elif self.theta_.size:
            self.theta_ = columns.weights(self.theta_)
            self.variance_ = columns.weights(self.variance_, float(self.variance_.max()), power=2)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"theta_": ("d",), "variance_": ("d",), "level_": (2,), "events_": (1,)})

    def _scores(self, rows: Array | SparseRows) -> Array:
        if isinstance(rows, SparseRows):
            return sparse_scores(rows.indptr, rows.indices, rows.values, self.theta_)
        return linear_scores(rows, self.theta_)

    def _gamma(self) -> float:
        return float(self.gamma * self.events_[0] ** self.growth)
