"""LinearPlusNetwork: a linear model, and a network beside it that counts as far as it has proved itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import memo_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import preferences
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.gate import Evidence
from rankloop.learners.models.linear import LinearModel
from rankloop.learners.models.network import PairNetwork
from rankloop.learners.models.networks import Forward
from rankloop.learners.models.tangents import GradientWidth
from rankloop.learners.query_table import query_hash

PREFIX = "line_"  # of the linear model among the arrays of the state
VALIDATE = 8  # one query in so many never trains the network
LOGIT = 4.0  # σ(s) - 1/2 is at most s/4: an interval of scores is so much wider than one of probabilities


class LinearPlusNetwork:
    """Scores θ·x + g·net(x); the linear model learns as PairRank does, the network as if it were alone.

    g is how far the network has helped to predict impressions (`gate`), for queries that it was trained on and for
    others. At g = 0 everything is PairRank's, bit for bit. A pair is certain iff
    s_i - s_j > √(α_line²‖x_ij‖² + (4αg)²‖g_ij/√m‖²).
    """

    def __init__(self, line: LinearModel, line_alpha: float, network: PairNetwork) -> None:
        self.line, self.line_alpha, self.network = line, line_alpha, network
        self.evidence = Evidence.none()

    def gate(self, query: str) -> float:
        """How much of the network counts for a query."""
        if self.network.weights_.size == 0:
            return 0.0
        return self.evidence.share(self.network.knows(query_hash(query)))

    @property
    def unknown_gate(self) -> float:
        """How much of the network counts for queries that it was not trained on."""
        return self.evidence.share(known=False) if self.network.weights_.size else 0.0

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """Scores and widths of both."""
        rows, network = self.network.rows(source), self.network
        if network.weights_.size == 0:
            network.forward(rows)  # a module that does not fit these rows is refused now, not when clicks come
        known, gate = self.line.confidence(source, self.line_alpha), self.gate(source.query)
        if gate == 0.0:
            return known
        scores = known.scores + gate * np.stack([one.scores for one in network.forward(rows)]).mean(0)

        def forward(some: Array) -> Forward:
            return network.forward(some)[0]

        width = GradientWidth(rows, forward, network.spread(rows), LOGIT * gate * alpha)
        return known._replace(scores=scores, shared=width)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,)."""
        rows, gate = self.network.rows(source), self.gate(source.query)
        scores = self.line.scores(source)
        return scores if gate == 0.0 else scores + gate * self.network.forward(rows)[0].scores

    def update(
        self,
        impression: Impression,
        clicks: Array,
        line_pairs: ClickPairs,
        pairs: ClickPairs,
        size: int,
        rng: np.random.Generator,
        name: str,
    ) -> None:
        """Learn the pairs of one impression, all or nothing."""
        line, query = copy.copy(self.line), query_hash(impression.query)
        line.update(impression, line_pairs)
        rows = self.network.rows(impression)
        evidence = self._after(impression, clicks, rows, pairs, query)
        if query % VALIDATE:
            self.network.update(rows, clicks, pairs, size, query, rng, name)
        self.line, self.evidence = line, evidence

    def remap(self, columns: FeatureMap) -> None:
        """Carry both over to other columns."""
        if columns.nothing and self.network.weights_.size:
            self.evidence = Evidence.none()
        self.network.remap(columns)
        self.line.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        gate = {"gains_": self.evidence.gains.copy(), "products_": self.evidence.products.copy()}
        line = {f"{PREFIX}{name}": array for name, array in self.line.state().items()}
        return {**self.network.state(), **gate, **line}

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        own = {name.removeprefix(PREFIX): array for name, array in state.items() if name.startswith(PREFIX)}
        rest = {name: array for name, array in state.items() if not name.startswith(PREFIX)}
        line, network, fresh = copy.copy(self.line), copy.copy(self.network), Evidence.none()
        line.load(own)
        evidence = Evidence(*(np.array(rest.pop(name, np.zeros(0))) for name in ("gains_", "products_")))
        for name, array, wanted in zip(("gains_", "products_"), evidence, fresh, strict=True):
            if array.shape != wanted.shape or array.dtype != wanted.dtype or not np.isfinite(array).all():
                raise InvalidInput(f"state {name!r} must be finite float64 of shape {wanted.shape}, not {array.shape}")
        network.load(rest)
        d, base = int(network.features_[0]), line.init == "base"
        if network.weights_.size and line.theta_.size != d + base:
            raise InvalidInput(
                f"state 'line_theta_' has {line.theta_.size} weights, but the network has {d} features; "
                "restore a state that one learner wrote, with the same init"
            )
        self.line, self.network, self.evidence = line, network, evidence

    def _after(self, impression: Impression, clicks: Array, rows: Array, pairs: ClickPairs, query: int) -> Evidence:
        """The evidence with that of an impression which neither has learned from yet.

        Pairs in a fixed order whose lower document may not have been examined are no evidence.
        """
        if self.network.weights_.size == 0:
            return self.evidence
        shares = memo_of(impression, "shares", impression.k, impression.k)
        weights = preferences.propensity_weights(shares, np.zeros(len(pairs.pairs)), clicks, pairs.pairs)
        net = np.mean([one.scores for one in self.network.forward(rows)], axis=0)
        line = self.line.confidence(impression, self.line_alpha).scores
        return self.evidence.after(self.network.knows(query), line, net, pairs.pairs, weights)
