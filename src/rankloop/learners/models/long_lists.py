"""Which documents of a long list can be among the first k, without a matrix of all pairs."""

from __future__ import annotations

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels.certainty import contenders
from rankloop.kernels.long_lists import count_predecessors

NOTHING = np.zeros(0)
BLOCK = 384  # documents that are compared at a time: their products fit into a processor's cache
FIRST = 128  # of those asked, so many by themselves: once something is known they put out most of a block
WIDTHS = (12, 28, 60)  # columns of the rows to look at first, where they will do
ENOUGH = 0.5  # of the typical squared distance in some columns: most pairs are further apart than that
ROTATE_BELOW = 100.0  # squared ratio of ‖θ‖ to α below which so many documents are left that rotating the rows pays
SAMPLE = 300  # documents that say which directions all differ in


def rotated(root: Array, half: Array, rows: Array) -> Array:
    """(d, d) another A with the same A Aᵀ as `root`, whose first columns separate most documents X (n, d).

    The first column of X A is the direction of the scores, A⁻¹θ (`half`); then come the directions in which documents
    differ most. Plain distances of X A do not change.
    """
    some = rows[:: -(-len(rows) // SAMPLE)] @ root
    some -= some.mean(0)
    way = half / max(np.sqrt(half @ half), 1e-150)  # 0 if scores consist of the documents' own parts
    some -= np.outer(some @ way, way)
    spread = some.T @ some
    spread += (1.0 + 2.0 * np.trace(spread)) * np.outer(way, way)  # above all other eigenvalues
    return np.asarray(root @ np.linalg.eigh(spread)[1][:, ::-1])


def predecessors(white: Array, scores: Array, ranked: Array, alpha: float, logit: bool, k: int) -> Array:
    """(n,) how many documents are certainly above each, counted up to k; `ranked` (n,) has the highest score first.

    `white` (n, d) are rows whose plain distances are those of the norm. Who has k predecessors is never among the first
    k. The logit rule is transitive: whoever has k predecessors has k among those with fewer, so only these are asked,
    and there are few of them once something is known. The other rule is not: all documents of higher score are asked.

    Memory is O(n d). While next to nothing is certain n²/2 pairs are looked at, but nearly all of them through a few
    columns only: a distance in these is at most the whole, and too long for most gaps. `_Forms` does that, by BLAS and
    in single precision; `count_predecessors` asks exactly about every pair that is left.
    """
    rows = white - white.mean(0)
    squares = np.einsum("ij,ij->i", rows, rows)
    del rows
    waiting = np.zeros(len(white), np.int64)
    if logit:  # most of a long list is out by a bound that needs no pair; longer norms only make it more careful
        running = np.zeros(len(white), np.bool_)
        running[contenders(scores, (1.0 + 1e-5) * np.sqrt(squares), NOTHING, alpha, k)] = True
        waiting[~running] = k
        ranked = ranked[running[ranked]]
    forms = _Forms(white, squares, scores, ranked, alpha, logit)
    who, size = ranked.copy(), 0  # the first `size` are asked; their forms move to the front with them

    def count(above: Array, some: Array) -> Array:
        """Those of `some` that may come up still; documents are named by where their forms are."""
        i, j = who[above], who[some]
        count_predecessors(white, scores, i, j, *forms.open_pairs(above, some), alpha, logit, k, waiting)
        return some[waiting[j] < k]

    for first in range(0, ranked.size, BLOCK):
        block = left = np.arange(first, min(first + BLOCK, ranked.size))
        start = 0
        while start < size and left.size:
            stop = min(start + min(max(start, FIRST), BLOCK), size)
            left, start = count(np.arange(start, stop), left), stop
        if left.size:
            left = count(left if logit else block, left)
        joined = left if logit else block
        if joined.size < block.size or size < first:
            who[size : size + joined.size] = who[joined]
            forms.move(joined, size)
        size += joined.size
    return waiting


class _Forms:
    """Rows f (m, width + 4) of documents, with f_i · flip(f_j) = gap² - (α · distance)² for each two, or no less.

    The distance is that in the first `width` columns, and the difference between the lengths of what is left: at most
    the whole distance, and all of it where no column is left out. A pair for which the product is below 0 is not
    certain. The gap is that of the scores, or a quarter of it where the rule is of probabilities: σ - 1/2 is at most
    that. All is in units in which typical numbers are about 1. What leaves the range of single precision is NaN or
    infinite, which never says that a certain pair is not.
    """

    def __init__(self, white: Array, squares: Array, scores: Array, ranked: Array, alpha: float, logit: bool) -> None:
        m, d = ranked.size, white.shape[1]
        squares, scores, centre = squares[ranked], scores[ranked], white.mean(0)
        places = (1.0 if logit else 0.25) * (scores - scores.mean())
        sizes = places**2 + alpha**2 * squares
        self.unit = float(np.sqrt(sizes.mean())) or 1.0
        self.places, self.most = places / self.unit, np.inf if logit else 0.5 / self.unit
        # what rounding can do at most to all these sums; and nothing is read from numbers that are all but 0
        self.doubts = (2 * d + 8) * 2.0**-23 * sizes / self.unit**2 + 1e-30
        pairs = min(m, BLOCK) ** 2
        self.leads, self.flags = np.empty(pairs, np.float32), np.empty(pairs, np.bool_)
        whole = np.empty((m, d + 4), np.float32)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            whole[:, 0] = 1.0
            whole[:, 1] = (places**2 - alpha**2 * squares) / self.unit**2 + self.doubts
            whole[:, 2] = np.sqrt(2.0) * self.places
            whole[:, 3] = 0.0
            for first in range(0, m, BLOCK):
                rows = white[ranked[first : first + BLOCK]] - centre
                whole[first : first + BLOCK, 4:] = np.sqrt(2.0) * alpha / self.unit * rows
            some = whole[:: -(-m // SAMPLE), 4:]
            self.typical = np.cumsum(np.einsum("ij,ij->j", some, some) / len(some))  # squared, in the first columns
        self.rows = {d: whole}
        self.widths = [*(width for width in WIDTHS if 2 * width < d), d]

    def of_width(self, width: int) -> Array:
        """All rows, made when they are first asked for."""
        if width not in self.rows:
            whole = self.rows[self.widths[-1]]
            left_out = whole[:, 4 + width :]
            self.rows[width] = whole[:, : 4 + width].copy()
            with np.errstate(over="ignore"):
                self.rows[width][:, 3] = np.sqrt(np.einsum("ij,ij->i", left_out, left_out))
        return self.rows[width]

    def open_pairs(self, above: Array, some: Array) -> tuple[Array, Array, float, float]:
        """The pairs that may be certain, for `count_predecessors`; either side has the highest score first."""
        reach = min(self.places[above[0]] - self.places[some[-1]], self.most) ** 2
        whole = self.widths[-1]
        rows = self.of_width(next((w for w in self.widths if reach < ENOUGH * self.typical[w - 1]), whole))
        flipped = rows[some]
        flipped[:, :2] = flipped[:, 1::-1]
        flipped[:, 2] *= -1.0
        leads, flags = (kept[: some.size * above.size] for kept in (self.leads, self.flags))
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(flipped, rows[above].T, out=leads.reshape(some.size, above.size))
        pairs = np.flatnonzero(np.logical_not(np.less(leads, 0.0, out=flags), out=flags))
        doubt = self.doubts[some].max() + self.doubts[above].max()
        return pairs, leads, self.unit, float(doubt) if rows.shape[1] == whole + 4 else np.inf

    def move(self, some: Array, to: int) -> None:
        """Have the rows of `some` from `to` on."""
        for rows in (self.places, self.doubts, *self.rows.values()):
            rows[to : to + some.size] = rows[some]
