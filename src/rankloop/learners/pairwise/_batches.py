"""PairRank in batches: where they end, what is gathered between, and the one step that takes it in.

Where a batch ends is a function of how many outcomes there were before it, of nothing else: not of the clock, nor of
how many were waiting. So a log is cut alike in the library, the lab, a service that was killed in between, and replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.kernels import batches

if TYPE_CHECKING:
    from rankloop.learners.pairwise.pairrank import PairRank

PART = 8  # no batch is larger than one part in so many of what came before: a new ranker does not wait for its first


def end_of(start: int, batch: int) -> int:
    """The outcome after the last of the batch that begins with outcome `start`."""
    return start + min(batch, max(1, start // PART))


def begin(learner: PairRank) -> None:
    """Have nothing gathered."""
    learner.precision_ = np.zeros((0, 0))  # (d, d) H with all that is gathered; its lower half, the rest is 0
    learner.push_ = np.zeros(0)  # (d,) the gradient gathered, at θ
    learner.gathered_ = np.zeros(3, np.int64)  # outcomes learned; those that θ has taken in; lists gathered since


def ready(learner: PairRank) -> None:
    """H and gradient as wide as the θ that has just been made."""
    learner.precision_ = np.diag(1.0 / np.diagonal(learner.inverse_))
    learner.push_ = np.zeros(learner.theta_.size)


def take_gathered(learner: PairRank) -> None:
    """Take the step for what is gathered before its batch ends."""
    if learner.gathered_[2]:
        _step(learner, learner.precision_, learner.push_)


def restart(learner: PairRank) -> None:
    """H from a confidence matrix that was just changed, with nothing gathered."""
    learner.precision_ = np.tril(batches.half_inverse(learner.inverse_))
    learner.push_ = np.zeros(learner.theta_.size)


def take_in(learner: PairRank, rows: Array, pairs: Array, weights: Array) -> None:
    """Gather the pairs of a list, and take the step if its batch ends with it.

    All or nothing: a list that ends a batch is gathered in copies, since the step needs memory that may not be there.
    """
    precision, push = learner.precision_, learner.push_
    outcomes, start, _ = learner.gathered_.tolist()
    ends = outcomes + 1 >= end_of(start, learner.batch)
    if ends:
        precision, push = precision.copy(), push.copy()
    prior = learner.prior * learner.unit_[0]
    batches.gather(precision, push, learner.theta_, rows, pairs, weights, learner.forget, prior)
    if ends:
        _step(learner, precision, push)
    else:
        learner.gathered_[2] += 1


def count(learner: PairRank) -> None:
    """One outcome more, gathered or without pairs; if its batch ends with it, what was gathered is taken in."""
    outcomes, start, lists = learner.gathered_.tolist()
    if outcomes + 1 >= end_of(start, learner.batch):
        if lists:
            _step(learner, learner.precision_, learner.push_)
        learner.gathered_[1] = outcomes + 1
    learner.gathered_[0] = outcomes + 1


def _step(learner: PairRank, precision: Array, push: Array) -> None:
    inverse = batches.half_inverse(precision)
    theta = batches.stepped(learner.theta_, inverse, push)
    learner.theta_, learner.inverse_, learner.precision_, learner.push_ = theta, inverse, precision, np.zeros(push.size)
    learner.gathered_[2] = 0


def check(batch: int, gathered: Array) -> None:
    """Refuse a state whose count of outcomes is not one that batches of this size come through."""
    if gathered.shape == (3,):
        outcomes, start, lists = gathered.tolist()
        if not (0 <= lists <= outcomes - start < end_of(start, batch) - start and start >= 0):
            raise InvalidInput(
                f"state 'gathered_' is {gathered.tolist()}; a batch that begins at {start} ends at "
                f"{end_of(max(start, 0), batch)} with batch={batch}: restore it with the batch it was learned with"
            )
