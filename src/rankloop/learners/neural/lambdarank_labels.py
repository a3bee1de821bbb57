"""LambdaRank on true grades, as queries come: the skyline of the neural learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels.listwise import label_pulls
from rankloop.learner import checked_values, require_whole, show
from rankloop.learners.neural._adam import AdamRanker, Training
from rankloop.learners.neural._neural import MOST, Shapes
from rankloop.types import Array, Candidates, Feedback, Impression


class Kept(NamedTuple):
    """Queries with all their documents, the oldest first."""

    queries: Array  # (q,) different ones
    offsets: Array  # (q + 1,) where the documents of each begin
    rows: Array  # (N, d) float32
    grades: Array  # (N,)

    def some(self, chosen: Array) -> Kept:
        """Those at the positions `chosen`, one after the other."""
        parts = [slice(self.offsets[q], self.offsets[q + 1]) for q in chosen]
        offsets = np.cumsum([0, *(part.stop - part.start for part in parts)])
        rows, grades = (np.concatenate([whole[part] for part in parts]) for whole in (self.rows, self.grades))
        return Kept(self.queries[chosen], offsets, rows, grades)

    def pulls(self, member: int, scores: Array) -> tuple[Array, float]:  # noqa: ARG002
        """LambdaRank's slope in each score, and its loss."""
        return label_pulls(scores, self.grades, self.offsets)


@dataclass
class LambdaRankLabels(AdamRanker):
    """LambdaRank on the true grades of all documents of the queries shown so far: what a network could know of them.

    It learns nothing from clicks. The lab tells it the grades of every round (`label`); nobody else has them.

    Parameters
    ----------
    steps
        Of Adam for a query.
    batch
        Queries a step: the present one, and others drawn from those kept.
    memory
        Different queries kept; the state grows until they are there.
    rate, ridge
        Adam's step size and the weight of ‖θ - θ₀‖²/2, in units of the data (`AdamRanker`).
    net, width, seed
        The network, its hidden units, and where it starts (`NeuralRanker`).

    Examples
    --------
    >>> learner, shoes = LambdaRankLabels(width=20), Candidates("shoes", features=[[1.0, 0.0], [0.0, 1.0]])
    >>> for t in range(20):
    ...     learner.label(shoes, np.array([0, 1]), np.random.default_rng(t))
    >>> learner.best(shoes, 2)
    array([1, 0])

    Notes
    -----
    "olLambdaRank GT" of Jia and Wang, WWW 2022 (paper 001), section 5.1, which trains a new LambdaRank after every
    round; here one goes on, a few steps a round. |ΔNDCG| is over the whole list.
    """

    steps: int = 2
    batch: int = 4
    memory: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "batch", "memory"):
            require_whole(name, getattr(self, name), 1, MOST)
        self.queries_: Array = np.zeros(0, "<U1")
        self.offsets_: Array = np.zeros(1, np.int64)
        self.rows_: Array = np.zeros((0, 0), np.float32)
        self.grades_: Array = np.zeros(0)

    def label(self, candidates: Candidates, grades: Array, rng: np.random.Generator) -> None:
        """Take in the true grade (n,) of every candidate of a query."""
        grades = np.asarray(grades, dtype=np.float64)
        if grades.shape != (candidates.n,) or not np.isfinite(grades).all() or grades.min() < 0:
            raise InvalidInput(f"grades are {grades!r:.200}; give a number of at least 0 for each candidate")
        name, rows = np.array([candidates.query]), self._rows(candidates)
        kept = Kept(self.queries_, self.offsets_, self.rows_.reshape(-1, rows.shape[1]), self.grades_)
        present = Kept(name, np.array([0, len(rows)]), rows, grades)
        if name[0] not in kept.queries:
            if len(kept.queries) == self.memory:
                kept = kept.some(np.arange(1, self.memory))
            both = zip(kept, present, strict=True)
            queries, _, all_rows, all_grades = (np.concatenate(pair) for pair in both)
            kept = Kept(queries, np.append(kept.offsets, kept.offsets[-1] + len(rows)), all_rows, all_grades)
        training = Training(self, rows)
        for _ in range(self.steps):
            chosen = (rng.random(self.batch) * len(kept.queries)).astype(np.int64)
            chosen[0] = np.flatnonzero(kept.queries == name[0])[0]
            batch = kept.some(chosen)
            training.step(batch.rows, batch.pulls, len(kept.queries))
        training.keep(rows, present.pulls)
        self.queries_, self.offsets_, self.rows_, self.grades_ = kept

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:  # noqa: ARG002
        """What it knows to be best."""
        return show(candidates, self.best(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:  # noqa: ARG002
        """Checks the feedback and forgets it."""
        checked_values(self, impression, feedback)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        ends, count = self.offsets_, len(self.grades_)
        whole = ends.size == self.queries_.size + 1 and ends[0] == 0 and ends[-1] == count
        if not whole or (np.diff(ends) < 1).any():
            raise InvalidInput(f"state 'offsets_' does not part {count} documents into {self.queries_.size} queries")

    def _shapes(self) -> Shapes:
        kept: Shapes = {"queries_": ("q",), "offsets_": ("o",), "rows_": ("N", "d"), "grades_": ("N",)}
        return {**super()._shapes(), **kept}
