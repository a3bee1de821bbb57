"""RTop-kF with context: a linear ranker from the grades of the first positions only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import GradedQueries
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    cut,
    load_state,
    memo_of,
    require,
    require_choice,
    require_number,
    require_whole,
    rows_of,
    show,
    state_of,
)
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import topk, topk_loop
from rankloop.learners.grades._grades import grades_of, require_scale
from rankloop.learners.pairwise._linear import CARRIES, best_of

SURROGATES = {"squared": topk.SQUARED, "ranksvm": topk.RANKSVM, "kl": topk.KL, "smoothdcg": topk.SMOOTHDCG}


@dataclass
class RTopK:
    """Show the best list, now and then a random one, and learn from the grades of the first one or two results.

    For users who rate what stands on top and nothing else: it costs them effort, privacy, or you money. The whole
    ranking is learned all the same, because a random list now and then brings every document to the top, and what is
    graded there counts by how rarely that happens. Choose it when you have explicit grades; from clicks, `pairrank`
    and `pdgd` learn more.

    Parameters
    ----------
    surrogate
        The loss that is brought down: "ranksvm" (hinge on pairs, needs two grades a list), "kl" (listwise),
        "squared" (regression on the grades), "smoothdcg" (a smooth DCG@1; not convex, no guarantee).
    top
        How many results are graded, from the first. Feedback with fewer grades is refused, more are not used.
    grades
        The highest grade there is; they start at 0.
    rate, explore
        a and b of the step size a/t^(2/3) and of the probability b/t^(1/3) of a random list (at most 1/2), t counting
        the lists learned from.
    mismatch
        What a grade is divided by when its document came to the top by a random list: "exact" is the probability of
        that, which is tiny and makes the estimate unbiased and wild: Theorem 19's regret of T^(2/3) is for this one
        only. "gamma" is the probability of any random list, which is the paper's practice: see the notes.
    known
        The part of the gradient that needs no grade (kl, squared): "weighted", from the graded documents by their
        propensity, as the paper has it for kl, or "exact" over all candidates. Both are unbiased where propensities are
        exact. Weighted, a graded document adds its own error, which is small where little is left to learn and keeps
        its sign with mismatch="gamma"; with "exact", documents that are seldom graded are pulled towards 0.
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
    Sougata Chaudhuri and Ambuj Tewari. Online Learning to Rank with Top-k Feedback. JMLR 18, 2017: Algorithm 2 and
    section 3.2. Where we differ:

    - smoothdcg is a gain: we go up, Algorithm 2 as printed goes down.
    - The match of a pair is that of the *set* of two documents, so that its probability is 1 - γ + 2γ/(m(m-1)): the
      sum p(1,2) + p(2,1) in the denominator of section 3.2, which section 3.3 gives for one order only.
    - With `top` above 1 the estimates from each graded position (ranksvm: from each pair of them) are averaged.
    - Ties in the scores, such as all of them at the start, are broken at random. The estimates stay unbiased: they are
      so for each way of breaking them.
    - From one above the highest grade on, kl's exp(score) goes on as a straight line: the loss stays convex with the
      same minimum, and one wild step does not send the next ones to infinity.

    **No theorem covers the default.** With mismatch="gamma" a document that a random list brought to the top counts m
    times less than it should, so what is brought down is another loss, in which the leader counts in full and every
    other document 1/m; against the best ranker for the true one the regret grows linearly (log-log slopes .93 to .98 up
    to a million rounds). Its lists are better all the same for long: steps m times smaller do not throw the weights
    about, and the reweighted loss looks at the top, as those do who judge lists. On a small set "exact" passes it after
    some 100,000 rounds with ranksvm, and not within a million with squared and kl (docs/learners/grades.md). Theorem 21
    bounds what is possible at all: with one grade a list nobody has sublinear regret for a surrogate that is calibrated
    for NDCG; these are not.

    Scores and propensities are those of display time and travel in the memo, with Xᵀs (or its like) over all
    candidates, so late grades stay unbiased. A list that someone else ordered has no propensity: its graded documents
    count as they are, and the loss is that of these documents alone.
    """

    surrogate: Literal["squared", "ranksvm", "kl", "smoothdcg"] = "ranksvm"
    top: int = 2
    grades: int = 4
    rate: float = 0.1
    explore: float = 1.0
    mismatch: Literal["exact", "gamma"] = "gamma"
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
        require_choice("mismatch", self.mismatch, ("exact", "gamma"))
        require_choice("known", self.known, ("exact", "weighted"))
        require_number("radius", self.radius, 0, above=True)
        require_number("temperature", self.temperature, 0, above=True)
        self.theta_: Array = np.zeros(0)
        self.rounds_: Array = np.zeros(1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The k highest scores, or a random list."""
        k = cut(candidates, k, rng)
        rows, numbers = rows_of(candidates, self.theta_.size), rng.random(2 * candidates.n + 1)
        order, *memo = topk.display(rows, self.theta_, self.rounds_[0], numbers, k, self.rule())
        return self._shown(candidates, order, *memo)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; its graded documents will count once each."""
        rows, order = rows_of(candidates, self.theta_.size), checked_order(candidates, order)
        return self._shown(candidates, order, *topk.adopted(rows, self.theta_, order, self.rule()))

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:  # noqa: ARG002
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
        """The parameters as kernels take them."""
        return topk.Rule(
            SURROGATES[self.surrogate],
            self.top,
            float(self.grades),
            float(self.rate),
            float(self.explore),
            self.mismatch == "gamma",
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
        return show(candidates, order, memo)

    def remap(self, columns: FeatureMap) -> None:
        """θ in other columns."""
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        """θ and how many lists it was learned from."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        load_state(self, state, {"theta_": ("d",), "rounds_": (1,)})
