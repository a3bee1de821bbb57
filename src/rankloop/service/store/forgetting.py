"""What is deleted of the log: what is old, what a user wants forgotten, what nobody owns any more."""

from __future__ import annotations

from rankloop.service.store.batches import in_batches
from rankloop.service.store.database import Connection, marks
from rankloop.service.store.partitions import by_row
from rankloop.service.store.writer import Writer
from rankloop.service.wire.rankers import Erased

# Replay starts at the snapshot, so what it covers may go; so may what was closed without an outcome.
_COVERED = "i.open = 0 AND (i.seq IS NULL OR i.seq < (SELECT s.seq FROM snapshots s WHERE s.ranker = i.ranker))"


def _delete(connection: Connection, ids: list[str]) -> int:
    """Delete impressions with their events and outcomes; how many events went."""
    if not ids:
        return 0
    inside = f"IN ({marks(ids)})"
    gone = connection.run(f"DELETE FROM events WHERE impression_id {inside}", *ids)
    closed = connection.rows(f"SELECT ranker, seq, id FROM impressions WHERE seq IS NOT NULL AND id {inside}", *ids)
    if closed:
        connection.many("DELETE FROM outcomes WHERE ranker = ? AND seq = ? AND impression_id = ?", closed)
    connection.run(f"DELETE FROM impressions WHERE id {inside}", *ids)
    return gone


def sweep(connection: Connection, before: float | None, limit: int = 500) -> int:
    """Delete impressions made `before` that time, and those to be erased, as far as a snapshot covers them.

    What is read is what is deleted, also for a ranker that has not been learned for long: of such a ranker only
    impressions with an outcome that its snapshot covers are deleted, found by the number of the outcome. Those without
    an outcome follow when it is learned again.
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
            outcomes = table.replace("impressions", "outcomes", 1)
            for name, seq in late.items():
                if len(ids) < limit:
                    sql = f"SELECT impression_id FROM {outcomes} WHERE ranker = ? AND seq < ? AND created < ?"
                    found = connection.rows(f"{sql} ORDER BY seq LIMIT {limit - len(ids)}", name, seq, before)
                    ids += [row[0] for row in found]
    ids = sorted(set(ids))
    _delete(connection, ids)
    return len(ids)


def _late(connection: Connection, before: float) -> dict[str, int]:
    """Rankers with outcomes of `before` that time that no snapshot covers, and how many outcomes their snapshot has."""
    sql = "SELECT h.ranker, s.seq FROM heads h JOIN snapshots s ON s.ranker = h.ranker WHERE h.next_seq > s.seq"
    found = {}
    for name, seq in connection.rows(sql):
        row = connection.row("SELECT created FROM outcomes WHERE ranker = ? AND seq = ?", name, seq)
        if row is not None and row[0] < before:
            found[name] = int(seq)
    return found


def erase_user(writer: Writer, person: str) -> Erased:
    """Delete what a user saw and did. What learning may still need is unlinked now and deleted by the next sweep.

    In several transactions; should it be cut short, call it again.
    """
    # Nobody will report on an open list of someone who has left: close it without an outcome.
    writer.do(lambda c: c.run("UPDATE impressions SET open = 0 WHERE person = ? AND open = 1", person))
    gone = list(in_batches(writer, lambda connection, limit: _erase_covered(connection, person, limit)))
    unlink = "UPDATE impressions SET person = NULL, request_id = NULL, notes = NULL, erase = 1 WHERE person = ?"
    pending = writer.do(lambda connection: connection.run(unlink, person))
    return Erased(sum(lists for lists, _ in gone), sum(events for _, events in gone), pending)


def _erase_covered(connection: Connection, person: str, limit: int) -> tuple[int, int] | None:
    """Delete what learning needs no more; how many impressions and events, if any."""
    sql = f"SELECT i.id FROM impressions i WHERE i.person = ? AND {_COVERED} LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql, person)]
    return (len(ids), _delete(connection, ids)) if ids else None
