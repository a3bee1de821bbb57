"""LambdaRank on true grades, as queries come: the oracle of the neural learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import checked_values, make_impression, require_number, require_whole
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.listwise import label_pulls
from rankloop.learners.models.network import MOST, AdamModel, Shapes, Training
from rankloop.learners.neural.network_learner import NetworkLearner


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


class LabeledNetwork(AdamModel):
    """A network with the queries that it was fitted on."""

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.queries_: Array = np.zeros(0, "<U1")
        self.counts_: Array = np.zeros(0)
        self.offsets_: Array = np.zeros(1, np.int64)
        self.rows_: Array = np.zeros((0, 0), np.float32)
        self.grades_: Array = np.zeros(0)
        self.fitted_: Array = np.zeros(1)  # rounds there had been at the last fit

    def presented(self) -> Presented:
        """The queries so far."""
        return Presented(self.queries_, self.counts_.copy(), self.offsets_, self.rows_, self.grades_)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        ends, count = self.offsets_, len(self.grades_)
        whole = ends.size == self.queries_.size + 1 and ends[0] == 0 and ends[-1] == count
        if not whole or (np.diff(ends) < 1).any():
            raise InvalidInput(f"state 'offsets_' does not divide {count} documents into {self.queries_.size} queries")

    def _remap(self, columns: FeatureMap) -> None:
        super()._remap(columns)
        self.rows_ = columns.rows(self.rows_)

    def _shapes(self) -> Shapes:
        kept: Shapes = {"queries_": ("q",), "counts_": ("q",), "offsets_": ("o",), "rows_": ("N", "d")}
        return {**super()._shapes(), **kept, "grades_": ("N",), "fitted_": (1,)}


@dataclass
class LambdaRankLabels(NetworkLearner[LabeledNetwork]):
    """LambdaRank on the true grades of all documents of all queries shown so far: the neural learners' oracle.

    It learns nothing from clicks. The lab gives it the grades of every round (`label`). Its memory and the time of a
    fit grow with the number of different queries.

    Parameters
    ----------
    rate
        Adam's step size at the start of a fit, in units of the data.
    ridge
        Weight of ‖θ - θ₀‖²/2.
    passes
        Over all queries in a fit, with a step size that falls to 0.
    batch
        Queries per step.
    growth
        Fit again after so many times more rounds than at the last fit: 0.1 is 10 %. 0: every round, as in the paper.
    net, width, seed
        As in `OLRankNet`.

    Examples
    --------
    >>> learner, shoes = LambdaRankLabels(width=20), Candidates("shoes", features=[[1.0, 0.0], [0.0, 1.0]])
    >>> for t in range(20):
    ...     learner.label(shoes, np.array([0, 1]), np.random.default_rng(t))
    >>> learner.best(shoes, 2)
    array([1, 0])

    Notes
    -----
    "olLambdaRank GT" of Jia and Wang, WWW 2022, section 5.1: a new LambdaRank model of all presented queries at each
    round. With `growth` all fits of a run cost 1/growth times the last one. A query that repeats counts again and is
    kept once. |ΔNDCG| is over the whole list.
    """

    rate: float = 3.0
    ridge: float = 0.01
    passes: int = 20
    batch: int = 8
    growth: float = 0.1
    net: Any = "two-layer"
    width: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("passes", "batch"):
            require_whole(name, getattr(self, name), 1, MOST)
        require_number("growth", self.growth, 0)
        self.model_ = LabeledNetwork(self.net, self.width, self.seed, self.rate, self.ridge)

    def label(self, candidates: Candidates, grades: Array, rng: np.random.Generator) -> None:
        """Take in the true grade (n,) of every candidate of a query, and fit if it is time to."""
        grades = np.asarray(grades, dtype=np.float64)
        if grades.shape != (candidates.n,) or not np.isfinite(grades).all() or grades.min() < 0:
            raise InvalidInput(f"grades are {grades!r:.200}; give a number of at least 0 for each candidate")
        model = self.model_
        rows, kept = model.rows(candidates), model.presented()
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
        if rounds >= model.fitted_[0] * (1.0 + self.growth):
            self._fit(kept, rounds, rng)
        model.queries_, model.counts_, model.offsets_, model.rows_, model.grades_ = kept

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:  # noqa: ARG002
        """The believed best ranking."""
        return make_impression(candidates, self.best(candidates, k))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Check the feedback, and learn nothing."""
        checked_values(self, impression, feedback)

    def _fit(self, kept: Presented, rounds: float, rng: np.random.Generator) -> None:
        """A new network for all that was presented."""
        training = Training(self.model_, kept.rows[: kept.offsets[1]], type(self).__name__, restart=True)
        count = len(kept.queries)
        steps = self.passes * -(-count // self.batch)
        for _ in range(self.passes):
            order = rng.permutation(count)
            for at in range(0, count, self.batch):
                some = kept.some(order[at : at + self.batch])
                training.step(some.rows, some.pulls, rounds, pace=1.0 - training.steps / steps)
        newest = kept.some(np.array([count - 1]))
        training.keep(newest.rows, newest.pulls)
        self.model_.fitted_ = np.array([rounds])
