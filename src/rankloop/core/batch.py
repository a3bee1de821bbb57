"""Many lists at once, and the scores behind a list: functions for any learner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rankloop.core.capabilities import Scores
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import Learner, rows_of
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.ranking import linear_scores


def rank_many(
    learner: Learner, candidates: Iterable[Candidates], k: int, rng: np.random.Generator | int
) -> list[Impression]:
    """A list to show for each of many queries: what `rank` gives one after the other, bit for bit.

    >>> from rankloop.core.registry import make
    >>> queries = [Candidates(f"q{i}", features=[[0.1, 1.0], [0.7, 0.0]]) for i in range(3)]
    >>> [shown.query for shown in rank_many(make("greedy"), queries, k=1, rng=0)]
    ['q0', 'q1', 'q2']
    """
    rng = as_rng(rng)
    own: Any = getattr(learner, "rank_many", None)
    if own is not None:
        found: list[Impression] = own(candidates, k, rng)
        return found
    return [learner.rank(one, k, rng) for one in candidates]


def learn_many(
    learner: Learner, impressions: Sequence[Impression], feedbacks: Sequence[Feedback], rng: np.random.Generator | int
) -> None:
    """Take in what users did with many lists: what `learn` does one after the other, bit for bit.

    Where one of them is refused, those before it have been learned from, as in a loop.
    """
    rng = as_rng(rng)
    if len(impressions) != len(feedbacks):
        raise InvalidInput(f"{len(impressions)} impressions but {len(feedbacks)} feedbacks; give one each")
    own: Any = getattr(learner, "learn_many", None)
    if own is not None:
        own(impressions, feedbacks, rng)
        return
    for impression, feedback in zip(impressions, feedbacks, strict=True):
        learner.learn(impression, feedback, rng)


def score(learner: Learner, candidates: Candidates) -> Array:
    """(n,) how good a learner believes each candidate to be; `best` shows the highest. Changes nothing.

    >>> from rankloop.core.registry import make
    >>> score(make("pdgd"), Candidates(features=[[0.1, 1.0], [0.7, 0.0]]))
    array([0., 0.])
    """
    if isinstance(learner, Scores):
        return learner.score(candidates)
    theta = getattr(learner, "theta_", None)
    if theta is None or np.ndim(theta) != 1:
        raise InvalidInput(f"{type(learner).__name__} has no scores, only an order; ask best(candidates, k)")
    return linear_scores(rows_of(candidates, theta.size), theta)
