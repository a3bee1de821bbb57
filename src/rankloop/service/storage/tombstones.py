"""Deleted rankers. One is gone at once, in one short transaction; what it leaves, perhaps millions of rows, is deleted
behind that in batches. A row in `graves` says that something may be left, so a restart does not forget it."""

from __future__ import annotations

from rankloop.service.errors import Conflict
from rankloop.service.storage.database import Connection, marks

# What a ranker leaves beside its lists: table, what tells a ranker's rows apart. States may be large: few at a time.
_SMALL = (("series", "start"), ("experiments", "id"), ("attention", "event_id"), ("event_counts", "day"))
_LARGE = (("versions", "version"), ("origins", "generation"), ("snapshots", "seq"), ("snapshot_parts", "part"))


def bury(connection: Connection, name: str, now: float) -> bool:
    """Delete a ranker: from now on there is none of that name. False if there was none."""
    if connection.run("DELETE FROM rankers WHERE name = ?", name) == 0:
        return False
    for table in ("heads", "leases", "troubles", "notices", "generations", "counters", "loads", "published_parts"):
        connection.run(f"DELETE FROM {table} WHERE ranker = ?", name)
    connection.insert("graves", "ranker, since", [(name, now)], "ON CONFLICT DO NOTHING")
    return True


def clear(connection: Connection, limit: int, name: str | None = None) -> int:
    """Delete up to `limit` rows that a deleted ranker has left, of `name` or of any; 0 if there are none left."""
    # Locked: while this goes on the grave stays, and as long as it is there no ranker of that name is made anew.
    one = "WHERE ranker = ?" if name is not None else "ORDER BY since LIMIT 1"
    grave = connection.row(f"SELECT ranker FROM graves {one}{connection.lock_rows}", *filter(None, [name]))
    if grave is None:
        return 0
    name = grave[0]
    # In order, which is that of an index: else what was deleted before is read over again with every batch.
    sql = f"SELECT id FROM impressions WHERE ranker = ? AND erase >= 0 ORDER BY created LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql, name)]
    if ids:
        connection.run(f"DELETE FROM events WHERE impression_id IN ({marks(ids)})", *ids)
        connection.run(f"DELETE FROM impressions WHERE id IN ({marks(ids)})", *ids)
        return len(ids)
    sql = f"SELECT seq, impression_id FROM outcomes WHERE ranker = ? ORDER BY seq LIMIT {limit}"
    if outcomes := connection.rows(sql, name):
        at, seqs = connection.among([seq for seq, _ in outcomes])
        about, lists = connection.among([own for _, own in outcomes])
        sql = f"DELETE FROM outcomes WHERE ranker = ? AND seq {at} AND impression_id {about}"
        return connection.run(sql, name, *seqs, *lists)
    for tables, most in ((_SMALL, limit), (_LARGE, 1)):
        for table, key in tables:
            some = f"(SELECT {key} FROM {table} WHERE ranker = ? LIMIT {most})"
            if gone := connection.run(f"DELETE FROM {table} WHERE ranker = ? AND {key} IN {some}", name, name):
                return gone
    return connection.run("DELETE FROM graves WHERE ranker = ?", name)


def refuse(connection: Connection, name: str) -> None:
    """Raise if something is left of a deleted ranker called `name`: a new one would take it for its own."""
    if connection.row("SELECT ranker FROM graves WHERE ranker = ?", name) is not None:
        raise Conflict(
            f"the deleted ranker {name!r} has left rows that are still being deleted; try again in a minute, "
            "or take another name"
        )
