"""How sure a network is of the order of two documents, from the gradients of their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import certainty
from rankloop.learners.models.networks import Forward


def relation(spread: Array, forward: Forward, alpha: float, k: int) -> tuple[Array, Array]:
    """(r,) the rows that can be among the first k of a list, and (r, r) which of them are certainly above which.

    `spread` (1, p) is the diagonal of A. Rows that k others are certainly above by a bound are found first, at the
    price of scoring; only pairs with one of the others in them are compared.
    """
    inverse = 1.0 / spread[0]
    squares, centered = forward.lengths(inverse)
    some = certainty.possible(forward.scores, np.sqrt(centered), alpha, k)
    gram = forward.gram(inverse, some, np.argsort(-forward.scores, kind="stable"))  # only higher scores can be certain
    certain = certainty.certain_over(forward.scores, squares, gram, some, alpha)
    free = certainty.reachable(certain, some)
    return some[free], np.ascontiguousarray(certain[some[free]][:, free])


class GradientWidth(NamedTuple):
    """What a network adds to the squared width of pairs: α²‖g_ij/√m‖² in the norm of A⁻¹ (`SharedWidth`)."""

    rows: Array  # (n, d)
    forward: Callable[[Array], Forward]  # the network's answer to some rows
    spread: Array  # (1, p) diagonal of A
    alpha: float

    def squares(self) -> Array:
        """(n,) about the documents' mean."""
        return np.asarray(self.alpha**2 * self.forward(self.rows).lengths(1.0 / self.spread[0])[1])

    def gram(self, some: Array) -> Array:
        """(r, r) between `some` (r,)."""
        forward = self.forward(self.rows[some])
        inverse, everyone = 1.0 / self.spread[0], np.arange(some.size)
        above = np.triu(forward.gram(inverse, everyone, everyone), 1)  # networks may leave out the rest
        return np.asarray(self.alpha**2 * (above + above.T + np.diag(forward.lengths(inverse)[0])))
