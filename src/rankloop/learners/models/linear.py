"""LinearModel: a weight per feature with a confidence matrix, learned by one Newton step per pair."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.capabilities import ScoreTerms
from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, plain, require, require_number, rows_of, state_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import pairwise
from rankloop.kernels.forgetting import discount_precision
from rankloop.kernels.ranking import linear_scores
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.rows import Rows, mean_squared_distance, row_scores

Init = str | list[float]
# A click adds about this much precision to a weight. Of m examined documents one click carries (1 - 1/m) S, where S is
# half the mean squared distance of two of them; the propensity halves that.
PRECISION_PER_CLICK = 0.2
RETIRED = {"log_det_", "longest_", "rows_", "weights_", "hessian_inverse_", "precision_", "push_", "gathered_"}
CARRIES = "the weights of the features that stay; a new feature starts at weight 0"
CARRIES_CONFIDENCE = (
    "weights and confidence of the features that stay; a removed feature is marginalized out; a new one starts at "
    "weight 0 with its prior variance"
)


class LinearModel:
    """Scores x·θ and the inverse of the confidence matrix H of θ.

    A pair x = x_a - x_b with weight ρ and p = σ(xᵀθ) adds ρp(1-p) xxᵀ to H and moves θ by ρ(1-p) H⁻¹x: O(k d²) per
    impression of k documents, however many pairs, and no history.

    Parameters
    ----------
    prior
        Precision of each weight at first, in units of the mean squared distance of two documents of the first
        impression, so that one value suits features of any number and size.
    forget
        Share of the old evidence that is kept at each update. The prior is restored to a few coordinates at a time
        (`kernels.forgetting`), which keeps an update at O(d²).
    init
        "zero", "base" (the baseline ranking is a feature of its own, -log(1 + position), with weight 1), or a list of
        weights.
    prior_strength
        How many clicks the initial weights are worth.
    """

    def __init__(self, prior: float, forget: float, init: Init, prior_strength: float) -> None:
        require_number("prior", prior, 0, above=True)
        require_number("forget", forget, 0, above=True)
        require(forget <= 1, "forget", forget, "must be at most 1")
        require_init(init)
        require_number("prior_strength", prior_strength, 0, above=True)
        self.prior, self.forget, self.init, self.prior_strength = prior, forget, init, prior_strength
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.theta_: Array = np.zeros(0)  # (d,)
        self.inverse_: Array = np.zeros((0, 0))  # (d, d) inverse of H
        self.unit_: Array = np.ones(1)  # the prior is a multiple of it
        self.turn_: Array = np.zeros(1, np.int64)  # updates that discounted old evidence

    def rows(self, source: Candidates | Impression) -> Rows:
        """(n, d) the features, with the baseline position as last column if the model starts from it."""
        return rows_of(source, self.theta_.size, self.init == "base")

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """Scores and the width of the interval of each pair."""
        rows, theta, inverse = self.rows(source), self.theta_, self.inverse_
        assert isinstance(rows, np.ndarray)
        if theta.size == 0 and self.init != "zero":
            theta, inverse, _ = self._first(rows)
        return PairConfidence(rows, linear_scores(rows, theta), theta, inverse, alpha)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) x·θ."""
        rows = self.rows(source)
        theta = self.theta_ if self.theta_.size or self.init == "zero" else first_weights(self.init, rows)
        return row_scores(rows, theta)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Rows and their weights."""
        rows = self.rows(impression)
        return ScoreTerms(
            rows, self.theta_ if self.theta_.size or self.init == "zero" else first_weights(self.init, rows)
        )

    def half_widths(self, alpha: float) -> Array:
        """(d,) α‖e_j‖: two documents that differ by 1 in feature j alone are certain iff |θ_j| is larger."""
        return np.asarray(alpha * np.sqrt(np.diagonal(self.inverse_)))

    def update(self, impression: Impression, pairs: ClickPairs) -> None:
        """Learn the pairs of one impression, if there are any."""
        if len(pairs.pairs):
            self.update_rows(self.rows(impression), pairs)

    def update_rows(self, rows: Rows, pairs: ClickPairs) -> None:
        """Learn pairs of these rows (k, d)."""
        assert isinstance(rows, np.ndarray)
        self.begin(rows)
        theta, inverse = self.theta_.copy(), self.inverse_.copy()  # other threads rank meanwhile
        if self.forget < 1.0:
            discount_precision(inverse, self.forget, self.prior * self.unit_[0], self.turn_[0])
            self.turn_ = self.turn_ + 1
        pairwise.onepass(theta, inverse, rows, pairs.pairs, pairs.weights)
        self.theta_, self.inverse_ = theta, inverse

    def begin(self, rows: Rows) -> None:
        """Size everything by the first impression that teaches."""
        if self.theta_.size == 0:
            self.theta_, self.inverse_, self.unit_ = self._first(rows)

    def rescale(self, growth: Array) -> None:
        """Carry θ over to features divided by `growth`. H stays: while scales change, most of it is the prior."""
        self.theta_ = rescaled(self.theta_, growth)

    def remap(self, columns: FeatureMap) -> None:
        """Carry θ and H over to other columns."""
        if self.theta_.size == 0 or columns.identity:
            return
        if columns.nothing:  # not even the unit of the prior carries over
            self.reset()
            return
        if (columns.scale != 1.0).any():  # values are divided by the scale, squared distances by its square
            self.unit_ = self.unit_ / np.mean(columns.scale[columns.source >= 0] ** 2)
        self.theta_ = columns.weights(self.theta_)
        self._remap_confidence(columns, 1.0 / self.prior_precision(columns.source.size))

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        load_state(self, {name: array for name, array in state.items() if name not in RETIRED}, self._shapes())

    def prior_precision(self, features: int, unit: float | None = None) -> float:
        """The precision of a weight before anything is learned about it."""
        unit = float(self.unit_[0]) if unit is None else unit
        prior = self.prior * unit
        if not isinstance(self.init, str):  # the clicks behind given weights inform every direction alike
            prior += PRECISION_PER_CLICK * self.prior_strength / features * unit
        return prior

    def _first(self, rows: Rows) -> tuple[Array, Array, Array]:
        """θ, H⁻¹ and the unit of the prior for a first impression."""
        d, base = rows.shape[1], self.init == "base"
        unit = mean_squared_distance(rows, base)
        inverse = self._prior_inverse(d, self.prior_precision(d, unit))  # first, as it may not fit into memory
        if base:
            inverse[(-1,) * inverse.ndim] = 1.0 / (PRECISION_PER_CLICK * self.prior_strength)
        return first_weights(self.init, rows), inverse, np.array([unit])

    def _prior_inverse(self, features: int, prior: float) -> Array:
        return np.eye(features) / prior

    def _remap_confidence(self, columns: FeatureMap, new: float) -> None:
        self.inverse_ = columns.covariance(self.inverse_, new)

    def _shapes(self) -> dict[str, tuple[str | int, ...]]:
        return {"theta_": ("d",), "inverse_": ("d", "d"), "unit_": (1,), "turn_": (1,)}


def require_init(init: object) -> None:
    """Refuse what is neither "zero", "base" nor a list of finite weights that are not all 0."""
    value = plain(init)
    if isinstance(value, str):
        require(value in ("zero", "base"), "init", init, "must be zero, base or a list of weights")
        return
    numbers = isinstance(value, list) and all(isinstance(w, int | float) and not isinstance(w, bool) for w in value)
    require(numbers and bool(np.isfinite(value).all()), "init", init, "must be zero, base or a list of weights")
    require(any(value), "init", init, "has no weight that is not 0: give init='zero'")


def first_weights(init: Init, rows: Rows, base: float = 1.0) -> Array:
    """(d,) the initial weights; `rows` (n, d) is the first impression, with the baseline position last if asked for.

    Given weights are scaled so that the scores of two documents differ by 1 in the root mean square: how large a
    linear model's weights are depends on how it was trained; `prior_strength` states how sure it is.
    """
    d = rows.shape[1]
    if init == "zero":
        return np.zeros(d)
    if init == "base":
        return base_weights(d - 1, base)
    weights = np.array(init, np.float64)
    if weights.size != d:
        raise InvalidInput(f"init has {weights.size} weights, but the candidates have {d} features; give one each")
    scores = row_scores(rows, weights)
    return np.asarray(weights / np.sqrt(pairwise.mean_squared_distance(scores.reshape(-1, 1))))


def base_weights(features: int, base: float) -> Array:
    """(features + 1,) weights with which only the baseline position counts."""
    weights = np.zeros(features + 1)
    weights[-1] = base
    return weights


def rescaled(theta: Array, growth: Array) -> Array:
    """Weights (d,) that rank features divided by `growth` as `theta` ranks them undivided; a last weight, of the
    baseline position, stays."""
    return theta * np.append(growth, np.ones(theta.size - growth.size)) if theta.size else theta
