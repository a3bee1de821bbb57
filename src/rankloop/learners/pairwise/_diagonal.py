"""PairRank's confidence as one variance a feature: how a list is learned from, in a table or in sparse rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array, SparseRows
from rankloop.kernels.diagonal import diagonal_onepass, faded, sparse_diagonal_onepass
from rankloop.learners.pairwise._rows import Rows, numbered


class Fading(NamedTuple):
    """How evidence fades. No feature is touched for it before someone looks: m fadings are one formula."""

    keep: float  # of a precision, an event; 1: all of it
    prior: float  # the precision that it fades to
    now: int  # events so far that made it fade


def learned(
    theta: Array,
    variance: Array,
    touched: Array,
    rows: Rows,
    pairs: Array,
    weights: Array,
    alone: int,
    fading: Fading,
) -> tuple[Array, Array, Array]:
    """θ, variances and the event at which each was last brought up to date (all (d,)), after the pairs of a list.

    Of sparse rows only the columns that are in the list are written, into the arrays themselves: the time goes by what
    is in the list, not by d. Who ranks in another thread meanwhile may find some of them old and some new.
    """
    keep, prior, now = fading
    if not isinstance(rows, SparseRows):
        theta = theta.copy()
        variance = faded(variance, keep, prior, now - touched) if keep < 1.0 else variance.copy()
        diagonal_onepass(theta, variance, rows, pairs, weights, alone)
        return theta, variance, np.full_like(touched, now)
    some = numbered(rows)
    at = some.columns
    here, spread = theta[at], variance[at]
    if keep < 1.0:
        spread = faded(spread, keep, prior, now - touched[at])
        touched[at] = now
    sparse_diagonal_onepass(here, spread, some.indptr, some.indices, some.local, some.values, pairs, weights, alone)
    theta[at], variance[at] = here, spread
    return theta, variance, touched
