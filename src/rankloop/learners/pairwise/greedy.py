"""Greedy RankNet: learn from pairs, always show what looks best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.learner import (
    checked_values,
    make_impression,
    require_choice,
    require_flag,
    require_number,
    resolve_k,
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import pairwise
from rankloop.learners.click_pairs import RULES, plain_pairs
from rankloop.learners.composed import GradientLearner
from rankloop.learners.models.gradient import GradientModel
from rankloop.learners.models.linear import Init, first_weights
from rankloop.learners.policies import EpsilonGreedy as EpsilonGreedyPolicy


@dataclass
class Greedy(GradientLearner):
    """Linear RankNet on click pairs by gradient steps, without exploration beyond random ties.

    A strong baseline on short lists, where users see most candidates anyway, and the cheapest learner there is. On long
    lists it can get stuck, because it never looks for what it does not know.

    Parameters
    ----------
    rate
        Step size.
    pairs
        Which clicked and examined unclicked documents become pairs: "all", "matched" or "adjacent", as in `PairRank`.
    init
        "zero", "base" (the baseline ranking, a feature of its own) or a list of weights.
    examine_next
        Take the document below the last click as examined.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = Greedy()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(10):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.rank(shoes, 1, rng).order]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Baseline "SGD RankNet" of Jia et al., PairRank, WWW 2021, section 4.1; `greedy@paper` has its adjacent pairs.
    """

    rate: float = 0.003
    pairs: Literal["all", "matched", "adjacent"] = "all"
    init: Init = "zero"
    examine_next: bool = True

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_choice("pairs", self.pairs, tuple(RULES))
        require_flag("examine_next", self.examine_next)
        self.model_ = GradientModel(self.init)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The k highest scores, ties at random; in `EpsilonGreedy`, now and then any document."""
        k = resolve_k(candidates, k)
        order, chance = self._policy.draw(self.score(candidates), k, as_rng(rng))
        return make_impression(candidates, order, {}, chance)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        return self._policy.log_propensity(self.score(candidates), order)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """One gradient step on the pairs of the impression."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        pairs, weights, _ = plain_pairs(clicks, seen, self.pairs, self.examine_next, as_rng(rng))
        if len(pairs) == 0:
            return
        model, rows = self.model_, self.model_.rows(impression)
        theta = model.theta_ if model.theta_.size else first_weights(self.init, rows)
        gradient, _ = pairwise.logistic_gradient(theta, rows[pairs[:, 0]] - rows[pairs[:, 1]], weights, 0.0)
        model.theta_ = theta - self.rate * gradient

    @property
    def _policy(self) -> EpsilonGreedyPolicy:
        return EpsilonGreedyPolicy()
