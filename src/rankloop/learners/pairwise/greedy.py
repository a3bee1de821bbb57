"""Greedy RankNet: learn from pairs, always show what looks best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.capabilities import Parts
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_values,
    cut,
    drawn,
    load_state,
    require,
    require_choice,
    require_flag,
    require_number,
    rows_of,
    seen_of,
    state_of,
)
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import pairwise, preferences
from rankloop.kernels.ranking import epsilon_greedy_log_probability, top_k
from rankloop.learners.pairwise._linear import (
    CARRIES,
    HISTORY,
    PAIR_RULES,
    adopted,
    best_of,
    carry_over,
    check_history,
    parts_of,
    refitted,
    remap_history,
    scores_of,
)
from rankloop.learners.pairwise._start import Start, first_weights, require_start


@dataclass
class Greedy:
    """Linear RankNet on the click pairs, without exploration beyond random tie-breaks.

    A strong baseline on short lists, where users see most candidates anyway, and the cheapest learner there is with
    `update="sgd"`. It never looks for what it does not know, so on long lists it can get stuck.

    Parameters
    ----------
    update
        "sgd": one gradient step on the pairs of the round (the paper's SGD RankNet), microseconds an event.
        "refit": the exact minimiser over all pairs so far. Memory and time an event grow with the pairs seen.
    rate
        Step size of "sgd". The default was the best of .1, .03, .01, .003 and .001 held-out for three users on
        websearch300 and on the generated mslr and mq2007 (3,000 rounds); at .1 it fails on long lists.
    ridge
        Weight of ‖θ‖²/2 against the summed loss; only "refit" uses it.
    pairs
        Which clicked and examined unclicked documents become pairs: "all", "matched" or "adjacent", as in `PairRank`.
    init
        "zero", "base" (the caller's order, a feature of its own) or a list of weights, as in `PairRank`.
    examine_next
        Take the document below the last click as seen.

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
    Baseline "SGD RankNet" of Jia et al., PairRank, WWW 2021, section 4.1, which infers pairs as PairRank does there:
    `greedy@paper`. By default it learns from all clicked against all examined unclicked ones. The refit
    is warm-started Newton to a gradient below 1e-6 (see `kernels.pairwise.refit`).
    """

    update: Literal["sgd", "refit"] = "sgd"
    rate: float = 0.003
    ridge: float = 1.0
    pairs: Literal["all", "matched", "adjacent"] = "all"
    init: Start = "zero"
    examine_next: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def __post_init__(self) -> None:
        require_choice("update", self.update, ("sgd", "refit"))
        require_number("rate", self.rate, 0, above=True)
        require_number("ridge", self.ridge, 0, above=True)
        require_choice("pairs", self.pairs, tuple(PAIR_RULES))
        require_start(self.init)
        require(self.init == "zero" or self.update == "sgd", "init", self.init, 'needs update="sgd"')
        require_flag("examine_next", self.examine_next)
        self.theta_: Array = np.zeros(0)
        # of "refit" only: its pairs x_clicked - x_unclicked so far, their weights, the running Hessian inverse
        self.rows_: Array = np.zeros((0, 0))
        self.weights_: Array = np.zeros(0)
        self.hessian_inverse_: Array = np.zeros((0, 0))

    @property
    def grows(self) -> str:
        """Why its state grows with the events seen."""
        return "keeps every pair: the exact minimiser reads all of them" if self.update == "refit" else ""

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The k highest scores, ties at random."""
        k = cut(candidates, k, rng)
        scores = self.score(candidates)
        order = top_k(scores, rng.random(scores.size), k)
        return drawn(candidates, order, epsilon_greedy_log_probability(scores, order, 0.0))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """One in so many, where scores are equal; else this list or never."""
        return float(epsilon_greedy_log_probability(self.score(candidates), order, 0.0))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told."""
        return adopted(self.theta_, candidates, order, self.init)

    def score(self, candidates: Candidates) -> Array:
        """(n,) x·θ, with the base order's part where the learner starts from it."""
        return scores_of(self.theta_, candidates, self.init)

    def parts(self, impression: Impression) -> Parts:
        """Rows with the base order where the learner starts from it, and their weights."""
        return parts_of(self.theta_, impression, self.init)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return best_of(self.theta_, candidates, k, self.init)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """One step on the round's pairs, or a refit on all of them."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        pairs = preferences.click_pairs(
            clicks, self.examine_next, seen, PAIR_RULES[self.pairs], rng.random(clicks.size)
        )
        if len(pairs) == 0:
            return
        features = rows_of(impression, self.theta_.size, self.init == "base")
        theta = self.theta_ if self.theta_.size else first_weights(self.init, features)
        new, better = features[pairs[:, 0]] - features[pairs[:, 1]], preferences.differences(clicks, pairs)
        if self.update == "sgd":
            gradient, _ = pairwise.logistic_gradient(theta, new, better, 0.0)
            self.theta_ = theta - self.rate * gradient
        else:
            self.theta_, self.hessian_inverse_, self.rows_, self.weights_ = refitted(
                theta, self.hessian_inverse_, self.rows_, self.weights_, new, better, self.ridge
            )

    rescale = carry_over

    def remap(self, columns: FeatureMap) -> None:
        """Go on with features in other columns."""
        self.theta_ = columns.weights(self.theta_)
        remap_history(self, columns, 1.0 / self.ridge)

    def state(self) -> dict[str, Array]:
        """θ and, with "refit", the pairs so far."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        check_history(state)
        load_state(self, state, {"theta_": ("d",), **HISTORY})
