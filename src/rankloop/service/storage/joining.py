"""Joining events to an impression: which events are valid, and what feedback an impression has.

Events may come in any number and order; the order matters only if the spec asks for the "earliest" reward. A rejected
event marks its impression: its valid fields are joined when the impression closes, unless it is corrected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.service.storage.rewards import LARGEST, item_value
from rankloop.wire.calls import NO_ID, FeedbackEvent, Receipt, RejectedEvent
from rankloop.wire.rankers import Spec

MAX_REJECTED = 32  # rejected events kept per impression
REJECTED, REJECTED_AND_FINAL = 1, 2  # values of the column `rejected`
FIELDS = ("clicks", "rewards", "grades", "seen", "viewed")
INFINITE = float("inf")
COUNTED = 100_000  # rejected events that are counted at most
_encode = msgspec.json.encode
_decode_event = msgspec.json.Decoder(FeedbackEvent).decode


class JoinedRanker(NamedTuple):
    """The fields of a ranker that joining needs."""

    epoch: int
    learning: bool
    spec: Spec
    kind: str  # of feedback: clicks or grades
    carried: int | None = None  # the oldest epoch whose impressions are learned; None: the current one

    def learns(self, epoch: int) -> bool:
        """Return whether impressions of an epoch are learned: not those made before a reset."""
        return epoch == self.epoch or (self.carried is not None and self.carried <= epoch < self.epoch)


class Rejected(NamedTuple):
    """A rejected event that has not been corrected."""

    time: float
    reason: str
    kept: FeedbackEvent  # its valid fields


class OpenImpression:
    """An impression to which events are joined."""

    COLUMNS = "id, ranker, epoch, open, shown, feedback, learn, viewed, rewards, rejected, seq"

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: str = row[0]
        self.ranker: str = row[1]
        self.epoch, self.open = int(row[2]), bool(row[3])
        self.positions = {str(item): position for position, item in enumerate(msgspec.json.decode(row[4]))}
        self.feedback: list[float | None] | None = None if row[5] is None else msgspec.json.decode(row[5])
        self.learn = bool(row[6])
        self.viewed: int | None = None if row[7] is None else int(row[7])  # positions that came into view
        self.rewards: list[float | None] | None = None if row[8] is None else msgspec.json.decode(row[8])
        self.had_rejected = bool(row[9])  # in the store
        self.final = row[9] == REJECTED_AND_FINAL  # a final event came; it waits for the correction of rejected ones
        self.closed = row[10] is not None
        self.rejected: dict[str, Rejected] = {}  # by event_id
        self.changed = self.rejected_changed = False

    @property
    def correctable(self) -> bool:
        """Whether rejected events can be corrected: also after the window, if they kept it from being learned."""
        return self.open or (self.had_rejected and not self.closed)

    @property
    def rejected_column(self) -> int | None:
        """The value of the column `rejected`."""
        return None if not self.rejected else REJECTED_AND_FINAL if self.final else REJECTED

    def unknown_items(self, event: FeedbackEvent) -> list[str]:
        """Return the items of an event that were not shown."""
        items = (*(event.clicks or ()), *(event.rewards or ()), *(event.grades or ()), *(event.viewed or ()))
        return [repr(item) for item in items if str(item) not in self.positions]

    def keep_rejected(self, event_id: str, event: Rejected) -> list[str]:
        """Keep the valid fields of a rejected event, instead of an earlier one of this id; return their names."""
        if event_id not in self.rejected and len(self.rejected) >= MAX_REJECTED:
            return []
        self.rejected[event_id] = event
        self.rejected_changed = self.changed = True
        return [name for name in FIELDS if getattr(event.kept, name) is not None]

    def drop_rejected(self, event_id: str) -> None:
        """Drop the rejected event that a valid one has corrected."""
        if self.rejected.pop(event_id, None) is not None:
            self.rejected_changed = True

    def join_kept(self, ranker: JoinedRanker) -> None:
        """Join the valid fields of rejected events, in the order of their ids. Grades of valid events stay."""
        for _, event in sorted(self.rejected.items()):
            kept = event.kept
            if kept.grades is not None and self.feedback is not None:
                there = {
                    item: grade for item, grade in kept.grades.items() if self.feedback[self.positions[item]] is None
                }
                kept = msgspec.structs.replace(kept, grades=there)
            self.join(kept, ranker)

    def join(self, event: FeedbackEvent, ranker: JoinedRanker) -> None:
        """Join a valid event."""
        if event.grades is not None:
            self.feedback = self.feedback or [None] * len(self.positions)
            for item, grade in event.grades.items():
                self.feedback[self.positions[item]] = grade
        spec = ranker.spec
        if event.clicks is not None:
            clicks = dict.fromkeys(map(str, event.clicks), spec.click_value)
            rule = spec.reward_aggregation if spec.reward is None else "max"
            self.feedback = self._combined(self.feedback, clicks, rule, 1.0)
        if event.rewards is not None and spec.reward is None:
            self.feedback = self._combined(self.feedback, event.rewards, spec.reward_aggregation, 1.0)
        elif event.rewards is not None:
            self.feedback = self.feedback or [0.0] * len(self.positions)
            self.rewards = self._combined(self.rewards, event.rewards, spec.reward_aggregation, LARGEST)
        depth = max([event.seen or 0, *(self.positions[str(item)] + 1 for item in event.viewed or ())])
        if event.seen is not None or event.viewed is not None:
            self.viewed = max(depth, self.viewed or 0)
        self.changed = True

    def _combined(
        self, before: list[float | None] | None, new: dict[str, float], rule: str, most: float
    ) -> list[float | None]:
        # None differs from 0: under "earliest" a reward of 0 that came first stays.
        found = before or [None if rule == "earliest" else 0.0] * len(self.positions)
        for item, value in new.items():
            position = self.positions[item]
            old = found[position]
            if old is None:
                found[position] = value
            elif rule == "sum":
                found[position] = min(old + value, most)
            elif rule == "max":
                found[position] = max(old, value)
        return found

    def finish(self, ranker: JoinedRanker, scale: float | None) -> None:
        """Compute the value of each item as the impression closes. With a `scale`, rewards are in a unit."""
        default = ranker.spec.default_reward
        if default > 0.0 and ranker.kind == "clicks" and self.feedback is None and not self.unseen:
            self.feedback = [default, *[0.0] * (len(self.positions) - 1)]
        if self.feedback is None or self.rewards is None:
            return
        for position, reward in enumerate(self.rewards):
            if reward:  # implies a click, reported or not
                click = max(self.feedback[position] or 0.0, ranker.spec.click_value)
                self.feedback[position] = click if scale is None else item_value(click, reward, scale)

    @property
    def silent(self) -> bool:
        """Whether nothing was reported."""
        return self.feedback is None and self.viewed is None

    @property
    def unseen(self) -> bool:
        """Whether it is known that the ranking never came into view: then no click is no evidence."""
        return self.viewed == 0 and not self.positive

    @property
    def positive(self) -> bool:
        """Whether a click or a positive reward was reported."""
        return any(self.feedback or ()) or any(self.rewards or ())

    def values(self, kind: str) -> list[float]:
        """Return the feedback by position: clicks of all positions, or grades up to the first missing one."""
        if kind == "clicks":
            return [value or 0.0 for value in self.feedback or ()]
        values: list[float] = []
        for value in self.feedback or ():
            if value is None:
                break
            values.append(value)
        return values


def check_event(
    event: FeedbackEvent,
    impression: OpenImpression | None,
    rankers: dict[str, JoinedRanker],
    earlier: Collection[str],
    malformed: str | None = None,
) -> Receipt:
    """Return the receipt of an event; `earlier` are the impressions of the same ranker that its id was used for,
    `malformed` is why it could not be parsed."""

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
            return rejected(_missing(wanted, both=clicks))
        given = wanted
    if given != wanted:
        return rejected(f"it has {_field_names(event)}, but ranker {impression.ranker!r} learns from {wanted}")
    unknown = impression.unknown_items(event)
    if unknown:
        return rejected(f"not shown in this impression: {', '.join(unknown[:5])}; report shown items only")
    bad = _first_invalid(event.grades, INFINITE)
    if bad:
        return rejected(f"grades must be finite numbers of at least 0, not {bad}")
    bad = _first_invalid(event.rewards, _max_reward(ranker.spec))
    if bad and ranker.spec.reward is not None:
        return rejected(f"rewards must be finite numbers of at least 0, not {bad}")
    if bad:
        return rejected(
            f"rewards must be from 0 to 1, not {bad}; to report them in a unit, such as EUR, declare it: "
            f'PATCH /v1/rankers/{impression.ranker} with {{"reward": {{"name": "revenue", "unit": "EUR"}}}}'
        )
    if event.seen is not None and event.seen > len(impression.positions):
        return rejected(
            f"seen is {event.seen}, but the ranking has {len(impression.positions)} positions; count from its top"
        )
    if not ranker.learns(impression.epoch):
        return Receipt(
            event.event_id, "late", "the ranker was reset since the ranking was shown; stored, but not learned"
        )
    if not impression.open and not (impression.correctable and event.event_id in impression.rejected):
        return Receipt(
            event.event_id, "late", "the impression is closed (final event or window); stored, but not learned"
        )
    return Receipt(event.event_id, "accepted")


def valid_fields(event: FeedbackEvent, impression: OpenImpression, ranker: JoinedRanker) -> FeedbackEvent:
    """Return the fields of a rejected event that are valid. An empty list of clicks is left out: a faulty event is no
    evidence that nothing was clicked."""
    shown = impression.positions
    made = FeedbackEvent(event.event_id, event.impression_id)
    if ranker.kind == "grades":
        made.grades = _valid_numbers(event.grades, shown, INFINITE)
        return made
    made.clicks = [item for item in dict.fromkeys(event.clicks or ()) if str(item) in shown] or None
    made.rewards = _valid_numbers(event.rewards, shown, _max_reward(ranker.spec))
    made.viewed = [item for item in dict.fromkeys(event.viewed or ()) if str(item) in shown] or None
    made.seen = event.seen if event.seen is not None and event.seen <= len(shown) else None
    return made


def _max_reward(spec: Spec) -> float:
    return 1.0 if spec.reward is None else INFINITE


def _valid_numbers(numbers: dict[str, float] | None, shown: Collection[str], most: float) -> dict[str, float] | None:
    """Return the numbers of shown items from 0 to `most`; None if there are none."""
    return {item: value for item, value in (numbers or {}).items() if item in shown and _is_valid(value, most)} or None


def _is_valid(value: float, most: float) -> bool:
    return 0 <= value <= most and value != INFINITE


def _missing(wanted: str, both: bool) -> str:
    """Return why an event without feedback, or with both kinds of it, cannot be learned."""
    remedy = "grades alone" if wanted == "grades" else "clicks, rewards, seen or viewed"
    return f"it has {'grades beside clicks, rewards, seen or viewed' if both else 'no feedback'}; give {remedy}"


def _field_names(event: FeedbackEvent) -> str:
    """Return which fields of feedback an event has."""
    return " and ".join(name for name in FIELDS if getattr(event, name) is not None)


def _first_invalid(numbers: dict[str, float] | None, most: float) -> str | None:
    """Return the first number that is not finite or not from 0 to `most`, as text."""
    bad: Iterable[str] = (f"{item!r}: {value}" for item, value in (numbers or {}).items() if not _is_valid(value, most))
    return next(iter(bad), None)


# -- rejected events in the store ------------------------------------------------------------------------------------


def load_rejected(connection: Connection, impressions: Iterable[OpenImpression]) -> None:
    """Load the rejected events of impressions that have some."""
    flagged = {one.id: one for one in impressions if one.had_rejected}
    if flagged:
        sql = "SELECT impression_id, event_id, time, reason, kept FROM rejected_events WHERE impression_id"
        for own, event_id, time, reason, kept in connection.rows_in(sql, sorted(flagged)):
            flagged[own].rejected[event_id] = Rejected(time, reason, _decode_event(kept))


def store_rejected(connection: Connection, impressions: Sequence[OpenImpression]) -> None:
    """Store the rejected events of impressions in which they have changed."""
    changed = [one for one in impressions if one.rejected_changed]
    if not changed:
        return
    delete_rejected(connection, [one.id for one in changed if one.had_rejected])
    rows = [
        (one.id, event_id, one.ranker, event.time, event.reason, _encode(event.kept))
        for one in changed
        for event_id, event in one.rejected.items()
    ]
    if rows:
        connection.insert("rejected_events", "impression_id, event_id, ranker, time, reason, kept", rows)


def delete_rejected(connection: Connection, ids: Sequence[str]) -> None:
    """Delete the rejected events of impressions."""
    if ids:
        connection.many("DELETE FROM rejected_events WHERE impression_id = ?", [(own,) for own in ids])


def count_rejected(connection: Connection) -> Counter[str]:
    """Return how many impressions of each ranker have rejected events."""
    first = f"SELECT DISTINCT ranker, impression_id FROM rejected_events LIMIT {COUNTED}"
    rows = connection.rows(f"SELECT ranker, COUNT(*) FROM ({first}) AS flagged GROUP BY ranker")
    return Counter({name: int(count) for name, count in rows})


def list_rejected(connection: Connection, ids: Sequence[str]) -> dict[str, list[RejectedEvent]]:
    """Return the rejected events of impressions, the oldest first."""
    found: dict[str, list[RejectedEvent]] = {}
    if ids:
        sql = "SELECT impression_id, time, event_id, reason FROM rejected_events WHERE impression_id"
        for own, time, event_id, reason in connection.rows_in(sql, sorted(ids), "ORDER BY time, event_id"):
            found.setdefault(own, []).append(RejectedEvent(time, event_id or None, reason))
    return found


def delete_old_rejected(connection: Connection, before: float) -> None:
    """Delete rejected events older than `before`, the retention limit, whose impressions are deleted."""
    there = "SELECT 1 FROM impressions i WHERE i.id = rejected_events.impression_id"
    connection.run(f"DELETE FROM rejected_events WHERE time < ? AND NOT EXISTS ({there})", before)
