"""Where a linear learner starts: at zero, as the caller's own order, or at given weights."""

from __future__ import annotations

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.learner import plain, require
from rankloop.core.types import Array
from rankloop.kernels.pairwise import mean_squared_distance
from rankloop.learners.pairwise._rows import Rows, row_scores

Start = str | list[float]
# What a click adds to the precision of a weight, about: of m documents looked at one click tells (1 - 1/m) S, S being
# half the mean squared distance of two of them (`PairRank`, why 2/m); half of that with its propensity.
CLICK = 0.2


def require_start(start: object) -> None:
    """Refuse what is neither "zero", "base" nor a list of finite weights that are not all 0."""
    value = plain(start)
    if isinstance(value, str):
        require(value in ("zero", "base"), "init", start, "must be zero, base or a list of weights")
        return
    numbers = isinstance(value, list) and all(isinstance(w, int | float) and not isinstance(w, bool) for w in value)
    require(numbers and bool(np.isfinite(value).all()), "init", start, "must be zero, base or a list of weights")
    require(any(value), "init", start, "has no weight that is not 0: give init='zero'")


def first_weights(start: Start, rows: Rows, base: float = 1.0) -> Array:
    """(d,) the weights to start with; `rows` (n, d) is the first list, with the base order as last column where asked.

    With "base" all weight, `base` of it, lies on the caller's order. Given weights are brought to a size at which the
    scores of two documents of the list differ by 1 in the root mean square: what they order is theirs, but how sure a
    linear model is of it depends on how it was trained, and is said by `prior_strength`.
    """
    d = rows.shape[1]
    if start == "zero":
        return np.zeros(d)
    if start == "base":
        return base_weights(d - 1, base)
    weights = np.array(start, np.float64)
    if weights.size != d:
        raise InvalidInput(f"init has {weights.size} weights, but the candidates have {d} features; give one each")
    scores = row_scores(rows, weights)
    return np.asarray(weights / np.sqrt(mean_squared_distance(scores.reshape(-1, 1))))


def base_weights(features: int, base: float) -> Array:
    """(features + 1,) nothing but the caller's order counts, by so much."""
    weights = np.zeros(features + 1)
    weights[-1] = base
    return weights


def weights_now(theta: Array, start: Start, rows: Array, base: float = 1.0) -> Array:
    """The weights learned, or those to start with while nothing is (θ empty); at "zero" that is θ, which scores 0."""
    return theta if theta.size or start == "zero" else first_weights(start, rows, base)
