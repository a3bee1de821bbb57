"""Hybrid: PairRank that remembers the queries that come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.capabilities import Parts
from rankloop.core.learner import require_number, state_of
from rankloop.core.types import Array, Candidates, Impression, SparseRows
from rankloop.kernels import pairwise
from rankloop.learners.pairwise._doubt import Doubt
from rankloop.learners.pairwise._rows import Rows, row_marks, row_scores
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.query_table import Column, QueryTable, item_codes, require_bounds

PREFIX = "memory_"  # of what is remembered, among the arrays of the state


@dataclass
class Hybrid(PairRank):
    """PairRank, with a part of the score that belongs to one item of one query alone: s = θ·x + u(query, item).

    What θ learns holds for all queries, what u learns for the one that was asked: a query that comes often gets its own
    best list, whatever its features say; one that never came is ranked exactly as `pairrank` ranks it. Choose it where
    some queries come again and again, which is nearly everywhere.

    Parameters
    ----------
    memory
        Variance of u before anything is known of it, in squared log-odds: how far an item may stand from what its
        features say. More learns faster and forgives noise less.
    beta
        Width of the interval about u, as `alpha` is that about θ·x; 0: the memory is not explored for its own sake.
    max_queries
        How many queries are remembered. A new one takes the place of the one learned from the longest ago.
    max_items
        How many items of a query are remembered, likewise.
    explore, certainty, pairs, update, loss, debias, alpha, prior, ridge, scale, forget, init, prior_strength, delta
        As in `PairRank`; `forget` fades what is remembered of a query each time that it comes.
    tempered, confidence, examine_next, batch
        As in `PairRank`. What is remembered of a query is learned at once, whatever the batch.

    Examples
    --------
    Two items with the same features: no linear model can tell them apart.

    >>> from rankloop.core.types import Feedback
    >>> rng = np.random.default_rng(1)
    >>> learner = Hybrid()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.5], [1.0, 0.5]])
    >>> for _ in range(30):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.remembered
    (array(['liked'], dtype='<U5'), 1)

    Notes
    -----
    Our own; both papers ask for it. BubbleRank (paper 002) calls generalisation over queries and items an interesting
    direction, PairRank (paper 000) generalises and remembers nothing.

    **Two steps an event.** First θ and its confidence matrix learn as PairRank would from the same list: they do not
    look at u. A query that comes for the first time teaches them exactly what it would teach PairRank; one that comes
    again counts ρ / (1 + τ (A_i + A_j)) a pair, A being the precision that the two items' own parts have gained and τ
    their variance at first (`memory`). What a query says of its own items for the hundredth time says little of the
    others, and counted in full θ would fit the queries that come often at the cost of all that have not come yet. Items
    whose features differ from the last time (of this user, at this hour) are new to θ, and count in full. A query
    without memory has PairRank's scores and intervals for this θ, bit for bit. Then u learns what is left: each pair is
    a logistic observation of θ·x_ij + u_i - u_j, and takes a Newton step on u_i and u_j with the diagonal of their
    precision P (`kernels.pairwise.remember`).

    **One confidence over both.** u_i has variance 1 / P_i, in a direction of its own, so the squared width of a pair is
    α²‖x_ij‖² + β²(1/P_i + 1/P_j): a squared norm in the joint space. Hence the certain relation is a strict partial
    order (under the logit rule) as PairRank's is, the bounds that cut long lists hold, and P grows with every pair, so
    that what is remembered becomes certain. Before the first outcome of a query its items have u = 0 and no width of
    their own: there is nothing to remember yet, and one who never comes back should not pay for being explored.

    **What it costs.** 40 + 36 m bytes a query with m items that were seen, and about 105 in a dictionary: 505 for ten.
    1.5 to 1.7 times PairRank's time (`python -m benchmarks speed requests`).
    """

    memory: float = 1.0
    beta: float = 0.1
    max_queries: int = 100_000
    max_items: int = 100

    carries: ClassVar[str] = f"{PairRank.carries}; what is remembered of each query stays"
    extended: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("memory", self.memory, 0, above=True)
        require_number("beta", self.beta, 0)
        require_bounds(self.max_queries, self.max_items)
        self._memory = self._empty()

    @property
    def grows(self) -> str:
        """Why its state grows with the events seen."""
        return super().grows or "remembers the items of each query, up to max_queries and max_items"

    @property
    def remembered(self) -> int:
        """How many queries it remembers."""
        return len(self._memory)

    def parts(self, impression: Impression) -> Parts:
        """As of PairRank, and what is remembered of each item of the query."""
        doubt = self._doubt(impression)
        rows = doubt.rows if isinstance(doubt.rows, np.ndarray) else self._rows(impression)
        return Parts(rows, doubt.theta, doubt.scores - row_scores(rows, doubt.theta))

    def _shared(self, impression: Impression, rows: Rows, pairs: Array, weights: Array) -> Array:
        """What the own parts of items with these very rows have taken in already counts less for all queries."""
        slot = self._memory.find(impression.query)
        if slot < 0:
            return weights
        known, precision, before = self._memory.item_values(slot, "items", "precision", "rows")
        codes, marks = item_codes(impression.items), row_marks(rows)
        return pairwise.news(known, precision, before, codes, marks, self.memory, pairs, weights)

    def _extend(self, impression: Impression, rows: Rows, pairs: Array, weights: Array, tempering: float) -> None:  # noqa: ARG002
        """Let the query's own part learn what θ, which has learned, leaves."""
        slot, numbers, _ = self._memory.enter(impression.query, item_codes(impression.items))
        own, precision, before = self._memory.item_values(slot, "own", "precision", "rows")
        known = numbers >= 0
        before[numbers[known]] = row_marks(rows)[known]
        if self.forget < 1.0:
            precision *= self.forget
            precision += (1.0 - self.forget) / self.memory
        if isinstance(rows, SparseRows):
            pairwise.remember(row_scores(rows, self.theta_), own, precision, numbers, pairs, weights)
        else:
            pairwise.remember_shown(rows, self.theta_, own, precision, numbers, pairs, weights)

    def part(self, queries: int) -> dict[str, Array]:
        """What holds for all queries, and what is remembered of so many, those learned from last."""
        return {
            **state_of(self),
            **{f"{PREFIX}{name}": array for name, array in self._memory.delta(queries).items()},
        }

    def take(self, part: Mapping[str, Array]) -> None:
        """Follow another learner by a part of what it knows."""
        super().load({name: array for name, array in part.items() if not name.startswith(PREFIX)})
        self._memory.apply({n.removeprefix(PREFIX): a for n, a in part.items() if n.startswith(PREFIX)})

    def state(self) -> dict[str, Array]:
        """θ, the confidence matrix and what is remembered."""
        return {**state_of(self), **{f"{PREFIX}{name}": array for name, array in self._memory.state().items()}}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        memory = self._empty()
        memory.load({name.removeprefix(PREFIX): array for name, array in state.items() if name.startswith(PREFIX)})
        super().load({name: array for name, array in state.items() if not name.startswith(PREFIX)})
        self._memory = memory

    def _empty(self) -> QueryTable:
        columns = {"own": Column("item", np.float64), "precision": Column("item", np.float64, 1.0 / self.memory)}
        columns["rows"] = Column("item", np.float64)  # the mark of its features when it was last learned from
        return QueryTable(columns, self.max_queries, self.max_items)

    def _doubt(self, source: Candidates | Impression) -> Doubt:
        """What PairRank knows, and for a query that is remembered the items' own parts of score and width."""
        doubt = super()._doubt(source)
        slot = self._memory.find(source.query)
        if slot < 0:
            return doubt
        known, own, precision = self._memory.item_values(slot, "items", "own", "precision")
        rows, scores, theta, inverse, alpha, logit, _, wider = doubt
        asked, width = item_codes(source.items), self.beta**2
        scores, own = pairwise.recall(scores, known, own, precision, asked, self.memory, width)
        return Doubt(rows, scores, theta, inverse, alpha, logit, own, wider)
