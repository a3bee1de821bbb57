"""How sure a network is of the order of two documents: its tangent features, and the covariance A of those seen.

A = λI + Σ g_ij g_ijᵀ/m over the pairs learned from. Kept is its diagonal (1, p), or with "full" its inverse (p, p).
"""

from __future__ import annotations

import numpy as np

from rankloop.errors import InvalidParameter
from rankloop.kernels import certainty, pairwise
from rankloop.kernels.products import product
from rankloop.learners.neural.networks import Forward, Network
from rankloop.types import Array

FULL_MOST = 4000  # weights of which a full covariance is kept: 128 MB of it


def begun(network: Network, covariance: str, level: float) -> Array:
    """A = λI for λ = `level`, in the form that is kept."""
    if covariance == "diagonal":
        return np.full((1, network.size), level)
    if network.size > FULL_MOST:
        raise InvalidParameter(
            f"covariance is 'full', but the network has {network.size} weights; it must have at most {FULL_MOST}: "
            "take covariance='diagonal', or a smaller width"
        )
    return np.eye(network.size) / level


def widened(spread: Array, model: Forward, pairs: Array, counts: Array, covariance: str) -> Array:
    """A with what pairs (m, 2) of the model's rows add, each as often as `counts` (m,) says."""
    if covariance == "diagonal":
        return spread + model.squares(pairs, counts)
    tangents, inverse = model.tangents(), spread.copy()
    for (a, b), count in zip(pairs, counts, strict=True):
        pairwise.rank_one_update(inverse, tangents[a] - tangents[b], count)
    return inverse


def relation(spread: Array, model: Forward, alpha: float, k: int, covariance: str) -> tuple[Array, Array]:
    """(r,) the rows that can be among the first k of a list, and (r, r) which of them are certainly above which.

    With the diagonal, rows that k others are certain over by a bound are found first, at the price of scoring; only
    pairs with one of the others in them are looked at. Who waits for one that never comes up is left out too.
    """
    everyone = np.arange(model.scores.size)
    if covariance == "full":
        tangents = np.ascontiguousarray(model.tangents(), np.float64)
        gram = product(product(tangents, spread), np.ascontiguousarray(tangents.T))
        return everyone, certainty.certain_over(model.scores, gram.diagonal().copy(), gram, everyone, alpha)
    inverse = 1.0 / spread[0]
    squares, centred = model.lengths(inverse)
    some = certainty.possible(model.scores, np.sqrt(centred), alpha, k)
    gram = model.gram(inverse, some, np.argsort(-model.scores, kind="stable"))  # only who scores higher can be certain
    certain = certainty.certain_over(model.scores, squares, gram, some, alpha)
    free = certainty.reachable(certain, some)
    return some[free], np.ascontiguousarray(certain[some[free]][:, free])
