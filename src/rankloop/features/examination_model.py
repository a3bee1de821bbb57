"""How often users look at each rank, learned while lists are counted: what takes position bias out of rates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.errors import CodecError
from rankloop.core.types import Array
from rankloop.evaluation.position_bias import swap_wins
from rankloop.kernels.counting import strengths

RANKS = 32  # that are told apart; whatever stands lower is looked at as often as the last of them
PRIOR = 4.0  # clicks that each pair of neighbouring ranks is supposed to have had before the first
EVERY = 64  # lists that told something, between two estimates
STEPS = 40  # of the climb, which goes on from the last estimate


class Attention:
    """The probability that a rank is looked at, relative to the first.

    A learner that explores knows how likely its list was with two items swapped, so every list of its is a small
    experiment about its ranks (`rankloop.evaluation.position_bias`): over a list and its swap both items stood at
    both ranks equally
    often, hence clicks there are as the ranks are looked at, whatever the items. Sums of these comparisons are all that
    is kept. The estimate is that of `rankloop.evaluation.position_bias.harvest`, climbed by steps without BLAS
    (Hunter, MM
    algorithms for generalized Bradley-Terry models, 2004) so that it repeats bit for bit.

    Lists that were not drawn (the caller's order in shadow, a learner that knows no chances) tell nothing. Until swaps
    do, ranks are taken for looked at as the discount of DCG has it, 1 / log2(1 + rank); `PRIOR` clicks outweigh that.

    >>> attention = Attention()
    >>> attention.looks(3).round(2)
    array([1.  , 0.63, 0.5 ])
    >>> swapped = np.array([[0.0, 0.5], [0.5, 0.0]])  # as likely as the list itself
    >>> for n in range(640):
    ...     attention.learn(np.array([1.0, 0.0] if n % 5 else [0.0, 1.0]), swapped)  # four clicks above, one below
    >>> attention.looks(2).round(2)
    array([1.  , 0.25])
    """

    def __init__(self) -> None:
        prior = 1.0 / np.log2(2.0 + np.arange(RANKS))
        self._prior = np.zeros((RANKS, RANKS))
        for p in range(RANKS - 1):
            share = prior[p] / (prior[p] + prior[p + 1])
            self._prior[p, p + 1], self._prior[p + 1, p] = PRIOR * share, PRIOR * (1.0 - share)
        self.wins = np.zeros((RANKS, RANKS))
        self.lists = 0  # that told something
        self._looks = prior

    def looks(self, k: int) -> Array:
        """(k,) how often each rank is looked at, the first one's 1."""
        return self._looks[:k] if k <= RANKS else np.append(self._looks, np.full(k - RANKS, self._looks[-1]))

    def learn(self, clicks: Array, shares: Array) -> None:
        """Take in a list that was drawn: clicks (m,) and the shares (k, k) of its swaps, k >= m."""
        m = min(len(clicks), RANKS)
        if not clicks[:m].any() or not shares[:m, :m].any():
            return
        self.wins[:m, :m] += swap_wins(clicks[:m], shares[:m, :m])
        self.lists += 1
        if self.lists % EVERY == 0:
            self._looks = np.minimum(strengths(self.wins + self._prior, self._looks, STEPS), 4.0)

    def state(self) -> dict[str, Array]:
        """Copies of everything learned, as plain arrays."""
        return {"wins": self.wins.copy(), "lists": np.array([self.lists]), "looks": self._looks.copy()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`, bit for bit."""
        if state["wins"].shape != (RANKS, RANKS) or state["looks"].shape != (RANKS,):
            raise CodecError(f"what was learned of ranks is not for {RANKS} of them; count the log anew")
        self.wins, self._looks = state["wins"].copy(), state["looks"].copy()
        self.lists = int(state["lists"][0])
