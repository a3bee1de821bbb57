"""ε-greedy RankNet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np  # noqa: F401  (the example needs it)

from rankloop.core.learner import require, require_number
from rankloop.core.types import Candidates  # noqa: F401  (the example needs it)
from rankloop.learners.pairwise.greedy import Greedy
from rankloop.learners.policies import EpsilonGreedy as EpsilonGreedyPolicy


@dataclass
class EpsilonGreedy(Greedy):
    """Greedy, but position by position, with probability ε, a random remaining document.

    Its exploration ignores what is already known, so users pay for it forever. It is here for comparison.

    Parameters
    ----------
    epsilon
        Probability of a random document at a position.
    rate, pairs, init, examine_next
        As in `Greedy`.

    Examples
    --------
    >>> learner = EpsilonGreedy(epsilon=0.2)
    >>> learner.rank(Candidates(features=np.eye(3)), 2, np.random.default_rng(0)).k
    2

    Notes
    -----
    Baseline "ε-Greedy" of Jia et al., PairRank, WWW 2021, section 4.1, after Hofmann et al., Balancing exploration and
    exploitation in listwise and pairwise online learning to rank for information retrieval, 2013.
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("epsilon", self.epsilon, 0)
        require(self.epsilon <= 1, "epsilon", self.epsilon, "is a probability and must be at most 1")

    @property
    def _policy(self) -> EpsilonGreedyPolicy:
        return EpsilonGreedyPolicy(self.epsilon)
