"""The feedback events of the log: deduplicated, joined to their impressions and counted.

Functions of a connection inside a transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rankloop.service.storage import joining
from rankloop.service.storage.database import Connection, Contended, portions
from rankloop.service.storage.ids import id_condition, recent_prefix
from rankloop.service.storage.impressions import log_insert
from rankloop.service.storage.joining import OpenImpression, Rejected, check_event, valid_fields
from rankloop.service.storage.outcomes import Closing, close, joined_columns, load_rankers
from rankloop.wire.calls import EventCounts, EventDay, FeedbackEvent, Receipt, RejectedEvent

PORTION = 256  # impressions per statement
SEPARATOR = "\x1f"  # between ranker and event_id in the column event_id
DAY = 86400
DAYS = 7  # of counts that are kept beside the total, with the current one
TOTAL = -1  # in the column `day`
MAX_REASON = 1000  # characters of a reason that are kept
UNKNOWN = ""  # the ranker of events whose impression is not known
_INSERT = log_insert("events", ("event_id", "impression_id", "received", "status", "body"))


class NewEvent(NamedTuple):
    """An event to append."""

    event: FeedbackEvent
    body: bytes
    rankers: frozenset[str] | None = None  # those the caller may report on; None: all
    malformed: str | None = None  # why it could not be parsed; `event` has the fields that could


class Receipts(NamedTuple):
    """The results of a batch of events."""

    receipts: list[Receipt]
    rankers: list[str]  # of each event, "" where unknown
    closings: list[Closing]


def add_events(connection: Connection, new: Sequence[NewEvent], now: float, kinds: dict[str, str]) -> Receipts:
    """Join events to their impressions; `kinds` maps each learner to the feedback it takes: clicks or grades."""
    ids = sorted({one.event.impression_id for one in new} - {""})
    which, bounds = id_condition(connection, ids, now)
    sql = f"SELECT {OpenImpression.COLUMNS} FROM impressions WHERE {which}"
    rows = connection.rows_in(sql, ids, f"ORDER BY id{connection.lock_rows}", *bounds)
    impressions = {row[0]: OpenImpression(row) for row in rows}
    joining.load_rejected(connection, impressions.values())
    rankers = load_rankers(connection, {one.ranker for one in impressions.values()}, kinds)
    # An impression of a ranker that the caller may not report on is treated as unknown.
    visible = [_visible(impressions.get(one.event.impression_id), one.rankers) for one in new]
    names = [one.ranker if one is not None else UNKNOWN for one in visible]
    # A repeated event is detected for as long as its impression is kept; a reused event_id for at least a day.
    sent = [(ranker, one.event) for ranker, one in zip(names, new, strict=True) if ranker]
    known = _impressions_of(connection, sent, recent_prefix(connection, now))

    receipts, fresh, finals = [], [], []
    for (event, body, _, malformed), impression, name in zip(new, visible, names, strict=True):
        earlier = known.setdefault((name, event.event_id), set())
        receipt = check_event(event, impression, rankers, earlier, malformed)
        receipts.append(receipt)
        if receipt.status in ("accepted", "late"):
            earlier.add(event.impression_id)
            fresh.append((scoped_id(name, event.event_id), event.impression_id, now, receipt.status, body))
        if impression is None or (ranker := rankers.get(impression.ranker)) is None:
            continue
        if receipt.status == "accepted":
            impression.drop_rejected(event.event_id)
            impression.join(event, ranker)
            impression.final = impression.final or event.final
            # A final event waits for corrections; a correction after the window closes the impression.
            if not impression.rejected and (impression.final or not impression.open):
                impression.open, impression.closed = False, True
                finals.append((impression, "final" if impression.final else "window"))
        elif receipt.status == "rejected" and impression.correctable and ranker.learns(impression.epoch):
            rejected = Rejected(now, receipt.reason or "", valid_fields(event, impression, ranker))
            receipt.kept = impression.keep_rejected(event.event_id, rejected)
    if fresh:
        fresh.sort()
        connection.search_all = connection.append(_INSERT, fresh) < len(fresh)
        if connection.search_all:  # another process was faster, or the id was used long ago: try again
            raise Contended("the same event was stored by another process")
    closing = {one.id for one, _ in finals}
    changed = [one for one in impressions.values() if one.changed and one.id not in closing]
    if changed:
        columns = "feedback = ?, viewed = ?, rewards = ?, rejected = ?"
        updates = [(*joined_columns(one), one.rejected_column, one.id) for one in changed]
        connection.many(f"UPDATE impressions SET {columns} WHERE id = ?", updates)
    joining.store_rejected(connection, changed)
    closings = close(connection, finals, rankers, now)
    _count(connection, receipts, names, now)
    return Receipts(receipts, names, closings)


def _visible(one: OpenImpression | None, allowed: frozenset[str] | None) -> OpenImpression | None:
    """Return the impression if the caller may report on its ranker."""
    return one if one is not None and (allowed is None or one.ranker in allowed) else None


def scoped_id(ranker: str, event_id: str) -> str:
    """Return the stored id of an event, which is unique within its ranker. No ranker's name has the separator."""
    return f"{ranker}{SEPARATOR}{event_id}"


def _impressions_of(
    connection: Connection, events: Sequence[tuple[str, FeedbackEvent]], start: str
) -> dict[tuple[str, str], set[str]]:
    """Return, by (ranker, event_id), the impressions that the ids of these (ranker, event) were used for: among all
    impressions from `start` on, and among older ones that the events are about."""
    keys = {scoped_id(ranker, event.event_id): (ranker, event.event_id) for ranker, event in events}
    rows = connection.by_event(sorted(keys), start) if events else []
    old = [
        (event.impression_id, scoped_id(ranker, event.event_id))
        for ranker, event in events
        if event.impression_id < start
    ]
    late = sorted({event_id for _, event_id in old})
    for some in portions(sorted({own for own, _ in old}), PORTION):
        condition, ids = connection.in_values(some)
        # With bounds, so that only the partitions of these impressions are read.
        where = f"impression_id >= ? AND impression_id <= ? AND impression_id {condition}"
        sql = f"SELECT event_id, impression_id FROM events WHERE {where} AND event_id"
        rows += connection.rows_in(sql, late, "", some[0], some[-1], *ids)
    found: dict[tuple[str, str], set[str]] = {}
    for event_id, impression_id in rows:
        found.setdefault(keys[event_id], set()).add(impression_id)
    return found


# -- counts --------------------------------------------------------------------------------------------------------


def _count(connection: Connection, receipts: Sequence[Receipt], rankers: Sequence[str], now: float) -> None:
    """Count events that were not accepted, in the transaction that rejects them."""
    found: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], Receipt] = {}
    for receipt, ranker in zip(receipts, rankers, strict=True):
        if receipt.status != "accepted":
            found[ranker, receipt.status] += 1
            last[ranker, receipt.status] = receipt
    if not found:
        return
    today = int(now // DAY * DAY)
    rows = []
    for (ranker, status), count in sorted(found.items()):  # sorted against deadlocks
        one = last[ranker, status]
        about = (one.event_id, (one.reason or "")[:MAX_REASON]) if status == "rejected" else (None, None)
        rows += [(ranker, day, status, count, now, *about) for day in (TOTAL, today)]
    connection.insert(
        "event_counts",
        "ranker, day, status, count, time, event_id, reason",
        rows,
        "ON CONFLICT (ranker, day, status) DO UPDATE SET count = event_counts.count + excluded.count, "
        "time = excluded.time, event_id = excluded.event_id, reason = excluded.reason",
    )
    old = [(name, today - (DAYS - 1) * DAY) for name in sorted({ranker for ranker, _ in found})]
    connection.many(f"DELETE FROM event_counts WHERE ranker = ? AND day > {TOTAL} AND day < ?", old)


def event_counts(connection: Connection, now: float) -> dict[str, EventCounts]:
    """Return counts of events that were not accepted, by ranker; those of unknown impressions under `UNKNOWN`."""
    found: dict[str, EventCounts] = {}
    since = now // DAY * DAY - (DAYS - 1) * DAY
    sql = "SELECT ranker, day, status, count, time, event_id, reason FROM event_counts ORDER BY ranker, day"
    for ranker, day, status, count, at, event_id, reason in connection.rows(sql):
        one = found.setdefault(ranker, EventCounts())
        if day == TOTAL:
            setattr(one, status, int(count))
            if status == "rejected":
                one.last_rejected = RejectedEvent(at, event_id, reason)
        elif day >= since:
            if not one.days or one.days[-1].start != day:
                one.days = [*one.days, EventDay(int(day))]
            setattr(one.days[-1], status, int(count))
    for ranker, count in joining.count_rejected(connection).items():
        found.setdefault(ranker, EventCounts()).needs_attention = count
    return found
