"""The rules of a shop: pinned items, items that must not be shown, at most n of a brand in the first k.

They hold in every list, whoever orders it, and none of them teaches the learner anything wrong:

- an **excluded** item is no candidate at all;
- a **pinned** one is no candidate either, its place is the rule's. The learner ranks the others into the positions that
  are left, and learns from these alone: how likely its list was it knows as ever, and a click on what is pinned says
  nothing of what the place was worth. It does say that what stands above was seen, and that is passed on;
- a **quota** is held by leaving out of an order what is too much, from the top down. So other lists of the learner's
  end up as the same one: how likely it was is not known, and where the quota changed it, it is `adopt`ed.

Where a quota cannot be held (all candidates are of one brand) the list is filled all the same, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner, show
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.ranking import constrained_order
from rankloop.service.ranking.exposure import Choice, adopted, undrawn, whole
from rankloop.service.ranking.features import RankCall, Schema
from rankloop.wire.calls import RankHead
from rankloop.wire.rankers import Spec
from rankloop.wire.rules import Quota

SLOTS = "slots"  # in the memo of a list with pins: (f,) the positions that the learner filled, from 0
_NO_WISHES = RankHead()


class Limits(NamedTuple):
    """Quotas of a list, in numbers."""

    fields: list[str]  # (q,)
    most: Array  # (q,)
    within: Array  # (q,)
    groups: Array  # (q, n) which group each candidate is of, -1: of none
    taken: Array  # (q, g) how many of each group are pinned where the quota counts

    def held(self, preferred: Array, slots: Array) -> tuple[Array, tuple[str, ...]]:
        """(f,) the order nearest to `preferred` (n,) that keeps the quotas, and the fields of those it cannot keep."""
        order, broken = constrained_order(preferred, self.groups, self.most, self.within, self.taken, slots)
        broken |= (self.taken > self.most[:, None]).any(axis=1)
        return order, tuple(dict.fromkeys(self.fields[q] for q in np.flatnonzero(broken).tolist()))


class Frame(NamedTuple):
    """What of a list the learner does not decide."""

    pins: dict[int, Any]  # position from 0: id
    slots: Array  # (f,) the positions that are left, from 0
    limits: Limits | None
    signature: list[Any]  # what makes two frames the same

    @property
    def fixed(self) -> bool:
        """Whether nothing is left to be ranked."""
        return self.slots.size == 0

    def merged(self, free: Sequence[Any], pinned: Any = None) -> list[Any]:
        """A list of what the learner filled and of the pins: their ids, or `pinned` for each."""
        if not self.pins:
            return list(free)
        found: list[Any] = [None] * (len(self.pins) + len(free))
        for slot, value in zip(self.slots.tolist(), free, strict=True):
            found[slot] = value
        for slot, item in self.pins.items():
            found[slot] = item if pinned is None else pinned
        return found

    def base(self, candidates: Candidates, k: int) -> Choice:
        """The caller's own order under these rules, with nothing for a learner to learn from."""
        order = np.arange(k)
        relaxed: tuple[str, ...] = ()
        if self.limits is not None:
            held, relaxed = self.limits.held(np.arange(candidates.n), self.slots)
            order = order if self.fixed else held
        return Choice(self._noted(show(candidates, order)), relaxed=relaxed)

    def applied(self, choice: Choice, learner: Learner, candidates: Candidates, own: bool) -> Choice:
        """A list that was chosen without looking at quotas, as it may be shown; `own`: the learner alone ordered it."""
        if self.limits is not None:
            choice = _limited(choice, learner, candidates, self.limits, self.slots, own)
        credit = choice.credit
        if credit is not None and self.pins:
            spread = np.zeros(len(self.pins) + self.slots.size)
            spread[self.slots] = credit
            credit = spread
        return choice._replace(impression=self._noted(choice.impression), credit=credit)

    def _noted(self, made: Impression) -> Impression:
        """With the positions in the list that was shown, for whoever joins what users did."""
        return made._replace(memo={**made.memo, SLOTS: self.slots}) if self.pins else made


def _limited(
    choice: Choice, learner: Learner, candidates: Candidates, limits: Limits, slots: Array, own: bool
) -> Choice:
    order = choice.impression.order
    held, relaxed = limits.held(whole(order, candidates.n), slots)
    if np.array_equal(held, order):
        return choice._replace(impression=undrawn(choice.impression), relaxed=relaxed)
    if own:  # what comes in for those left out is the learner's choice, too
        best = learner.best(candidates, candidates.n)
        rest = best[~np.isin(best, order)]
        held, relaxed = limits.held(np.concatenate([order, rest]), slots)
    credit = choice.credit
    if credit is not None:  # an item belongs to whoever wanted it, one that came in to nobody
        sides = np.zeros(candidates.n)
        sides[order] = credit
        credit = sides[held]
    return choice._replace(impression=adopted(learner, candidates, held), credit=credit, relaxed=relaxed)


# -- from a request to a frame -------------------------------------------------------------------------------------


def framed(call: RankCall, spec: Spec, schema: Schema) -> tuple[RankCall, Frame | None]:
    """The request as the learner is to see it, and what it does not decide."""
    wishes = call.wishes or _NO_WISHES
    places = dict(zip(map(str, call.ids), range(len(call.ids)), strict=True))
    excluded = {*map(str, wishes.excluded), *map(str, spec.excluded)}
    wanted = call.k or spec.k
    pins = _pins(wishes.pinned, spec.pinned, places, excluded, wanted)
    left = np.ones(len(call.ids), np.bool_)
    left[[places[item] for item in excluded & places.keys()]] = False
    if not left.any():
        raise InvalidInput(f"all {left.size} candidates are excluded; leave at least one that may be shown")
    k = min(wanted, int(left.sum()))
    at = _nearest(pins, k)
    left[[places[item] for item in pins]] = False
    quotas = [*spec.quotas, *wishes.quotas]
    if not pins and not quotas:
        return call.only(np.flatnonzero(left), call.k), None
    codes = [_codes(quota.field, call, wishes, schema) for quota in quotas]
    slots = np.setdiff1d(np.arange(k), list(at))
    pinned = {slot: call.ids[places[item]] for slot, item in at.items()}
    rest = np.flatnonzero(left)
    limits = _limits(quotas, codes, {slot: places[item] for slot, item in at.items()}, rest, k) if quotas else None
    said: list[Any] = []
    if call.request_id is not None:
        said = [
            sorted(pinned.items()),
            [[q.field, q.most, q.within] for q in quotas],
            [code.tolist() for code in codes],
        ]
    if slots.size == 0:  # the pins are the list; the caller's order is made theirs, and nobody is asked
        order = np.concatenate([np.array([places[at[slot]] for slot in range(k)]), rest]).astype(np.int64)
        return call.only(order, k), Frame({}, slots, limits, said)
    return call.only(rest, slots.size), Frame(pinned, slots, limits, said)


def _pins(
    asked: dict[str, int], always: dict[str, int], places: dict[str, int], excluded: set[str], k: int
) -> dict[str, int]:
    """id: position, of the request and of the spec; the spec's hold where they can, the request's must."""
    for item, position in asked.items():
        if item not in places:
            raise InvalidInput(f"{item!r} is pinned but no candidate; send it among the candidates, or do not pin it")
        if item in excluded:
            raise InvalidInput(f"{item!r} is pinned and excluded; it can be only one of them")
        if position > k:
            raise InvalidInput(f"{item!r} is pinned at {position}, but the list has {k} positions; pin it within them")
    _check_places(asked)
    taken = set(asked.values())
    more = {
        item: position
        for item, position in always.items()
        if item in places and item not in excluded and item not in asked and position <= k and position not in taken
    }
    return {**asked, **more}


def _check_places(pins: dict[str, int]) -> None:
    """Refuse two pins on one position."""
    at: dict[int, str] = {}
    for item, position in pins.items():
        other = at.setdefault(position, item)
        if other != item:
            raise InvalidInput(f"{other!r} and {item!r} are both pinned at {position}; give each a position of its own")


def _nearest(pins: dict[str, int], k: int) -> dict[int, str]:
    """Position from 0: id. In a list that is shorter for want of candidates pins move up to where it ends."""
    found, below = {}, k
    for item, position in sorted(pins.items(), key=lambda pin: -pin[1]):
        below = min(position - 1, below - 1)
        found[below] = item
    return found


def _codes(field: str, call: RankCall, wishes: RankHead, schema: Schema) -> Array:
    """(n,) which group each candidate is of, numbers from 0; -1: of none."""
    given = wishes.groups.get(field)
    if given is not None:
        if len(given) != len(call.ids):
            raise InvalidInput(
                f"groups {field!r} has {len(given)} values for {len(call.ids)} candidates; send one each"
            )
        known: dict[Any, int] = {value: code for code, value in enumerate(dict.fromkeys(given))}
        found = np.fromiter(map(known.__getitem__, given), np.int64, len(given))
        return found if None not in known else np.where(found == known[None], -1, found)
    own = schema.groups(field, call)
    if own is None:
        raise InvalidInput(
            f"a quota goes by {field!r}, but the request has no groups of that name, the ranker no such feature and "
            "its catalog no such field with one string, number or boolean an item; "
            f'send "groups": {{"{field}": […]}} with a value for each candidate'
        )
    return own


def _limits(quotas: Sequence[Quota], codes: list[Array], pinned: dict[int, int], rest: Array, k: int) -> Limits:
    """Quotas of the candidates `rest`; `pinned` says which candidate stands at which position already."""
    groups = np.stack(codes)
    within = np.array([min(quota.within or k, k) for quota in quotas])
    taken = np.zeros((len(quotas), int(groups.max()) + 1 if groups.size else 1), np.int64)
    for slot, place in pinned.items():
        for q in np.flatnonzero((within > slot) & (groups[:, place] >= 0)).tolist():
            taken[q, groups[q, place]] += 1
    most = np.array([quota.most for quota in quotas])
    return Limits([quota.field for quota in quotas], most, within, np.ascontiguousarray(groups[:, rest]), taken)


def check(spec: Spec) -> None:
    """Refuse rules of a spec that contradict each other."""
    try:
        _check_places(spec.pinned)
    except InvalidInput as error:
        raise InvalidParameter(str(error)) from None
    both = sorted(set(spec.pinned) & set(map(str, spec.excluded)))
    if both:
        raise InvalidParameter(f"{both[0]!r} is pinned and excluded; it can be only one of them")


def warm() -> None:
    """Compile or load the kernel: the first request with quotas would wait for it, and others with it."""
    one = np.ones(1, np.int64)
    constrained_order(np.zeros(1, np.int64), np.zeros((1, 1), np.int64), one, one, np.zeros((1, 1), np.int64), one - 1)


# -- what comes back -----------------------------------------------------------------------------------------------


def heard(impression: Impression, feedback: Feedback) -> Feedback:
    """Feedback on a list as it was shown, as feedback on what the learner put into it: without the pins.

    A click on a pinned item, the lowest that was clicked, says that what stands above it was seen.
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
