"""Betting on a mean, written down plainly, and older confidence sequences to compare with.

Sources: I. Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by betting (2024): Ville's
inequality and the capital process, section 4; predictable plug-in Hoeffding and empirical Bernstein, section 3; hedged
capital, section 4.2. Those three are about values in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def wealth(values: Sequence[float], bets: Sequence[float], m: float, side: int) -> float:
    """The mean over bets of what a gambler has who bets that share of his wealth on every value, beginning with 1."""
    total = 0.0
    for bet in bets:
        money = 1.0
        for x in values:
            money *= 1.0 + bet * side * (x - m) / (1.0 + side * m)
        total += money
    return total / len(bets)


def interval(values: Sequence[float], bets: Sequence[float], alpha: float, step: float = 1e-3) -> tuple[float, float]:
    """The smallest and the largest m of a grid at which neither gambler has 2 / alpha."""
    inside = []
    for i in range(1, round(2.0 / step)):
        m = -1.0 + i * step
        if max(wealth(values, bets, m, 1), wealth(values, bets, m, -1)) < 2.0 / alpha:
            inside.append(m)
    return inside[0], inside[-1]


def least_sum(n: int, moved: int, bets: Sequence[float], alpha: float) -> int | None:
    """The least sum of n values of -1, 0 and 1, `moved` of which are not 0, at which wealth against 0 is 2 / alpha."""
    for wins in range(moved + 1):
        losses = moved - wins
        values = [1.0] * wins + [-1.0] * losses + [0.0] * (n - moved)
        if wins >= losses and wealth(values, bets, 0.0, 1) >= 2.0 / alpha:
            return wins - losses
    return None


Widths = Callable[[Sequence[float], float], tuple[float, float]]


def hoeffding(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Predictable plug-in Hoeffding, for values in [0, 1]."""
    weights = weighted = penalty = 0.0
    for t, x in enumerate(values, 1):
        rate = min(math.sqrt(8.0 * math.log(2.0 / alpha) / (t * math.log(t + 1))), 1.0)
        weights += rate
        weighted += rate * x
        penalty += rate**2 / 8.0
    half = (math.log(2.0 / alpha) + penalty) / weights
    return weighted / weights - half, weighted / weights + half


def empirical_bernstein(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Predictable plug-in empirical Bernstein, for values in [0, 1]."""
    weights = weighted = penalty = 0.0
    total, squares, mean, variance = 0.5, 0.25, 0.5, 0.25
    for t, x in enumerate(values, 1):
        rate = min(math.sqrt(2.0 * math.log(2.0 / alpha) / (variance * t * math.log(t + 1))), 0.5)
        weights += rate
        weighted += rate * x
        penalty += 4.0 * (x - mean) ** 2 * (-math.log(1.0 - rate) - rate) / 4.0
        total += x
        mean = total / (t + 1)
        squares += (x - mean) ** 2
        variance = squares / (t + 1)
    half = (math.log(2.0 / alpha) + penalty) / weights
    return weighted / weights - half, weighted / weights + half


def hedged_time(values: Sequence[float], m: float, alpha: float) -> int | None:
    """After how many values in [0, 1] the hedged capital with predictable plug-in bets excludes m; None: not at all."""
    up = down = 0.0
    total, squares, variance = 0.5, 0.25, 0.25
    for t, x in enumerate(values, 1):
        rate = math.sqrt(2.0 * math.log(2.0 / alpha) / (variance * t * math.log(t + 1)))
        up += math.log1p(min(rate, 0.5 / m) * (x - m))
        down += math.log1p(-min(rate, 0.5 / (1.0 - m)) * (x - m))
        if max(up, down) >= math.log(2.0 / alpha):
            return t
        total += x
        squares += (x - total / (t + 1)) ** 2
        variance = squares / (t + 1)
    return None
