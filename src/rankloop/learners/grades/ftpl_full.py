"""Follow the perturbed leader, with all grades."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.compiled_rounds import GradedItems
from rankloop.core.learner import (
    checked_order,
    make_impression,
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
from rankloop.learners.grades.rtopk_items import MEASURES
from rankloop.learners.query_table import Column, PerQuery, QueryTable, item_codes, require_bounds


@dataclass
class FTPLFull(PerQuery):
    """Follow the perturbed leader with all grades: the full-information reference for `rtopk-items`.

    Sorts items by their summed gains plus random numbers. With the whole list shown and graded its regret is √T. With
    part of the list graded it uses the mean gain of each item and has no guarantee.

    Parameters
    ----------
    measure
        What to optimize: "dcg", "sumloss" or "precision", as in `RTopKItems`.
    grades
        The highest grade; grades start at 0.
    horizon
        Rounds per query; 0 if unknown: the next power of two.
    epsilon
        1/ε is the size of the perturbation; 0: ε = 1/√(mT), divided by the gain of the highest grade.
    max_queries, max_items
        Bounds of the table: beyond them the query or item learned from the longest ago is replaced.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = FTPLFull(grades=1)
    >>> calm = Candidates("calm", ["walk", "nap", "film", "bath"])
    >>> for _ in range(10):
    ...     shown = learner.rank(calm, 4, rng)
    ...     learner.learn(shown, Feedback.grades(shown.items == "bath"), rng)
    >>> calm.items[learner.best(calm, 1)]
    array(['bath'], dtype='<U4')

    Notes
    -----
    Adam Kalai and Santosh Vempala. Efficient algorithms for online decision problems. JCSS 71, 2005; the
    full-information algorithm of Chaudhuri and Tewari (2017), Figure 3.
    """

    measure: Literal["sumloss", "dcg", "precision"] = "dcg"
    grades: int = 4
    horizon: int = 0
    epsilon: float = 0.0
    max_queries: int = 1_000_000
    max_items: int = 1000

    feedback: ClassVar[FeedbackKind] = "grades"
    contextual: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_choice("measure", self.measure, tuple(MEASURES))
        require_scale(self.grades)
        require_whole("horizon", self.horizon, 0)
        require_number("epsilon", self.epsilon, 0)
        require_bounds(self.max_queries, self.max_items)
        columns = {name: Column("item", np.float64) for name in ("sums", "weights")}
        self.queries_ = QueryTable(columns, self.max_queries, self.max_items)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The perturbed leader's list."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        slot, numbers = self._places(candidates)
        sums, weights = self.queries_.values(slot)
        order = ftpl.follow(
            numbers,
            sums,
            weights,
            self.queries_.rounds(slot),
            rng.random(candidates.n),
            k,
            self.rule(),
        )
        return make_impression(candidates, order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        slot, numbers = self._places(candidates)
        mean = ftpl.means(numbers, *self.queries_.values(slot))
        return top_k(mean, np.zeros(mean.size), resolve_k(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Count the grades."""
        grades = grades_of(self, impression, feedback, self.grades)
        if grades.size == 0:
            return
        slot, numbers, _ = self.queries_.enter(impression.query, item_codes(impression.items[: grades.size]))
        sums, weights = self.queries_.values(slot)
        ftpl.count_in(sums, weights, numbers, grades, MEASURES[self.measure])

    def _places(self, candidates: Candidates) -> tuple[int, Array]:
        slot = self.queries_.find(candidates.query)
        return slot, self.queries_.numbers(slot, item_codes(candidates.items))

    def rule(self) -> ftpl.ItemRule:
        return ftpl.ItemRule(MEASURES[self.measure], float(self.grades), 1, self.horizon, 0, float(self.epsilon), False)

    def compiled_items(self, world: GradedItems) -> Callable[[Array, int, Array], None]:
        """Rounds over one set of items without Python between them, for the lab."""
        sums, weights, rule = np.zeros(world.items), np.zeros(world.items), self.rule()
        return lambda grades, first, orders: topk_loop.ftpl_rounds(
            grades, world.key, first, sums, weights, rule, orders
        )
