"""PairRankPaper: PairRank as printed and as released, with the exact refit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.capabilities import Report
from rankloop.core.learner import (
    checked_order,
    checked_values,
    make_impression,
    require,
    require_choice,
    require_flag,
    require_number,
    resolve_k,
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.pairwise import sigmoid
from rankloop.learners.click_pairs import RULES, plain_pairs
from rankloop.learners.composed import ConfidenceLearner
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.linear import LinearModel
from rankloop.learners.models.refit import RefitModel
from rankloop.learners.models.rows import Rows
from rankloop.learners.policies import PAIR_POLICIES, PairPolicy

DELTA = 0.1  # probability that an interval of Lemma 1 fails


class OnePassModel(LinearModel):
    """PairRank's model with plain numbers for λ, and pairs compared as probabilities."""

    def __init__(self, prior: float) -> None:
        super().__init__(prior, 1.0, "zero", 1.0)

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """Scores and the width of the interval of each pair."""
        return super().confidence(source, alpha)._replace(logit=False)

    def _first(self, rows: Rows) -> tuple[Array, Array, Array]:
        d = rows.shape[1]
        return np.zeros(d), np.eye(d) / self.prior, np.ones(1)


@dataclass
class PairRankPaper(ConfidenceLearner[RefitModel | OnePassModel]):
    """PairRank with what only its paper and released code need; `pairrank` is the one to use.

    Parameters
    ----------
    explore
        "conservative" (PairRank_C) or "blocks" (PairRank_R).
    pairs
        "adjacent" (the paper's disjoint neighbors), "matched" or "all".
    alpha
        Width of the confidence intervals; i is certainly above j iff σ(s_i - s_j) - α‖x_ij‖ > 1/2. "theory" is Lemma
        1's α_t, which is proved for the summed loss, independent pairs ("adjacent", "matched") and prior = ridge.
    prior
        λ of the confidence matrix M.
    ridge
        λ of θ, the weight of ‖θ‖²/2; update="onepass" has one λ, `prior`.
    loss
        The "sum" of the pairs' losses (Eq. (1)), or their "mean" (the released code).
    update
        "refit", or "onepass": one Newton step per pair, as `pairrank` does, with the paper's certainty and pairs.
    bound
        Of "theory": the largest norm of the true θ.
    examine_next
        Take the document below the last click as examined.

    Examples
    --------
    >>> learner = PairRankPaper()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for seed in range(100):
    ...     shown = learner.rank(shoes, 2, seed)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), seed)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Jia, Wang, Guo and Wang. PairRank. WWW 2021: Algorithm 1 (its norm must be that of M⁻¹), Eq. (1), Definitions 1 and
    2, Lemma 1. The lemma's proof projects θ̂ into ‖θ‖ ≤ bound; neither the paper's experiments nor this class do.

    Scores are s_i = x_iᵀθ̂, x_ij = x_i - x_j, and M = λI + Σ x_ij x_ijᵀ. Algorithm 1, line by line:

    ====  ==============================================================  ===================================
    line  what                                                            where
    ====  ==============================================================  ===================================
    1     λ, M₀ = λI, θ̂₁ = 0                                              `RefitModel`; δ₁ is `DELTA`
    2     the query's documents                                           `candidates` of `rank`
    3, 4  certain pairs: σ(s_i - s_j) - α‖x_ij‖ > 1/2; the rest E_u        `PairConfidence.certain`
    5, 6  blocks, each shuffled; "conservative": section 3.2.3            `policies.Blocks`, `Conservative`
    7     clicks, and o_t: documents down to the last click and the next  `kernels.preferences.examined_count`
    8     independent pairs G^ind: positions (1, 2), (3, 4), ...          `click_pairs.plain_pairs`
    9     θ̂ minimizes Eq. (1) over all pairs so far                       `kernels.pairwise.refit`
    10    M gains x_ij x_ijᵀ of each new pair                             `RefitModel.update`
    ====  ==============================================================  ===================================
    """

    explore: Literal["conservative", "blocks"] = "conservative"
    pairs: Literal["all", "matched", "adjacent"] = "adjacent"
    alpha: float | Literal["theory"] = 0.1
    prior: float = 0.1
    ridge: float = 0.1
    loss: Literal["sum", "mean"] = "sum"
    update: Literal["refit", "onepass"] = "refit"
    bound: float = 1.0
    examine_next: bool = True

    def __post_init__(self) -> None:
        require_choice("explore", self.explore, tuple(PAIR_POLICIES))
        require_choice("pairs", self.pairs, tuple(RULES))
        require_choice("loss", self.loss, ("sum", "mean"))
        require_choice("update", self.update, ("refit", "onepass"))
        for name in ("prior", "ridge", "bound"):
            require_number(name, getattr(self, name), 0, above=True)
        require_flag("examine_next", self.examine_next)
        if isinstance(self.alpha, str):
            require(self.alpha == "theory", "alpha", self.alpha, 'must be a number or "theory"')
            needs = "is Lemma 1's and needs "
            require(self.loss == "sum", "alpha", self.alpha, f"{needs}loss='sum'")
            require(self.update == "refit", "alpha", self.alpha, f"{needs}update='refit'")
            require(self.pairs != "all", "alpha", self.alpha, f"{needs}independent pairs: 'adjacent' or 'matched'")
            require(self.prior == self.ridge, "alpha", self.alpha, f"{needs}prior = ridge")
        else:
            require_number("alpha", self.alpha, 0)
        require(self.loss == "sum" or self.update == "refit", "loss", self.loss, "needs update='refit'")
        refit = self.update == "refit"
        self.model_ = RefitModel(self.prior, self.ridge, self.loss == "mean") if refit else OnePassModel(self.prior)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Algorithm 1, lines 3 to 6."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        known = self.model_.confidence(candidates, self._alpha)  # lines 3 and 4: which pairs are certain
        draw = self._policy.draw(known, k, rng)  # lines 5 and 6: a random order that respects them
        return make_impression(candidates, draw.order, {}, draw.log_propensity)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Algorithm 1, lines 7 to 10."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)  # line 7
        pairs = plain_pairs(clicks, seen, self.pairs, self.examine_next, as_rng(rng))  # line 8
        self.model_.update(impression, pairs)  # lines 9 and 10

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        self.score(candidates)  # features that do not fit are refused here
        return make_impression(candidates, checked_order(candidates, order))

    def report(self) -> Report:
        """With refits the state grows."""
        return Report(grows="keeps every pair: the exact minimizer reads all of them" if self.update == "refit" else "")

    @property
    def _alpha(self) -> float:
        """The width of the intervals; with "theory", Lemma 1's."""
        if not isinstance(self.alpha, str):
            return self.alpha
        model, noise, k_mu = self.model_, 0.5, 0.25
        assert isinstance(model, RefitModel)  # a pair's label, 0 or 1, is 1/2-sub-Gaussian, σ is 1/4-Lipschitz
        p = sigmoid(self.bound * model.longest_[0])
        c_mu = p * (1.0 - p)  # the smallest slope of σ over ‖θ‖ ≤ bound and the pairs seen
        deviation = noise * np.sqrt(model.log_det_[0] - 2.0 * math.log(DELTA))
        return float(2.0 * k_mu / c_mu * (deviation + np.sqrt(self.prior) * self.bound))

    @property
    def _policy(self) -> PairPolicy:
        return PAIR_POLICIES[self.explore]
