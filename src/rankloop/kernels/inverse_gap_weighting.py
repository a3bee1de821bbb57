"""A contextual bandit's two halves: a regression of rewards on features, and a draw by how far behind each item is."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import log


@jit
def chances(scores: Array, left: Array, gamma: float, epsilon: float) -> Array:
    """(n,) the probability with which each of the items `left` (n,) flags comes next; 0 for the others.

    Of m items left, one that scores Δ less than the best has ε / (m + γΔ); the best have the rest, in equal shares.
    """
    found = np.zeros(scores.size)
    m, equal, highest = 0, 0, -np.inf
    for i in range(scores.size):
        if left[i]:
            m += 1
            if scores[i] > highest:
                highest, equal = scores[i], 1
            elif scores[i] == highest:
                equal += 1
    rest = 1.0
    for i in range(scores.size):
        if left[i] and scores[i] < highest:
            found[i] = epsilon / (m + gamma * (highest - scores[i]))
            rest -= found[i]
    for i in range(scores.size):
        if left[i] and scores[i] == highest:
            found[i] = rest / equal
    return found


@jit
def drawn_order(scores: Array, uniforms: Array, gamma: float, epsilon: float) -> tuple[Array, float]:
    """(k,) positions, drawn one after the other by `chances` with a number of `uniforms` (k,) each, and the log of the
    probability of just this list."""
    left = np.ones(scores.size, np.bool_)
    order = np.empty(uniforms.size, np.int64)
    log_probability = 0.0
    for p in range(uniforms.size):
        law = chances(scores, left, gamma, epsilon)
        pick, reached = -1, 0.0
        for i in range(scores.size):
            if law[i] > 0.0:
                pick = i  # the last one if rounding leaves the sum short of the number drawn
                reached += law[i]
                if uniforms[p] < reached:
                    break
        order[p] = pick
        left[pick] = False
        log_probability += log(law[pick])
    return order, log_probability


@jit
def order_log_probability(scores: Array, order: Array, gamma: float, epsilon: float) -> float:
    """log of the probability that `drawn_order` comes to `order`; -inf if it cannot."""
    left = np.ones(scores.size, np.bool_)
    log_probability = 0.0
    for p in range(order.size):
        chance = chances(scores, left, gamma, epsilon)[order[p]]
        if chance <= 0.0:
            return -np.inf
        log_probability += log(chance)
        left[order[p]] = False
    return log_probability


@jit
def regress(theta: Array, variance: Array, level: Array, rows: Array, rewards: Array, noise: float) -> None:
    """Take in the rewards (m,) of rows (m, d), one after the other, in place.

    Weights `theta` (d,) and an intercept `level` (mean, variance) are Gaussians of their own, `variance` (d,) wide: the
    posterior's covariance is cut to its diagonal after each reward. The step goes at most as far as the reward itself,
    however many features come together.
    """
    for i in range(rewards.size):
        told, spread = level[0], noise + level[1]
        for j in range(theta.size):
            told += theta[j] * rows[i, j]
            spread += variance[j] * rows[i, j] * rows[i, j]
        miss = (rewards[i] - told) / spread
        for j in range(theta.size):
            gain = variance[j] * rows[i, j]
            theta[j] += gain * miss
            variance[j] -= gain * gain / spread
        gain = level[1]
        level[0] += gain * miss
        level[1] -= gain * gain / spread


@jit
def regress_sparse(
    theta: Array,
    variance: Array,
    level: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    rewards: Array,
    noise: float,
) -> None:
    """The same of the first rows of a sparse table (CSR), in time that goes by what is in them: the bits of `regress`
    with the rows written out."""
    for i in range(rewards.size):
        told, spread = level[0], noise + level[1]
        for p in range(indptr[i], indptr[i + 1]):
            told += theta[indices[p]] * values[p]
            spread += variance[indices[p]] * values[p] * values[p]
        miss = (rewards[i] - told) / spread
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            gain = variance[j] * values[p]
            theta[j] += gain * miss
            variance[j] -= gain * gain / spread
        gain = level[1]
        level[0] += gain * miss
        level[1] -= gain * gain / spread
