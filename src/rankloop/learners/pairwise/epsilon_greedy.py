"""ε-greedy RankNet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.core.learner import cut, drawn, require, require_number
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels.ranking import epsilon_greedy_log_probability, epsilon_greedy_order
from rankloop.learners.pairwise.greedy import Greedy


@dataclass
class EpsilonGreedy(Greedy):
    """Position by position, with probability ε a random remaining document, else the best one left.

    Learns like `greedy`. Its exploration does not look at what is already known, so users pay for it for ever: it is
    here to be compared against.

    Parameters
    ----------
    epsilon
        Probability of a random document at a position.
    update, rate, ridge, pairs, init, examine_next
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

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The best left, or now and then any."""
        k = cut(candidates, k, rng)
        scores = self.score(candidates)
        ties, coins = rng.random(scores.size), rng.random((2, k))
        order = epsilon_greedy_order(scores, ties, coins, self.epsilon, k)
        return drawn(candidates, order, epsilon_greedy_log_probability(scores, order, self.epsilon))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The product over positions of ε / (documents left), plus 1 - ε for the best left."""
        return float(epsilon_greedy_log_probability(self.score(candidates), order, self.epsilon))
