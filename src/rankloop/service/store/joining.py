"""Events that come for one list, joined: what each item is worth in the end, how far down the list was seen.

Clicks, rewards and views may come in any number of events and in any order. What they come to does not depend on the
order, unless the ranker's spec asks for the "earliest" reward.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from rankloop.service.wire.calls import FeedbackEvent, Receipt
from rankloop.service.wire.rankers import Spec


class JoinedRanker(NamedTuple):
    """As much of a ranker as joining needs."""

    epoch: int
    learning: bool
    spec: Spec
    kind: str  # of feedback: clicks or grades


class OpenImpression:
    """An impression while events are joined to it."""

    COLUMNS = "id, ranker, epoch, open, shown, seen, learn, viewed"

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: str = row[0]
        self.ranker: str = row[1]
        self.epoch, self.open = int(row[2]), bool(row[3])
        self.slots = {str(item): slot for slot, item in enumerate(msgspec.json.decode(row[4]))}
        self.seen: list[float | None] | None = None if row[5] is None else msgspec.json.decode(row[5])
        self.learn = bool(row[6])
        self.viewed: int | None = None if row[7] is None else int(row[7])  # positions that came into view
        self.changed = False

    def strangers(self, event: FeedbackEvent) -> list[str]:
        """Items of an event that were not shown."""
        items = (*(event.clicks or ()), *(event.rewards or ()), *(event.grades or ()), *(event.viewed or ()))
        return [repr(item) for item in items if str(item) not in self.slots]

    def join(self, event: FeedbackEvent, ranker: JoinedRanker) -> None:
        """Take in an event that was found fine."""
        if event.grades is not None:
            self.seen = self.seen or [None] * len(self.slots)
            for item, grade in event.grades.items():
                self.seen[self.slots[item]] = grade
        spec = ranker.spec
        if event.clicks is not None:
            self._reward(dict.fromkeys(map(str, event.clicks), spec.click_reward), spec)
        if event.rewards is not None:
            self._reward(event.rewards, spec)
        depth = max([event.seen or 0, *(self.slots[str(item)] + 1 for item in event.viewed or ())])
        if event.seen is not None or event.viewed is not None:
            self.viewed = max(depth, self.viewed or 0)
        self.changed = True

    def _reward(self, rewards: dict[str, float], spec: Spec) -> None:
        # A reward of 0 that came first stays where the first counts, so it is told from none.
        first = spec.reward_aggregation == "earliest"
        self.seen = self.seen or [None if first else 0.0] * len(self.slots)
        for item, value in rewards.items():
            slot = self.slots[item]
            before = self.seen[slot]
            if before is None:
                self.seen[slot] = value
            elif spec.reward_aggregation == "sum":
                self.seen[slot] = min(before + value, 1.0)
            elif spec.reward_aggregation == "max":
                self.seen[slot] = max(before, value)

    def settle(self, ranker: JoinedRanker) -> None:
        """What a list is worth of which nothing was reported, if the ranker's spec says so; it ends now."""
        default = ranker.spec.default_reward
        if default > 0.0 and ranker.kind == "clicks" and self.seen is None and not self.unseen:
            self.seen = [default, *[0.0] * (len(self.slots) - 1)]

    @property
    def silent(self) -> bool:
        """Whether nothing was reported at all."""
        return self.seen is None and self.viewed is None

    @property
    def unseen(self) -> bool:
        """Whether it is known that the list never came into view: then no click says nothing."""
        return self.viewed == 0 and not any(self.seen or ())

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
) -> Receipt:
    """What is to become of an event; `earlier` are the impressions of the same ranker that its id was used for."""

    def rejected(reason: str) -> Receipt:
        return Receipt(event.event_id, "rejected", reason)

    ranker = rankers.get(impression.ranker) if impression else None
    if impression is None or ranker is None:
        reason = f"no impression {event.impression_id!r}; it was never made here, or is past retention, or was erased"
        return Receipt(event.event_id, "orphan", reason)
    if event.impression_id in earlier:
        return Receipt(event.event_id, "duplicate")
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
    bad = _outside(event.grades, float("inf"))
    if bad:
        return rejected(f"grades must be finite numbers of at least 0, not {bad}")
    bad = _outside(event.rewards, 1.0)
    if bad:
        return rejected(f"rewards must be numbers from 0 to 1, not {bad}; divide by what the best is worth")
    if event.seen is not None and event.seen > len(impression.slots):
        return rejected(f"seen is {event.seen}, but the list has {len(impression.slots)} positions; count from its top")
    if impression.epoch != ranker.epoch:
        return Receipt(event.event_id, "late", "the ranker was reset since the list was shown; kept, not learned")
    if not impression.open:
        return Receipt(event.event_id, "late", "the impression is closed (final event or window); kept, not learned")
    return Receipt(event.event_id, "accepted")


def _lacking(wanted: str, both: bool) -> str:
    """Why an event of no kind, or of both kinds, says nothing that can be learned."""
    remedy = "grades alone" if wanted == "grades" else "clicks, rewards, seen or viewed"
    return f"it has {'grades beside clicks, rewards, seen or viewed' if both else 'no feedback'}; give {remedy}"


def _named(event: FeedbackEvent) -> str:
    """Which kind of feedback an event has, in its own words."""
    given = [name for name in ("clicks", "rewards", "grades", "seen", "viewed") if getattr(event, name) is not None]
    return " and ".join(given)


def _outside(numbers: dict[str, float] | None, most: float) -> str | None:
    """The first that is not from 0 to `most`, nor finite, as an error names it."""
    bad: Iterable[str] = (
        f"{item!r}: {value}"
        for item, value in (numbers or {}).items()
        if not (0 <= value <= most and value != float("inf"))
    )
    return next(iter(bad), None)
