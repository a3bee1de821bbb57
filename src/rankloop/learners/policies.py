"""Exploration policies: which ranking to show, and with what probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import certainty, long_lists, plackett_luce
from rankloop.kernels.ranking import epsilon_greedy_log_probability, epsilon_greedy_order, top_k
from rankloop.learners.models.confidence import PairConfidence


class Draw(NamedTuple):
    """A ranking, its log-probability, and the shares P(R*) / (P(R) + P(R*)) of R* with two documents swapped."""

    order: Array
    log_propensity: float
    swap_shares: Callable[[], Array]  # (k, k)


class PairPolicy(Protocol):
    """Draws a ranking from what is known of pairs."""

    def draw(self, known: PairConfidence, k: int, rng: np.random.Generator) -> Draw:
        """The first k of a random order."""

    def log_propensity(self, known: PairConfidence, order: Array) -> float:
        """log of the probability that `draw` gives `order`."""


class Conservative:
    """A random topological order: every certain pair is in its order, the rest is random (PairRank_C)."""

    def draw(self, known: PairConfidence, k: int, rng: np.random.Generator) -> Draw:
        """Position by position, any document that no remaining one is certainly above."""
        if known.nothing_known:
            return _uniform(known.scores, k, rng)
        if known.long:
            white, waiting = known.predecessors(k)
            rule = known.alpha, known.logit
            order, above = long_lists.long_random_topological(white, known.scores, waiting, *rule, rng.random(k), k)
            chance = certainty.drawn_log_probability(waiting, above, order)
            return Draw(order, chance, partial(certainty.swap_shares, waiting, above, order))
        return topological(*known.contenders(k), k, rng)

    def log_propensity(self, known: PairConfidence, order: Array) -> float:
        """The sum over positions of -log(documents free to be picked)."""
        if known.nothing_known:
            return float(epsilon_greedy_log_probability(known.scores, order, 1.0))
        if known.long:
            white, waiting = known.predecessors(len(order))
            above = long_lists.successors(white, known.scores, waiting, known.alpha, known.logit, order)
            return float(certainty.drawn_log_probability(waiting, above, order))
        return topological_log_propensity(*known.contenders(len(order)), order)


class Blocks:
    """Documents by score in blocks that are certain against each other, each block shuffled (PairRank_R)."""

    def draw(self, known: PairConfidence, k: int, rng: np.random.Generator) -> Draw:
        """The first k of the shuffled blocks."""
        if known.nothing_known:
            return _uniform(known.scores, k, rng)
        n = known.scores.size
        ranked = top_k(known.scores, rng.random(n), n)
        ends = known.block_ends(ranked, k)
        order = certainty.shuffle_blocks(ranked, ends, rng.random(k), k)
        chance = certainty.block_log_probability(ranked, ends, order)
        return Draw(order, chance, partial(certainty.block_swap_shares, ends, k))

    def log_propensity(self, known: PairConfidence, order: Array) -> float:
        """The sum over positions of -log(documents left in the block)."""
        if known.nothing_known:
            return float(epsilon_greedy_log_probability(known.scores, order, 1.0))
        n = known.scores.size
        ranked = top_k(known.scores, np.zeros(n), n)
        return float(certainty.block_log_probability(ranked, known.block_ends(ranked, len(order)), order))


PAIR_POLICIES: dict[str, PairPolicy] = {"conservative": Conservative(), "blocks": Blocks()}


def _uniform(scores: Array, k: int, rng: np.random.Generator) -> Draw:
    """Any order is as likely as any other."""
    n = scores.size
    order = top_k(scores, rng.random(n), k)
    chance = epsilon_greedy_log_probability(scores, order, 1.0)
    return Draw(order, chance, partial(certainty.block_swap_shares, np.array([n]), k))


def topological(running: Array, certain: Array, k: int, rng: np.random.Generator) -> Draw:
    """A random order of the documents `running` (r,) that respects the relation `certain` (r, r)."""
    picked = certainty.random_topological(certain, rng.random(k), k)
    chance = certainty.topological_log_probability(certain, picked)
    return Draw(running[picked], chance, partial(certainty.topological_swap_shares, certain, picked))


def topological_log_propensity(running: Array, certain: Array, order: Array) -> float:
    """The log-probability that `topological` gives `order`."""
    if not np.isin(order, running).all():
        return -np.inf
    return float(certainty.topological_log_probability(certain, np.searchsorted(running, order)))


def anything(n: int, k: int, rng: np.random.Generator) -> Draw:
    """Any k of n documents, drawn by the same numbers as `topological` if nothing is certain: networks whose scores
    differ by rounding only show the same rankings as networks whose scores are equal."""
    left, uniforms = list(range(n)), rng.random(k)
    order = np.array([left.pop(int(u * len(left))) for u in uniforms])
    chance = epsilon_greedy_log_probability(np.zeros(n), order, 1.0)
    return Draw(order, chance, partial(certainty.block_swap_shares, np.array([n]), k))


@dataclass(frozen=True)
class EpsilonGreedy:
    """Position by position the best document left, or with probability ε any; at ε = 0 greedy with random ties."""

    epsilon: float = 0.0

    def draw(self, scores: Array, k: int, rng: np.random.Generator) -> tuple[Array, float]:
        """The order and its log-probability."""
        ties = rng.random(scores.size)
        if self.epsilon == 0.0:
            order = top_k(scores, ties, k)
        else:
            order = epsilon_greedy_order(scores, ties, rng.random((2, k)), self.epsilon, k)
        return order, self.log_propensity(scores, order)

    def log_propensity(self, scores: Array, order: Array) -> float:
        """The sum over positions of log(ε / documents left, plus 1 - ε for the best left)."""
        return float(epsilon_greedy_log_probability(scores, order, self.epsilon))


class PlackettLuce:
    """Position by position a document with probability proportional to exp(score)."""

    def draw(self, scores: Array, k: int, rng: np.random.Generator) -> Array:
        """(k,) the order."""
        return plackett_luce.sample(scores, rng.random(scores.size), k)

    def log_propensity(self, scores: Array, order: Array) -> float:
        """The log-probability of an order."""
        return float(plackett_luce.log_probability(scores[order], plackett_luce.rest_weight(scores, order)))

    def memo(self, scores: Array, order: Array) -> dict[str, Array]:
        """What the pair weights need later: scores of the documents shown, and the log weight of the others."""
        return {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
