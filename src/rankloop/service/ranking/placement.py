"""Pinned items, excluded items and quotas, in every ranking, whoever orders it.

- An **excluded** item is not a candidate.
- A **pinned** item is not a candidate either: the learner ranks the others into the positions that are left, and learns
  from those alone. A click on a pinned item only shows that the positions above it were seen.
- A **quota** drops items from an order, from the top down. Several orders of the learner then give the same ranking, so
  its propensity is unknown, and a ranking that a quota changed is adopted.

If a quota cannot be kept (all candidates have one brand), the ranking is filled anyway, and the answer reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner, make_impression
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.ranking import constrained_order
from rankloop.service.ranking.exposure import Choice, adopted, completed, without_propensity
from rankloop.wire.basics import Quota
from rankloop.wire.calls import RankHead
from rankloop.wire.rankers import Spec

SLOTS = "slots"  # in the memo of a ranking with pins: (f,) the positions that the learner filled, from 0
NO_WISHES = RankHead()


class Quotas(NamedTuple):
    """Quotas of one ranking as arrays."""

    fields: list[str]  # (q,)
    most: Array  # (q,)
    within: Array  # (q,)
    groups: Array  # (q, n) the group of each candidate, -1: none
    taken: Array  # (q, g) pinned items of each group where the quota counts

    def keep(self, preferred: Array, slots: Array) -> tuple[Array, tuple[str, ...]]:
        """(f,) the order nearest to `preferred` (n,) that keeps the quotas, and the fields of those it cannot keep."""
        order, broken = constrained_order(preferred, self.groups, self.most, self.within, self.taken, slots)
        broken |= (self.taken > self.most[:, None]).any(axis=1)
        return order, tuple(dict.fromkeys(self.fields[q] for q in np.flatnonzero(broken).tolist()))


class PlacementConstraints(NamedTuple):
    """What of a ranking the learner does not decide."""

    pins: dict[int, Any]  # position from 0: id
    slots: Array  # (f,) the positions that are left, from 0
    quotas: Quotas | None
    signature: list[Any]  # equal for equal constraints

    @property
    def fixed(self) -> bool:
        """Whether nothing is left to be ranked."""
        return self.slots.size == 0

    def merged(self, free: Sequence[Any], pinned: Any = None) -> list[Any]:
        """The values `free` of the learner's slots, and for each pin its id, or `pinned`."""
        if not self.pins:
            return list(free)
        found: list[Any] = [None] * (len(self.pins) + len(free))
        for slot, value in zip(self.slots.tolist(), free, strict=True):
            found[slot] = value
        for slot, item in self.pins.items():
            found[slot] = item if pinned is None else pinned
        return found

    def baseline(self, candidates: Candidates, k: int) -> Choice:
        """The baseline ranking under these constraints, with nothing for a learner to learn from."""
        order = np.arange(k)
        relaxed: tuple[str, ...] = ()
        if self.quotas is not None:
            kept, relaxed = self.quotas.keep(np.arange(candidates.n), self.slots)
            order = order if self.fixed else kept
        return Choice(self._with_slots(make_impression(candidates, order)), relaxed=relaxed)

    def applied(self, choice: Choice, learner: Learner, candidates: Candidates, own: bool) -> Choice:
        """A choice made without regard to quotas, as it may be shown; `own`: the learner alone ordered it."""
        if self.quotas is not None:
            choice = _limited(choice, learner, candidates, self.quotas, self.slots, own)
        credit = choice.credit
        if credit is not None and self.pins:
            spread = np.zeros(len(self.pins) + self.slots.size)
            spread[self.slots] = credit
            credit = spread
        return choice._replace(impression=self._with_slots(choice.impression), credit=credit)

    def _with_slots(self, made: Impression) -> Impression:
        return made._replace(memo={**made.memo, SLOTS: self.slots}) if self.pins else made


def _limited(
    choice: Choice, learner: Learner, candidates: Candidates, quotas: Quotas, slots: Array, own: bool
) -> Choice:
    order = choice.impression.order
    kept, relaxed = quotas.keep(completed(order, candidates.n), slots)
    if np.array_equal(kept, order):
        return choice._replace(impression=without_propensity(choice.impression), relaxed=relaxed)
    if own:  # the learner also chooses what replaces the items left out
        best = learner.best(candidates, candidates.n)
        rest = best[~np.isin(best, order)]
        kept, relaxed = quotas.keep(np.concatenate([order, rest]), slots)
    credit = choice.credit
    if credit is not None:  # an item keeps its credit, a replacement has none
        sides = np.zeros(candidates.n)
        sides[order] = credit
        credit = sides[kept]
    return choice._replace(impression=adopted(learner, candidates, kept), credit=credit, relaxed=relaxed)


class Constrained(NamedTuple):
    """What is left to rank."""

    some: Array  # (m,) the candidates that the learner ranks
    k: int | None  # into so many positions
    constraints: PlacementConstraints | None


def constrain(
    ids: Sequence[Any],
    k: int | None,
    wishes: RankHead,
    spec: Spec,
    groups: Callable[[str], Array | None],
    signed: bool = False,
) -> Constrained:
    """Apply the rules of the spec and the wishes of a request to candidates; `groups` returns the group of each, and
    `signed` asks for the signature."""
    places = dict(zip(map(str, ids), range(len(ids)), strict=True))
    excluded = {*map(str, wishes.excluded), *map(str, spec.excluded)}
    wanted = k or spec.k
    pins = _pins(wishes.pinned, spec.pinned, places, excluded, wanted)
    left = np.ones(len(ids), np.bool_)
    left[[places[item] for item in excluded & places.keys()]] = False
    if not left.any():
        raise InvalidInput(f"all {left.size} candidates are excluded; leave at least one that may be shown")
    length = min(wanted, int(left.sum()))
    at = _slots_of_pins(pins, length)
    left[[places[item] for item in pins]] = False
    limits = [*spec.quotas, *wishes.quotas]
    if not pins and not limits:
        return Constrained(np.flatnonzero(left), k, None)
    codes = [_codes(quota.field, len(ids), wishes, groups) for quota in limits]
    slots = np.setdiff1d(np.arange(length), list(at))
    pinned = {slot: ids[places[item]] for slot, item in at.items()}
    rest = np.flatnonzero(left)
    quotas = _quotas(limits, codes, {slot: places[item] for slot, item in at.items()}, rest, length) if limits else None
    signature: list[Any] = []
    if signed:
        signature = [sorted(pinned.items()), [[q.field, q.most, q.within] for q in limits], [c.tolist() for c in codes]]
    if slots.size == 0:  # the pins are the ranking, so no learner is called
        order = np.concatenate([np.array([places[at[slot]] for slot in range(length)]), rest]).astype(np.int64)
        return Constrained(order, length, PlacementConstraints({}, slots, quotas, signature))
    return Constrained(rest, slots.size, PlacementConstraints(pinned, slots, quotas, signature))


def _pins(
    asked: dict[str, int], always: dict[str, int], places: dict[str, int], excluded: set[str], k: int
) -> dict[str, int]:
    """id: position, of the request (`asked`, which must be possible) and of the spec (`always`, where possible)."""
    for item, position in asked.items():
        if item not in places:
            raise InvalidInput(
                f"{item!r} is pinned but not a candidate; send it among the candidates, or do not pin it"
            )
        if item in excluded:
            raise InvalidInput(f"{item!r} is pinned and excluded; it can be only one of them")
        if position > k:
            raise InvalidInput(
                f"{item!r} is pinned at {position}, but the ranking has {k} positions; pin it within them"
            )
    _check_positions(asked)
    taken = set(asked.values())
    more = {
        item: position
        for item, position in always.items()
        if item in places and item not in excluded and item not in asked and position <= k and position not in taken
    }
    return {**asked, **more}


def _check_positions(pins: dict[str, int]) -> None:
    """Refuse two pins on one position."""
    at: dict[int, str] = {}
    for item, position in pins.items():
        other = at.setdefault(position, item)
        if other != item:
            raise InvalidInput(f"{other!r} and {item!r} are both pinned at {position}; give each a position of its own")


def _slots_of_pins(pins: dict[str, int], k: int) -> dict[int, str]:
    """Position from 0: id. If there are too few candidates for a position, its pin moves up."""
    found, below = {}, k
    for item, position in sorted(pins.items(), key=lambda pin: -pin[1]):
        below = min(position - 1, below - 1)
        found[below] = item
    return found


def _codes(field: str, n: int, wishes: RankHead, groups: Callable[[str], Array | None]) -> Array:
    """(n,) the group of each candidate, numbers from 0; -1: none."""
    given = wishes.groups.get(field)
    if given is not None:
        if len(given) != n:
            raise InvalidInput(f"groups {field!r} has {len(given)} values for {n} candidates; send one each")
        known: dict[Any, int] = {value: code for code, value in enumerate(dict.fromkeys(given))}
        found = np.fromiter(map(known.__getitem__, given), np.int64, n)
        return found if None not in known else np.where(found == known[None], -1, found)
    own = groups(field)
    if own is None:
        raise InvalidInput(
            f"a quota uses {field!r}, but the request has no groups of that name, the ranker no such feature and its "
            "catalog no such field with one string, number or boolean per item; "
            f'send "groups": {{"{field}": […]}} with a value for each candidate'
        )
    return own


def _quotas(limits: Sequence[Quota], codes: list[Array], pinned: dict[int, int], rest: Array, k: int) -> Quotas:
    """Quotas of the candidates `rest`; `pinned` maps a position to the candidate that is pinned there."""
    groups = np.stack(codes)
    within = np.array([min(quota.within or k, k) for quota in limits])
    taken = np.zeros((len(limits), int(groups.max()) + 1 if groups.size else 1), np.int64)
    for slot, place in pinned.items():
        for q in np.flatnonzero((within > slot) & (groups[:, place] >= 0)).tolist():
            taken[q, groups[q, place]] += 1
    most = np.array([quota.most for quota in limits])
    return Quotas([quota.field for quota in limits], most, within, np.ascontiguousarray(groups[:, rest]), taken)


def check_rules(spec: Spec) -> None:
    """Refuse rules of a spec that contradict each other."""
    try:
        _check_positions(spec.pinned)
    except InvalidInput as error:
        raise InvalidParameter(str(error)) from None
    both = sorted(set(spec.pinned) & set(map(str, spec.excluded)))
    if both:
        raise InvalidParameter(f"{both[0]!r} is pinned and excluded; it can be only one of them")


def feedback_without_pins(impression: Impression, feedback: Feedback) -> Feedback:
    """Feedback on what the learner placed, from feedback on the whole ranking.

    The lowest click shows, even on a pinned item, that the positions above it were seen.
    """
    slots = impression.memo.get(SLOTS)
    if slots is None:
        return feedback
    values, seen = feedback.values, feedback.seen
    if feedback.kind == "clicks":
        lowest = int(np.flatnonzero(values > 0)[-1]) if (values > 0).any() else -1
        if seen is not None or (lowest >= 0 and lowest not in slots):
            seen = int(np.searchsorted(slots, max(seen or 0, lowest + 1)))
    return Feedback(feedback.kind, values[slots[slots < values.size]], seen)
