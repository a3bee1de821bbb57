"""LambdaRank on true grades, as queries come: the skyline of the neural learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.rng import as_rng
from rankloop.core.learner import checked_values, make_impression, require_number, require_whole, resolve_k
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.listwise import label_pulls
from rankloop.learners.neural._adam import AdamRanker, Training
from rankloop.learners.neural._neural import MOST, Shapes


class Presented(NamedTuple):
    """Different queries with all their documents, in the order in which they first came."""

    queries: Array  # (q,)
    counts: Array  # (q,) how often each was presented
    offsets: Array  # (q + 1,) where the documents of each begin
    rows: Array  # (N, d) float32
    grades: Array  # (N,)

    def some(self, chosen: Array) -> Presented:
        """Those at the positions `chosen`, one after the other."""
        parts = [slice(self.offsets[q], self.offsets[q + 1]) for q in chosen]
        offsets = np.cumsum([0, *(part.stop - part.start for part in parts)])
        rows, grades = (np.concatenate([whole[part] for part in parts]) for whole in (self.rows, self.grades))
        return Presented(self.queries[chosen], self.counts[chosen], offsets, rows, grades)

    def pulls(self, member: int, scores: Array) -> tuple[Array, float]:  # noqa: ARG002
        """LambdaRank's slope in each score, and its loss."""
        return label_pulls(scores, self.grades, self.offsets, self.counts)


@dataclass
class LambdaRankLabels(AdamRanker):
    """LambdaRank on the true grades of all documents of all queries shown so far: what a network could know of them.

    It learns nothing from clicks. The lab tells it the grades of every round (`label`); nobody else has them. Its
    memory and the time of a fit grow with the different queries shown, for it is a mark and must not forget.

    Parameters
    ----------
    passes
        Over all queries in a fit, with a step size that falls to 0.
    batch
        Queries a step.
    growth
        Fit anew when there have been so many times more rounds than at the last fit: .1 is 10 %. 0: every round, as
        the paper does.
    rate, ridge, units, optimiser
        The step size, the weight of ‖θ - θ₀‖²/2, what these numbers are told in, and Adam or plain descent
        (`AdamRanker`).
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
    "olLambdaRank GT" of Jia and Wang, WWW 2022 (paper 001), section 5.1: "a new LambdaRank model" of all presented
    queries at each round. Every fit begins at the start again, so that what it finds does not hang on fits before. One
    a round would cost as much as all rounds before together; with `growth` all fits of a run cost 1/growth times the
    last one, and in between the model lacks at most that share of the rounds. A query that comes again counts again,
    and is kept once. |ΔNDCG| is over the whole list.
    """

    rate: float = 3.0
    passes: int = 20
    batch: int = 8
    growth: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("passes", "batch"):
            require_whole(name, getattr(self, name), 1, MOST)
        require_number("growth", self.growth, 0)
        self.queries_: Array = np.zeros(0, "<U1")
        self.counts_: Array = np.zeros(0)
        self.offsets_: Array = np.zeros(1, np.int64)
        self.rows_: Array = np.zeros((0, 0), np.float32)
        self.grades_: Array = np.zeros(0)
        self.fitted_: Array = np.zeros(1)  # rounds there had been at the last fit

    def label(self, candidates: Candidates, grades: Array, rng: np.random.Generator) -> None:
        """Take in the true grade (n,) of every candidate of a query, and fit if it is time to."""
        grades = np.asarray(grades, dtype=np.float64)
        if grades.shape != (candidates.n,) or not np.isfinite(grades).all() or grades.min() < 0:
            raise InvalidInput(f"grades are {grades!r:.200}; give a number of at least 0 for each candidate")
        rows, kept = self._rows(candidates), self._presented()
        at = np.flatnonzero(kept.queries == candidates.query)
        if at.size:
            kept.counts[at] += 1.0
        else:
            kept = Presented(
                np.append(kept.queries, candidates.query),
                np.append(kept.counts, 1.0),
                np.append(kept.offsets, kept.offsets[-1] + len(rows)),
                np.concatenate([kept.rows.reshape(-1, rows.shape[1]), rows]),
                np.concatenate([kept.grades, grades]),
            )
        rounds = float(kept.counts.sum())
        if rounds >= self.fitted_[0] * (1.0 + self.growth):
            self._fit(kept, rounds, rng)
        self.queries_, self.counts_, self.offsets_, self.rows_, self.grades_ = kept

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """What it knows to be best."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        return make_impression(candidates, self.best(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Checks the feedback and forgets it."""
        checked_values(self, impression, feedback)

    def _fit(self, kept: Presented, rounds: float, rng: np.random.Generator) -> None:
        """A new network for all that was presented."""
        training = Training(self, kept.rows[: kept.offsets[1]], again=True)
        count = len(kept.queries)
        steps = self.passes * -(-count // self.batch)
        for _ in range(self.passes):
            order = rng.permutation(count)
            for at in range(0, count, self.batch):
                some = kept.some(order[at : at + self.batch])
                training.step(some.rows, some.pulls, rounds, pace=1.0 - training.steps / steps)
        newest = kept.some(np.array([count - 1]))
        training.keep(newest.rows, newest.pulls)
        self.fitted_ = np.array([rounds])

    def _presented(self) -> Presented:
        return Presented(self.queries_, self.counts_.copy(), self.offsets_, self.rows_, self.grades_)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        ends, count = self.offsets_, len(self.grades_)
        whole = ends.size == self.queries_.size + 1 and ends[0] == 0 and ends[-1] == count
        if not whole or (np.diff(ends) < 1).any():
            raise InvalidInput(f"state 'offsets_' does not part {count} documents into {self.queries_.size} queries")

    def _remap(self, columns: FeatureMap) -> None:
        super()._remap(columns)
        self.rows_ = columns.rows(self.rows_)

    def _shapes(self) -> Shapes:
        kept: Shapes = {"queries_": ("q",), "counts_": ("q",), "offsets_": ("o",), "rows_": ("N", "d")}
        return {**super()._shapes(), **kept, "grades_": ("N",), "fitted_": (1,)}
