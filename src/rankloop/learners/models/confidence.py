"""PairConfidence: which document is certainly better than which."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import certainty, long_lists
from rankloop.kernels.ranking import top_k
from rankloop.learners.models.long_lists import NOTHING, ROTATE_BELOW, predecessors, rotated
from rankloop.learners.models.rows import NumberedRows

LONG = 500  # with more candidates, a matrix of all pairs costs more than asking pair by pair


class SharedWidth(Protocol):
    """A further part of the width of pairs: a norm in directions that are not in the rows (a network's gradients)."""

    def squares(self) -> Array:
        """(n,) the squared norm of each document, about one common origin."""

    def gram(self, some: Array) -> Array:
        """(r, r) the Gram matrix of the documents `some` (r,), about any common origin."""


class PairConfidence(NamedTuple):
    """Scores of n documents and the width of the interval of the difference of each two.

    i is certainly above j iff s_i - s_j > w_ij ("logit"), or σ(s_i - s_j) - 1/2 > w_ij, with
    w_ij² = α²‖x_i - x_j‖² + v_i + v_j in the norm of the inverse confidence matrix; without one nothing is certain.
    `own` holds the v, the variance of each document's own part of the score. Above `LONG` documents, `shared` is left
    out. A matrix that is diagonal is (d,), and for sparse rows (u,): the columns that they use.
    """

    rows: Array | NumberedRows  # (n, d)
    scores: Array  # (n,)
    theta: Array  # (d,)
    inverse: Array  # (d, d), or its diagonal; or empty
    alpha: float
    logit: bool = True
    own: Array = NOTHING  # (n,), or (0,)
    shared: SharedWidth | None = None

    @property
    def nothing_known(self) -> bool:
        """Whether no pair can be certain, because nothing was learned yet."""
        return self.inverse.size == 0

    @property
    def long(self) -> bool:
        """Whether the list is so long that pairs are asked one by one."""
        return self.scores.size > LONG and not isinstance(self.rows, NumberedRows)

    def certain(self) -> Array:
        """(n, n) which document is certainly better than which."""
        if self.nothing_known:
            return np.zeros((self.scores.size, self.scores.size), np.bool_)
        if isinstance(self.rows, NumberedRows):
            gram = self.rows.gram(self.inverse, np.arange(self.scores.size))
        else:
            gram = (self.rows * self.inverse if self.inverse.ndim == 1 else self.rows @ self.inverse) @ self.rows.T
        alpha = self.alpha
        if self.shared is not None:
            gram, alpha = alpha**2 * gram + self.shared.gram(np.arange(self.scores.size)), 1.0
        return certainty.certain_pairs(self.scores, gram, self.own, alpha, self.logit)

    def block_ends(self, ranked: Array, k: int) -> Array:
        """(b,) the rank at which each block ends, at least of the blocks that the first k ranks lie in."""
        if self.nothing_known:
            return np.array([self.scores.size])
        if not self.long:
            return certainty.block_ends(self.certain(), ranked)
        return long_lists.long_block_ends(self._whitened(), self.scores, ranked, self.alpha, self.logit, k)

    def contenders(self, k: int) -> tuple[Array, Array]:
        """The documents that can be among the first k, and the certain relation between them."""
        if not self.logit:
            return np.arange(self.scores.size), self.certain()
        if isinstance(self.rows, NumberedRows):
            running = certainty.contenders(self.scores, self.rows.norms(self.inverse), self.own, self.alpha, k)
            own, gram = self.own[running] if self.own.size else self.own, self.rows.gram(self.inverse, running)
            return running, certainty.certain_pairs(self.scores[running], gram, own, self.alpha, True)
        centered = certainty.centred_rows(self.rows)  # pairs are the same, single norms shorter: fewer contenders
        half = centered * self.inverse if self.inverse.ndim == 1 else centered @ self.inverse
        alpha, own, norms = self.alpha, self.own, certainty.row_norms(half, centered)
        if self.shared is not None:
            norms, alpha = np.sqrt(alpha**2 * norms**2 + self.shared.squares()), 1.0
        running = certainty.contenders(self.scores, norms, own, alpha, k)
        gram = half[running] @ centered[running].T
        if self.shared is not None:
            gram = self.alpha**2 * gram + self.shared.gram(running)
        own = own[running] if own.size else own
        return running, certainty.certain_pairs(self.scores[running], gram, own, alpha, True)

    def predecessors(self, k: int) -> tuple[Array, Array]:
        """Whitened rows of a long list, and how many documents are certainly above each (up to k).

        By the Cauchy-Schwarz inequality s_i - s_j ≤ ‖θ‖_M ‖x_ij‖: while ‖θ‖_M < α no pair is certain and none is looked
        at. (σ - 1/2 is at most a quarter of its argument.) BLAS may round differently on another processor; that can
        decide only pairs that lie on the bound to the last bits, and learning does not read these numbers.
        """
        assert not isinstance(self.rows, NumberedRows)
        n = self.scores.size
        if self.inverse.ndim == 1:
            half = self.theta / np.sqrt(self.inverse)
        else:
            root = self._root()
            half = np.linalg.solve(root, self.theta)
        reach = (1.0 if self.logit else 1.0 / 16.0) * (half @ half)
        alone = not self.own.size and self.shared is None
        if alone and reach < (1.0 - 1e-6) * self.alpha**2:  # rounding errs by far less
            return self.rows, np.zeros(n, np.int64)
        if self.inverse.ndim == 1:
            white = self._whitened()
        else:
            white = self.rows @ (rotated(root, half, self.rows) if reach < ROTATE_BELOW * self.alpha**2 else root)
        ranked = top_k(self.scores, np.zeros(n), n)
        return white, predecessors(white, self.scores, ranked, self.alpha, self.logit, k)

    def _whitened(self) -> Array:
        """(n, d) rows whose plain distances are those of the norm."""
        rows = self.rows
        return np.asarray(rows * np.sqrt(self.inverse) if self.inverse.ndim == 1 else rows @ self._root())

    def _root(self) -> Array:
        """(d, d) a matrix A with A Aᵀ the inverse confidence matrix: plain distances of X A are those of the norm."""
        try:
            return np.linalg.cholesky(self.inverse)
        except np.linalg.LinAlgError:  # rounding has taken a well-known direction to 0 or below
            values, vectors = np.linalg.eigh(self.inverse)
            return np.asarray(vectors * np.sqrt(np.maximum(values, 1e-16 * values[-1])))
