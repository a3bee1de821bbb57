"""What clicks and rewards say: which of two documents was preferred, and how much that counts."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

ADJACENT, MATCHED, ALL = 0, 1, 2


@jit
def examined_count(clicks: Array, examine_next: bool, seen: int) -> int:
    """Positions taken as looked at: down to the last click, and one more with `examine_next`; 0 without a click.

    Where it is known that the first `seen` came into view (-1: it is not), nothing is guessed: those and down to the
    last click.
    """
    for p in range(clicks.size - 1, -1, -1):
        if clicks[p] > 0:
            return min(p + 1 + examine_next if seen < 0 else max(p + 1, seen), clicks.size)
    return 0


@jit
def ascending(values: Array, some: Array, sign: float) -> Array:
    """The positions `some` by ascending sign · value, equal ones as they come. By insertion: these are the few that a
    user looked at, and numpy's sort takes seconds to compile, for everyone, the first time."""
    found = some.copy()
    for i in range(1, found.size):
        one, j = found[i], i
        while j > 0 and sign * values[found[j - 1]] > sign * values[one]:
            found[j] = found[j - 1]
            j -= 1
        found[j] = one
    return found


@jit
def click_pairs(clicks: Array, examine_next: bool, seen: int, rule: int, keys: Array) -> Array:
    """(m, 2) positions (better, worse) among the examined ones: clicked and not, or of two clicked ones that with the
    higher value.

    ADJACENT: the disjoint neighbors (0, 1), (2, 3), …; MATCHED: the best with the worst, the next with the next, each
    used at most once, and equal ones in the order of the random `keys` (k,); ALL: every two.
    """
    examined = examined_count(clicks, examine_next, seen)
    count = 0
    if rule == ADJACENT:
        pairs = np.empty((examined // 2, 2), np.int64)
        for p in range(0, examined - 1, 2):
            if clicks[p] != clicks[p + 1]:
                pairs[count, 0], pairs[count, 1] = (p, p + 1) if clicks[p] > clicks[p + 1] else (p + 1, p)
                count += 1
        return pairs[:count]
    if rule == MATCHED:
        drawn = ascending(keys, np.arange(examined), 1.0)
        up, down = ascending(clicks, drawn, 1.0), ascending(clicks, drawn, -1.0)
        while count < examined and clicks[down[count]] > clicks[up[count]]:
            count += 1
        pairs = np.empty((count, 2), np.int64)
        for m in range(count):  # numba compiles for seconds at an assignment of slices: what it would say of a misfit
            pairs[m, 0], pairs[m, 1] = down[m], up[m]
        return pairs
    for i in range(examined):
        for j in range(examined):
            count += clicks[i] > clicks[j]
    pairs = np.empty((count, 2), np.int64)
    count = 0
    for i in range(examined):
        for j in range(examined):
            if clicks[i] > clicks[j]:
                pairs[count, 0], pairs[count, 1] = i, j
                count += 1
    return pairs


@jit
def differences(values: Array, pairs: Array) -> Array:
    """(m,) by how much the better of each pair was better: 1 for clicked and unclicked.

    Weighted by it, two documents are preferred to each other in the proportion E(v_a - v_b)⁺ : E(v_b - v_a)⁺, and the
    difference of these is E v_a - E v_b: whichever has the higher mean reward comes out above.
    """
    found = np.empty(pairs.shape[0])
    for m in range(pairs.shape[0]):
        found[m] = values[pairs[m, 0]] - values[pairs[m, 1]]
    return found


@jit
def propensity_weights(shares: Array, doubtful: Array, clicks: Array, pairs: Array) -> Array:
    """(m,) the weight of each pair: its swap share where the order was random; where it was not, 1/2 if both documents
    were surely seen, else the pair's `doubtful` weight (m,).

    A pair in a fixed order is noticed whenever its lower document is clicked, but often not when only the upper one is:
    nobody knows then whether the lower was looked at. Counting it in full would pull against the order. A click below
    both says that both were seen, whichever of them was clicked.
    """
    weights = np.empty(pairs.shape[0])
    last = examined_count(clicks, False, -1) - 1
    for m in range(pairs.shape[0]):
        a, b = pairs[m, 0], pairs[m, 1]
        weights[m] = shares[a, b]
        if weights[m] == 0.0:
            weights[m] = 0.5 if max(a, b) < last else doubtful[m]
    return weights


@jit
def drop_zero_weight(pairs: Array, weights: Array, factor: float) -> tuple[Array, Array]:
    """The pairs (m, 2) whose weight is above 0, and those weights times `factor`."""
    count = 0
    for m in range(pairs.shape[0]):
        count += weights[m] > 0.0
    found, counted = np.empty((count, 2), np.int64), np.empty(count)
    count = 0
    for m in range(pairs.shape[0]):
        if weights[m] > 0.0:
            found[count, 0], found[count, 1], counted[count] = pairs[m, 0], pairs[m, 1], weights[m] * factor
            count += 1
    return found, counted
