"""Which ranking users see: the baseline (shadow), small moves (bounded), the learner's (full), or interleaved."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from rankloop.core.learner import Learner, make_impression
from rankloop.core.types import Array, Candidates, Impression
from rankloop.evaluation.interleaving import TAU
from rankloop.kernels import interleaving
from rankloop.kernels.ranking import bounded_order
from rankloop.service.errors import NotARanking
from rankloop.wire.basics import Exposure
from rankloop.wire.rankers import Spec


class Choice(NamedTuple):
    """A ranking to show."""

    impression: Impression
    decided: int = 0  # positions that the learner filled; none in shadow and in a fallback
    explored: int = 0  # of these, those that hold an item which was moved in order to learn
    credit: Array | None = None  # (k,) if interleaved: 1 the learner's item, -1 the rival's, 0 nobody's, or in between
    relaxed: tuple[str, ...] = ()  # fields of quotas that could not be kept


class Interleaving(NamedTuple):
    """What the learner's ranking is interleaved with."""

    experiment: int
    exposure: Exposure  # of the learner's ranking
    rival: Array  # (k,) positions, top first; within the bound if bounded
    coins: Array  # (k,), or (2, k) if probabilistic
    probabilistic: bool


def choose(
    learner: Learner,
    candidates: Candidates,
    k: int,
    rng: np.random.Generator,
    spec: Spec,
    rival: Interleaving | None = None,
) -> Choice:
    """The ranking to show: what `learner` wants, as far as the exposure of `spec` allows it.

    A ranking that is not the learner's own (shadow, interleaved, or changed by the bound) goes through `adopt`, so that
    its clicks are learned from with the right weights.
    """
    k = min(k, candidates.n)
    if rival is not None:
        return _interleaved(learner, candidates, k, rng, spec.displacement, rival)
    if spec.exposure == "shadow":
        return Choice(adopted(learner, candidates, np.arange(k)))
    if spec.exposure == "full":
        own = _checked(learner.rank(candidates, k, rng), candidates, k)
        best = learner.best(candidates, k)
        return Choice(own, k, explored_positions(own.order, best))
    # Items below k + displacement cannot come up to position k, so the learner need not score them.
    reach = candidates.head(k + spec.displacement)
    own = _checked(learner.rank(reach, k, rng), reach, k)
    bounded = _within(own.order, reach.n, spec.displacement, k)
    best = _within(learner.best(reach, k), reach.n, spec.displacement, k)
    if not np.array_equal(bounded, own.order):
        own = adopted(learner, reach, bounded)
    elif spec.displacement < candidates.n - 1:
        own = without_propensity(own)
    return Choice(own, k, explored_positions(bounded, best))


def explored_positions(order: Array, best: Array) -> int:
    """The fewest items that must be moved to turn `order` into `best`, both (k,) and each without repetitions.

    This counts decisions, not consequences: an item tried at the top moves all others down by one, and counts once. It
    is k minus the length of the longest subsequence that both rankings have in common.
    """
    if np.array_equal(order, best):
        return 0
    places = {item: place for place, item in enumerate(best.tolist())}
    ends: list[int] = []  # ends[i]: the smallest last place of an increasing subsequence of length i + 1
    for item in order.tolist():
        if (place := places.get(item)) is not None:
            at = bisect_left(ends, place)
            ends[at : at + 1] = [place]
    return order.size - len(ends)


def best_order(learner: Learner, candidates: Candidates, k: int, exposure: Exposure, displacement: int) -> Array:
    """(k,) the learner's best order, within the bound if exposure is bounded."""
    k = min(k, candidates.n)
    if exposure == "bounded":
        candidates = candidates.head(k + displacement)
    order = _positions(learner.best(candidates, k), candidates, k)
    return _within(order, candidates.n, displacement, k) if exposure == "bounded" else order


def _interleaved(
    learner: Learner, candidates: Candidates, k: int, rng: np.random.Generator, displacement: int, rival: Interleaving
) -> Choice:
    """The learner's ranking and the rival's in one, with the credit for each item."""
    bounded = rival.exposure == "bounded"
    reach = candidates.head(k + displacement) if bounded else candidates
    own = _checked(learner.rank(reach, k, rng), reach, k)
    wanted = _within(own.order, reach.n, displacement, k) if bounded else own.order
    if rival.probabilistic:
        both = np.stack([completed(wanted, reach.n), completed(rival.rival, reach.n)])
        order, credit = interleaving.probabilistic(both, rival.coins, k, TAU)
        side = credit[:, 0] - credit[:, 1]
    else:
        least = displacement if bounded else reach.n
        order, side = interleaving.two_team_draft(wanted, rival.rival, rival.coins, reach.n, least, k)
    best = best_order(learner, candidates, k, rival.exposure, displacement)
    agreed = not side.any() and np.array_equal(order, own.order)
    own = without_propensity(own) if agreed else adopted(learner, reach, order)
    return Choice(own, k, explored_positions(wanted, best), side)  # what the rival contributed is not exploration


def without_propensity(own: Impression) -> Impression:
    """Drop the propensity: other rankings of the learner end up as this one, so it is shown more often than that."""
    return own._replace(memo={name: value for name, value in own.memo.items() if name != "log_propensity"})


def baseline_choice(candidates: Candidates, k: int) -> Choice:
    """The baseline ranking, with nothing for a learner to learn from."""
    return Choice(make_impression(candidates, np.arange(min(k, candidates.n))))


def _within(order: Array, n: int, displacement: int, k: int) -> Array:
    """The order closest to `order` in which no item is more than `displacement` from its baseline position."""
    return bounded_order(completed(order, n), displacement, k)


def completed(order: Array, n: int) -> Array:
    """(n,) an order of some of n items, followed by the others in the baseline order."""
    rest = np.ones(n, np.bool_)
    rest[order] = False
    return np.concatenate([order, np.flatnonzero(rest)])


def adopted(learner: Learner, candidates: Candidates, order: Array) -> Impression:
    """The learner's impression of `order`, which is shown unchanged."""
    made = _checked(learner.adopt(candidates, order.copy()), candidates, order.size)
    if not np.array_equal(made.order, order):
        raise NotARanking("adopt did not keep the order it was given")
    return made


def _checked(made: Impression, candidates: Candidates, k: int) -> Impression:
    """A learner's impression, if it ranks these candidates; items and rows are taken from the request."""
    return make_impression(candidates, _positions(made.order, candidates, k), made.memo)


def _positions(given: Array, candidates: Candidates, k: int) -> Array:
    """(k,) a learner's order, if it is one."""
    order = np.asarray(given)
    valid = order.shape == (k,) and order.dtype.kind in "iu" and order.min() >= 0 and order.max() < candidates.n
    if not valid or np.unique(order).size != k:
        raise NotARanking(
            f"the learner answered {order.tolist()!r:.80} instead of {k} different positions below {candidates.n}"
        )
    return order.astype(np.int64)
