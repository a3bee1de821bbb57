"""What a learner may tell of itself beside the protocol of `rankloop.core.learner`, to those who watch it or ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.types import Array, Candidates, Impression, Rows, SparseRows
from rankloop.kernels.sparse import sparse_scores


class Explanation(NamedTuple):
    """Why a list stands as it does, in slots of the list shown (0 is the top)."""

    best: Array  # (k,) the slots in the order that the learner believes best
    uncertain: Array  # (m, 2) slots of the pairs whose order it is not sure of, the upper one first
    pairs: int  # how many pairs that is among: all of the list, or those that the learner compares


@runtime_checkable
class Explains(Protocol):
    """Optional: tells what of a list was belief and what was trial."""

    def explain(self, impression: Impression) -> Explanation:
        """From the memo where it tells what was believed when the list was made, else from what is learned now.

        The impression may be of a list that was adopted. Changes nothing, and is quick: nothing is ranked meanwhile.
        """


@runtime_checkable
class Confident(Protocol):
    """Optional, for linear learners with weights `theta_`: tells how sure they are."""

    def half_widths(self) -> Array:
        """(d,) half the width of each weight's confidence interval, as the learner itself uses it; empty while nothing
        is learned. Changes nothing."""


class Drift(NamedTuple):
    """What a learner has noticed of users who change; lists are counted as they are learned from, from 1 on."""

    lists: int  # learned from so far
    since: int  # the list at which the model that ranks took over; 0: it always did
    alarms: int  # changes that it is sure of
    latest: Array  # (m,) the lists from which on the latest of them were met, oldest first


@runtime_checkable
class Follows(Protocol):
    """Optional: a learner that notices when users change. Operators are told."""

    def drift(self) -> Drift:
        """What it has noticed so far. Changes nothing, and is quick."""


@runtime_checkable
class Remembers(Protocol):
    """Optional: a learner that keeps something of each query that comes, beside what holds for all. Operators are told.

    Where it has `parts`, a query of which it knows nothing has nothing of its own in its scores: all 0.
    """

    @property
    def remembered(self) -> int:
        """How many queries it remembers now."""


@runtime_checkable
class KnowsPropensity(Protocol):
    """Optional: a learner that can say how likely `rank` is to show a list. Off-policy estimates ask."""

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """log of the probability that `rank(candidates, len(order), rng)` shows `order`; -inf: it never does.

        Exact, changes nothing. What `rank` draws carries the same number in its memo (`drawn`).
        """


@runtime_checkable
class TellsChances(Protocol):
    """Optional: a learner that can say how likely each candidate is to stand first, all at once."""

    def chances(self, candidates: Candidates) -> Array:
        """(n,) probabilities, exact, that add up to 1: of what `rank` would show now. Changes nothing."""


@runtime_checkable
class Grows(Protocol):
    """Optional: a learner whose state grows with the events it has seen says so, or the contract does not let it."""

    @property
    def grows(self) -> str:
        """Why, for people who choose a learner; empty: with these parameters it does not."""


@runtime_checkable
class Scores(Protocol):
    """Optional: a learner whose best list is that of the highest scores. Those with weights `theta_` need it not."""

    def score(self, candidates: Candidates) -> Array:
        """(n,) how good each candidate is believed to be, higher is better. No randomness, changes nothing."""


class Parts(NamedTuple):
    """What the scores of a list are made of: rows · weights, and what is each document's own."""

    rows: Rows  # (k, d), or (k, d + 1) with the base order as last column
    weights: Array  # of each column; empty: all 0
    own: Array | None = None  # (k,)

    def scores(self) -> Array:
        """(k,) what they come to."""
        rows, own = self.rows, 0.0 if self.own is None else self.own
        if self.weights.size == 0:
            return np.zeros(len(rows)) + own
        if isinstance(rows, SparseRows):
            return sparse_scores(rows.indptr, rows.indices, rows.values, self.weights) + own
        return np.asarray((rows * self.weights).sum(axis=1) + own)


@runtime_checkable
class ScoresByParts(Protocol):
    """Optional, for learners whose weights are not all that there is to a score: a base order, a memory."""

    def parts(self, impression: Impression) -> Parts:
        """What the scores of a list are made of now. Changes nothing."""


@runtime_checkable
class InParts(Protocol):
    """Optional, for learners that keep something of each query: a copy can follow the learner by what has changed,
    at a cost that does not grow with the queries remembered."""

    def part(self, queries: int) -> dict[str, Array]:
        """All that can have changed by learning from lists of the last so many different queries. Changes nothing."""

    def take(self, part: Mapping[str, Array]) -> None:
        """Put a `part` of another learner with the same parameters in: a copy that was like it before, or at any time
        since, ranks as it does from now on, bit for bit. The copy is to rank with, not to learn with."""


def takes_sparse(learner: object) -> bool:
    """Whether a learner ranks by sparse rows (`SparseRows`), so that a hundred thousand columns are no matter: pairwise
    ones with one variance a feature do, others say it by `sparse`. The contract holds them to it."""
    return getattr(learner, "confidence", None) == "diagonal" or bool(getattr(learner, "sparse", False))


@runtime_checkable
class Rescales(Protocol):
    """Optional, for learners that score by a weighted sum: they can go on with features on another scale."""

    def rescale(self, growth: Array) -> None:
        """From now on feature j comes divided by `growth[j]` (and moved, which no order depends on): weights become
        such that lists are ordered as before. Changes nothing else, and cannot fail."""


@runtime_checkable
class Remaps(Protocol):
    """Optional, for learners that rank by features: they keep what they have learned when the features change.

    A learner whose impressions have notes in feature space also has `remap_memo(memo, columns)`: the notes of an
    impression from before the change as `learn` takes them after it.
    """

    carries: ClassVar[str]  # one line: what carries over, for API answers and documentation

    def remap(self, columns: FeatureMap) -> None:
        """Rewrite what is learned for features in other columns. Deterministic; the identity changes no bit.

        Raises `InvalidParameter` if these parameters do not allow it, and then changes nothing.
        """
