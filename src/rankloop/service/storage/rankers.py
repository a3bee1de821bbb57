"""The rankers of a store. A deleted ranker leaves a tombstone until its rows are deleted in batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rankloop.core.saved_parameters import current_learner
from rankloop.service.errors import Conflict
from rankloop.service.storage import lineage, snapshots
from rankloop.service.storage.database import Connection, Row, marks
from rankloop.wire.rankers import Spec

# What a ranker leaves beside its log, in (table, key) pairs. States may be large: one per transaction.
_SMALL = (("metric_history", "start"), ("experiments", "id"), ("rejected_events", "event_id"), ("event_counts", "day"))
_LARGE = (("versions", "version"), ("origins", "generation"), ("snapshots", "seq"), ("snapshot_chunks", "chunk"))
_RENAMED = {"catalogue": "catalog", "normalisation": "normalization"}  # fields of specs that commit a18f45f stored
_RANKER = "SELECT name, spec, created, epoch, generation, revision, learning, serving FROM rankers"


class Ranker(NamedTuple):
    """A ranker's row."""

    name: str
    spec: Spec
    created: float
    epoch: int
    generation: int
    revision: int
    learning: bool
    serving: int | None


def current_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec, or of the spec in a state, that an older version has stored, with today's names."""
    fields = {_RENAMED.get(name, name): value for name, value in fields.items()}
    learner, parameters = current_learner(fields.get("learner", ""), fields.get("parameters", {}))
    return {**fields, **({"learner": learner} if "learner" in fields else {}), "parameters": parameters}


def _ranker(row: Row) -> Ranker:
    name, spec, created, epoch, generation, revision, learning, serving = row
    decoded = msgspec.json.decode(spec, type=Spec)
    return Ranker(name, decoded, created, int(epoch), int(generation), int(revision), bool(learning), serving)


def list_rankers(connection: Connection) -> list[Ranker]:
    """Return all rankers by name."""
    return [_ranker(row) for row in connection.rows(f"{_RANKER} ORDER BY name")]


def get_ranker(connection: Connection, name: str, lock: bool = False) -> Ranker | None:
    """Return one ranker; with `lock`, no other process changes it until the transaction ends."""
    row = connection.row(f"{_RANKER} WHERE name = ?{connection.lock_rows if lock else ''}", name)
    return None if row is None else _ranker(row)


def revisions(connection: Connection) -> dict[str, int]:
    """Return the revision of each ranker: a cheap check for changes."""
    return {name: int(revision) for name, revision in connection.rows("SELECT name, revision FROM rankers")}


def revision(connection: Connection, name: str) -> int | None:
    """Return the revision of a ranker; None if there is none."""
    row = connection.row("SELECT revision FROM rankers WHERE name = ?", name)
    return None if row is None else int(row[0])


def add_ranker(connection: Connection, name: str, spec: Spec, state: bytes, now: float) -> bool:
    """Add a ranker with the state of a fresh learner; False if the name is taken."""
    # Counters start at the time, so that a ranker made again after its deletion differs from the one others remember.
    first = int(now * 1000)
    row = (name, msgspec.json.encode(spec), now, first, first, first, 1)
    columns = "name, spec, created, epoch, generation, revision, learning"
    if not connection.insert("rankers", columns, [row], "ON CONFLICT DO NOTHING RETURNING name"):
        return False
    # After the insert, which waits for a simultaneous deletion.
    if connection.row("SELECT ranker FROM tombstones WHERE ranker = ?", name) is not None:
        raise Conflict(
            f"rows of the deleted ranker {name!r} are still being deleted; try again in a minute, or use another name"
        )
    connection.run("INSERT INTO log_offsets (ranker, next_seq, next_number) VALUES (?, 0, 0)", name)
    snapshots.save_snapshot(connection, name, first, 0, state, now)
    lineage.begin_generation(connection, name, lineage.Origin(first, first, 0, state), now, lineage.Cause("made"))
    return True


def set_spec(connection: Connection, name: str, spec: Spec) -> None:
    """Store a changed spec."""
    sql = "UPDATE rankers SET spec = ?, revision = revision + 1 WHERE name = ?"
    connection.run(sql, msgspec.json.encode(spec), name)


def touch(connection: Connection, name: str) -> None:
    """Increase the revision, so that other processes reload the ranker."""
    connection.run("UPDATE rankers SET revision = revision + 1 WHERE name = ?", name)


def set_learning(connection: Connection, name: str, learning: bool) -> None:
    """Pause or resume learning."""
    connection.run("UPDATE rankers SET learning = ?, revision = revision + 1 WHERE name = ?", int(learning), name)


def set_serving(connection: Connection, name: str, version: int | None) -> None:
    """Serve a version, or the live model."""
    connection.run("UPDATE rankers SET serving = ?, revision = revision + 1 WHERE name = ?", version, name)


def delete_ranker(connection: Connection, name: str, now: float) -> bool:
    """Delete a ranker in one short transaction, and leave a tombstone; False if there was none."""
    if connection.run("DELETE FROM rankers WHERE name = ?", name) == 0:
        return False
    tables = "log_offsets leases quarantine webhook_outbox generations counters learning_loads state_deltas"
    for table in tables.split():
        connection.run(f"DELETE FROM {table} WHERE ranker = ?", name)
    connection.insert("tombstones", "ranker, since", [(name, now)], "ON CONFLICT DO NOTHING")
    return True


def delete_remains(connection: Connection, limit: int, name: str | None = None) -> int:
    """Delete up to `limit` rows of a deleted ranker, `name` or any; return 0 if there are none left."""
    # Locked: while the tombstone is there, no ranker of that name is added.
    one = "WHERE ranker = ?" if name is not None else "ORDER BY since LIMIT 1"
    tombstone = connection.row(f"SELECT ranker FROM tombstones {one}{connection.lock_rows}", *filter(None, [name]))
    if tombstone is None:
        return 0
    name = tombstone[0]
    # In the order of an index; otherwise each batch reads over what was deleted before.
    sql = f"SELECT id FROM impressions WHERE ranker = ? AND erase >= 0 ORDER BY created LIMIT {limit}"
    ids = [row[0] for row in connection.rows(sql, name)]
    if ids:
        connection.run(f"DELETE FROM events WHERE impression_id IN ({marks(ids)})", *ids)
        connection.run(f"DELETE FROM impressions WHERE id IN ({marks(ids)})", *ids)
        return len(ids)
    sql = f"SELECT seq, impression_id FROM outcomes WHERE ranker = ? ORDER BY seq LIMIT {limit}"
    if outcomes := connection.rows(sql, name):
        at_seq, seqs = connection.in_values([seq for seq, _ in outcomes])
        about, impressions = connection.in_values([own for _, own in outcomes])
        sql = f"DELETE FROM outcomes WHERE ranker = ? AND seq {at_seq} AND impression_id {about}"
        return connection.run(sql, name, *seqs, *impressions)
    for tables, most in ((_SMALL, limit), (_LARGE, 1)):
        for table, key in tables:
            some = f"(SELECT {key} FROM {table} WHERE ranker = ? LIMIT {most})"
            if deleted := connection.run(f"DELETE FROM {table} WHERE ranker = ? AND {key} IN {some}", name, name):
                return deleted
    return connection.run("DELETE FROM tombstones WHERE ranker = ?", name)
