"""Optional protocols: a learner that can be taken through many simulated rounds without Python between them says so.

Each kind of world has its own: one query that comes again and again with clicks (`CompiledClicks`), the queries of a
data set with clicks (`CompiledRounds`) or with grades (`CompiledQueries`), one set of items with grades
(`CompiledItems`). The method lives in the learner's file and is made of the kernels of its `rank` and `learn`, so the
lab gets the same rounds, bit for bit, only faster; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.click_loop import Rounds
from rankloop.kernels.click_models import ClickParameters

Loop = Callable[[Rounds, int, Rng], None]  # takes a learner through rounds, the first of which has this number


@runtime_checkable
class CompiledRounds(Protocol):
    """Optional, for learners of clicks with features: many rounds in one call (`lab.runs.compiled_clicks`)."""

    def compiled_rounds(self) -> Loop | None:
        """What `rank` and `learn` would do, bit for bit; None where this configuration has no such loop."""


class ClickWorld(NamedTuple):
    """One query that comes again and again, and the simulated user who brings it."""

    query: str
    user: ClickParameters  # its documents are the candidates 0, 1, …, in base order
    k: int  # positions
    top: int  # those of them on which regret is measured
    best: float  # expected clicks there of the best list
    most: int  # pairs that a list may have the wrong way round before it counts as unsafe; -1: nobody looks


class ClickLoop(NamedTuple):
    """Rounds in a `ClickWorld` without Python between them."""

    coins: tuple[int, ...]  # shape of the uniform numbers that a round takes
    play: Callable[[Array, Array, Array], None]  # a round for each row of (steps, *coins) and of the user's
    # (steps, 1 or 2, k); (3,) regret, unsafe lists and harmful changes (`rankloop.kernels.bandits`) are added to
    finish: Callable[[int], None]  # the learner is where so many requests would have brought it


@runtime_checkable
class CompiledClicks(Protocol):
    """Optional, for learners of clicks: millions of simulated rounds (`rankloop.lab.runs.compiled.play`)."""

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        """The rounds that `rank` and `learn` would give, bit for bit; the learner must be fresh, and is changed."""


class GradedItems(NamedTuple):
    """One set of items that is ordered again and again, whole, under relevance vectors that the lab brings."""

    items: int
    key: Array  # (2,) of the random stream "rank"


class GradedQueries(NamedTuple):
    """The queries of a data set, drawn uniformly."""

    features: Array  # (N, d)
    grades: Array  # (N,) float64
    offsets: Array  # (Q + 1,) query q's documents are offsets[q] … offsets[q + 1] - 1
    ideal: Array  # (Q,) ideal DCG@k
    keys: Array  # (2, 2) of the random streams "world" and "rank"
    k: int


@runtime_checkable
class CompiledItems(Protocol):
    """Optional, for learners of grades without features: rounds with no Python between them (`compiled_grades`)."""

    def compiled_items(self, world: GradedItems) -> Callable[[Array, int, Array], None]:
        """What plays rounds: given grades (T, m) and the number of the first, it fills the orders shown (T, m).

        The rounds that `rank` and `learn` of a fresh learner with these parameters would give, bit for bit; this one is
        not changed.
        """


@runtime_checkable
class CompiledQueries(Protocol):
    """Optional, for learners of grades with features, likewise."""

    def compiled_queries(self, world: GradedQueries) -> Callable[[int, Array, Array], Array]:
        """What plays rounds: given the number of the first, it fills NDCG@k (T,) and, unless empty, the surrogate's
        losses (T,), and returns θ as it stands then; empty for a learner without one."""
