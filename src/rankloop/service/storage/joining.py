"""Events about one impression, joined: what each item is worth, and how far down the ranking was seen.

Clicks, rewards and views may come in any number of events and in any order. The result does not depend on the order,
unless the ranker's spec asks for the "earliest" reward.

An event that is rejected marks its impression. Its valid parts are kept with the mark and joined when the impression is
closed, unless the event is sent again, corrected: then that one is joined instead and the mark goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from rankloop.service.storage.rewards import LARGEST, value_of
from rankloop.wire.calls import NO_ID, FeedbackEvent, Receipt
from rankloop.wire.rankers import Spec

MARKS = 32  # rejected events of one impression that are kept
MARKED, AND_FINAL = 1, 2  # values of the column `attention`
PARTS = ("clicks", "rewards", "grades", "seen", "viewed")
INFINITE = float("inf")


class JoinedRanker(NamedTuple):
    """As much of a ranker as joining needs."""

    epoch: int
    learning: bool
    spec: Spec
    kind: str  # of feedback: clicks or grades
    carried: int | None = None  # the oldest epoch whose impressions are learned; None: the present one

    def learns(self, epoch: int) -> bool:
        """Whether impressions of an epoch are learned: not those from before a reset."""
        return epoch == self.epoch or (self.carried is not None and self.carried <= epoch < self.epoch)


class Mark(NamedTuple):
    """A rejected event that has not been corrected."""

    time: float
    reason: str
    kept: FeedbackEvent  # its valid parts


class OpenImpression:
    """An impression while events are joined to it."""

    COLUMNS = "id, ranker, epoch, open, shown, seen, learn, viewed, rewards, attention, seq"

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: str = row[0]
        self.ranker: str = row[1]
        self.epoch, self.open = int(row[2]), bool(row[3])
        self.slots = {str(item): slot for slot, item in enumerate(msgspec.json.decode(row[4]))}
        self.seen: list[float | None] | None = None if row[5] is None else msgspec.json.decode(row[5])
        self.learn = bool(row[6])
        self.viewed: int | None = None if row[7] is None else int(row[7])  # positions that came into view
        self.rewards: list[float | None] | None = None if row[8] is None else msgspec.json.decode(row[8])
        self.marked = bool(row[9])  # in the store
        self.final = row[9] == AND_FINAL  # a final event came; it closes the impression once the marks are gone
        self.closed = row[10] is not None
        self.marks: dict[str, Mark] = {}  # by event_id
        self.changed = self.remarked = False

    @property
    def correctable(self) -> bool:
        """Whether rejected events can still be corrected: also after the window if it was not learned for their
        sake."""
        return self.open or (self.marked and not self.closed)

    @property
    def attention(self) -> int | None:
        """What the store has in its column."""
        return None if not self.marks else AND_FINAL if self.final else MARKED

    def strangers(self, event: FeedbackEvent) -> list[str]:
        """Items of an event that were not shown."""
        items = (*(event.clicks or ()), *(event.rewards or ()), *(event.grades or ()), *(event.viewed or ()))
        return [repr(item) for item in items if str(item) not in self.slots]

    def mark(self, event_id: str, mark: Mark) -> list[str]:
        """Keep the valid parts of a rejected event; which fields have some. One that is sent again takes the place of
        the one before."""
        if event_id not in self.marks and len(self.marks) >= MARKS:
            return []
        self.marks[event_id] = mark
        self.remarked = self.changed = True
        return [name for name in PARTS if getattr(mark.kept, name) is not None]

    def resolve(self, event_id: str) -> None:
        """Drop the mark of an event that came again and is valid now."""
        if self.marks.pop(event_id, None) is not None:
            self.remarked = True

    def join_kept(self, ranker: JoinedRanker) -> None:
        """Join the valid parts of rejected events that nobody has corrected, in the order of their ids. They do not
        replace a grade that a valid event has given."""
        for _, mark in sorted(self.marks.items()):
            kept = mark.kept
            if kept.grades is not None and self.seen is not None:
                there = {item: grade for item, grade in kept.grades.items() if self.seen[self.slots[item]] is None}
                kept = msgspec.structs.replace(kept, grades=there)
            self.join(kept, ranker)

    def join(self, event: FeedbackEvent, ranker: JoinedRanker) -> None:
        """Join a valid event."""
        if event.grades is not None:
            self.seen = self.seen or [None] * len(self.slots)
            for item, grade in event.grades.items():
                self.seen[self.slots[item]] = grade
        spec = ranker.spec
        if event.clicks is not None:
            clicks = dict.fromkeys(map(str, event.clicks), spec.click_value)
            self.seen = self._joined(self.seen, clicks, spec.reward_aggregation if spec.reward is None else "max", 1.0)
        if event.rewards is not None and spec.reward is None:
            self.seen = self._joined(self.seen, event.rewards, spec.reward_aggregation, 1.0)
        elif event.rewards is not None:
            self.seen = self.seen or [0.0] * len(self.slots)
            self.rewards = self._joined(self.rewards, event.rewards, spec.reward_aggregation, LARGEST)
        depth = max([event.seen or 0, *(self.slots[str(item)] + 1 for item in event.viewed or ())])
        if event.seen is not None or event.viewed is not None:
            self.viewed = max(depth, self.viewed or 0)
        self.changed = True

    def _joined(
        self, before: list[float | None] | None, new: dict[str, float], rule: str, most: float
    ) -> list[float | None]:
        # Where the first counts, a reward of 0 that came first stays; so it differs from none.
        found = before or [None if rule == "earliest" else 0.0] * len(self.slots)
        for item, value in new.items():
            slot = self.slots[item]
            old = found[slot]
            if old is None:
                found[slot] = value
            elif rule == "sum":
                found[slot] = min(old + value, most)
            elif rule == "max":
                found[slot] = max(old, value)
        return found

    def settle(self, ranker: JoinedRanker, scale: float | None) -> None:
        """Decide what each item is worth; the impression is closed now. With a `scale`, rewards are in a unit."""
        default = ranker.spec.default_reward
        if default > 0.0 and ranker.kind == "clicks" and self.seen is None and not self.unseen:
            self.seen = [default, *[0.0] * (len(self.slots) - 1)]
        if self.seen is None or self.rewards is None:
            return
        for slot, reward in enumerate(self.rewards):
            if reward:  # whoever buys has clicked, reported or not
                click = max(self.seen[slot] or 0.0, ranker.spec.click_value)
                self.seen[slot] = click if scale is None else value_of(click, reward, scale)

    @property
    def silent(self) -> bool:
        """Whether nothing was reported at all."""
        return self.seen is None and self.viewed is None

    @property
    def unseen(self) -> bool:
        """Whether it is known that the ranking never came into view: then no click says nothing."""
        return self.viewed == 0 and not self.positive

    @property
    def positive(self) -> bool:
        """Whether a click or a positive reward was reported."""
        return any(self.seen or ()) or any(self.rewards or ())

    def values(self, kind: str) -> list[float]:
        """The feedback by slot from the top: clicks of all slots; grades up to the first slot that has none."""
        if kind == "clicks":
            return [value or 0.0 for value in self.seen or ()]
        values: list[float] = []
        for value in self.seen or ():
            if value is None:
                break
            values.append(value)
        return values


def judged(
    event: FeedbackEvent,
    impression: OpenImpression | None,
    rankers: dict[str, JoinedRanker],
    earlier: Collection[str],
    malformed: str | None = None,
) -> Receipt:
    """What is to become of an event; `earlier` are the impressions of the same ranker that its id was used for,
    `malformed` is why it could not be read as a whole."""

    def rejected(reason: str) -> Receipt:
        return Receipt(None if event.event_id == NO_ID else event.event_id, "rejected", reason)

    ranker = rankers.get(impression.ranker) if impression else None
    if impression is None or ranker is None:
        if malformed is not None:
            return rejected(malformed)
        reason = f"no impression {event.impression_id!r}; it was never made here, or is past retention, or was erased"
        return Receipt(event.event_id, "orphan", reason)
    if event.impression_id in earlier:
        return Receipt(event.event_id, "duplicate")
    if malformed is not None:
        return rejected(malformed)
    if earlier:
        return rejected(f"event_id {event.event_id!r} was used for impression {max(earlier)}; give every event its own")
    clicks = any(one is not None for one in (event.clicks, event.rewards, event.seen, event.viewed))
    wanted, given = ranker.kind, "clicks" if clicks else "grades"
    if clicks == (event.grades is not None):
        # A bare {"final": true} closes what came before it.
        if clicks or not event.final:
            return rejected(_lacking(wanted, both=clicks))
        given = wanted
    if given != wanted:
        return rejected(f"it has {_named(event)}, but ranker {impression.ranker!r} learns from {wanted}")
    strange = impression.strangers(event)
    if strange:
        return rejected(f"not shown in this impression: {', '.join(strange[:5])}; report shown items only")
    bad = _outside(event.grades, INFINITE)
    if bad:
        return rejected(f"grades must be finite numbers of at least 0, not {bad}")
    bad = _outside(event.rewards, _highest(ranker.spec))
    if bad and ranker.spec.reward is not None:
        return rejected(f"rewards must be finite numbers of at least 0, not {bad}")
    if bad:
        return rejected(
            f"rewards must be from 0 to 1, not {bad}; to report them in a unit, such as EUR, declare it: "
            f'PATCH /v1/rankers/{impression.ranker} with {{"reward": {{"name": "revenue", "unit": "EUR"}}}}'
        )
    if event.seen is not None and event.seen > len(impression.slots):
        return rejected(
            f"seen is {event.seen}, but the ranking has {len(impression.slots)} positions; count from its top"
        )
    if not ranker.learns(impression.epoch):
        return Receipt(
            event.event_id, "late", "the ranker was reset since the ranking was shown; stored, but not learned"
        )
    if not impression.open and not (impression.correctable and event.event_id in impression.marks):
        return Receipt(
            event.event_id, "late", "the impression is closed (final event or window); stored, but not learned"
        )
    return Receipt(event.event_id, "accepted")


def valid_parts(event: FeedbackEvent, impression: OpenImpression, ranker: JoinedRanker) -> FeedbackEvent:
    """As much of a rejected event as breaks no rule. An empty list of clicks is left out: that nothing was clicked is
    not to be concluded from an event in which something is wrong."""
    there = impression.slots
    made = FeedbackEvent(event.event_id, event.impression_id)
    if ranker.kind == "grades":
        made.grades = _inside(event.grades, there, INFINITE)
        return made
    made.clicks = [item for item in dict.fromkeys(event.clicks or ()) if str(item) in there] or None
    made.rewards = _inside(event.rewards, there, _highest(ranker.spec))
    made.viewed = [item for item in dict.fromkeys(event.viewed or ()) if str(item) in there] or None
    made.seen = event.seen if event.seen is not None and event.seen <= len(there) else None
    return made


def _highest(spec: Spec) -> float:
    return 1.0 if spec.reward is None else INFINITE


def _inside(numbers: dict[str, float] | None, there: Collection[str], most: float) -> dict[str, float] | None:
    """Numbers of shown items from 0 to `most`; None if there are none."""
    return {item: value for item, value in (numbers or {}).items() if item in there and _fine(value, most)} or None


def _fine(value: float, most: float) -> bool:
    return 0 <= value <= most and value != INFINITE


def _lacking(wanted: str, both: bool) -> str:
    """Why an event of no kind, or of both kinds, has nothing that can be learned."""
    remedy = "grades alone" if wanted == "grades" else "clicks, rewards, seen or viewed"
    return f"it has {'grades beside clicks, rewards, seen or viewed' if both else 'no feedback'}; give {remedy}"


def _named(event: FeedbackEvent) -> str:
    """Which kinds of feedback an event has."""
    return " and ".join(name for name in PARTS if getattr(event, name) is not None)


def _outside(numbers: dict[str, float] | None, most: float) -> str | None:
    """The first that is not from 0 to `most`, or not finite, as an error names it."""
    bad: Iterable[str] = (f"{item!r}: {value}" for item, value in (numbers or {}).items() if not _fine(value, most))
    return next(iter(bad), None)
