"""What of a learner's ranking is shown: nothing (shadow), small moves (bounded), or all of it (full)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.errors import RankloopError
from rankloop.kernels.ranking import bounded_order
from rankloop.learner import Learner, show
from rankloop.service.wire import Spec
from rankloop.types import Array, Candidates, Impression


class Rubbish(RankloopError):
    """A learner answered with something that is not a ranking."""


class Choice(NamedTuple):
    """A list to show."""

    impression: Impression
    explored: int  # positions at which another item stands than the learner believes best


def choose(learner: Learner, candidates: Candidates, k: int, rng: np.random.Generator, spec: Spec) -> Choice:
    """The list that `spec` allows to be shown of what `learner` wants.

    A list that is not the learner's own (shadow, or bounded where the bound changed it) goes through `adopt`, so that
    its clicks are learned from with the right weights.
    """
    k = min(k, candidates.n)
    if spec.exposure == "shadow":
        return Choice(_adopted(learner, candidates, np.arange(k)), 0)
    if spec.exposure == "full":
        own = _checked(learner.rank(candidates, k, rng), candidates, k)
        best = learner.best(candidates, k)
        return Choice(own, int(np.count_nonzero(own.order != best)))
    # Items below k + s can come no higher than position k + 1: the learner need not look at them.
    reach = candidates.head(k + spec.displacement)
    own = _checked(learner.rank(reach, k, rng), reach, k)
    bounded = _within(own.order, reach.n, spec.displacement, k)
    best = _within(learner.best(reach, k), reach.n, spec.displacement, k)
    if not np.array_equal(bounded, own.order):
        own = _adopted(learner, reach, bounded)
    return Choice(own, int(np.count_nonzero(bounded != best)))


def base_choice(candidates: Candidates, k: int) -> Choice:
    """The caller's own order, with nothing for a learner to learn from."""
    return Choice(show(candidates, np.arange(min(k, candidates.n))), 0)


def _within(order: Array, n: int, displacement: int, k: int) -> Array:
    """The order nearest in spirit to `order` in which no item is more than `displacement` from its base position."""
    rest = np.ones(n, np.bool_)
    rest[order] = False
    return bounded_order(np.concatenate([order, np.flatnonzero(rest)]), displacement, k)


def _adopted(learner: Learner, candidates: Candidates, order: Array) -> Impression:
    """The learner's impression of `order`, which is shown as it is."""
    made = _checked(learner.adopt(candidates, order.copy()), candidates, order.size)
    if not np.array_equal(made.order, order):
        raise Rubbish("adopt did not keep the order it was given")
    return made


def _checked(made: Impression, candidates: Candidates, k: int) -> Impression:
    """What a learner made, if it is a ranking of these candidates; items and rows are taken from the request."""
    order = np.asarray(made.order)
    fine = order.shape == (k,) and order.dtype.kind in "iu" and order.min() >= 0 and order.max() < candidates.n
    if not fine or np.unique(order).size != k:
        raise Rubbish(
            f"the learner answered {order.tolist()!r:.80} instead of {k} different positions below {candidates.n}"
        )
    return show(candidates, order.astype(np.int64), made.memo)
