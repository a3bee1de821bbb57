"""OLRankNetPaper: olRankNet and olLambdaRank as published, a network alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankloop.core.capabilities import Explanation, Report
from rankloop.core.learner import (
    checked_order,
    checked_values,
    make_impression,
    require,
    require_choice,
    require_flag,
    require_number,
    resolve_k,
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import listwise, preferences
from rankloop.kernels.ranking import epsilon_greedy_log_probability
from rankloop.learners.click_pairs import adopted, plain_pairs, propensity_memo, untempered_pairs
from rankloop.learners.models import tangents
from rankloop.learners.models.network import PairNetwork, Schedule
from rankloop.learners.neural.network_learner import NetworkLearner
from rankloop.learners.neural.olranknet import BATCH, RIDGE, STEPS
from rankloop.learners.policies import Draw, anything, topological, topological_log_propensity
from rankloop.learners.query_table import query_hash

EPOCHS, PAPER_BATCH, REPLAYED = 20, 1024, 5000


@dataclass
class OLRankNetPaper(NetworkLearner[PairNetwork]):
    """A network alone: i is certainly above j iff σ(f_i - f_j) - α‖g_ij/√m‖ > 1/2; `olranknet` is the one to use.

    Parameters
    ----------
    net, width, seed
        As in `OLRankNet`.
    alpha
        Width of the confidence intervals.
    prior
        λ: of the covariance A and, with update="refit", the weight of ‖θ - θ₀‖²/2.
    rate
        Adam's step size; with update="replay" in units of the data.
    update
        "refit": 20 passes over all impressions after each one, on disjoint adjacent pairs, as published; memory and
        time per event grow. "replay": a fixed number of steps, on all pairs with their swap propensity.
    restart
        Begin each refit at the initial weights, as the released code does.
    loss
        "ranknet", or "lambdarank": pairs count |ΔNDCG|.

    Examples
    --------
    >>> learner = OLRankNetPaper(width=10)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for seed in range(10):
    ...     shown = learner.rank(shoes, 2, seed)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), seed)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Jia and Wang, WWW 2022: Algorithm 1 and section 5.1, by Adam as in the released code, batches of 1,024 impressions;
    A's diagonal, as in its experiments.
    """

    net: Any = "two-layer"
    width: int = 100
    seed: int = 0
    alpha: float = 0.01
    prior: float = 0.01
    rate: float = 0.001
    update: Literal["refit", "replay"] = "refit"
    restart: bool = False
    loss: Literal["ranknet", "lambdarank"] = "ranknet"

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, 0)
        require_choice("update", self.update, ("refit", "replay"))
        require_flag("restart", self.restart)
        require(not self.restart or self._refit, "restart", self.restart, 'needs update="refit"')
        require_choice("loss", self.loss, ("ranknet", "lambdarank"))
        if self._refit:
            schedule = Schedule(EPOCHS, PAPER_BATCH, REPLAYED, refit=True, restart=self.restart)
        else:
            schedule = Schedule(STEPS, BATCH, REPLAYED)
        self.model_ = PairNetwork(
            self.net,
            self.width,
            self.seed,
            self.rate,
            self.prior if self._refit else RIDGE,
            prior=self.prior,
            schedule=schedule,
            pair_rule=listwise.RAW if self.loss == "lambdarank" else listwise.EQUAL,
            units="none" if self._refit else "data",
        )

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A random order that respects every certain pair."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        rows = self.model_.rows(candidates)
        forward = self.model_.forward(rows)[0]
        draw: Draw
        if (forward.scores == forward.scores[0]).all():  # nothing is known
            draw = anything(candidates.n, k, rng)
        else:
            draw = topological(*tangents.relation(self.model_.spread(rows), forward, self.alpha, k), k, rng)
        memo = {} if self._refit else propensity_memo(forward.scores, draw)
        return make_impression(candidates, draw.order, memo, draw.log_propensity)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        rows = self.model_.rows(candidates)
        forward = self.model_.forward(rows)[0]
        if (forward.scores == forward.scores[0]).all():
            return float(epsilon_greedy_log_probability(forward.scores, order, 1.0))
        relation = tangents.relation(self.model_.spread(rows), forward, self.alpha, len(order))
        return topological_log_propensity(*relation, order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        scores = self.score(candidates)
        if self._refit:
            return make_impression(candidates, checked_order(candidates, order))
        return adopted(candidates, scores, order, True)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into pairs, and train on them and on past ones."""
        clicks, seen, rng = checked_values(self, impression, feedback), seen_of(impression, feedback), as_rng(rng)
        if self._refit:
            pairs = plain_pairs(clicks, seen, "adjacent", True, rng)
        else:
            pairs = untempered_pairs(impression, clicks, seen, "all", True, rng)
        if len(pairs.pairs):
            size, query = preferences.examined_count(clicks, True, seen), query_hash(impression.query)
            rows = self.model_.rows(impression)
            self.model_.update(rows, clicks, pairs, size, query, rng, type(self).__name__)

    def certain(self, candidates: Candidates, positions: Array) -> Array:
        """(k, k) which of the documents at these positions is certainly better than which."""
        rows = self.model_.rows(candidates)[positions]
        forward = self.model_.forward(rows)[0]
        running, relation = tangents.relation(self.model_.spread(rows), forward, self.alpha, len(positions))
        whole = np.zeros((len(positions), len(positions)), np.bool_)
        whole[np.ix_(running, running)] = relation
        return whole

    def report(self) -> Report:
        """The state grows."""
        return Report(
            grows="keeps every impression: refits read all of them" if self._refit else "until 5,000 are kept"
        )

    def explain(self, impression: Impression) -> Explanation | None:  # noqa: ARG002
        """Too slow for those who watch."""
        return None

    @property
    def _refit(self) -> bool:
        return self.update == "refit"
