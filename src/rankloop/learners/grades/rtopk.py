"""RTop-kF: a linear ranker from the grades of the first positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import GradedQueries
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    load_state,
    make_impression,
    memo_of,
    require,
    require_choice,
    require_number,
    require_whole,
    resolve_k,
    rows_of,
    state_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import topk, topk_loop
from rankloop.learners.grades._grades import grades_of, require_scale
from rankloop.learners.models.gradient import best_of
from rankloop.learners.models.linear import CARRIES

SURROGATES = {"squared": topk.SQUARED, "ranksvm": topk.RANKSVM, "kl": topk.KL, "smoothdcg": topk.SMOOTHDCG}


@dataclass
class RTopK:
    """Show the best list, sometimes a random one, and learn from the grades of the first results only.

    For users who rate only what is on top. The whole ranking is learned: random lists bring every document to the top,
    and grades there are weighted by the inverse of their propensity. From clicks, `pairrank` and `pdgd` learn more.

    Parameters
    ----------
    surrogate
        The loss: "ranksvm" (hinge on pairs, needs two grades per list), "kl" (listwise), "squared" (regression on the
        grades), "smoothdcg" (a smooth DCG@1; not convex, no guarantee).
    top
        How many results are graded, from the first. Feedback with fewer grades is refused; more are not used.
    grades
        The highest grade; grades start at 0.
    rate, explore
        a and b of the step size a/t^(2/3) and of the probability b/t^(1/3) of a random list (at most 1/2), t counting
        the lists learned from.
    random_propensity
        The propensity of a document that a random list brought to the top: "exact" is unbiased with a large variance,
        and the one that Theorem 19 covers; "gamma" is the probability of any random list, the paper's practice.
    known
        The part of the gradient that needs no grade (kl, squared): "weighted", from the graded documents by their
        propensity, as in the paper for kl, or "exact" over all candidates.
    radius
        The weights stay in a ball of this radius.
    temperature
        Of smoothdcg's softmax.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = RTopK()
    >>> walks = Candidates("walks", ["steep", "shady", "long"], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.0]])
    >>> liked = {"steep": 0, "shady": 4, "long": 1}
    >>> for _ in range(50):
    ...     shown = learner.rank(walks, 3, rng)
    ...     learner.learn(shown, Feedback.grades([liked[item] for item in shown.items[:2]]), rng)
    >>> walks.items[learner.best(walks, 1)]
    array(['shady'], dtype='<U5')

    Notes
    -----
    Sougata Chaudhuri and Ambuj Tewari. Online learning to rank with top-k feedback. JMLR 18, 2017: Algorithm 2 and
    section 3.2. No theorem covers the default random_propensity="gamma". Differences:

    - smoothdcg is a gain: steps go up, Algorithm 2 as printed goes down.
    - A pair matches as a set of two documents, so its propensity is 1 - γ + 2γ/(m(m-1)).
    - With `top` above 1 the estimates of the graded positions (ranksvm: of their pairs) are averaged.
    - Equal scores are ordered at random.
    - kl's exp(score) continues as a straight line from one above the highest grade.
    - Scores and propensities are those of display time. A list that someone else ordered has no propensity: its graded
      documents count once each.
    """

    surrogate: Literal["squared", "ranksvm", "kl", "smoothdcg"] = "ranksvm"
    top: int = 2
    grades: int = 4
    rate: float = 0.1
    explore: float = 1.0
    random_propensity: Literal["exact", "gamma"] = "gamma"
    known: Literal["exact", "weighted"] = "weighted"
    radius: float = 10.0
    temperature: float = 0.01

    feedback: ClassVar[FeedbackKind] = "grades"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def __post_init__(self) -> None:
        require_choice("surrogate", self.surrogate, tuple(SURROGATES))
        require_whole("top", self.top, 1)
        require(self.surrogate != "ranksvm" or self.top >= 2, "top", self.top, "must be 2 or more: ranksvm needs pairs")
        require_scale(self.grades)
        require_number("rate", self.rate, 0, above=True)
        require_number("explore", self.explore, 0)
        require_choice("random_propensity", self.random_propensity, ("exact", "gamma"))
        require_choice("known", self.known, ("exact", "weighted"))
        require_number("radius", self.radius, 0, above=True)
        require_number("temperature", self.temperature, 0, above=True)
        self.theta_: Array = np.zeros(0)
        self.rounds_: Array = np.zeros(1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The k highest scores, or a random list."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        rows, numbers = rows_of(candidates, self.theta_.size), rng.random(2 * candidates.n + 1)
        order, *memo = topk.display(rows, self.theta_, self.rounds_[0], numbers, k, self.rule())
        return self._shown(candidates, order, *memo)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        rows, order = rows_of(candidates, self.theta_.size), checked_order(candidates, order)
        return self._shown(candidates, order, *topk.adopted(rows, self.theta_, order, self.rule()))

    def best(self, candidates: Candidates, k: int) -> Array:
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """A step down the estimated gradient."""
        graded, pairs = min(self.top, impression.k), self.surrogate == "ranksvm"
        grades = grades_of(self, impression, feedback, self.grades, self.top)[:graded]
        rows = rows_of(impression, self.theta_.size)[:graded]
        weights = memo_of(impression, "weights", graded)
        propensity = memo_of(impression, "propensity", graded * (graded - 1) // 2 if pairs else graded)
        known = np.zeros(0) if pairs else memo_of(impression, "known", rows.shape[1])
        self.theta_ = topk.learned(self.theta_, self.rounds_[0], rows, weights, propensity, known, grades, self.rule())
        self.rounds_ = self.rounds_ + 1.0

    def rule(self) -> topk.Rule:
        return topk.Rule(
            SURROGATES[self.surrogate],
            self.top,
            float(self.grades),
            float(self.rate),
            float(self.explore),
            self.random_propensity == "gamma",
            self.known == "weighted",
            float(self.radius),
            float(self.temperature),
        )

    def compiled_queries(self, world: GradedQueries) -> Callable[[int, Array, Array], Array]:
        """Rounds over a data set without Python between them, for the lab."""
        theta, rule = np.zeros(0), self.rule()

        def play(first: int, ndcg: Array, losses: Array) -> Array:
            nonlocal theta
            theta = topk_loop.rtopk_rounds(*world[:5], first, theta, world.k, rule, ndcg, losses)
            return theta

        return play

    def _shown(
        self, candidates: Candidates, order: Array, weights: Array, propensity: Array, known: Array
    ) -> Impression:
        memo = {"weights": weights, "propensity": propensity, "known": known}
        if self.surrogate == "ranksvm":
            del memo["known"]  # it needs all grades or none
        return make_impression(candidates, order, memo)

    def remap(self, columns: FeatureMap) -> None:
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"theta_": ("d",), "rounds_": (1,)})
