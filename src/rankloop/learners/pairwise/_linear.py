"""What the linear learners share: scoring with θ, and the exact logistic refit on all pairs so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rankloop.core.capabilities import Parts
from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import checked_order, cut, rows_of, show
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import pairwise, preferences
from rankloop.kernels.ranking import linear_scores, top_k
from rankloop.learners.pairwise._start import Start, weights_now

PAIR_RULES = {"adjacent": preferences.ADJACENT, "matched": preferences.MATCHED, "all": preferences.ALL}
GRADIENT_TOLERANCE = 1e-6  # the largest entry of the gradient that counts as zero


def scores_of(theta: Array, candidates: Candidates, start: Start = "zero", base: float = 1.0) -> Array:
    """(n,) x·θ, by the weights that a learner starts with while nothing has been learned (θ empty): 0 at "zero"."""
    rows = rows_of(candidates, theta.size, start == "base")
    return linear_scores(rows, weights_now(theta, start, rows, base))


def best_of(theta: Array, candidates: Candidates, k: int, start: Start = "zero") -> Array:
    """(k,) positions of the highest scores; equal ones keep the base order."""
    scores = scores_of(theta, candidates, start)
    return top_k(scores, np.zeros(scores.size), cut(candidates, k))


def adopted(theta: Array, candidates: Candidates, order: Array, start: Start = "zero") -> Impression:
    """The impression of a list that someone else ordered, for learners that need nothing but its rows."""
    rows_of(candidates, theta.size, start == "base")  # what does not fit is refused here, not when the clicks come
    return show(candidates, checked_order(candidates, order))


def parts_of(theta: Array, impression: Impression, start: Start, base: float = 1.0) -> Parts:
    """Rows with the base order where a learner starts from it, and their weights."""
    rows = rows_of(impression, theta.size, start == "base")
    return Parts(rows, weights_now(theta, start, rows, base))


def carried_over(theta: Array, growth: Array) -> Array:
    """Weights (d,) that order features divided by `growth` as `theta` orders them as they were; that of the base order,
    if there is one more, stays."""
    return theta * np.append(growth, np.ones(theta.size - growth.size)) if theta.size else theta


def carry_over(learner: Any, growth: Array) -> None:
    """`telling.Rescales` of learners with θ and, with "refit", pairs that are kept. A confidence matrix stays as it is:
    most of it is the prior while sizes still change, and that is to be the same for features of any size."""
    learner.theta_ = carried_over(learner.theta_, growth)
    if learner.rows_.size:
        learner.rows_ = learner.rows_ / growth


def remap_history(learner: Any, columns: FeatureMap, new: float) -> None:
    """`telling.Remaps` of the pairs that "refit" keeps; `new` is the variance of a new weight."""
    if learner.rows_.size:
        learner.rows_ = columns.rows(learner.rows_)
        learner.hessian_inverse_ = columns.covariance(learner.hessian_inverse_, new)


CARRIES = "the weights of the features that stay; a new feature starts at weight 0"
HISTORY: dict[str, tuple[str | int, ...]] = {"rows_": ("m", "w"), "weights_": ("m",), "hessian_inverse_": ("w", "w")}


def check_history(state: Mapping[str, Array]) -> None:
    """Refuse a state whose pairs are not as wide as its θ."""
    rows, theta = np.asarray(state.get("rows_")), np.asarray(state.get("theta_"))
    if rows.ndim == 2 and rows.shape[0] and rows.shape[1:] != theta.shape:
        raise InvalidInput(f"state 'rows_' has shape {rows.shape}; its rows must be as wide as 'theta_' {theta.shape}")


def refitted(
    theta: Array,
    inverse: Array,
    rows: Array,
    weights: Array,
    new_rows: Array,
    new_weights: Array,
    ridge: float,
    mean: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """θ, Hessian inverse, rows and weights after the exact refit with `new_rows` added.

    Minimises Σ w log(1 + exp(-xᵀθ)) + ridge/2 ‖θ‖², or with `mean` the loss divided by Σ w: the same as a ridge that
    grows with the pairs.

    Every event reads all rows again and copies them once: the cost grows with the pairs seen, which is what an exact
    refit is. The Hessian inverse starts at ridge and takes in each new row at its curvature, so the warm-started
    Newton steps need no O(m d²) pass in most rounds.
    """
    if rows.size == 0:
        rows = rows.reshape(0, theta.size)
        inverse = np.eye(theta.size) / ridge
    theta, inverse = theta.copy(), inverse.copy()
    _, curvature = pairwise.logistic_gradient(theta, new_rows, new_weights, 0.0)
    for row, bend in zip(new_rows, curvature, strict=True):
        pairwise.rank_one_update(inverse, row, bend)
    rows, weights = np.concatenate([rows, new_rows]), np.concatenate([weights, new_weights])
    if mean:
        ridge *= float(weights.sum())
    pairwise.refit(theta, inverse, rows, weights, ridge, GRADIENT_TOLERANCE)
    return theta, inverse, rows, weights
