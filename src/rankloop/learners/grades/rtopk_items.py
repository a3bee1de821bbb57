"""RTop-kF without features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import GradedItems
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import (
    checked_order,
    make_impression,
    memo_of,
    require,
    require_choice,
    require_number,
    require_whole,
    resolve_k,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import ftpl, topk_loop
from rankloop.kernels.ranking import top_k
from rankloop.learners.grades._grades import grades_of, require_scale
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, require_bounds

MEASURES = {"sumloss": ftpl.SUMLOSS, "dcg": ftpl.DCG, "precision": ftpl.PRECISION}
CLOCK = ("block", "place", "length", "past", "horizon", "blocks")
LONGEST = 2**53  # rounds: a horizon that is doubled must not overflow
COLUMNS = {
    **{name: Column("query", np.int64) for name in CLOCK},
    **{name: Column("item", np.float64) for name in ("sums", "weights", "new_sums", "new_weights")},
    "told": Column("item", np.int64, -1),
}  # in the order of `ftpl.Board`


@dataclass
class RTopKItems(PerQuery):
    """Bring every item to the top once per block of rounds, at a random moment; otherwise show the perturbed leader.

    For a fixed set of items (activities in an app, categories of a shop) and users who rate only the first one or two.
    It uses no features and assumes nothing about users: the regret against the best single ranking is T^(2/3), the best
    possible from one grade per round. Each query has its own items and statistics.

    Parameters
    ----------
    measure
        What to optimize: "dcg" (gain 2^grade - 1), "sumloss" (the sum of rank times grade) or "precision" (relevant or
        not).
    top
        How many results are graded, from the first. Feedback with fewer grades is refused; more are not used.
    grades
        The highest grade; grades start at 0. The perturbation is proportional to its gain.
    horizon
        Rounds per query; 0 if unknown: it doubles.
    blocks, epsilon
        Into how many blocks the horizon is divided, and 1/ε, the size of the perturbation; 0: as in the paper's bound,
        K = m^(1/3) T^(2/3) / ⌈m/top⌉^(2/3) and ε = 1/√(mK), divided by the gain of the highest grade.
    below
        What is shown below the explored items: the perturbed "leader", or a "random" order.
    max_queries, max_items
        Bounds of the table: beyond them the query or item learned from the longest ago is replaced.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = RTopKItems(grades=1)
    >>> calm = Candidates("calm", ["walk", "nap", "film", "bath"])
    >>> for _ in range(40):
    ...     shown = learner.rank(calm, 4, rng)
    ...     learner.learn(shown, Feedback.grades([shown.items[0] == "bath"]), rng)
    >>> calm.items[learner.best(calm, 1)]
    array(['bath'], dtype='<U4')

    Notes
    -----
    Sougata Chaudhuri and Ambuj Tewari. Online learning to rank with top-k feedback. JMLR 18, 2017: Algorithm 1 with
    FTPL. Differences:

    - ε for DCG is divided by 2^n - 1; the square in Corollary 10 is a misprint.
    - Groups of explored items are drawn again in each block, and a round with c groups and r rounds left explores with
      probability c/r, which gives the same moments as a plan. Lists open at the same time may explore an item twice.
    - A grade counts with the weight of the block in which the list was shown. An item's estimate is its mean gain;
      items never graded count like the mean of the others.
    - The first items of a list that someone else ordered count as explored.
    """

    measure: Literal["sumloss", "dcg", "precision"] = "dcg"
    top: int = 1
    grades: int = 4
    horizon: int = 0
    blocks: int = 0
    epsilon: float = 0.0
    below: Literal["leader", "random"] = "leader"
    max_queries: int = 1_000_000
    max_items: int = 1000

    feedback: ClassVar[FeedbackKind] = "grades"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_choice("measure", self.measure, tuple(MEASURES))
        require_whole("top", self.top, 1)
        require_scale(self.grades)
        require_whole("horizon", self.horizon, 0)
        require(self.horizon <= LONGEST, "horizon", self.horizon, f"must be at most {LONGEST}; 0 if it is not known")
        require_whole("blocks", self.blocks, 0)
        require(self.blocks == 0 or self.horizon > 0, "blocks", self.blocks, "needs a horizon to be cut; give that too")
        require_number("epsilon", self.epsilon, 0)
        require_choice("below", self.below, ("leader", "random"))
        require_bounds(self.max_queries, self.max_items)
        self.queries_ = QueryTable(COLUMNS, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The perturbed leader's list, or one with unexplored items on top."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        slot, numbers = self._places(candidates)
        board, coins = ftpl.Board(*self.queries_.values(slot)), rng.random(2 * candidates.n + 1)
        order, explored, length = ftpl.arrange(board, numbers, coins, k, self.rule())
        return _shown(candidates, order, int(board.block[0]), length, explored)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        order, board = checked_order(candidates, order), ftpl.Board(*self.queries_.values(self._places(candidates)[0]))
        horizon = ftpl.first_horizon(candidates.n, self.rule())
        length = int(board.length[0]) or ftpl.plan(candidates.n, self.top, horizon, self.blocks)[1]
        return _shown(candidates, order, int(board.block[0]), length, min(self.top, order.size))

    def best(self, candidates: Candidates, k: int) -> Array:
        slot, numbers = self._places(candidates)
        board = ftpl.Board(*self.queries_.values(slot))
        mean = ftpl.means(numbers, board.sums + board.new_sums, board.weights + board.new_weights)
        return top_k(mean, np.zeros(mean.size), resolve_k(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Count the grades of what was explored; at the end of a block they join the estimate."""
        graded = min(self.top, impression.k)
        grades = grades_of(self, impression, feedback, self.grades, self.top)[:graded]
        memo = memo_of(impression, "round", 4)
        block, length, candidates, explored = memo.tolist()
        if not (memo >= 0).all() or length < 1 or candidates < impression.k or explored > graded:
            raise InvalidInput(f"the impression's memo has {memo.tolist()} as 'round'; pass it on as rank made it")
        slot, numbers, _ = self.queries_.enter(impression.query, item_codes(impression.items[:graded]))
        board, seen = ftpl.Board(*self.queries_.values(slot)), int(explored)
        ftpl.observe(board, numbers[:seen], grades[:seen], int(block), int(length), int(candidates), self.rule())

    def _places(self, candidates: Candidates) -> tuple[int, Array]:
        slot = self.queries_.find(candidates.query)
        return slot, self.queries_.numbers(slot, item_codes(candidates.items))

    def rule(self) -> ftpl.ItemRule:
        highest, epsilon = float(self.grades), float(self.epsilon)
        random_below = self.below == "random"
        return ftpl.ItemRule(
            MEASURES[self.measure], highest, self.top, self.horizon, self.blocks, epsilon, random_below
        )

    def compiled_items(self, world: GradedItems) -> Callable[[Array, int, Array], None]:
        """Rounds over one set of items without Python between them, for the lab."""
        sizes, rule = {"query": 1, "item": world.items}, self.rule()
        board = ftpl.Board(*(np.full(sizes[column.per], column.initial, column.dtype) for column in COLUMNS.values()))
        return lambda grades, first, orders: topk_loop.items_rounds(grades, world.key, first, board, rule, orders)

    def load(self, state: Mapping[str, Array]) -> None:
        fresh = QueryTable(COLUMNS, self.max_queries, self.max_items)
        fresh.load(state)
        clocks = np.array([fresh.arrays[name] for name in CLOCK])
        began = fresh.arrays["length"] > 0
        if (clocks < 0).any() or (clocks > LONGEST).any() or (fresh.arrays["horizon"][began] < 1).any():
            raise InvalidInput("state has a clock that no rounds could have set; restore an older version")
        self.queries_ = fresh


def _shown(candidates: Candidates, order: Array, block: int, length: int, explored: int) -> Impression:
    """The impression with what the clock of its time was, and how many of the first items were to be explored."""
    return make_impression(
        candidates, order, {"round": np.array([block, length, candidates.n, explored], dtype=np.float64)}
    )
