"""RefitModel: the exact logistic regression on all pairs so far, as PairRank's paper has it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.capabilities import ScoreTerms
from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, rows_of, state_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import pairwise
from rankloop.kernels.ranking import linear_scores
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.linear import rescaled

GRADIENT_TOLERANCE = 1e-6  # the largest entry of the gradient that counts as zero
RETIRED = {"unit_", "turn_"}


class RefitModel:
    """θ minimizes Σ w log(1 + exp(-xᵀθ)) + ridge/2 ‖θ‖² over all pairs; M = prior·I + Σ w xxᵀ is their norm.

    Memory and time per event grow with the pairs seen: every event reads all of them. The Hessian inverse takes in
    each new pair at its curvature, so that warm-started Newton steps rarely need a pass over all pairs.

    Parameters
    ----------
    prior
        λ of M.
    ridge
        Weight of ‖θ‖²/2.
    mean
        Divide the loss by Σ w, as the released code does: the same as a ridge that grows with the pairs.
    """

    def __init__(self, prior: float, ridge: float, mean: bool) -> None:
        self.prior, self.ridge, self.mean = prior, ridge, mean
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.theta_: Array = np.zeros(0)  # (d,)
        self.inverse_: Array = np.zeros((0, 0))  # (d, d) inverse of M
        self.log_det_: Array = np.zeros(1)  # log of det M / det λI
        self.longest_: Array = np.zeros(1)  # the largest norm of a pair so far
        self.rows_: Array = np.zeros((0, 0))  # (m, d) the pairs, x_better - x_worse
        self.weights_: Array = np.zeros(0)  # (m,)
        self.hessian_inverse_: Array = np.zeros((0, 0))  # (d, d)

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """Scores and the width of the interval of each pair, compared as probabilities (Definition 1)."""
        rows = rows_of(source, self.theta_.size)
        return PairConfidence(rows, linear_scores(rows, self.theta_), self.theta_, self.inverse_, alpha, logit=False)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) x·θ."""
        return linear_scores(rows_of(source, self.theta_.size), self.theta_)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Rows and their weights."""
        return ScoreTerms(rows_of(impression, self.theta_.size), self.theta_)

    def half_widths(self, alpha: float) -> Array:
        """(d,) α‖e_j‖."""
        return np.asarray(alpha * np.sqrt(np.diagonal(self.inverse_)))

    def update(self, impression: Impression, pairs: ClickPairs) -> None:
        """Add the pairs of one impression and minimize again."""
        if not len(pairs.pairs):
            return
        rows = rows_of(impression, self.theta_.size)
        d = rows.shape[1]
        theta = self.theta_.copy() if self.theta_.size else np.zeros(d)
        inverse = self.inverse_.copy() if self.theta_.size else np.eye(d) / self.prior
        new, weights = rows[pairs.pairs[:, 0]] - rows[pairs.pairs[:, 1]], pairs.weights
        longest = np.maximum(self.longest_, pairwise.longest_pair(rows, pairs.pairs))
        gained = sum(pairwise.rank_one_update(inverse, row, w) for row, w in zip(new, weights, strict=True))
        hessian = self.hessian_inverse_.copy() if self.rows_.size else np.eye(d) / self.ridge
        _, curvature = pairwise.logistic_gradient(theta, new, weights, 0.0)
        for row, bend in zip(new, curvature, strict=True):
            pairwise.rank_one_update(hessian, row, bend)
        rows, weights = np.concatenate([self.rows_.reshape(-1, d), new]), np.concatenate([self.weights_, weights])
        ridge = self.ridge * float(weights.sum()) if self.mean else self.ridge
        pairwise.refit(theta, hessian, rows, weights, ridge, GRADIENT_TOLERANCE)
        self.theta_, self.hessian_inverse_, self.rows_, self.weights_ = theta, hessian, rows, weights
        self.inverse_, self.log_det_, self.longest_ = inverse, self.log_det_ + gained, longest

    def rescale(self, growth: Array) -> None:
        """Carry θ and the pairs over to features divided by `growth`."""
        self.theta_ = rescaled(self.theta_, growth)
        if self.rows_.size:
            self.rows_ = self.rows_ / growth

    def remap(self, columns: FeatureMap) -> None:
        """Carry θ, M and the pairs over to other columns."""
        if self.theta_.size == 0 or columns.identity:
            return
        if columns.nothing:
            self.reset()
            return
        self.theta_ = columns.weights(self.theta_)
        self.inverse_ = columns.covariance(self.inverse_, 1.0 / self.prior)
        self.rows_ = columns.rows(self.rows_)
        self.hessian_inverse_ = columns.covariance(self.hessian_inverse_, 1.0 / self.ridge)

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        rows, theta = np.asarray(state.get("rows_")), np.asarray(state.get("theta_"))
        if rows.ndim == 2 and rows.shape[0] and rows.shape[1:] != theta.shape:
            raise InvalidInput(
                f"state 'rows_' has shape {rows.shape}; its rows must be as wide as 'theta_' {theta.shape}"
            )
        shapes: dict[str, tuple[str | int, ...]] = {"theta_": ("d",), "inverse_": ("d", "d"), "log_det_": (1,)}
        shapes |= {"longest_": (1,), "rows_": ("m", "w"), "weights_": ("m",), "hessian_inverse_": ("w", "w")}
        load_state(self, {name: array for name, array in state.items() if name not in RETIRED}, shapes)
