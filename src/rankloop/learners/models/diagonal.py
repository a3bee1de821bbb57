"""DiagonalModel: LinearModel with one variance per feature, for wide or sparse features."""

from __future__ import annotations

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import wide_rows_of
from rankloop.core.types import Array, Candidates, Impression, SparseRows
from rankloop.kernels.diagonal import diagonal_onepass, discounted_variances, sparse_diagonal_onepass
from rankloop.kernels.ranking import linear_scores
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.linear import LinearModel
from rankloop.learners.models.rows import Rows, numbered


class DiagonalModel(LinearModel):
    """Scores x·θ and a variance per feature: O(d) in time and memory, or O(non-zeros) with sparse rows.

    Discounting touches a variance only when it is used: m discounts are one formula, and `touched_` holds the update
    at which each was last brought up to date.
    """

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.inverse_ = np.zeros(0)  # (d,) variances
        self.touched_: Array = np.zeros(0, np.int64)  # (d,) with forget < 1, else (0,)

    def rows(self, source: Candidates | Impression) -> Rows:
        """(n, d) the features, dense or sparse."""
        return wide_rows_of(source, self.theta_.size, self.init == "base")

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """Scores and the width of the interval of each pair."""
        rows, theta, inverse = self.rows(source), self.theta_, self.inverse_
        if theta.size == 0 and self.init != "zero":
            theta, inverse, _ = self._first(rows)
        if isinstance(rows, SparseRows):
            some = numbered(rows)
            here = theta[some.columns] if theta.size else theta
            return PairConfidence(some, some.scores(here), theta, self._variances(inverse, some.columns), alpha)
        return PairConfidence(rows, linear_scores(rows, theta), theta, self._variances(inverse), alpha)

    def half_widths(self, alpha: float) -> Array:
        """(d,) α times the standard deviation of each weight."""
        return np.asarray(alpha * np.sqrt(self._variances(self.inverse_)))

    def update_rows(self, rows: Rows, pairs: ClickPairs) -> None:
        """Learn pairs of these rows. Of sparse rows only the columns that occur are written, in place: a thread that
        ranks meanwhile may find some of them old and some new."""
        self.begin(rows)
        keep, alone = self.forget, self.theta_.size - 1 if self.init == "base" else -1
        self.turn_ = self.turn_ + (keep < 1.0)
        now, prior = int(self.turn_[0]), self.prior * self.unit_[0]
        if not isinstance(rows, SparseRows):
            theta = self.theta_.copy()
            ages = now - self.touched_
            variance = discounted_variances(self.inverse_, keep, prior, ages) if keep < 1.0 else self.inverse_.copy()
            diagonal_onepass(theta, variance, rows, pairs.pairs, pairs.weights, alone)
            self.theta_, self.inverse_, self.touched_ = theta, variance, np.full_like(self.touched_, now)
            return
        some = numbered(rows)
        at = some.columns
        theta, variance = self.theta_[at], self.inverse_[at]
        if keep < 1.0:
            variance = discounted_variances(variance, keep, prior, now - self.touched_[at])
            self.touched_[at] = now
        sparse = some.indptr, some.indices, some.local, some.values
        sparse_diagonal_onepass(theta, variance, *sparse, pairs.pairs, pairs.weights, alone)
        self.theta_[at], self.inverse_[at] = theta, variance

    def begin(self, rows: Rows) -> None:
        """Size everything by the first impression that teaches."""
        if self.theta_.size == 0:
            super().begin(rows)
            if self.forget < 1.0:
                self.touched_ = np.zeros(self.theta_.size, np.int64)

    def _variances(self, variance: Array, some: Array | slice = slice(None)) -> Array:
        """The variances of some features, or all, brought up to date."""
        if self.forget == 1.0 or self.touched_.size == 0:
            return variance[some] if variance.size else variance
        ages = int(self.turn_[0]) - self.touched_[some]
        found: Array = discounted_variances(variance[some], self.forget, self.prior * self.unit_[0], ages)
        return found

    def _prior_inverse(self, features: int, prior: float) -> Array:
        return np.full(features, 1.0 / prior)

    def _remap_confidence(self, columns: FeatureMap, new: float) -> None:
        self.inverse_ = columns.weights(self.inverse_, new, power=2)
        self.touched_ = columns.weights(self.touched_, int(self.turn_[0]), power=0)

    def _shapes(self) -> dict[str, tuple[str | int, ...]]:
        touched: tuple[str | int, ...] = ("d",) if self.forget < 1.0 else (0,)
        return {**super()._shapes(), "inverse_": ("d",), "touched_": touched}
