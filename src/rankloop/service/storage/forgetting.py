"""What is deleted of the log: what is old, what a user wants forgotten, what nobody owns any more."""

from __future__ import annotations

from typing import Any

import msgspec

from rankloop.service.storage import attention
from rankloop.service.storage.batches import in_batches
from rankloop.service.storage.database import Connection, marks
from rankloop.service.storage.log import OPEN
from rankloop.service.storage.partitions import by_row
from rankloop.service.storage.writer import Writer
from rankloop.wire.service import Erased

LOOKED = 500  # impressions of a ranker that has not been learned for long that are looked through at a time

# Replay starts at the snapshot, so what it covers may go; so may what was closed without an outcome.
_COVERED = "i.open = 0 AND (i.seq IS NULL OR i.seq < (SELECT s.seq FROM snapshots s WHERE s.ranker = i.ranker))"


def _delete(connection: Connection, ids: list[str]) -> tuple[int, int]:
    """Delete impressions with their events and outcomes; how many events and outcomes were deleted."""
    if not ids:
        return 0, 0
    inside = f"IN ({marks(ids)})"
    events = connection.run(f"DELETE FROM events WHERE impression_id {inside}", *ids)
    closed = connection.rows(f"SELECT ranker, seq, id FROM impressions WHERE seq IS NOT NULL AND id {inside}", *ids)
    if closed:
        connection.many("DELETE FROM outcomes WHERE ranker = ? AND seq = ? AND impression_id = ?", closed)
    connection.run(f"DELETE FROM attention WHERE impression_id {inside}", *ids)
    connection.run(f"DELETE FROM impressions WHERE id {inside}", *ids)
    return events, len(closed)


def sweep(connection: Connection, before: float | None, limit: int = 500) -> int:
    """Delete impressions made `before` that time, and those to be erased, as far as a snapshot covers them.

    What is read is little more than what is deleted, also for a ranker that has not been learned for long and has many
    old impressions that no snapshot covers (`_of_late`).
    """
    sql = f"SELECT i.id FROM impressions i WHERE i.erase = 1 AND {_COVERED} LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql)]
    if before is not None:
        late = _late(connection, before)
        names = f"SELECT name FROM rankers WHERE name NOT IN ({marks(late)})" if late else "SELECT name FROM rankers"
        old = f"i.ranker IN ({names}) AND i.created < ? AND i.erase >= 0"
        for table in by_row(connection, before):
            if len(ids) < limit:
                sql = f"SELECT i.id FROM {table} i WHERE {old} AND {_COVERED} LIMIT {limit - len(ids)}"
                ids += [row[0] for row in connection.rows(sql, *late, before)]
            for name, seq in late.items():
                if len(ids) < limit:
                    ids += _of_late(connection, table, name, seq, before, limit - len(ids))
    if before is not None:
        attention.sweep(connection, before)
    ids = sorted(set(ids))
    _delete(connection, ids)
    return len(ids)


def _late(connection: Connection, before: float) -> dict[str, int]:
    """Rankers with impressions of `before` that time that are open or that no snapshot covers, and how many outcomes
    their snapshot has."""
    sql = f"SELECT ranker FROM impressions{connection.by(OPEN)} WHERE open = 1 AND closes < ? ORDER BY closes"
    waiting = {row[0] for row in connection.rows(f"{sql} LIMIT {LOOKED}", before)}
    found = {}
    sql = "SELECT h.ranker, s.seq, h.next_seq FROM heads h JOIN snapshots s ON s.ranker = h.ranker"
    for name, seq, head in connection.rows(sql):
        row = None
        if head > seq:
            row = connection.row("SELECT created FROM outcomes WHERE ranker = ? AND seq = ?", name, seq)
        if name in waiting or (row is not None and row[0] < before):
            found[name] = int(seq)
    return found


def _of_late(connection: Connection, table: str, name: str, seq: int, before: float, limit: int) -> list[str]:
    """What may go of such a ranker: impressions with an outcome below `seq`, found by its number, and of the oldest
    `LOOKED` impressions those that have none. Others without an outcome follow when the ranker is learned again."""
    outcomes = table.replace("impressions", "outcomes", 1)
    sql = (
        f"SELECT impression_id FROM {outcomes} WHERE ranker = ? AND seq < ? AND created < ? ORDER BY seq LIMIT {limit}"
    )
    ids = [row[0] for row in connection.rows(sql, name, seq, before)]
    oldest = f"SELECT id, open, seq FROM {table} WHERE ranker = ? AND created < ? AND erase >= 0 ORDER BY created"
    sql = f"SELECT id FROM ({oldest} LIMIT {LOOKED}) AS oldest WHERE open = 0 AND seq IS NULL LIMIT {limit}"
    return (ids + [row[0] for row in connection.rows(sql, name, before)])[:limit]


def erase_user(writer: Writer, person: str) -> Erased:
    """Delete the impressions of a user with their events and outcomes. Those that learning still needs are unlinked
    from the user now, and deleted by the next sweep after a snapshot covers them.

    In several transactions. If it is interrupted, call it again.
    """
    # Nobody will report on the open impressions of someone who has left: close them without an outcome.
    writer.do(lambda c: c.run("UPDATE impressions SET open = 0 WHERE person = ? AND open = 1", person))
    gone = list(in_batches(writer, lambda connection, limit: _erase_covered(connection, person, limit)))
    pending = list(in_batches(writer, lambda connection, limit: _unlink(connection, person, limit)))
    return Erased(
        impressions=sum(impressions for impressions, _, _ in gone),
        events=sum(events for _, events, _ in gone) + sum(events for _, events in pending),
        pending=sum(impressions for impressions, _ in pending),
        outcomes=sum(outcomes for _, _, outcomes in gone),
    )


def _erase_covered(connection: Connection, person: str, limit: int) -> tuple[int, int, int] | None:
    """Delete what learning needs no more; how many impressions, events and outcomes, if any."""
    sql = f"SELECT i.id FROM impressions i WHERE i.person = ? AND {_COVERED} LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql, person)]
    return (len(ids), *_delete(connection, ids)) if ids else None


def _unlink(connection: Connection, person: str, limit: int) -> tuple[int, int] | None:
    """Keep of impressions what learning reads, and nothing that leads to the user; how many, and how many events were
    deleted, if any. The request id is the caller's, and may contain the user's: it is taken out of the answer, too."""
    rows = connection.rows(f"SELECT id, answer FROM impressions WHERE person = ? LIMIT {limit}", person)
    if not rows:
        return None
    ids = [row[0] for row in rows]
    events = connection.run(f"DELETE FROM events WHERE impression_id IN ({marks(ids)})", *ids)
    attention.delete(connection, ids)
    gone = "person = NULL, request_id = NULL, notes = NULL, attention = NULL"
    unlink = f"UPDATE impressions SET {gone}, erase = 1, digest = ?, answer = ?"
    connection.many(f"{unlink} WHERE id = ?", [(b"", _anonymous(bytes(answer)), own) for own, answer in rows])
    return len(ids), events


def _anonymous(answer: bytes) -> bytes:
    """An answer without the request id."""
    try:
        said = msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.DecodeError:
        return b"{}"
    said.pop("request_id", None)
    return msgspec.json.encode(said)
