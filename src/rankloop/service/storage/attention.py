"""Rejected events that wait for a correction, by impression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rankloop.service.storage.database import Connection
from rankloop.service.storage.joining import Mark, OpenImpression
from rankloop.wire.calls import FeedbackEvent, RejectedEvent

COUNTED = 100_000  # marks that are counted at most
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(FeedbackEvent).decode


def load(connection: Connection, impressions: Iterable[OpenImpression]) -> None:
    """Give impressions their marks; asks only for those that have some."""
    marked = {one.id: one for one in impressions if one.marked}
    if marked:
        sql = "SELECT impression_id, event_id, time, reason, kept FROM attention WHERE impression_id"
        for own, event_id, time, reason, kept in connection.rows_in(sql, sorted(marked)):
            marked[own].marks[event_id] = Mark(time, reason, _decode(kept))


def store(connection: Connection, impressions: Sequence[OpenImpression]) -> None:
    """Write the marks of impressions in which they have changed."""
    changed = [one for one in impressions if one.remarked]
    if not changed:
        return
    delete(connection, [one.id for one in changed if one.marked])
    rows = [
        (one.id, event_id, one.ranker, mark.time, mark.reason, _encode(mark.kept))
        for one in changed
        for event_id, mark in one.marks.items()
    ]
    if rows:
        connection.insert("attention", "impression_id, event_id, ranker, time, reason, kept", rows)


def delete(connection: Connection, ids: Sequence[str]) -> None:
    """Delete the marks of impressions."""
    if ids:
        connection.many("DELETE FROM attention WHERE impression_id = ?", [(own,) for own in ids])


def counts(connection: Connection) -> Counter[str]:
    """How many impressions of each ranker have marks."""
    first = f"SELECT DISTINCT ranker, impression_id FROM attention LIMIT {COUNTED}"
    rows = connection.rows(f"SELECT ranker, COUNT(*) FROM ({first}) AS marked GROUP BY ranker")
    return Counter({name: int(count) for name, count in rows})


def of(connection: Connection, ids: Sequence[str]) -> dict[str, list[RejectedEvent]]:
    """The marks of impressions, the oldest first."""
    found: dict[str, list[RejectedEvent]] = {}
    if ids:
        sql = "SELECT impression_id, time, event_id, reason FROM attention WHERE impression_id"
        for own, time, event_id, reason in connection.rows_in(sql, sorted(ids), "ORDER BY time, event_id"):
            found.setdefault(own, []).append(RejectedEvent(time, event_id or None, reason))
    return found


def sweep(connection: Connection, before: float) -> None:
    """Delete marks from `before` that time, which is the end of retention, whose impressions have gone."""
    there = "SELECT 1 FROM impressions i WHERE i.id = attention.impression_id"
    connection.run(f"DELETE FROM attention WHERE time < ? AND NOT EXISTS ({there})", before)
