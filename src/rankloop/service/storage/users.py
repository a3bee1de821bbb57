"""What is stored under one user id. Inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankloop.service.storage.database import Connection, Row
from rankloop.service.storage.log import by_id

_IMPRESSION = "ranker, created, request_id, open, body, answer, shown, seen, viewed, seq, rewards"


class Impression(NamedTuple):
    """An impression of a user, as stored."""

    id: str
    ranker: str
    created: float
    request_id: str | None
    open: bool
    body: bytes
    answer: bytes
    shown: bytes
    seen: bytes | None
    viewed: int | None
    rewards: bytes | None
    events: list[Row]  # event_id, received, status, body
    outcome: Row | None  # seq, kind, learn, feedback, viewed, created


def impression_ids(connection: Connection, person: str, after: str, limit: int | None = None) -> list[str]:
    """The ids of a user's impressions, in order, after one of them."""
    most = "" if limit is None else f" LIMIT {limit}"
    index = connection.by("impressions_person")
    sql = f"SELECT id FROM impressions{index} WHERE person = ? AND id > ? ORDER BY id{most}"
    return [row[0] for row in connection.rows(sql, person, after)]


def impressions(connection: Connection, ids: Sequence[str]) -> list[Impression]:
    """Impressions by their ids, with their events and outcomes."""
    found = by_id(connection, _IMPRESSION, ids)
    events: dict[str, list[Row]] = {}
    sql = "SELECT impression_id, event_id, received, status, body FROM events WHERE impression_id"
    for own, *event in connection.rows_in(sql, list(found)):
        events.setdefault(own, []).append(tuple(event))
    sql = "SELECT impression_id, event_id, time, 'rejected', kept FROM attention WHERE impression_id"
    for own, *event in connection.rows_in(sql, list(found)):
        events.setdefault(own, []).append(tuple(event))
    made = []
    for own in (one for one in ids if one in found):
        ranker, created, request_id, opened, body, answer, shown, seen, viewed, seq, rewards = found[own]
        outcome = None
        if seq is not None:
            sql = "SELECT seq, kind, learn, feedback, viewed, created FROM outcomes WHERE ranker = ? AND seq = ?"
            outcome = connection.row(f"{sql} AND impression_id = ?", ranker, seq, own)
        made.append(
            Impression(
                id=own,
                ranker=ranker,
                created=created,
                request_id=request_id,
                open=bool(opened),
                body=bytes(body),
                answer=bytes(answer),
                shown=bytes(shown),
                seen=None if seen is None else bytes(seen),
                viewed=viewed,
                rewards=None if rewards is None else bytes(rewards),
                events=sorted(events.get(own, ()), key=lambda event: (event[1], event[0])),
                outcome=outcome,
            )
        )
    return made


def entries(connection: Connection, person: str) -> list[Row]:
    """(catalog, changed, body) of the rows of a user in catalogs."""
    sql = (
        "SELECT c.catalogue, r.changed, r.body FROM catalogues c JOIN catalogue_rows r ON r.part = c.part "
        "WHERE c.kind = 'users' AND r.id = ? AND r.body IS NOT NULL ORDER BY c.catalogue"
    )
    return connection.rows(sql, person)


def counters(connection: Connection) -> list[Row]:
    """(ranker, seq, state) of all stored counters."""
    return connection.rows("SELECT ranker, seq, state FROM counters ORDER BY ranker")


def replace_counters(connection: Connection, ranker: str, seq: int, state: bytes, forgotten: bytes) -> bool:
    """Store changed counters, unless others were stored meanwhile."""
    sql = "UPDATE counters SET state = ?, forgotten = ? WHERE ranker = ? AND seq = ?"
    return connection.run(sql, state, forgotten, ranker, seq) == 1
