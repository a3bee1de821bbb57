"""What is certain about the order of some documents, and lists that are random only where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import certainty, long_lists
from rankloop.kernels.ranking import epsilon_greedy_log_probability, top_k
from rankloop.learners.pairwise._long import NOTHING, UNSURE, predecessors, turned
from rankloop.learners.pairwise._rows import Numbered

LONG = 500  # candidates from which a matrix of all pairs costs more than to ask pair by pair


class Draw(NamedTuple):
    """A list, how likely it was, and how likely it would have been with two of its documents swapped."""

    order: Array
    log_chance: float
    shares: Callable[[], Array]


class Wider(Protocol):
    """A further part of the width of pairs, the norm of directions that are not in the rows."""

    def squares(self) -> Array:
        """(n,) the squared norm of each document, about one common origin."""

    def gram(self, some: Array) -> Array:
        """(r, r) the Gram matrix of the documents `some` (r,), about any common origin."""


class Doubt(NamedTuple):
    """Scores of n documents, and how wide the interval about the difference of two of them is.

    i certainly goes above j iff s_i - s_j > w_ij ("logit"), or σ(s_i - s_j) - 1/2 > w_ij, with
    w_ij² = α²‖x_i - x_j‖² + v_i + v_j in the norm of the inverse confidence matrix. Without one, nothing is certain.

    `own` are the v: what each document's own part of the score is uncertain by, if it has one. It is the squared norm
    of a direction that is the document's alone, so all that holds for a norm holds for w. `wider` adds the squared norm
    of directions that documents share, such as the tangent features of a network. Beyond `LONG` documents both are left
    out: w is then that of the rows, and what is shown a little less random.

    Where the inverse has a diagonal only it is that (d,). Of sparse rows, which have nothing else, it is (u,): of the
    columns that they use. Such lists are compared by a matrix of those who contend however long they are.
    """

    rows: Array | Numbered  # (n, d)
    scores: Array  # (n,)
    theta: Array  # (d,)
    inverse: Array  # (d, d), or its diagonal; or empty
    alpha: float
    logit: bool
    own: Array = NOTHING  # (n,), or (0,)
    wider: Wider | None = None

    def draw(self, k: int, rng: np.random.Generator, blocks: bool) -> Draw:
        """The first k of a random order: of whole blocks, or one that respects every certain pair."""
        scores, n = self.scores, self.scores.size
        if self.inverse.size == 0:  # one block
            order = top_k(scores, rng.random(n), k)
            shares = partial(certainty.block_swap_shares, np.array([n]), k)
            return Draw(order, epsilon_greedy_log_probability(scores, order, 1.0), shares)
        if blocks:
            ranked = top_k(scores, rng.random(n), n)
            ends = self.ends(ranked, k)
            order = certainty.shuffle_blocks(ranked, ends, rng.random(k), k)
            shares = partial(certainty.block_swap_shares, ends, k)
            return Draw(order, certainty.block_log_probability(ranked, ends, order), shares)
        if n > LONG and not isinstance(self.rows, Numbered):
            white, waiting = self.waiting(k)
            bar = self.alpha, self.logit
            order, above = long_lists.long_random_topological(white, scores, waiting, *bar, rng.random(k), k)
            shares = partial(certainty.swap_shares, waiting, above, order)
            return Draw(order, certainty.drawn_log_probability(waiting, above, order), shares)
        running, certain = self.contenders(k)
        picked = certainty.random_topological(certain, rng.random(k), k)
        shares = partial(certainty.topological_swap_shares, certain, picked)
        return Draw(running[picked], certainty.topological_log_probability(certain, picked), shares)

    def log_chance(self, order: Array, blocks: bool) -> float:
        """log of the probability that `draw` gives `order`: the product over positions of 1 / (documents free)."""
        scores, n, k = self.scores, self.scores.size, len(order)
        if self.inverse.size == 0:
            return float(epsilon_greedy_log_probability(scores, order, 1.0))
        if blocks:
            ranked = top_k(scores, np.zeros(n), n)
            return float(certainty.block_log_probability(ranked, self.ends(ranked, k), order))
        if n > LONG and not isinstance(self.rows, Numbered):
            white, waiting = self.waiting(k)
            above = long_lists.successors(white, scores, waiting, self.alpha, self.logit, order)
            return float(certainty.drawn_log_probability(waiting, above, order))
        running, certain = self.contenders(k)
        if not np.isin(order, running).all():
            return -np.inf
        return float(certainty.topological_log_probability(certain, np.searchsorted(running, order)))

    def certain(self) -> Array:
        """(n, n) which document is certainly better than which."""
        if self.inverse.size == 0:
            return np.zeros((self.scores.size, self.scores.size), np.bool_)
        if isinstance(self.rows, Numbered):
            gram = self.rows.gram(self.inverse, np.arange(self.scores.size))
        else:
            gram = (self.rows * self.inverse if self.inverse.ndim == 1 else self.rows @ self.inverse) @ self.rows.T
        alpha = self.alpha
        if self.wider is not None:
            gram, alpha = alpha**2 * gram + self.wider.gram(np.arange(self.scores.size)), 1.0
        return certainty.certain_pairs(self.scores, gram, self.own, alpha, self.logit)

    def ends(self, ranked: Array, k: int) -> Array:
        """(b,) the rank at which each block ends, at least of the blocks that the first k ranks lie in."""
        if self.inverse.size == 0:
            return np.array([self.scores.size])
        if self.scores.size <= LONG or isinstance(self.rows, Numbered):
            return certainty.block_ends(self.certain(), ranked)
        white = self._white()
        return long_lists.long_block_ends(white, self.scores, ranked, self.alpha, self.logit, k)

    def contenders(self, k: int) -> tuple[Array, Array]:
        """The documents that can be among the first k, and the certain relation between them."""
        if not self.logit:
            return np.arange(self.scores.size), self.certain()
        if isinstance(self.rows, Numbered):
            running = certainty.contenders(self.scores, self.rows.norms(self.inverse), self.own, self.alpha, k)
            own, gram = self.own[running] if self.own.size else self.own, self.rows.gram(self.inverse, running)
            return running, certainty.certain_pairs(self.scores[running], gram, own, self.alpha, True)
        centred = certainty.centred_rows(self.rows)  # pairs are the same, single norms shorter: fewer contenders
        half = centred * self.inverse if self.inverse.ndim == 1 else centred @ self.inverse
        alpha, own, norms = self.alpha, self.own, certainty.row_norms(half, centred)
        if self.wider is not None:
            norms, alpha = np.sqrt(alpha**2 * norms**2 + self.wider.squares()), 1.0
        running = certainty.contenders(self.scores, norms, own, alpha, k)
        gram = half[running] @ centred[running].T
        if self.wider is not None:
            gram = self.alpha**2 * gram + self.wider.gram(running)
        own = own[running] if own.size else own
        return running, certainty.certain_pairs(self.scores[running], gram, own, alpha, True)

    def waiting(self, k: int) -> tuple[Array, Array]:
        """Whitened rows, and how many documents are certainly above each (up to k).

        By the inequality of Cauchy and Schwarz s_i - s_j ≤ ‖θ‖_M ‖x_ij‖: while ‖θ‖_M < α no pair is certain, whatever
        the documents, and none is looked at. (σ - 1/2 is at most a quarter of its argument.) Documents with a part of
        their own are looked at in any case.
        """
        # BLAS may round differently from one processor to the next. It decides on pairs that stand on the bar to the
        # last bits at most; the scores that learning reads from the memo are not made by it.
        assert not isinstance(self.rows, Numbered)
        n = self.scores.size
        if self.inverse.ndim == 1:
            half = self.theta / np.sqrt(self.inverse)
        else:
            root = self._root()
            half = np.linalg.solve(root, self.theta)
        reach = (1.0 if self.logit else 1.0 / 16.0) * (half @ half)
        alone = not self.own.size and self.wider is None
        if alone and reach < (1.0 - 1e-6) * self.alpha**2:  # rounding errs by far less
            return self.rows, np.zeros(n, np.int64)
        if self.inverse.ndim == 1:
            white = self._white()
        else:
            white = self.rows @ (turned(root, half, self.rows) if reach < UNSURE * self.alpha**2 else root)
        ranked = top_k(self.scores, np.zeros(n), n)
        return white, predecessors(white, self.scores, ranked, self.alpha, self.logit, k)

    def _white(self) -> Array:
        """(n, d) rows whose plain distances are those of the norm."""
        rows = self.rows
        return np.asarray(rows * np.sqrt(self.inverse) if self.inverse.ndim == 1 else rows @ self._root())

    def _root(self) -> Array:
        """(d, d) a matrix A with A Aᵀ the inverse confidence matrix: plain distances of X A are those of the norm."""
        try:
            return np.linalg.cholesky(self.inverse)
        except np.linalg.LinAlgError:  # rounding has taken a direction that is all but known to 0 or below
            values, vectors = np.linalg.eigh(self.inverse)
            return np.asarray(vectors * np.sqrt(np.maximum(values, 1e-16 * values[-1])))
