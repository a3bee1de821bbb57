"""PairRank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.kernels import certainty, pairwise, plackett_luce
from rankloop.kernels.ranking import linear_scores, top_k
from rankloop.learner import checked_values, cut, load_state, require, require_choice, rows_of, show, state_of
from rankloop.types import Array, Candidates, Feedback, FeedbackKind, Impression

PAIR_RULES = {"adjacent": pairwise.ADJACENT, "matched": pairwise.MATCHED, "all": pairwise.ALL}


@dataclass
class PairRank:
    explore: str = "conservative"
    certainty: str = "logit"
    pairs: str = "all"
    update: str = "onepass"
    debias: str = "plackett-luce"
    alpha: float | str = 0.3
    prior: float = 100.0
    ridge: float = 0.0
    eta: float = 1.0
    forget: float = 1.0
    temperature: float = 1.0
    plus_one: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.theta_: Array = np.zeros(0)
        self.inverse_: Array = np.zeros((0, 0))
        self.log_det_: Array = np.zeros(1)
        self.events_: Array = np.zeros(1, dtype=np.int64)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        features, k = rows_of(candidates, self.theta_.size), cut(candidates, k)
        n = len(features)
        scores = linear_scores(features, self.theta_)
        if self.theta_.size == 0:
            order = top_k(scores, rng.random(n), k)
        else:
            alpha = self.alpha
            if self.explore == "conservative" and self.certainty == "logit":
                centred = features - features.mean(0)
                half = centred @ self.inverse_
                norms = np.sqrt(np.maximum(np.einsum("ij,ij->i", half, centred), 0.0))
                running = certainty.contenders(scores, norms, alpha, k)
                gram = half[running] @ centred[running].T
                certain = certainty.certain_pairs(scores[running], gram, alpha, True)
                order = running[certainty.random_topological(certain, rng.random(k), k)]
            elif self.explore == "conservative":
                gram = features @ self.inverse_ @ features.T
                certain = certainty.certain_pairs(scores, gram, alpha, self.certainty == "logit")
                order = certainty.random_topological(certain, rng.random(k), k)
            else:
                full = top_k(scores, rng.random(n), n)
                order = certainty.shuffle_blocks(full, certainty.block_ends(certain, full), rng.random(k), k)
        memo = {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
        return show(candidates, order, memo)

    def best(self, candidates: Candidates, k: int) -> Array:
        scores = linear_scores(rows_of(candidates, self.theta_.size), self.theta_)
        return top_k(scores, np.zeros(scores.size), cut(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        clicks = checked_values(self, impression, feedback)
        pairs = pairwise.click_pairs(clicks, self.plus_one, PAIR_RULES[self.pairs], rng.random(clicks.size))
        if len(pairs) == 0:
            return
        features = rows_of(impression, self.theta_.size)
        if self.theta_.size == 0:
            self.theta_ = np.zeros(features.shape[1])
            centred = features - features.mean(0)
            scale = 2.0 * (centred**2).sum() / max(len(features) - 1, 1)  # mean squared distance between two
            self.inverse_ = np.eye(features.shape[1]) / (self.prior * max(scale, 1e-12))
        if self.debias == "plackett-luce":
            weights = plackett_luce.swap_shares(self.temperature*impression.memo["scores"], impression.memo["rest"][0], pairs)
        else:
            weights = np.ones(len(pairs))
        pairwise.onepass(self.theta_, self.inverse_, features, pairs, weights, self.eta)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"theta_": ("d",), "inverse_": ("d", "d")})
