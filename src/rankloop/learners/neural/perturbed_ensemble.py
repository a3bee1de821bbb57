"""PerturbedEnsemble: networks trained on noisy labels; a pair is certain if all of them agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankloop.core.capabilities import Explanation, Report
from rankloop.core.learner import (
    checked_values,
    make_impression,
    require,
    require_number,
    require_whole,
    resolve_k,
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import certainty, listwise, preferences
from rankloop.kernels.ranking import epsilon_greedy_log_probability
from rankloop.learners.click_pairs import adopted, propensity_memo, untempered_pairs
from rankloop.learners.models import networks
from rankloop.learners.models.network import MOST, PairNetwork, Schedule
from rankloop.learners.neural.network_learner import NetworkLearner
from rankloop.learners.neural.olranknet import BATCH, RIDGE, STEPS
from rankloop.learners.policies import anything, topological, topological_log_propensity
from rankloop.learners.query_table import query_hash


@dataclass
class PerturbedEnsemble(NetworkLearner[PairNetwork]):
    """Several networks, each trained on its own noisy labels: a pair is certain if all agree on its order.

    Its exploration needs no gradients of scores: cheaper to rank with than `olranknet`, dearer to train.

    Parameters
    ----------
    net, width, seed, rate
        As in `OLRankNet`; the networks start at different weights.
    nets
        How many networks.
    noise
        Standard deviation of the noise on the labels of pairs, drawn once per pair and network.
    replay_size
        How many impressions are kept to train on again.

    Examples
    --------
    >>> learner = PerturbedEnsemble(width=10, nets=3)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for seed in range(20):
    ...     shown = learner.rank(shoes, 2, seed)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), seed)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    P²NeurRank of Jia and Wang, Scalable Exploration for Neural Online Learning to Rank with Perturbed Feedback, SIGIR
    2022, with replay, all pairs and their swap propensity.
    """

    net: Any = "two-layer"
    width: int = 100
    seed: int = 0
    rate: float = 0.1
    nets: int = 5
    noise: float = 0.1
    replay_size: int = 5000

    def __post_init__(self) -> None:
        require_whole("nets", self.nets, 2, MOST)
        require_number("noise", self.noise, 0)
        require_whole("replay_size", self.replay_size, 1, MOST)
        rule = "has one set of initial weights; an ensemble needs a function or a name"
        require(not networks.is_fixed(self.net), "net", type(self.net).__name__, rule)
        given = self.net, self.width, self.seed, self.rate, RIDGE
        schedule, more = Schedule(STEPS, BATCH, self.replay_size), {"noise": self.noise, "members": self.nets}
        self.model_ = PairNetwork(*given, prior=None, schedule=schedule, pair_rule=listwise.EQUAL, **more)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A random order that respects every pair that all networks agree on."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        scores = self.model_.member_scores(candidates)
        if _equal(scores):
            draw = anything(candidates.n, k, rng)
        else:
            draw = topological(np.arange(candidates.n), certainty.agreed_pairs(scores), k, rng)
        return make_impression(candidates, draw.order, propensity_memo(scores.mean(0), draw), draw.log_propensity)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        scores = self.model_.member_scores(candidates)
        if _equal(scores):
            return float(epsilon_greedy_log_probability(scores[0], order, 1.0))
        return topological_log_propensity(np.arange(candidates.n), certainty.agreed_pairs(scores), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        return adopted(candidates, self.score(candidates), order, True)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into weighted pairs, and train every network on them and on past ones."""
        clicks, seen, rng = checked_values(self, impression, feedback), seen_of(impression, feedback), as_rng(rng)
        pairs = untempered_pairs(impression, clicks, seen, "all", True, rng)
        if len(pairs.pairs):
            size, query = preferences.examined_count(clicks, True, seen), query_hash(impression.query)
            rows = self.model_.rows(impression)
            self.model_.update(rows, clicks, pairs, size, query, rng, type(self).__name__)

    def certain(self, candidates: Candidates, positions: Array) -> Array:
        """(k, k) which of the documents at these positions is certainly better than which."""
        agreed: Array = certainty.agreed_pairs(self.model_.member_scores(candidates)[:, positions])
        return agreed

    def report(self) -> Report:
        """The state grows up to a bound."""
        return Report(grows="until `replay_size` impressions are kept")

    def explain(self, impression: Impression) -> Explanation | None:  # noqa: ARG002
        """Too slow for those who watch."""
        return None


def _equal(scores: Array) -> bool:
    """Whether every network scores all documents the same."""
    return not (scores != scores[:, :1]).any()
