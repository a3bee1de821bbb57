"""How often users look at each rank: given, or found from lists in which chance could have swapped two items.

A learner that draws its lists knows how likely they were with two items swapped. So every such list is a small
experiment about its ranks, and all of them together tell what ranks are worth, whatever stands there.

Reference: after Agarwal, Zaitsev, Wang, Li, Najork, Joachims, Estimating position bias without intrusive interventions,
WSDM 2019, who harvest swaps between rankers. Here the probability of every swap is known exactly, and all ranks are
compared at once by the model of Bradley and Terry (1952).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array


class Examination(NamedTuple):
    """How often users look at each rank, up to a factor; NaN where that is not known."""

    values: Array  # (K,)
    left_out: Array | None = None  # (G, K) estimated without each group of lists, if it was estimated from them

    def longer(self, K: int) -> Examination:
        """The same for K ranks, of which the new ones are not known."""
        more = [(0, max(0, K - self.values.size))]
        left_out = None if self.left_out is None else np.pad(self.left_out, [(0, 0), *more], constant_values=np.nan)
        return Examination(np.pad(self.values, more, constant_values=np.nan), left_out)


def known(values: ArrayLike) -> Examination:
    """An examination that is given, not estimated.

    >>> known([1, 0.5, 0])
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: examination of rank 3 is 0.0; it must be a finite number above 0
    """
    found = np.array(values, dtype=np.float64)
    if found.ndim != 1 or found.size == 0:
        raise InvalidParameter(f"examination has shape {found.shape}; give a number a rank, from the top")
    for rank, value in enumerate(found.tolist(), 1):
        if not 0.0 < value < np.inf:
            raise InvalidParameter(f"examination of rank {rank} is {value}; it must be a finite number above 0")
    return Examination(found)


def swap_wins(clicks: Array, shares: Array) -> Array:
    """(k, k) what one list tells of examination: [p, q] is the click at p, weighed for the comparison with q.

    `shares` (k, k) is P(R*) / (P(R) + P(R*)) for the list R and R* with the items of p and q swapped, as learners that
    draw their lists know it. Over R and R* together both items then stood at both ranks equally often, so that clicks
    at p and at q are as θ_p and θ_q, whatever the items.
    """
    wins: Array = shares * np.asarray(clicks, np.float64)[:, None]
    return wins


def harvest(wins: Array) -> Examination:
    """Examination from the sums of `swap_wins` over groups of lists (G, K, K), the first rank set to 1.

    A click in the pair (p, q) was at p with probability θ_p / (θ_p + θ_q): a Bradley-Terry model, whose likelihood is
    climbed by Newton's steps. A rank that no chain of swaps, clicked at both ends, connects with the first one is NaN.

    >>> harvest(np.array([[[0.0, 8.0], [4.0, 0.0]]])).values
    array([1. , 0.5])
    """
    total = wins.sum(axis=0)
    if wins.shape[0] == 1:
        return Examination(_bradley_terry(total[None])[0])
    found = _bradley_terry(np.concatenate([total[None], total - wins]))
    return Examination(found[0], found[1:])


def _bradley_terry(wins: Array) -> Array:
    """(B, K) strengths of K players, the first one's 1, from wins (B, K, K) of row over column in B tournaments."""
    B, K, _ = wins.shape
    linked = np.zeros((B, K), np.bool_)
    linked[:, 0] = True
    both = (wins > 1e-9) & (np.swapaxes(wins, 1, 2) > 1e-9)  # a sum less a part of it may leave a rest of rounding
    for _ in range(K):
        linked |= (both & linked[:, None, :]).any(axis=2)
    wins = np.where(linked[:, :, None] & linked[:, None, :], wins, 0.0)
    games, won = wins + np.swapaxes(wins, 1, 2), wins.sum(axis=2)
    fixed = ~linked
    fixed[:, 0] = True
    free = ~fixed[:, :, None] & ~fixed[:, None, :]
    strength = np.zeros((B, K))  # as a logarithm
    for _ in range(100):
        share = 1.0 / (1.0 + np.exp(strength[:, None, :] - strength[:, :, None]))
        bend = games * share * (1.0 - share)
        slope = np.where(fixed, 0.0, won - (games * share).sum(axis=2))
        curvature = np.where(free, np.eye(K) * bend.sum(axis=2)[:, :, None] - bend, np.eye(K))
        step = np.clip(np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], -2.0, 2.0)
        strength += step
        if np.abs(step).max() < 1e-10:
            break
    return np.where(linked, np.exp(strength), np.nan)
