"""The stored states of rankers: the last snapshot, versions, and deltas for ranking workers.

Functions of a connection inside a transaction. A large state is stored in `snapshot_chunks`, so that no single write
takes long. The column `chunks` counts them: 0, the state is in its row; AS_ORIGIN, it is the state that its generation
began with. A generation with an empty state began with that of the version it was rolled back to. So keeping, promoting
and rolling back write one row for any size of a state.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rankloop.service.storage import lineage
from rankloop.service.storage.database import Connection

LARGE = 2**20  # bytes of a state that is stored in chunks
CHUNKS_PER_READ = 16  # the time limit counts per statement
AS_ORIGIN = -1  # `chunks` of a state that is the one its generation began with


class Snapshot(NamedTuple):
    """The state after outcomes 0 … seq-1, where recovery starts."""

    seq: int
    generation: int
    state: bytes


class Version(NamedTuple):
    """A kept state, without its bytes."""

    version: int
    seq: int
    created: float
    note: str
    generation: int | None  # None: not recorded


class StoredState(NamedTuple):
    """The position of a state in the log, without its bytes."""

    kind: Literal["origin", "version", "snapshot"]
    seq: int  # outcomes 0 … seq-1 are in it
    generation: int | None
    epoch: int | None = None  # of an origin
    version: int | None = None  # of a version


class StateDelta(NamedTuple):
    """The change of a large state between two outcomes."""

    generation: int
    seq: int  # outcomes in the state afterwards
    base: int  # outcomes that must be in the state before, or more
    state: bytes


# -- snapshots -----------------------------------------------------------------------------------------------------


def _full_state(connection: Connection, name: str, generation: int, seq: int, state: bytes, chunks: int) -> bytes:
    """Return the state of a row, wherever it is stored."""
    if chunks == 0:
        return bytes(state)
    if chunks == AS_ORIGIN:
        return _origin_state(connection, name, generation) or b""
    where = "ranker = ? AND generation = ? AND seq = ? AND chunk >= ? AND chunk < ?"
    sql, found = f"SELECT state FROM snapshot_chunks WHERE {where} ORDER BY chunk", list[bytes]()
    for first in range(0, chunks, CHUNKS_PER_READ):
        rows = connection.rows(sql, name, generation, seq, first, min(first + CHUNKS_PER_READ, chunks))
        found += [bytes(row[0]) for row in rows]
    return b"".join(found)


def snapshot(connection: Connection, name: str) -> Snapshot | None:
    """Return the last snapshot of a ranker."""
    row = connection.row("SELECT seq, generation, state, chunks FROM snapshots WHERE ranker = ?", name)
    if row is None:
        return None
    seq, generation, state, chunks = row
    return Snapshot(int(seq), int(generation), _full_state(connection, name, generation, seq, state, chunks))


def snapshot_position(connection: Connection, name: str, lock: bool = False) -> tuple[int, int] | None:
    """Return (generation, seq) of a ranker's snapshot; with `lock` it stays until the transaction ends."""
    suffix = connection.lock_rows if lock else ""
    row = connection.row(f"SELECT generation, seq FROM snapshots WHERE ranker = ?{suffix}", name)
    return None if row is None else (int(row[0]), int(row[1]))


def snapshot_positions(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return (generation, seq) of every ranker's snapshot."""
    rows = connection.rows("SELECT ranker, generation, seq FROM snapshots")
    return {name: (int(generation), int(seq)) for name, generation, seq in rows}


def newest_chunk(connection: Connection, name: str) -> tuple[int, int] | None:
    """Return (seq, chunk) of the newest chunk of any snapshot, also of one that is being saved."""
    order = "ORDER BY generation DESC, seq DESC, chunk DESC LIMIT 1"
    row = connection.row(f"SELECT seq, chunk FROM snapshot_chunks WHERE ranker = ? {order}", name)
    return None if row is None else (int(row[0]), int(row[1]))


def save_chunk(connection: Connection, name: str, generation: int, seq: int, number: int, chunk: bytes) -> None:
    """Store a chunk of a large state; `save_snapshot` makes it a snapshot once all are there."""
    columns = "ranker, generation, seq, chunk, state"
    connection.insert("snapshot_chunks", columns, [(name, generation, seq, number, chunk)], "ON CONFLICT DO NOTHING")


def _has_lease(connection: Connection, name: str, holder: str) -> bool:
    lease = connection.row(f"SELECT holder FROM leases WHERE ranker = ?{connection.lock_rows}", name)
    return lease is not None and lease[0] == holder


def delete_partial(connection: Connection, name: str, generation: int, seq: int, holder: str, limit: int) -> int:
    """Delete chunks that a killed process left where a snapshot is to be saved; return how many, 0 if there are none or
    they belong to a snapshot."""
    if not _has_lease(connection, name, holder):
        return 0
    there = snapshot_position(connection, name, lock=True)
    if there is None or there >= (generation, seq):
        return 0
    return delete_chunks(connection, name, (generation, seq), limit)


def unused_chunks(connection: Connection, name: str) -> list[tuple[int, int]]:
    """Return (generation, seq) of chunks that no version uses and that are older than the snapshot."""
    last, found = snapshot_position(connection, name), list[tuple[int, int]]()
    rows = connection.rows("SELECT generation, seq FROM versions WHERE ranker = ? AND chunks > 0", name)
    used = {(int(generation), int(seq)) for generation, seq in rows}
    # From one position to the next: there may be two dozen, with a thousand chunks each.
    sql = (
        "SELECT generation, seq FROM snapshot_chunks WHERE ranker = ? AND (generation, seq) > (?, ?) "
        "ORDER BY generation, seq LIMIT 1"
    )
    at = (-1, -1)
    while last is not None and (row := connection.row(sql, name, *at)) is not None:
        at = (int(row[0]), int(row[1]))
        if at >= last:
            break
        if at not in used:
            found.append(at)
    return found


def delete_chunks(connection: Connection, name: str, at: tuple[int, int], limit: int) -> int:
    """Delete up to `limit` of the chunks at a (generation, seq); return how many."""
    where = "ranker = ? AND generation = ? AND seq = ?"
    some = f"(SELECT chunk FROM snapshot_chunks WHERE {where} ORDER BY chunk LIMIT {limit})"
    return connection.run(f"DELETE FROM snapshot_chunks WHERE {where} AND chunk IN {some}", name, *at, name, *at)


def save_snapshot(
    connection: Connection,
    name: str,
    generation: int,
    seq: int,
    state: bytes,
    now: float,
    chunks: int = 0,
    holder: str | None = None,
) -> bool:
    """Store a snapshot, unless the state was replaced meanwhile or the stored one is newer.

    The `state` is empty if it is stored in `chunks`. With a `holder`, the snapshot is stored only if it has the
    ranker's lease now: a process that resumes after a pause must not write behind the new holder.
    """
    current = connection.row(f"SELECT generation FROM rankers WHERE name = ?{connection.lock_rows}", name)
    if current is None or current[0] != generation:
        return False
    if holder is not None and not _has_lease(connection, name, holder):
        return False
    if chunks > 0:
        sql = "SELECT COUNT(*) FROM snapshot_chunks WHERE ranker = ? AND generation = ? AND seq = ? AND chunk < ?"
        if connection.rows(sql, name, generation, seq, chunks) != [(chunks,)]:
            return False
    return bool(
        connection.insert(
            "snapshots",
            "ranker, seq, generation, state, created, chunks",
            [(name, seq, generation, state, now, chunks)],
            "ON CONFLICT (ranker) DO UPDATE SET seq = excluded.seq, generation = excluded.generation, "
            "state = excluded.state, created = excluded.created, chunks = excluded.chunks "
            "WHERE excluded.generation > snapshots.generation OR excluded.seq > snapshots.seq RETURNING seq",
        )
    )


def replace_state(
    connection: Connection,
    name: str,
    state: bytes,
    now: float,
    *,
    reset: bool,
    carry: bool = False,
    cause: lineage.Cause | None = None,
) -> None:
    """Begin a new generation with another state (rollback, reset, change); an empty one is that of `cause.version`.

    A reset begins a new epoch: impressions of earlier ones are no longer learned. With `carry` a new epoch begins, too,
    but they are still learned, and a promoted version stays promoted.

    The new generation begins where the last snapshot ends, not at the end of the log. So every acknowledged outcome is
    either in that snapshot, which the caller keeps as a version, or is learned by the new generation.
    """
    others = ", serving = NULL" if not carry else ", carried = COALESCE(carried, epoch)"
    connection.run(
        "UPDATE rankers SET generation = generation + 1, epoch = epoch + ?, revision = revision + 1"
        f"{others}{', carried = NULL' if reset else ''} WHERE name = ?",
        int(reset or carry),
        name,
    )
    ((generation, epoch),) = connection.rows("SELECT generation, epoch FROM rankers WHERE name = ?", name)
    last = snapshot_position(connection, name, lock=True)
    assert last is not None  # every ranker has a snapshot from the start
    save_snapshot(connection, name, int(generation), last[1], state, now, 0 if state else AS_ORIGIN)
    if reset:  # events about earlier impressions are late from now on: none can be corrected
        connection.run("DELETE FROM rejected_events WHERE ranker = ?", name)
    cause = cause or (lineage.Cause("reset") if reset else lineage.Cause("rollback", base=None))
    if not carry:  # the scale of rewards belongs to the state: it is that of the version, or starts again
        kept = "SELECT v.reward_sketch FROM versions v WHERE v.ranker = log_offsets.ranker AND v.version = ?"
        connection.run(f"UPDATE log_offsets SET reward_sketch = ({kept}) WHERE ranker = ?", cause.version, name)
    origin = lineage.Origin(int(generation), int(epoch), last[1], state)
    lineage.begin_generation(connection, name, origin, now, cause)


# -- versions ------------------------------------------------------------------------------------------------------


def versions(connection: Connection, name: str) -> list[Version]:
    """Return all versions, the newest first."""
    sql = "SELECT version, seq, created, note, generation FROM versions WHERE ranker = ? ORDER BY version DESC"
    return [Version(*row) for row in connection.rows(sql, name)]


def version_state(connection: Connection, name: str, version: int) -> tuple[int, bytes] | None:
    """Return (seq, state) of a version."""
    sql = "SELECT seq, state, chunks, generation FROM versions WHERE ranker = ? AND version = ?"
    row = connection.row(sql, name, version)
    if row is None:
        return None
    seq, state, chunks, generation = row
    return int(seq), _full_state(connection, name, generation, seq, state, chunks)


def keep_version(
    connection: Connection,
    name: str,
    note: str,
    now: float,
    automatic: bool = False,
    at: tuple[int, int] | None = None,
) -> int | None:
    """Keep the last snapshot as a version; return its number, None if the snapshot is not `at` (generation, seq)."""
    # Locked, so that no other process adds a version, or replaces the snapshot and deletes its chunks.
    connection.row(f"SELECT 1 FROM rankers WHERE name = ?{connection.lock_rows}", name)
    there = snapshot_position(connection, name, lock=True)
    if there is None or (at is not None and there != at):
        return None
    ((number,),) = connection.rows("SELECT COALESCE(MAX(version), 0) + 1 FROM versions WHERE ranker = ?", name)
    sketch = "SELECT reward_sketch FROM log_offsets WHERE log_offsets.ranker = snapshots.ranker"
    connection.run(
        "INSERT INTO versions "
        "(ranker, version, seq, state, created, note, automatic, generation, chunks, reward_sketch) "
        f"SELECT ranker, ?, seq, state, ?, ?, ?, generation, chunks, ({sketch}) FROM snapshots WHERE ranker = ?",
        int(number),
        now,
        note,
        int(automatic),
        name,
    )
    return int(number)


def delete_old_versions(connection: Connection, name: str, keep: int) -> int:
    """Delete all but the newest `keep` automatic versions; never one that is promoted, in an experiment, or the origin
    of a generation."""
    return connection.run(
        "DELETE FROM versions WHERE ranker = ? AND automatic = 1 AND version NOT IN "
        "(SELECT version FROM versions WHERE ranker = ? AND automatic = 1 ORDER BY version DESC LIMIT ?) "
        "AND version NOT IN (SELECT serving FROM rankers WHERE name = ? AND serving IS NOT NULL) AND version NOT IN "
        "(SELECT version FROM experiments WHERE ranker = ? AND state = 'running' AND version IS NOT NULL) "
        "AND version NOT IN (SELECT g.version FROM generations g JOIN origins o ON o.ranker = g.ranker "
        "AND o.generation = g.generation WHERE g.ranker = ? AND g.version IS NOT NULL AND LENGTH(o.state) = 0)",
        name,
        name,
        keep,
        name,
        name,
        name,
    )


# -- all states ----------------------------------------------------------------------------------------------------


def stored_states(connection: Connection, name: str) -> list[StoredState]:
    """Return every stored state of a ranker: origins of generations, versions (the oldest first), the snapshot."""
    sql = "SELECT generation, epoch, seq FROM origins WHERE ranker = ? ORDER BY generation"
    found = [StoredState("origin", int(seq), int(g), int(epoch)) for g, epoch, seq in connection.rows(sql, name)]
    for one in reversed(versions(connection, name)):
        generation = None if one.generation is None else int(one.generation)
        found.append(StoredState("version", int(one.seq), generation, version=one.version))
    last = snapshot_position(connection, name)
    return found if last is None else [*found, StoredState("snapshot", last[1], last[0])]


def load_state(connection: Connection, name: str, one: StoredState) -> bytes | None:
    """Return the bytes of a stored state; None if it was deleted."""
    if one.kind == "origin":
        return _origin_state(connection, name, one.generation)
    if one.kind == "version":
        assert one.version is not None
        found = version_state(connection, name, one.version)
        return None if found is None else found[1]
    if snapshot_position(connection, name) != (one.generation, one.seq):
        return None
    last = snapshot(connection, name)
    return None if last is None else last.state


def _origin_state(connection: Connection, name: str, generation: int | None) -> bytes | None:
    """Return the state that a generation began with; None if it was deleted."""
    origin = "SELECT state FROM origins WHERE ranker = ? AND generation = ?"
    version = (
        "SELECT v.generation, v.seq, v.state, v.chunks FROM generations g JOIN versions v ON v.ranker = g.ranker "
        "AND v.version = g.version WHERE g.ranker = ? AND g.generation = ?"
    )
    while (row := connection.row(origin, name, generation)) is not None:
        if row[0]:
            return bytes(row[0])
        if (row := connection.row(version, name, generation)) is None:
            break
        generation, seq, state, chunks = row
        if chunks != AS_ORIGIN:
            return _full_state(connection, name, generation, seq, state, chunks)
    return None


# -- deltas --------------------------------------------------------------------------------------------------------


def add_delta(connection: Connection, name: str, new: StateDelta, holder: str) -> bool:
    """Add a delta for ranking workers, if `holder` has the ranker's lease."""
    if not _has_lease(connection, name, holder):
        return False
    columns = "ranker, generation, seq, base, state"
    connection.insert("state_deltas", columns, [(name, *new)], "ON CONFLICT DO NOTHING")
    return True


def deltas_from(connection: Connection, name: str, generation: int, learned: int) -> list[StateDelta]:
    """Return the deltas after so many outcomes, in order."""
    sql = "SELECT generation, seq, base, state FROM state_deltas WHERE ranker = ? AND generation = ? AND seq > ?"
    rows = connection.rows(f"{sql} ORDER BY seq", name, generation, learned)
    return [StateDelta(int(g), int(seq), int(base), bytes(state)) for g, seq, base, state in rows]


def newest_deltas(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return (generation, seq) of the newest delta of each ranker that has some."""
    rows = connection.rows("SELECT ranker, generation, MAX(seq) FROM state_deltas GROUP BY ranker, generation")
    return {name: (int(generation), int(seq)) for name, generation, seq in sorted(rows)}


def delete_old_deltas(connection: Connection, name: str, generation: int, seq: int) -> None:
    """Delete the deltas of up to so many outcomes, and of earlier generations."""
    sql = "DELETE FROM state_deltas WHERE ranker = ? AND (generation < ? OR (generation = ? AND seq <= ?))"
    connection.run(sql, name, generation, generation, seq)
