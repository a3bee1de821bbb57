"""How sure a network is of the order of two documents: its tangent features, and the covariance A of those seen.

A = λI + Σ g_ij g_ijᵀ/m over the pairs learned from. Kept is its diagonal (1, p), or with "full" its inverse (p, p).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array
from rankloop.kernels import certainty, pairwise
from rankloop.kernels.products import product
from rankloop.learners.neural.networks import Forward, Network
from rankloop.learners.pairwise._doubt import Doubt

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


class Tangents(NamedTuple):
    """What a network adds to the squared width of pairs beside a line's: α²‖g_ij/√m‖² in the norm of A⁻¹ (`Wider`)."""

    rows: Array  # (n, d)
    forward: Callable[[Array], Forward]  # the network's answer to some rows
    spread: Array  # A or its inverse, as kept
    alpha: float
    covariance: str

    def of(self, some: Array) -> Tangents:
        """Those of some of the documents."""
        return self._replace(rows=self.rows[some])

    def squares(self) -> Array:
        """(n,) about the documents' mean."""
        model = self.forward(self.rows)
        if self.covariance == "diagonal":
            return np.asarray(self.alpha**2 * model.lengths(1.0 / self.spread[0])[1])
        away = model.tangents() - model.tangents().mean(0)
        return np.asarray(self.alpha**2 * (product(np.ascontiguousarray(away), self.spread) * away).sum(1))

    def gram(self, some: Array) -> Array:
        """(r, r) between `some` (r,)."""
        model = self.forward(self.rows[some])
        if self.covariance == "full":
            tangents = np.ascontiguousarray(model.tangents(), np.float64)
            whole = product(product(tangents, self.spread), np.ascontiguousarray(tangents.T))
            return np.asarray(self.alpha**2 * whole)
        inverse, everyone = 1.0 / self.spread[0], np.arange(some.size)
        above = np.triu(model.gram(inverse, everyone, everyone), 1)  # networks may leave out the rest
        return np.asarray(self.alpha**2 * (above + above.T + np.diag(model.lengths(inverse)[0])))


class Known(NamedTuple):
    """What the learner makes of some documents."""

    rows: Array  # (n, d) float32
    scores: Array  # (members, n)
    doubt: Doubt | None  # the line's, with the network's part; None without a line
    forward: list[Forward]  # the network's answers; none where it does not count

    def alike(self) -> bool:
        """Whether every member scores all documents the same."""
        return not (self.scores != self.scores[:, :1]).any()


def anyone(n: int, uniforms: Array) -> Array:
    """(k,) documents drawn as `certainty.random_topological` draws them where nothing is certain.

    So that a network whose scores differ by rounding only, as those of a module may where they should be 0, shows the
    same lists as one whose scores are equal.
    """
    left = list(range(n))
    return np.array([left.pop(int(u * len(left))) for u in uniforms])
