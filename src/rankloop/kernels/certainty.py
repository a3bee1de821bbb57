"""Which of two documents is certainly better, and rankings that are random only where it is not.

The certain relation is a matrix C with C[i, j] true iff i certainly goes above j; it implies a strictly higher score,
so it never has a cycle.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import log, tanh
from rankloop.kernels.products import row_dots


@jit
def certain_pairs(scores: Array, gram: Array, own: Array, alpha: float, logit: bool) -> Array:
    """(n, n) the certain relation from the Gram matrix G = X M⁻¹ Xᵀ: ‖x_i - x_j‖² = G_ii + G_jj - 2 G_ij.

    With `logit` a pair is certain iff s_i - s_j > w_ij, else iff σ(s_i - s_j) - w_ij > 1/2, for the width
    w_ij² = α²‖x_ij‖² + v_i + v_j; `own` are the v (n,), or empty: all 0.
    """
    n, square_alpha = scores.size, alpha * alpha
    certain = np.zeros((n, n), np.bool_)
    for i in range(n):
        for j in range(i):
            gap = scores[i] - scores[j]
            if own.size:
                diagonal = (square_alpha * gram[i, i] + own[i]) + (square_alpha * gram[j, j] + own[j])
                square = max(diagonal - 2.0 * (square_alpha * gram[i, j]), 0.0)
            else:
                square = square_alpha * max(gram[i, i] + gram[j, j] - 2.0 * gram[i, j], 0.0)
            if gap == 0.0:
                continue
            if logit:
                sure = gap * gap > square
            else:
                excess = 0.5 * tanh(0.5 * np.abs(gap))  # σ(|gap|) - 1/2, without cancellation
                sure = excess * excess > square
            if sure:
                if gap > 0.0:
                    certain[i, j] = True
                else:
                    certain[j, i] = True
    return certain


@jit
def block_ends(certain: Array, order: Array) -> Array:
    """(b,) where each block ends (one past its last rank) when documents stand in `order` of descending score.

    Cut between ranks p and p+1 iff everything above is certain over everything below: an uncertain pair at ranks
    a < b merges the interval a … b, and blocks are the connected intervals.
    """
    n = order.size
    reach = np.empty(n, np.int64)  # the furthest rank below that is uncertain against this one
    for a in range(n):
        reach[a] = a
        for b in range(n - 1, a, -1):
            if not certain[order[a], order[b]]:
                reach[a] = b
                break
    ends = np.empty(n, np.int64)
    count, furthest = 0, 0
    for p in range(n):
        furthest = max(furthest, reach[p])
        if furthest == p:
            ends[count] = p + 1
            count += 1
    return ends[:count]


@jit
def shuffle_blocks(order: Array, ends: Array, uniforms: Array, k: int) -> Array:
    """(k,) the first k of `order` with each block shuffled uniformly; `uniforms` (k,) decide, a number a position."""
    shuffled = order.copy()
    k = min(k, order.size)
    block = 0
    for p in range(k):
        if p == ends[block]:
            block += 1
        pick = p + int(uniforms[p] * (ends[block] - p))
        shuffled[p], shuffled[pick] = shuffled[pick], shuffled[p]
    return shuffled[:k]


@jit
def _predecessors(certain: Array) -> Array:
    """(n,) how many documents are certainly above each."""
    n = certain.shape[0]
    waiting = np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            waiting[j] += certain[i, j]
    return waiting


@jit
def random_topological(certain: Array, uniforms: Array, k: int) -> Array:
    """(k,) the first k of a random topological order of the certain relation.

    Position by position, one of the documents with no certain predecessor left is picked uniformly. Documents of a
    later block always have one, so this is at once the order inside each block and across them.
    """
    n = certain.shape[0]
    k = min(k, n)
    waiting = _predecessors(certain)  # not placed yet; -1 once placed
    order = np.empty(k, np.int64)
    free = np.empty(n, np.int64)
    for p in range(k):
        count = 0
        for i in range(n):
            if waiting[i] == 0:
                free[count] = i
                count += 1
        pick = free[int(uniforms[p] * count)]
        order[p] = pick
        waiting[pick] = -1
        for j in range(n):
            if certain[pick, j]:
                waiting[j] -= 1
    return order


@jit
def centred_rows(rows: Array) -> Array:
    """(n, d) the rows less their mean: differences stay, lengths become shorter."""
    n, d = rows.shape
    mean = np.zeros(d)
    for i in range(n):
        for j in range(d):
            mean[j] += rows[i, j]
    for j in range(d):
        mean[j] /= n
    found = np.empty((n, d))
    for i in range(n):
        for j in range(d):
            found[i, j] = rows[i, j] - mean[j]
    return found


@jit
def row_norms(half: Array, rows: Array) -> Array:
    """(n,) ‖x‖ in the norm of M⁻¹, from the rows X (n, d) and X M⁻¹."""
    found = row_dots(half, rows)
    for i in range(found.size):
        found[i] = np.sqrt(max(found[i], 0.0))
    return found


@jit
def contenders(scores: Array, norms: Array, own: Array, alpha: float, k: int) -> Array:
    """Positions of the documents that can be among the first k, by bounds that need no Gram matrix.

    With the logit rule ‖x_ij‖ ≤ ‖x_i‖ + ‖x_j‖ (any common origin), so i is certain over j whenever
    s_i - r_i > s_j + r_j, with r_i² = α²‖x_i‖² + v_i (`own` (n,), or empty: all 0). A document with k such predecessors
    never comes up, nor does any it is certain over: the rule is transitive. Leaving them out changes nothing but the
    time, which long lists need.

    Where documents have widths of their own, α²(‖x_i‖ + ‖x_j‖)² + v_i + v_j is a closer bound than (r_i + r_j)², so
    those that passed are held against the k that passed best.
    """
    n = scores.size
    radii = alpha * norms
    for i in range(own.size):
        radii[i] = np.sqrt(alpha * alpha * (norms[i] * norms[i]) + own[i])
    lower = scores - radii
    bar = np.sort(lower)[max(n - k, 0)]
    found = np.flatnonzero(scores + radii >= bar)
    if own.size == 0:
        return found
    best = np.flatnonzero(lower >= bar)
    count = 0
    for j in found:
        may_fail = best.size - k  # how many of the best need not be certain over it
        for b in best:
            gap, reach = scores[b] - scores[j], alpha * (norms[b] + norms[j])
            if gap <= 0.0 or gap * gap <= reach * reach + own[b] + own[j]:
                may_fail -= 1
                if may_fail < 0:
                    break
        if may_fail < 0:
            found[count] = j
            count += 1
    return found[:count]


@jit
def possible(scores: Array, radii: Array, alpha: float, k: int) -> Array:
    """Positions of the documents that fewer than k others are certain over, by a bound that needs no pair.

    For the rule of probabilities: ‖g_ij‖ ≤ r_i + r_j (`radii` (n,), about any common origin), so i is certain over j
    whenever σ(s_i - s_j) - 1/2 > α(r_i + r_j). Who has k such predecessors is never among the first k.
    """
    n = scores.size
    found = np.empty(n, np.int64)
    count = 0
    order = np.argsort(-scores, kind="mergesort")
    for q in range(n):
        j, above = order[q], 0
        for p in range(q):
            i = order[p]
            above += 0.5 * tanh(0.5 * (scores[i] - scores[j])) > alpha * (radii[i] + radii[j])
            if above == k:
                break
        if above < k:
            found[count] = j
            count += 1
    return np.sort(found[:count])


@jit
def certain_over(scores: Array, squares: Array, gram: Array, some: Array, alpha: float) -> Array:
    """(n, r) which documents are certainly above each of `some` (r,): σ(s_i - s_j) - α‖g_ij‖ > 1/2.

    ‖g_ij‖² = squares_i + squares_j - 2 gram_ij, with `gram` (n, r) between all documents and `some`.
    """
    n, r = gram.shape
    certain = np.zeros((n, r), np.bool_)
    for i in range(n):
        for q in range(r):
            gap = scores[i] - scores[some[q]]
            if gap > 0.0:
                excess = 0.5 * tanh(0.5 * gap)  # σ(gap) - 1/2, without cancellation
                width = alpha * alpha * max(squares[i] + squares[some[q]] - 2.0 * gram[i, q], 0.0)
                certain[i, q] = excess * excess > width
    return certain


@jit
def reachable(certain: Array, some: Array) -> Array:
    """(r,) flags: which of `some` (r,) can be among the first k, if none of the other documents can.

    Nobody comes up who waits for a document that never does. `certain` (n, r) is over `some`, from all documents.
    """
    n, r = certain.shape
    place = np.full(n, -1, np.int64)
    for q in range(r):
        place[some[q]] = q
    free = np.ones(r, np.bool_)
    changed = True
    while changed:
        changed = False
        for q in range(r):
            for i in range(n):
                if free[q] and certain[i, q] and (place[i] < 0 or not free[place[i]]):
                    free[q] = False
                    changed = True
    return free


@jit
def agreed_pairs(scores: Array) -> Array:
    """(n, n) the certain relation of an ensemble (N, n): i goes above j iff every member scores it higher."""
    members, n = scores.shape
    agreed = np.ones((n, n), np.bool_)
    for i in range(n):
        for j in range(n):
            for e in range(members):
                if scores[e, i] <= scores[e, j]:
                    agreed[i, j] = False
                    break
    return agreed


@jit
def topological_swap_shares(certain: Array, order: Array) -> Array:
    """(k, k) P(R*) / (P(R) + P(R*)) for every two positions, under `random_topological`.

    R is the shown list, R* the same with the documents of the two positions swapped. A list's probability is the
    product over its positions of 1 / (documents free to be picked there), so only the counts between the two positions
    differ. 0 where R* could not have been shown, because a certain order forbids it.
    """
    return swap_shares(_predecessors(certain), certain[order], order)


@jit
def swap_shares(predecessors: Array, above: Array, order: Array) -> Array:
    """(k, k) the same from how many are certainly above each (n,) and whom each of `order` is above (k, n)."""
    k, n = above.shape
    waiting = np.zeros((k + 1, n), np.int64)  # before each position: certain predecessors not placed yet; -1: placed
    for j in range(n):  # an assignment of rows takes numba seconds to compile
        waiting[0, j] = predecessors[j]
    free = np.zeros(k, np.int64)
    for p in range(k):
        for j in range(n):
            free[p] += waiting[p, j] == 0
            waiting[p + 1, j] = waiting[p, j] - above[p, j]
        waiting[p + 1, order[p]] = -1
    shares = np.zeros((k, k))
    for p in range(k):
        for q in range(p + 1, k):
            b = order[q]
            if waiting[p, b] != 0:
                continue
            ratio = 1.0  # P(R*) / P(R)
            for r in range(p + 1, q + 1):
                if r < q and above[p, order[r]]:
                    ratio = 0.0
                    break
                count = 1  # the document of p, which now waits for position q
                for j in range(n):
                    if waiting[r, j] >= 0 and j != b:
                        count += waiting[r, j] + above[p, j] - above[q, j] == 0
                ratio *= free[r] / count
            shares[p, q] = shares[q, p] = ratio / (1.0 + ratio)
    return shares


@jit
def block_swap_shares(ends: Array, k: int) -> Array:
    """(k, k) the same under `shuffle_blocks`: 1/2 within a block, where all orders are equally likely, 0 across."""
    shares = np.zeros((k, k))
    first = 0
    for block in range(ends.size):
        for p in range(first, min(ends[block], k)):
            for q in range(p + 1, min(ends[block], k)):
                shares[p, q] = shares[q, p] = 0.5
        first = ends[block]
    return shares


@jit
def topological_log_probability(certain: Array, order: Array) -> float:
    """log P(`order`) under `random_topological`, -inf if a certain order forbids it."""
    return drawn_log_probability(_predecessors(certain), certain[order], order)


@jit
def drawn_log_probability(predecessors: Array, above: Array, order: Array) -> float:
    """The same from how many are certainly above each (n,) and whom each of `order` is above (k, n)."""
    waiting = predecessors.copy()  # certain predecessors not placed yet; -1 once placed
    log_probability = 0.0
    for p in range(order.size):
        if waiting[order[p]] != 0:
            return -np.inf
        free = 0
        for j in range(waiting.size):
            free += waiting[j] == 0
            waiting[j] -= above[p, j]
        waiting[order[p]] = -1
        log_probability -= log(free)
    return log_probability


@jit
def block_log_probability(ranked: Array, ends: Array, order: Array) -> float:
    """log P(`order`) under `shuffle_blocks` of `ranked`, -inf if a document stands outside its block.

    Blocks that no rank of `order` lies in may be left out of `ends`.
    """
    block_of = np.full(ranked.size, -1, np.int64)
    block = 0
    for p in range(ends[-1]):
        block += p == ends[block]
        block_of[ranked[p]] = block
    log_probability = 0.0
    block = 0
    for p in range(order.size):
        block += p == ends[block]
        if block_of[order[p]] != block:
            return -np.inf
        log_probability -= log(ends[block] - p)
    return log_probability
