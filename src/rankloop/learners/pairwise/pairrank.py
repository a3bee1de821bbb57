"""PairRank: explore only the pairs of documents whose order is still uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.capabilities import Report
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
from rankloop.core.types import Candidates, Feedback, Impression
from rankloop.learners.click_pairs import RULES, propensity_memo, weighted_pairs
from rankloop.learners.composed import ConfidenceLearner
from rankloop.learners.models.diagonal import DiagonalModel
from rankloop.learners.models.linear import Init, LinearModel
from rankloop.learners.policies import PAIR_POLICIES, PairPolicy


@dataclass
class PairRank(ConfidenceLearner[LinearModel]):
    """Linear RankNet with confidence: certain pairs keep their order, uncertain ones are shown in a random order.

    Good rankings after the first hundreds of clicks at little cost for users, because it explores only where it is
    unsure. For hundreds of features or sparse rows use `confidence="diagonal"`.

    Parameters
    ----------
    explore
        "conservative" (PairRank_C): a random order in which every certain pair is in its order. "blocks" (PairRank_R):
        documents fall into blocks that are certain against each other; each block is shuffled.
    pairs
        Which clicked and examined unclicked documents become pairs: "all", "matched" (each at most once, at random) or
        "adjacent" (disjoint neighbors, the paper's independent pairs).
    alpha
        Width of the confidence intervals, in units of score differences; 0 is greedy.
    prior
        λ: how sure to be at first that no feature matters, in units of the mean squared distance of two documents of
        the first impression.
    forget
        Discount of old evidence: the share of it that is kept at each update; 1 keeps everything.
    init
        "zero": nothing is known. "base": start from the baseline ranking: -log(1 + position), position 0 being the top,
        becomes one more feature, with weight 1, that clicks may overturn. A list of weights: start from a linear model.
    prior_strength
        How many clicks `init` is worth; unused with "zero".
    confidence
        "full": a d × d matrix. "diagonal": a variance per feature, O(d) or O(non-zeros of sparse rows).
    examine_next
        Take the document below the last click as examined.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = PairRank()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.blocks(shoes)
    (array(['liked'], dtype='<U5'), array([1, 2]))

    Notes
    -----
    Yiling Jia, Huazheng Wang, Stephen Guo and Hongning Wang. PairRank: Online Pairwise Learning to Rank by
    Divide-and-Conquer. WWW 2021: Algorithm 1, Definitions 1 and 2. `PairRankPaper` is the algorithm as printed. Here
    scores are s_i = x_iᵀθ, and i is certainly above j iff s_i - s_j > α‖x_i - x_j‖ in the norm of H⁻¹, a strict partial
    order; H, the Hessian of the weighted loss, has the place of the paper's M. θ takes one Newton step per pair instead
    of an exact refit (`LinearModel`), and the weight of a pair is its swap propensity ρ = P(R*) / (P(R) + P(R*)), R*
    being the ranking R with its two documents swapped (`click_pairs`).
    """

    explore: Literal["conservative", "blocks"] = "conservative"
    pairs: Literal["all", "matched", "adjacent"] = "all"
    alpha: float = 0.2
    prior: float = 10.0
    forget: float = 1.0
    init: Init = "zero"
    prior_strength: float = 50.0
    confidence: Literal["full", "diagonal"] = "full"
    examine_next: bool = True

    def __post_init__(self) -> None:
        require_choice("explore", self.explore, tuple(PAIR_POLICIES))
        require_choice("pairs", self.pairs, tuple(RULES))
        require_number("alpha", self.alpha, 0)
        require_choice("confidence", self.confidence, ("full", "diagonal"))
        require_flag("examine_next", self.examine_next)
        kind = DiagonalModel if self.confidence == "diagonal" else LinearModel
        self.model_ = kind(self.prior, self.forget, self.init, self.prior_strength)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Estimate which pairs are certain, and draw an order that respects them (Algorithm 1, lines 3 to 6)."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        known = self.model_.confidence(candidates, self.alpha)  # scores, and which pairs are certain
        draw = self._policy.draw(known, k, rng)  # an order, and its probability
        return make_impression(candidates, draw.order, propensity_memo(known.scores, draw), draw.log_propensity)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into weighted pairs, and update θ and H with them (Algorithm 1, lines 7 to 10)."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        pairs = weighted_pairs(impression, clicks, seen, self.pairs, self.examine_next, as_rng(rng))
        self.model_.update(impression, pairs)

    def report(self) -> Report:
        """Sparse rows are accepted with a diagonal confidence."""
        return Report(sparse=self.confidence == "diagonal")

    @property
    def _alpha(self) -> float:
        return self.alpha

    @property
    def _policy(self) -> PairPolicy:
        return PAIR_POLICIES[self.explore]
