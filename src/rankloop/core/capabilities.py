"""Optional capabilities of a learner, beside the protocol in `rankloop.core.learner`.

A learner has a capability if it has its methods: `isinstance(learner, Explains)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.types import Array, Candidates, Impression, Rows, SparseRows
from rankloop.kernels.sparse import sparse_scores


class ScoreTerms(NamedTuple):
    """What the scores of a ranking are made of: rows · weights, and each document's own part."""

    rows: Rows  # (k, d), or (k, d + 1) with the baseline position as last column
    weights: Array  # of each column; empty: all 0
    own: Array | None = None  # (k,)

    def scores(self) -> Array:
        """(k,) their sum."""
        rows, own = self.rows, 0.0 if self.own is None else self.own
        if self.weights.size == 0:
            return np.zeros(len(rows)) + own
        if isinstance(rows, SparseRows):
            return sparse_scores(rows.indptr, rows.indices, rows.values, self.weights) + own
        return np.asarray((rows * self.weights).sum(axis=1) + own)


@runtime_checkable
class Scores(Protocol):
    """The believed best ranking is that of the highest scores."""

    def score(self, candidates: Candidates) -> Array:
        """(n,) how good each candidate is believed to be, higher is better. No randomness, changes nothing."""


@runtime_checkable
class LinearScores(Protocol):
    """Scores are weighted sums of features, in part at least."""

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """What the scores of a ranking are made of now. Changes nothing."""

    def half_widths(self) -> Array:
        """(d,) half the width of each weight's confidence interval; empty if there are none. Changes nothing."""

    def rescale(self, growth: Array) -> None:
        """Continue with feature j divided by `growth[j]`: weights change so that rankings do not. Cannot fail."""


class Explanation(NamedTuple):
    """What was believed about a ranking, in positions of the ranking shown (0 is the top)."""

    best: Array  # (k,) the positions in the order that the learner believes best
    uncertain: Array  # (m, 2) positions of the pairs whose order it is not sure of, the upper one first
    pairs: int  # the number of pairs that were compared


class Drift(NamedTuple):
    """Changes of the users that a learner has noticed; impressions are counted as they are learned from, from 1."""

    lists: int  # learned from so far
    since: int  # the impression at which the present model took over; 0: at the beginning
    alarms: int  # changes
    latest: Array  # (m,) the impressions at which the latest of them began, oldest first


class Report(NamedTuple):
    """What operators want to know about a learner."""

    remembered: int | None = None  # queries of which something is kept; None: nothing is kept per query
    drift: Drift | None = None  # None: changes are not detected
    grows: str = ""  # why the state grows with the events seen; empty: it does not
    sparse: bool = False  # whether `SparseRows` are accepted


@runtime_checkable
class Observable(Protocol):
    """Reports on itself to those who watch it."""

    def report(self) -> Report:
        """What is known now. Changes nothing, and is quick."""

    def explain(self, impression: Impression) -> Explanation | None:
        """What was certain when the ranking was made, as far as the memo has it, else what is certain now; None if the
        learner cannot tell. The impression may be an adopted one. Changes nothing, and is quick."""


@runtime_checkable
class Propensity(Protocol):
    """The probability of a ranking is known exactly. Off-policy estimates use it."""

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """log of the probability that `rank(candidates, len(order), rng)` shows `order`; -inf: it never does.

        Changes nothing. A ranking that was drawn has the same number in its memo (`make_impression`).
        """


@runtime_checkable
class StateDeltas(Protocol):
    """A copy can follow the learner by what has changed, at a cost that does not grow with the queries remembered."""

    def state_delta(self, queries: int) -> dict[str, Array]:
        """All that can have changed by learning from the last so many different queries. Changes nothing."""

    def apply_delta(self, delta: Mapping[str, Array]) -> None:
        """Apply a `state_delta` of another learner with the same parameters: a copy that was equal to it before, or at
        any time since, ranks as it does from now on, bit for bit. The copy is to rank with, not to learn with."""


@runtime_checkable
class Remaps(Protocol):
    """What was learned carries over when features are added, removed or renamed.

    A learner whose impressions have notes in feature space also has `remap_memo(memo, columns)`: the memo of an
    impression from before the change as `learn` takes it after the change.
    """

    carries: ClassVar[str]  # one line: what carries over, for API answers and documentation

    def remap(self, columns: FeatureMap) -> None:
        """Rewrite what is learned for features in other columns. Deterministic; the identity changes no bit.

        Raises `InvalidParameter` if these parameters do not allow it, and then changes nothing.
        """


MOST_FIRST = 50  # candidates for which `first_place_probabilities` asks: one call each


def first_place_probabilities(learner: object, candidates: Candidates) -> list[float | None]:
    """(n,) how likely `rank` is to show each candidate first; None if unknown, or for more than 50 candidates."""
    n = candidates.n
    if not isinstance(learner, Propensity) or n > MOST_FIRST:
        return [None] * n
    return [float(np.exp(learner.log_propensity(candidates, np.array([i])))) for i in range(n)]


def report_of(learner: object) -> Report:
    """The learner's report, or an empty one."""
    return learner.report() if isinstance(learner, Observable) else Report()
