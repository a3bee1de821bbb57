"""QueryMemory: a model plus an offset per query and item, for queries that come back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.capabilities import ScoreTerms
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import require_number
from rankloop.core.types import Array, Candidates, Impression, SparseRows
from rankloop.kernels import pairwise
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.drift import DriftDetection
from rankloop.learners.models.linear import LinearModel
from rankloop.learners.models.rows import row_marks, row_scores
from rankloop.learners.query_table import Column, QueryTable, item_codes, require_bounds

PREFIX = "memory_"  # of the offsets among the arrays of the state
MAX_ITEMS = 100  # items that are remembered per query; the one seen longest ago makes room


class QueryMemory:
    """Scores θ·x + u(query, item): θ is shared by all queries, u belongs to one item of one query.

    An impression is learned in two steps. First the shared model learns its pairs; a pair whose items' offsets have
    gained precision A_i and A_j counts ρ / (1 + τ (A_i + A_j)), because the hundredth impression of a query teaches
    little about other queries (τ is `variance`; items whose features changed count in full). Then the offsets take a
    Newton step on what the shared model leaves.

    The squared width of a pair is α²‖x_ij‖² + α_u²(1/P_i + 1/P_j), a norm in the joint space, so what holds for the
    shared model's certain relation holds for the joint one. A query that was never learned from has the shared model's
    scores and widths.

    Parameters
    ----------
    shared
        The model of θ.
    variance
        Variance of an offset before anything is known about it, in squared log-odds.
    alpha
        Width of the interval of an offset.
    max_queries
        How many queries are remembered; a new one replaces the one learned from longest ago.
    """

    def __init__(self, shared: LinearModel | DriftDetection, variance: float, alpha: float, max_queries: int) -> None:
        require_number("memory_variance", variance, 0, above=True)
        require_number("memory_alpha", alpha, 0)
        require_bounds(max_queries, MAX_ITEMS)
        self.shared, self.variance, self.alpha, self.max_queries = shared, variance, alpha, max_queries
        self.offsets_ = self._empty()

    @property
    def theta_(self) -> Array:
        """The shared weights."""
        return self.shared.theta_

    @property
    def inverse_(self) -> Array:
        """The inverse confidence matrix of the shared weights."""
        return self.shared.inverse_

    @property
    def remembered(self) -> int:
        """How many queries are remembered."""
        return len(self.offsets_)

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """The shared model's, with the offsets and variances of the query's items."""
        known = self.shared.confidence(source, alpha)
        slot = self.offsets_.find(source.query)
        if slot < 0:
            return known
        scores, own = self._with_offsets(known.scores, source, slot)
        return known._replace(scores=scores, own=own)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) θ·x + u."""
        scores, slot = self.shared.scores(source), self.offsets_.find(source.query)
        return scores if slot < 0 else self._with_offsets(scores, source, slot)[0]

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Rows and their weights, and the offset of each item."""
        terms = self.shared.score_terms(impression)
        scores = row_scores(terms.rows, terms.weights)
        slot = self.offsets_.find(impression.query)
        own = np.zeros(scores.size) if slot < 0 else self._with_offsets(scores, impression, slot)[0] - scores
        return terms._replace(own=own)

    def half_widths(self, alpha: float) -> Array:
        """(d,) of the shared weights."""
        return self.shared.half_widths(alpha)

    def update(self, impression: Impression, pairs: ClickPairs) -> None:
        """Learn the pairs of one impression: the shared weights, then the offsets."""
        if not len(pairs.pairs):
            self.shared.update(impression, pairs)
            return
        rows, codes = self.shared.rows(impression), item_codes(impression.items)
        marks, weights, slot = row_marks(rows), pairs.weights, self.offsets_.find(impression.query)
        if slot >= 0:
            known, precision, before = self.offsets_.item_values(slot, "items", "precision", "rows")
            weights = pairwise.novelty_weights(
                known, precision, before, codes, marks, self.variance, pairs.pairs, pairs.weights
            )
        self.shared.update_rows(rows, pairs._replace(weights=weights))
        slot, numbers, _ = self.offsets_.enter(impression.query, codes)
        own, precision, before = self.offsets_.item_values(slot, "own", "precision", "rows")
        there = numbers >= 0
        before[numbers[there]] = marks[there]
        if self.shared.forget < 1.0:
            precision *= self.shared.forget
            precision += (1.0 - self.shared.forget) / self.variance
        moved = own, precision, numbers, pairs.pairs, pairs.weights
        if isinstance(rows, SparseRows):
            pairwise.update_query_offsets(row_scores(rows, self.theta_), *moved)
        else:
            pairwise.update_query_offsets_of_rows(rows, self.theta_, *moved)

    def rescale(self, growth: Array) -> None:
        """Carry the shared weights over to features divided by `growth`."""
        self.shared.rescale(growth)

    def remap(self, columns: FeatureMap) -> None:
        """Carry the shared model over to other columns; the offsets stay."""
        self.shared.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        return {**self.shared.state(), **{f"{PREFIX}{name}": array for name, array in self.offsets_.state().items()}}

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        own, rest = _split(state)
        offsets = self._empty()
        offsets.load(own)
        self.shared.load(rest)
        self.offsets_ = offsets

    def state_delta(self, queries: int) -> dict[str, Array]:
        """The shared state, and the offsets of the queries learned from last."""
        delta = self.offsets_.delta(queries)
        return {**self.shared.state(), **{f"{PREFIX}{name}": array for name, array in delta.items()}}

    def apply_delta(self, delta: Mapping[str, Array]) -> None:
        """Follow another learner with the same parameters."""
        own, rest = _split(delta)
        self.shared.load(rest)
        self.offsets_.apply(own)

    def _with_offsets(self, scores: Array, source: Candidates | Impression, slot: int) -> tuple[Array, Array]:
        """(n,) scores with offsets, and (n,) the squared width that the offsets add."""
        known, own, precision = self.offsets_.item_values(slot, "items", "own", "precision")
        codes, width = item_codes(source.items), self.alpha**2
        found: tuple[Array, Array] = pairwise.add_query_offsets(
            scores, known, own, precision, codes, self.variance, width
        )
        return found

    def _empty(self) -> QueryTable:
        fields = {"own": Column("item", np.float64), "precision": Column("item", np.float64, 1.0 / self.variance)}
        fields["rows"] = Column("item", np.float64)  # identifies the features that an item had when it was last learned
        return QueryTable(fields, self.max_queries, MAX_ITEMS)


def _split(state: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The arrays of the offsets, and the rest."""
    own = {name.removeprefix(PREFIX): array for name, array in state.items() if name.startswith(PREFIX)}
    return own, {name: array for name, array in state.items() if not name.startswith(PREFIX)}
