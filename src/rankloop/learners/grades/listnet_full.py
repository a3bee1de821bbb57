"""Online ListNet, with all grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.compiled_rounds import GradedQueries
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    load_state,
    make_impression,
    memo_of,
    require_number,
    resolve_k,
    rows_of,
    state_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import topk, topk_loop
from rankloop.learners.grades._grades import grades_of, require_scale
from rankloop.learners.models.gradient import best_of, scores_of
from rankloop.learners.models.linear import CARRIES


@dataclass
class ListNetFull:
    """Online ListNet with all grades: the full-information reference for `rtopk`.

    Descends the cross entropy between the softmax of the grades and that of the scores; never explores. With only the
    first few documents graded, it learns from the list of these.

    Parameters
    ----------
    grades
        The highest grade; grades start at 0.
    rate
        a of the step size a/√t, t counting the lists learned from.
    radius
        The weights stay in a ball of this radius.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = ListNetFull()
    >>> walks = Candidates("walks", ["steep", "shady", "long"], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.0]])
    >>> liked = {"steep": 0, "shady": 4, "long": 1}
    >>> for _ in range(5):
    ...     shown = learner.rank(walks, 3, rng)
    ...     learner.learn(shown, Feedback.grades([liked[item] for item in shown.items]), rng)
    >>> walks.items[learner.best(walks, 3)]
    array(['shady', 'long', 'steep'], dtype='<U5')

    Notes
    -----
    Cao et al., Learning to rank: from pairwise approach to listwise approach, ICML 2007, top-one probabilities; the
    online comparator of Chaudhuri and Tewari, JMLR 18, 2017, section 4.2, with η = 0.01/√t. Scores are those of display
    time.
    """

    grades: int = 4
    rate: float = 1.0
    radius: float = 10.0

    feedback: ClassVar[FeedbackKind] = "grades"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def __post_init__(self) -> None:
        require_scale(self.grades)
        require_number("rate", self.rate, 0, above=True)
        require_number("radius", self.radius, 0, above=True)
        self.theta_: Array = np.zeros(0)
        self.rounds_: Array = np.zeros(1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The k highest scores, ties at random."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        rows = rows_of(candidates, self.theta_.size)
        order, scores = topk.listnet_display(rows, self.theta_, rng.random(candidates.n), k)
        return make_impression(candidates, order, {"scores": scores})

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        scores, order = scores_of(self.theta_, candidates), checked_order(candidates, order)
        return make_impression(candidates, order, {"scores": scores[order]})

    def best(self, candidates: Candidates, k: int) -> Array:
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """A step on the graded part of the list; one grade alone says nothing about an order."""
        grades = grades_of(self, impression, feedback, self.grades)
        rows, scores = rows_of(impression, self.theta_.size), memo_of(impression, "scores", impression.k)
        if grades.size < 2:
            return
        self.theta_ = topk.listnet_learned(
            self.theta_,
            self.rounds_[0],
            rows[: grades.size],
            scores[: grades.size],
            grades,
            float(self.rate),
            float(self.radius),
        )
        self.rounds_ = self.rounds_ + 1.0

    def compiled_queries(self, world: GradedQueries) -> Callable[[int, Array, Array], Array]:
        """Rounds over a data set without Python between them, for the lab; whole lists are shown, and told."""
        theta, rate, radius = np.zeros(0), float(self.rate), float(self.radius)

        def play(first: int, ndcg: Array, losses: Array) -> Array:  # noqa: ARG001
            nonlocal theta
            theta = topk_loop.listnet_rounds(*world[:5], first, theta, world.k, rate, radius, ndcg)
            return theta

        return play

    def remap(self, columns: FeatureMap) -> None:
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"theta_": ("d",), "rounds_": (1,)})
