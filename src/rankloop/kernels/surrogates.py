"""The surrogate losses of `rtopk` over whole data sets: what the best fixed ranker in hindsight is found with."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp
from rankloop.kernels.topk import KL, RANKSVM, SQUARED, kl_loss


@jit
def weighed_loss(
    scores: Array, grades: Array, offsets: Array, counts: Array, surrogate: int, highest: float, slack: float
) -> tuple[float, Array]:
    """The loss summed over queries, query q counting counts[q] times, and (N,) its slope in each score.

    Squared, kl, or ranksvm with its hinge rounded off: quadratic over the first `slack`, by which it is at most slack/2
    a pair too low.
    """
    total = 0.0
    slopes = np.zeros(scores.size)
    for q in range(counts.size):
        if counts[q] == 0.0:
            continue
        for i in range(offsets[q], offsets[q + 1]):
            if surrogate == SQUARED:
                total += counts[q] * (scores[i] - grades[i]) ** 2
                slopes[i] += counts[q] * 2.0 * (scores[i] - grades[i])
            elif surrogate == KL:
                total += counts[q] * kl_loss(scores[i], grades[i], highest)
                slopes[i] += counts[q] * (exp(min(scores[i], highest + 1.0)) - exp(grades[i]))
            elif surrogate == RANKSVM:
                for j in range(offsets[q], offsets[q + 1]):
                    over = 1.0 + scores[j] - scores[i]
                    if grades[i] > grades[j] and over > 0.0:
                        slope = min(over / slack, 1.0)
                        total += counts[q] * (over * slope / 2.0 if over < slack else over - slack / 2.0)
                        slopes[j] += counts[q] * slope
                        slopes[i] -= counts[q] * slope
    return total, slopes
