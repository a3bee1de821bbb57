"""GradientModel: a weight per feature that follows gradients, without confidence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.capabilities import ScoreTerms
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, resolve_k, rows_of, state_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels.ranking import linear_scores, top_k
from rankloop.learners.models.linear import Init, first_weights, require_init, rescaled

RETIRED = {"rows_", "weights_", "hessian_inverse_"}


def scores_of(theta: Array, candidates: Candidates) -> Array:
    """(n,) x·θ; an empty θ gives 0."""
    return linear_scores(rows_of(candidates, theta.size), theta)


def best_of(theta: Array, candidates: Candidates, k: int) -> Array:
    """(k,) positions of the highest scores; equal ones keep the baseline order."""
    scores = scores_of(theta, candidates)
    return top_k(scores, np.zeros(scores.size), resolve_k(candidates, k))


class GradientModel:
    """Scores x·θ; the learner decides how θ moves.

    Parameters
    ----------
    init
        "zero", "base" (the baseline ranking is a feature of its own) or a list of weights.
    base
        Weight of the baseline position at first, with init="base".
    rate
        Step size at first, of a learner whose step size changes.
    """

    def __init__(self, init: Init = "zero", base: float = 1.0, rate: float | None = None) -> None:
        require_init(init)
        self.init, self.base = init, base
        self.theta_: Array = np.zeros(0)  # (d,)
        if rate is not None:
            self.rate_: Array = np.array([rate])

    def rows(self, source: Candidates | Impression) -> Array:
        """(n, d) the features, with the baseline position as last column if the model starts from it."""
        return rows_of(source, self.theta_.size, self.init == "base")

    def weights(self, rows: Array) -> Array:
        """(d,) θ, or the initial weights while nothing is learned; empty, which scores 0, with init="zero"."""
        return self.theta_ if self.theta_.size or self.init == "zero" else first_weights(self.init, rows, self.base)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) x·θ."""
        rows = self.rows(source)
        return linear_scores(rows, self.weights(rows))

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Rows and their weights."""
        rows = self.rows(impression)
        return ScoreTerms(rows, self.weights(rows))

    def rescale(self, growth: Array) -> None:
        """Carry θ over to features divided by `growth`."""
        self.theta_ = rescaled(self.theta_, growth)

    def remap(self, columns: FeatureMap) -> None:
        """Carry θ over to other columns."""
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        """Copies of θ and the step size."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`."""
        shapes: dict[str, tuple[str | int, ...]] = {"theta_": ("d",), "rate_": (1,)}
        load_state(self, {name: array for name, array in state.items() if name not in RETIRED}, shapes)
