"""What of a learner's ranking is shown: nothing (shadow), small moves (bounded), all of it (full), or a mixture of it
and another ranking, to find out which of the two users prefer."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from rankloop.core.learner import Learner, show
from rankloop.core.types import Array, Candidates, Impression
from rankloop.evaluation.interleaving import TAU
from rankloop.kernels import interleaving
from rankloop.kernels.ranking import bounded_order
from rankloop.service.errors import NotARanking
from rankloop.wire.basics import Exposure
from rankloop.wire.rankers import Spec


class Choice(NamedTuple):
    """A list to show."""

    impression: Impression
    decided: int = 0  # positions that the learner filled; none in shadow and in a fallback
    explored: int = 0  # of these, those that hold an item which was moved in order to learn
    credit: Array | None = None  # (k,) of a mixed list: 1 the learner's item, -1 the rival's, 0 nobody's; or in between
    relaxed: tuple[str, ...] = ()  # fields of quotas that could not be kept


class Mix(NamedTuple):
    """What to mix a list with."""

    experiment: int
    exposure: Exposure  # of the learner's list
    rival: Array  # (k,) positions, top first; within the bound if bounded
    coins: Array  # (k,), or (2, k) if probabilistic
    probabilistic: bool


def choose(
    learner: Learner, candidates: Candidates, k: int, rng: np.random.Generator, spec: Spec, mix: Mix | None = None
) -> Choice:
    """The list that `spec` allows to be shown of what `learner` wants.

    A list that is not the learner's own (shadow, mixed, or bounded where the bound changed it) goes through `adopt`, so
    that its clicks are learned from with the right weights.
    """
    k = min(k, candidates.n)
    if mix is not None:
        return _mixed(learner, candidates, k, rng, spec.displacement, mix)
    if spec.exposure == "shadow":
        return Choice(adopted(learner, candidates, np.arange(k)))
    if spec.exposure == "full":
        own = _checked(learner.rank(candidates, k, rng), candidates, k)
        best = learner.best(candidates, k)
        return Choice(own, k, explored_positions(own.order, best))
    # Items below k + s can come no higher than position k + 1: the learner need not look at them.
    reach = candidates.head(k + spec.displacement)
    own = _checked(learner.rank(reach, k, rng), reach, k)
    bounded = _within(own.order, reach.n, spec.displacement, k)
    best = _within(learner.best(reach, k), reach.n, spec.displacement, k)
    if not np.array_equal(bounded, own.order):
        own = adopted(learner, reach, bounded)
    elif spec.displacement < candidates.n - 1:
        own = undrawn(own)
    return Choice(own, k, explored_positions(bounded, best))


def explored_positions(order: Array, best: Array) -> int:
    """The fewest items that must be moved to turn `order` into `best`, both (k,) and each without repetitions.

    This counts decisions, not consequences: one item tried at the top moves all others down by one position, and counts
    once. Two items that change places count once; an item that is not among the best k counts once. The number is k
    minus the length of the longest subsequence that both rankings have in common.
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
    """(k,) what a learner believes best, within bounds if those are wanted."""
    k = min(k, candidates.n)
    if exposure == "bounded":
        candidates = candidates.head(k + displacement)
    order = _positions(learner.best(candidates, k), candidates, k)
    return _within(order, candidates.n, displacement, k) if exposure == "bounded" else order


def _mixed(
    learner: Learner, candidates: Candidates, k: int, rng: np.random.Generator, displacement: int, mix: Mix
) -> Choice:
    """What would be shown now and the rival's list in one, with who put what there.

    A list on which the two agree is the learner's own, whatever the coins say.
    """
    bounded = mix.exposure == "bounded"
    reach = candidates.head(k + displacement) if bounded else candidates
    own = _checked(learner.rank(reach, k, rng), reach, k)
    wanted = _within(own.order, reach.n, displacement, k) if bounded else own.order
    if mix.probabilistic:
        both = np.stack([whole(wanted, reach.n), whole(mix.rival, reach.n)])
        order, credit = interleaving.probabilistic(both, mix.coins, k, TAU)
        side = credit[:, 0] - credit[:, 1]
    else:
        least = displacement if bounded else reach.n
        order, side = interleaving.two_team_draft(wanted, mix.rival, mix.coins, reach.n, least, k)
    best = best_order(learner, candidates, k, mix.exposure, displacement)
    agreed = not side.any() and np.array_equal(order, own.order)
    # A list on which two agree comes more often than the learner alone would show it: how likely is not known.
    own = undrawn(own) if agreed else adopted(learner, reach, order)
    return Choice(own, k, explored_positions(wanted, best), side)  # what the rival put there is not exploration


def undrawn(own: Impression) -> Impression:
    """Without how likely it was: other lists of the learner's end up as this one, so it comes more often than that."""
    return own._replace(memo={name: value for name, value in own.memo.items() if name != "log_propensity"})


def base_choice(candidates: Candidates, k: int) -> Choice:
    """The caller's own order, with nothing for a learner to learn from."""
    return Choice(show(candidates, np.arange(min(k, candidates.n))))


def _within(order: Array, n: int, displacement: int, k: int) -> Array:
    """The order nearest in spirit to `order` in which no item is more than `displacement` from its base position."""
    return bounded_order(whole(order, n), displacement, k)


def whole(order: Array, n: int) -> Array:
    """(n,) an order of some of n, and the others behind them as they came."""
    rest = np.ones(n, np.bool_)
    rest[order] = False
    return np.concatenate([order, np.flatnonzero(rest)])


def adopted(learner: Learner, candidates: Candidates, order: Array) -> Impression:
    """The learner's impression of `order`, which is shown as it is."""
    made = _checked(learner.adopt(candidates, order.copy()), candidates, order.size)
    if not np.array_equal(made.order, order):
        raise NotARanking("adopt did not keep the order it was given")
    return made


def _checked(made: Impression, candidates: Candidates, k: int) -> Impression:
    """What a learner made, if it is a ranking of these candidates; items and rows are taken from the request."""
    return show(candidates, _positions(made.order, candidates, k), made.memo)


def _positions(given: Array, candidates: Candidates, k: int) -> Array:
    """(k,) a learner's order, if it is one."""
    order = np.asarray(given)
    fine = order.shape == (k,) and order.dtype.kind in "iu" and order.min() >= 0 and order.max() < candidates.n
    if not fine or np.unique(order).size != k:
        raise NotARanking(
            f"the learner answered {order.tolist()!r:.80} instead of {k} different positions below {candidates.n}"
        )
    return order.astype(np.int64)
