"""How many events were rejected, late, duplicate or orphaned: counted in the transaction that judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rankloop.service.storage import attention
from rankloop.service.storage.database import Connection
from rankloop.wire.calls import EventCounts, EventDay, Receipt, RejectedEvent

DAY = 86400
DAYS = 7  # that are kept beside the total, with the present one
TOTAL = -1  # in the column `day`
MOST = 1000  # characters of a reason that are kept
NOBODY = ""  # the ranker of events whose impression is not known


def add(connection: Connection, receipts: Sequence[Receipt], rankers: Sequence[str], now: float) -> None:
    """Count events that were not accepted; nothing is written if all were."""
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
    for (ranker, status), count in sorted(found.items()):  # in this order, so that no two processes wait in a ring
        one = last[ranker, status]
        about = (one.event_id, (one.reason or "")[:MOST]) if status == "rejected" else (None, None)
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


def read(connection: Connection, now: float) -> dict[str, EventCounts]:
    """By ranker; those of events whose impression is not known under `NOBODY`. Rankers without any are left out."""
    found: dict[str, EventCounts] = {}
    since = now // DAY * DAY - (DAYS - 1) * DAY
    sql = "SELECT ranker, day, status, count, time, event_id, reason FROM event_counts ORDER BY ranker, day"
    for ranker, day, status, count, time, event_id, reason in connection.rows(sql):
        one = found.setdefault(ranker, EventCounts())
        if day == TOTAL:
            setattr(one, status, int(count))
            if status == "rejected":
                one.last_rejected = RejectedEvent(time, event_id, reason)
        elif day >= since:
            if not one.days or one.days[-1].start != day:
                one.days = [*one.days, EventDay(int(day))]
            setattr(one.days[-1], status, int(count))
    for ranker, count in attention.counts(connection).items():
        found.setdefault(ranker, EventCounts()).needs_attention = count
    return found
