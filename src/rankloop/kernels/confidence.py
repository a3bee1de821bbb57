"""Confidence bounds of click rates: how high, and how low, a rate may be after so many clicks in so many displays."""

from __future__ import annotations

import math

from rankloop.kernels._jit import jit
from rankloop.kernels.elementary import expm1, log

TOLERANCE = 1e-12  # of the search; that a KL near 0 has few digits left costs more
MOST_STEPS = 100  # one after many observations, a handful after few


@jit
def kl_upper(rate: float, count: float, budget: float) -> float:
    """The largest q with count · KL(rate, q) ≤ budget, KL the divergence of Bernoulli rates; to 1e-10.

    Halley's method, from where the first terms of KL's Taylor series say. Equal counts give equal bits.
    """
    if budget <= 0.0 or rate >= 1.0:
        return max(min(rate, 1.0), 0.0)
    wanted = budget / count
    if rate <= 0.0:
        return -expm1(-wanted)
    here, left = 1.0 / rate, 1.0 / (1.0 - rate)
    # KL(rate, rate + x) = x² / (2 rate (1 - rate)) · (1 + second x + third x² + …), solved for x
    second, third = (2.0 / 3.0) * (left - here), 0.5 * (left * left - left * here + here * here)
    x = math.sqrt(2.0 * wanted * rate * (1.0 - rate))
    q = rate + x * (1.0 - x * (0.5 * second - x * (0.625 * second * second - 0.5 * third)))
    if not rate < q < 1.0:
        q = 0.5 * (rate + 1.0)
    for _ in range(MOST_STEPS):
        up, down = 1.0 / q, 1.0 / (1.0 - q)
        excess = rate * log(rate * up) + (1.0 - rate) * log((1.0 - rate) * down) - wanted
        slope = (q - rate) * up * down
        bend = (rate * up * up + (1.0 - rate) * down * down) / (2.0 * slope)
        step = excess / slope
        if step * bend < 0.5:  # else Newton's method, which a convex function leads home from the right
            step /= 1.0 - step * bend
        after = q - step
        if after >= 1.0:
            after = 0.5 * (q + 1.0)
        elif after <= rate:
            after = 0.5 * (q + rate)
        elif abs(step) * (step * bend) ** 2 <= TOLERANCE:  # what a step leaves, to third order
            return after
        if after >= 1.0 or after == q:  # there is no number nearer
            return after
        q = after
    return q


@jit
def kl_lower(rate: float, count: float, budget: float) -> float:
    """The smallest q with count · KL(rate, q) ≤ budget."""
    return 1.0 - kl_upper(1.0 - rate, count, budget)
