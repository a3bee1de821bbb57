"""The certain relation of `rankloop.kernels.certainty` asked pair by pair, where a matrix of all pairs is too large.

Documents are whitened rows (n, d): X A with A Aᵀ = M⁻¹, so that plain distances are those of the norm.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import tanh


@jit
def surely_above(white: Array, scores: Array, i: int, j: int, alpha: float, logit: bool) -> bool:
    """Whether i is certainly above j, by rows (n, d) whose plain distances are those of the norm: X A with A Aᵀ = M⁻¹.

    The sum has four lanes, and stops as soon as it is too long for the gap: most pairs are given up soon.
    """
    gap = scores[i] - scores[j]
    if gap <= 0.0:
        return False
    excess = gap if logit else 0.5 * tanh(0.5 * gap)
    bar, square = excess * excess, alpha * alpha
    a = b = c = e = 0.0
    d = white.shape[1]
    first = 0
    while first < d:
        last = min(first + 16, d)
        column = first
        while column + 4 <= last:
            v = white[i, column] - white[j, column]
            w = white[i, column + 1] - white[j, column + 1]
            x = white[i, column + 2] - white[j, column + 2]
            y = white[i, column + 3] - white[j, column + 3]
            a += v * v
            b += w * w
            c += x * x
            e += y * y
            column += 4
        while column < last:
            v = white[i, column] - white[j, column]
            a += v * v
            column += 1
        if not bar > square * ((a + b) + (c + e)):
            return False
        first = last
    return True


@jit
def count_predecessors(
    white: Array,
    scores: Array,
    above: Array,
    some: Array,
    pairs: Array,
    leads: Array,
    unit: float,
    doubt: float,
    alpha: float,
    logit: bool,
    most: int,
    waiting: Array,
) -> None:
    """Add to waiting_j, for each of `some` (r,), how many of `above` (m,) are certainly above it, up to `most`.

    `pairs` (p,) are those that may be certain: q m + p is `some[q]` and `above[p]`. `leads` (r m,) say by how much, as
    (gap² - α²‖x_ij‖²) / unit², or more, but not by more than 2 `doubt` (the gap is a quarter of that of the scores
    without `logit`). A pair that this does not decide is asked exactly.
    """
    for pair in pairs:
        i, j = above[pair % above.size], some[pair // above.size]
        gap = scores[i] - scores[j]
        if gap <= 0.0 or waiting[j] >= most:
            continue
        excess, place = gap, gap / unit
        if not logit:
            excess, place = 0.5 * tanh(0.5 * gap), 0.25 * place
        lead = (excess / unit) * (excess / unit) - (place * place - leads[pair])  # leads is NaN out of its range
        if lead < 0.0:
            continue
        if lead > 2.0 * doubt:
            waiting[j] += 1
        else:
            waiting[j] += surely_above(white, scores, i, j, alpha, logit)


@jit
def long_random_topological(
    white: Array, scores: Array, waiting: Array, alpha: float, logit: bool, uniforms: Array, k: int
) -> tuple[Array, Array]:
    """(k,) the list that `random_topological` draws, and (k, n) whom each document of it is certainly above.

    `waiting` (n,): how many are certainly above each, counted up to k. Whom a document is above is told of those that
    can come up only.
    """
    n = waiting.size
    left = waiting.copy()  # certain predecessors not placed yet; -1 once placed
    order = np.empty(k, np.int64)
    above = np.zeros((k, n), np.bool_)
    free = np.empty(n, np.int64)
    for p in range(k):
        count = 0
        for i in range(n):
            if left[i] == 0:
                free[count] = i
                count += 1
        pick = free[int(uniforms[p] * count)]
        order[p] = pick
        left[pick] = -1
        for j in range(n):
            if 0 < waiting[j] < k and surely_above(white, scores, pick, j, alpha, logit):
                above[p, j] = True
                left[j] -= 1
    return order, above


@jit
def successors(white: Array, scores: Array, waiting: Array, alpha: float, logit: bool, order: Array) -> Array:
    """(k, n) whom each document of `order` is certainly above, of those that can come up; `waiting` as there."""
    above = np.zeros((order.size, waiting.size), np.bool_)
    for p in range(order.size):
        for j in range(waiting.size):
            if 0 < waiting[j] < order.size:
                above[p, j] = surely_above(white, scores, order[p], j, alpha, logit)
    return above


@jit
def long_block_ends(white: Array, scores: Array, ranked: Array, alpha: float, logit: bool, k: int) -> Array:
    """(b,) where the blocks end that the first k ranks lie in; `ranked` (n,) has the highest score first.

    As `block_ends`, but no rank is looked at twice: only uncertain pairs that reach further down than all before tell
    something new.
    """
    n = ranked.size
    ends = np.empty(n, np.int64)
    count, furthest = 0, 0
    for p in range(n):
        for b in range(n - 1, max(furthest, p), -1):
            if not surely_above(white, scores, ranked[p], ranked[b], alpha, logit):
                furthest = b
                break
        furthest = max(furthest, p)
        if furthest == n - 1:
            ends[count] = n
            return ends[: count + 1]
        if furthest == p:
            ends[count] = p + 1
            count += 1
            if p + 1 >= k:
                break
    return ends[:count]
