"""Betting on a mean: how rich a gambler has become by betting that the mean of values in [-1, 1] is not m.

Values are kept as weights on a grid of points, (V,) from -1 to 1. One between two points counts as a mixture of both
with the same mean: the logarithm is concave, so every bet gains less by it than by the value itself, and what follows
from the wealth stays true. Bets are (J,) shares of the gambler's wealth, from 0 to below 1. Side +1 bets that the mean
is above m, side -1 that it is below.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

HALVINGS = 60  # of an interval of length 2: down to the last bits of a float


@jit
def log_mean(logs: Array) -> float:
    """log of the mean of what these are the logarithms of."""
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).mean()))


@jit
def log_wealth(counts: Array, bets: Array, m: float, side: float) -> float:
    """log of the mean over bets f of Π (1 + f side (x - m) / (1 + side m)), x over the values.

    The divisor is the most that a value can fall short of m, so that a gambler never loses more than f. Each product is
    a martingale if the mean is m, and falls in side * m.
    """
    room = 1.0 + side * m
    if room <= 0.0:
        return np.inf  # every value is at least as high as m: nothing can be lost
    sums = np.zeros(bets.size)
    for v in range(counts.size):
        if counts[v] > 0.0:
            gain = side * (2.0 * v / (counts.size - 1) - 1.0 - m) / room
            for j in range(bets.size):
                sums[j] += counts[v] * np.log1p(bets[j] * gain)
    return log_mean(sums)


@jit
def last_refused(counts: Array, bets: Array, inside: float, threshold: float, side: float) -> float:
    """The m nearest to `inside` at which the wealth of `side` reaches the threshold, which it does not at `inside`.

    Wealth falls in side * m, so it is found by halving; the end that is returned is a refused one, just outside of what
    is left. -side if none is refused.
    """
    out, within = -side, inside
    for _ in range(HALVINGS):
        middle = 0.5 * (out + within)
        if log_wealth(counts, bets, middle, side) >= threshold:
            out = middle
        else:
            within = middle
    return out


@jit
def follow(
    counts: Array,
    sums: Array,
    wealth: Array,
    crossed: Array,
    values: Array,
    bets: Array,
    m: float,
    threshold: float,
) -> int:
    """Add values one by one, and watch the wealth against one m; all in place. How many were added: it stops behind the
    first value that makes a side so rich, each side once.

    `sums` (3,) are how many values there were, their sum and that of their squares; `wealth` (2, J) each bet's, as a
    logarithm, above and below; `crossed` (2,) after how many values the mean of each row reached the threshold, 0 for
    not yet. Values may come in portions of any size: the bits are the same.
    """
    step = 2.0 / (counts.size - 1)
    for i in range(values.size):
        place = (values[i] + 1.0) / step
        low = min(int(place), counts.size - 2)
        part = place - low
        counts[low] += 1.0 - part
        counts[low + 1] += part
        sums[0] += 1.0
        sums[1] += values[i]
        sums[2] += values[i] * values[i]
        stop = False
        for row in range(2):
            side = 1.0 - 2.0 * row
            lower = side * (low * step - 1.0 - m) / (1.0 + side * m)
            upper = side * ((low + 1) * step - 1.0 - m) / (1.0 + side * m)
            for j in range(bets.size):
                gain = (1.0 - part) * np.log1p(bets[j] * lower)
                if part > 0.0:
                    gain += part * np.log1p(bets[j] * upper)
                wealth[row, j] += gain
            if crossed[row] == 0.0 and log_mean(wealth[row]) >= threshold:
                crossed[row] = sums[0]
                stop = True
        if stop:
            return i + 1
    return int(values.size)


@jit
def least_sum(n: float, second: float, bets: Array, threshold: float) -> float:
    """The least sum of n values of -1, 0 and 1, n * second of which are not 0, whose wealth against 0 reaches the
    threshold; infinite if none does."""
    moved = n * second
    low, high = 0.0, moved
    sums = np.empty(bets.size)
    total = moved
    for step in range(40):
        for j in range(bets.size):
            sums[j] = 0.5 * ((moved + total) * np.log1p(bets[j]) + (moved - total) * np.log1p(-bets[j]))
        reached = log_mean(sums) >= threshold
        if step == 0 and not reached:
            return np.inf
        if reached:
            high = total
        else:
            low = total
        total = 0.5 * (low + high)
    return high
