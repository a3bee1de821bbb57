"""Deletion of old impressions, and the data of one user: read and erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rankloop.service.storage import joining
from rankloop.service.storage.database import Connection, Row, marks
from rankloop.service.storage.impressions import OPEN, impressions_by_id
from rankloop.service.storage.partitions import tables_to_sweep
from rankloop.service.storage.writer import Writer, in_batches
from rankloop.wire.service import Erased

OLDEST = 500  # impressions of a ranker behind on learning that are searched at a time

# Replay starts at the snapshot, so impressions before it can be deleted, and those closed without an outcome.
_COVERED = "i.open = 0 AND (i.seq IS NULL OR i.seq < (SELECT s.seq FROM snapshots s WHERE s.ranker = i.ranker))"


def delete_old(connection: Connection, before: float | None, limit: int = 500) -> int:
    """Delete up to `limit` impressions made `before` a time, and erased ones, that snapshots cover; return how many.

    It reads little more than it deletes, also for a ranker with many old impressions that no snapshot covers.
    """
    sql = f"SELECT i.id FROM impressions i WHERE i.erase = 1 AND {_COVERED} LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql)]
    if before is not None:
        behind = _behind(connection, before)
        names = "SELECT name FROM rankers" + (f" WHERE name NOT IN ({marks(behind)})" if behind else "")
        old = f"i.ranker IN ({names}) AND i.created < ? AND i.erase >= 0"
        for table in tables_to_sweep(connection, before):
            if len(ids) < limit:
                sql = f"SELECT i.id FROM {table} i WHERE {old} AND {_COVERED} LIMIT {limit - len(ids)}"
                ids += [row[0] for row in connection.rows(sql, *behind, before)]
            for name, seq in behind.items():
                if len(ids) < limit:
                    ids += _covered_of(connection, table, name, seq, before, limit - len(ids))
        joining.delete_old_rejected(connection, before)
    ids = sorted(set(ids))
    _delete(connection, ids)
    return len(ids)


def _delete(connection: Connection, ids: list[str]) -> tuple[int, int]:
    """Delete impressions with their events and outcomes; return how many events and outcomes were deleted."""
    if not ids:
        return 0, 0
    condition = f"IN ({marks(ids)})"
    events = connection.run(f"DELETE FROM events WHERE impression_id {condition}", *ids)
    closed = connection.rows(f"SELECT ranker, seq, id FROM impressions WHERE seq IS NOT NULL AND id {condition}", *ids)
    if closed:
        connection.many("DELETE FROM outcomes WHERE ranker = ? AND seq = ? AND impression_id = ?", closed)
    connection.run(f"DELETE FROM rejected_events WHERE impression_id {condition}", *ids)
    connection.run(f"DELETE FROM impressions WHERE id {condition}", *ids)
    return events, len(closed)


def _behind(connection: Connection, before: float) -> dict[str, int]:
    """Return rankers with impressions from `before` that are open or not in their snapshot, with its outcomes."""
    sql = f"SELECT ranker FROM impressions{connection.index_hint(OPEN)} WHERE open = 1 AND closes < ? ORDER BY closes"
    waiting = {row[0] for row in connection.rows(f"{sql} LIMIT {OLDEST}", before)}
    found = {}
    sql = "SELECT o.ranker, s.seq, o.next_seq FROM log_offsets o JOIN snapshots s ON s.ranker = o.ranker"
    for name, seq, end in connection.rows(sql):
        row = None
        if end > seq:
            row = connection.row("SELECT created FROM outcomes WHERE ranker = ? AND seq = ?", name, seq)
        if name in waiting or (row is not None and row[0] < before):
            found[name] = int(seq)
    return found


def _covered_of(connection: Connection, table: str, name: str, seq: int, before: float, limit: int) -> list[str]:
    """Return ids to delete of a ranker that is behind: of outcomes below `seq`, and of its `OLDEST` impressions those
    closed without an outcome."""
    outcomes = table.replace("impressions", "outcomes", 1)
    sql = (
        f"SELECT impression_id FROM {outcomes} WHERE ranker = ? AND seq < ? AND created < ? ORDER BY seq LIMIT {limit}"
    )
    ids = [row[0] for row in connection.rows(sql, name, seq, before)]
    oldest = f"SELECT id, open, seq FROM {table} WHERE ranker = ? AND created < ? AND erase >= 0 ORDER BY created"
    sql = f"SELECT id FROM ({oldest} LIMIT {OLDEST}) AS oldest WHERE open = 0 AND seq IS NULL LIMIT {limit}"
    return (ids + [row[0] for row in connection.rows(sql, name, before)])[:limit]


# -- the data of one user ------------------------------------------------------------------------------------------


def erase_user(writer: Writer, person: str) -> Erased:
    """Delete the impressions of a user with their events and outcomes, in several transactions.

    Those that learning still needs are unlinked from the user now, and deleted once a snapshot covers them. If it is
    interrupted, call it again.
    """
    # Open impressions are closed without an outcome.
    writer.do(lambda c: c.run("UPDATE impressions SET open = 0 WHERE person = ? AND open = 1", person))
    deleted = list(in_batches(writer, lambda connection, limit: _erase_covered(connection, person, limit)))
    pending = list(in_batches(writer, lambda connection, limit: _unlink(connection, person, limit)))
    return Erased(
        impressions=sum(impressions for impressions, _, _ in deleted),
        events=sum(events for _, events, _ in deleted) + sum(events for _, events in pending),
        pending=sum(impressions for impressions, _ in pending),
        outcomes=sum(outcomes for _, _, outcomes in deleted),
    )


def _erase_covered(connection: Connection, person: str, limit: int) -> tuple[int, int, int] | None:
    """Delete impressions that learning does not need; return how many impressions, events and outcomes, if any."""
    sql = f"SELECT i.id FROM impressions i WHERE i.person = ? AND {_COVERED} LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql, person)]
    return (len(ids), *_delete(connection, ids)) if ids else None


def _unlink(connection: Connection, person: str, limit: int) -> tuple[int, int] | None:
    """Remove from impressions all but what learning reads; return how many, and how many events, if any. The request_id
    may contain the user's id, so it is removed from the answer, too."""
    rows = connection.rows(f"SELECT id, answer FROM impressions WHERE person = ? LIMIT {limit}", person)
    if not rows:
        return None
    ids = [row[0] for row in rows]
    events = connection.run(f"DELETE FROM events WHERE impression_id IN ({marks(ids)})", *ids)
    joining.delete_rejected(connection, ids)
    cleared = "person = NULL, request_id = NULL, notes = NULL, rejected = NULL"
    sql = f"UPDATE impressions SET {cleared}, erase = 1, digest = ?, answer = ? WHERE id = ?"
    connection.many(sql, [(b"", _without_request_id(bytes(answer)), own) for own, answer in rows])
    return len(ids), events


def _without_request_id(answer: bytes) -> bytes:
    try:
        fields = msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.DecodeError:
        return b"{}"
    fields.pop("request_id", None)
    return msgspec.json.encode(fields)


class UserImpression(NamedTuple):
    """An impression of a user, as stored."""

    id: str
    ranker: str
    created: float
    request_id: str | None
    open: bool
    body: bytes
    answer: bytes
    shown: bytes
    feedback: bytes | None
    viewed: int | None
    rewards: bytes | None
    events: list[Row]  # event_id, received, status, body
    outcome: Row | None  # seq, kind, learn, feedback, viewed, created


def user_impression_ids(connection: Connection, person: str, after: str, limit: int | None = None) -> list[str]:
    """Return the ids of a user's impressions, in order, after one of them."""
    most = "" if limit is None else f" LIMIT {limit}"
    index = connection.index_hint("impressions_person")
    sql = f"SELECT id FROM impressions{index} WHERE person = ? AND id > ? ORDER BY id{most}"
    return [row[0] for row in connection.rows(sql, person, after)]


def user_impressions(connection: Connection, ids: Sequence[str]) -> list[UserImpression]:
    """Return impressions by their ids, with their events and outcomes."""
    columns = "ranker, created, request_id, open, body, answer, shown, feedback, viewed, rewards, seq"
    found = impressions_by_id(connection, columns, ids)
    events: dict[str, list[Row]] = {}
    for sql in (
        "SELECT impression_id, event_id, received, status, body FROM events WHERE impression_id",
        "SELECT impression_id, event_id, time, 'rejected', kept FROM rejected_events WHERE impression_id",
    ):
        for own, *event in connection.rows_in(sql, list(found)):
            events.setdefault(own, []).append(tuple(event))
    made = []
    for own in (one for one in ids if one in found):
        ranker, created, request_id, is_open, *stored, viewed, rewards, seq = found[own]
        outcome = None
        if seq is not None:
            sql = "SELECT seq, kind, learn, feedback, viewed, created FROM outcomes WHERE ranker = ? AND seq = ?"
            outcome = connection.row(f"{sql} AND impression_id = ?", ranker, seq, own)
        body, answer, shown, feedback = (None if one is None else bytes(one) for one in stored)
        assert body is not None
        assert answer is not None
        assert shown is not None
        rewards = None if rewards is None else bytes(rewards)
        sent = sorted(events.get(own, ()), key=lambda event: (event[1], event[0]))
        state = (body, answer, shown, feedback, viewed, rewards, sent, outcome)
        made.append(UserImpression(own, ranker, created, request_id, bool(is_open), *state))
    return made


def user_catalog_rows(connection: Connection, person: str) -> list[Row]:
    """Return (catalog, changed, body) of the rows of a user in catalogs."""
    sql = (
        "SELECT c.catalog, r.changed, r.body FROM catalogs c JOIN catalog_rows r ON r.part = c.part "
        "WHERE c.kind = 'users' AND r.id = ? AND r.body IS NOT NULL ORDER BY c.catalog"
    )
    return connection.rows(sql, person)
