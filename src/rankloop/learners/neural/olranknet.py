"""olRankNet: a neural ranker that explores only the pairs it is unsure of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rankloop.core.capabilities import Explanation, Report
from rankloop.core.learner import checked_values, make_impression, require_number, require_whole, resolve_k, seen_of
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import listwise, preferences
from rankloop.learners.click_pairs import adopted, propensity_memo, tempered, untempered_pairs
from rankloop.learners.composed import ModelLearner
from rankloop.learners.models.linear import Init, LinearModel
from rankloop.learners.models.linear_network import LinearPlusNetwork
from rankloop.learners.models.network import CARRIES, MOST, PairNetwork, Schedule
from rankloop.learners.policies import Conservative

LINE_ALPHA, LINE_PRIOR = 0.2, 10.0  # of the linear model, as in PairRank
RIDGE = 0.01  # how strongly the network stays near its initial weights
STEPS, BATCH = 4, 32  # Adam steps per event, impressions per step


@dataclass
class OLRankNet(ModelLearner[LinearPlusNetwork]):
    """RankNet with a network beside a linear model: certain pairs keep their order, others are shown in a random one.

    What `pairrank` is for linear scores, for any network: choose it if relevance may be more than a weighted sum of
    features and there will be thousands of clicks. Scores are θ·x + g·net(x): θ is PairRank's, and g is how far the
    network has proved itself beside it (`LinearPlusNetwork`), so that where a linear model is all there is to learn it
    ranks as `pairrank` does. It costs milliseconds per event.

    Parameters
    ----------
    net
        "two-layer" (built in), "three-layer", a registered name, a `torch.nn.Module`, or a function that makes one from
        the number of features (`rankloop.learners.models.networks`).
    width
        Hidden units of the built-in networks, an even number.
    seed
        Decides the network's initial weights only.
    alpha
        Width of the network's part of the confidence intervals; 0: it is not explored.
    prior
        After how many pairs half of the network's first uncertainty is left.
    rate
        Adam's step size, in units of the data: how far one step moves the difference of two scores.
    init, prior_strength
        As in `PairRank`, of the linear model. The network does not see the baseline ranking.
    replay_size
        How many impressions are kept to train on again; the state grows until they are there.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = OLRankNet(width=20)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.certain(shoes, np.array([0, 1]))[1, 0]
    (array(['liked'], dtype='<U5'), np.True_)

    Notes
    -----
    Yiling Jia and Hongning Wang. Learning Neural Ranking Models Online from Implicit User Feedback. WWW 2022:
    Algorithm 1, Definition 3.4 (its -ε(m) must be +; ε(m) = 0 as in its experiments). `OLRankNetPaper` is the network
    alone, as published. Here it has a linear model beside it, replay instead of refits, all pairs with their swap
    propensity, and rates in units of the data. Products are float32; bit-exact with one BLAS thread.
    """

    net: Any = "two-layer"
    width: int = 100
    seed: int = 0
    alpha: float = 0.03
    prior: float = 100.0
    rate: float = 0.1
    init: Init = "zero"
    prior_strength: float = 50.0
    replay_size: int = 5000

    carries: ClassVar[str] = CARRIES
    pair_rule: ClassVar[int] = listwise.EQUAL

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, 0)
        require_whole("replay_size", self.replay_size, 1, MOST)
        line = LinearModel(LINE_PRIOR, 1.0, self.init, self.prior_strength)
        given, schedule = (self.net, self.width, self.seed, self.rate, RIDGE), Schedule(STEPS, BATCH, self.replay_size)
        network = PairNetwork(*given, prior=self.prior, schedule=schedule, pair_rule=self.pair_rule)
        self.model_ = LinearPlusNetwork(line, LINE_ALPHA, network)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A random order that respects every certain pair."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        known = self.model_.confidence(candidates, self.alpha)
        draw = Conservative().draw(known, k, rng)
        return make_impression(candidates, draw.order, propensity_memo(known.scores, draw), draw.log_propensity)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into weighted pairs, and let the linear model and the network learn them."""
        clicks, seen, rng = checked_values(self, impression, feedback), seen_of(impression, feedback), as_rng(rng)
        rng.random(clicks.size)  # unused; without this draw a replayed log would give other states than it gave
        pairs = untempered_pairs(impression, clicks, seen, "all", True, rng)
        if len(pairs.pairs):
            size = preferences.examined_count(clicks, True, seen)
            line_pairs, name = tempered(pairs, size), type(self).__name__
            self.model_.update(impression, clicks, line_pairs, pairs, size, rng, name)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        return Conservative().log_propensity(self.model_.confidence(candidates, self.alpha), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        return adopted(candidates, self.score(candidates), order, True)

    def certain(self, candidates: Candidates, positions: Array) -> Array:
        """(k, k) which of the documents at these positions is certainly better than which."""
        certain: Array = self.model_.confidence(candidates, self.alpha).certain()[np.ix_(positions, positions)]
        return certain

    def gate(self, query: str) -> float:
        """How much of the network counts for a query."""
        return self.model_.gate(query)

    def module(self) -> Any:
        """A copy of your own module with the learned weights."""
        return self.model_.network.module()

    def report(self) -> Report:
        """The state grows up to a bound."""
        return Report(grows="until `replay_size` impressions are kept")

    def explain(self, impression: Impression) -> Explanation | None:  # noqa: ARG002
        """Too slow for those who watch."""
        return None
