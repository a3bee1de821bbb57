"""What rankers know, as it is kept: the last snapshot, versions, and the parts of large ones. Inside a transaction."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.store import lineage
from rankloop.service.store.database import Connection


class Snapshot(NamedTuple):
    """Where recovery starts: the state after outcomes 0 … seq-1."""

    seq: int
    generation: int
    state: bytes


class Version(NamedTuple):
    """A kept state, without its bytes."""

    version: int
    seq: int
    created: float
    note: str
    generation: int | None  # None: an earlier release kept it


class Kept(NamedTuple):
    """A version with what replay needs of it; `generation` is None if an earlier release kept it."""

    version: int
    seq: int
    generation: int | None
    state: bytes


def together(connection: Connection, name: str, generation: int, seq: int) -> bytes:
    """A state that is kept in `snapshot_parts`."""
    sql = "SELECT state FROM snapshot_parts WHERE ranker = ? AND generation = ? AND seq = ? ORDER BY part"
    return b"".join(bytes(part[0]) for part in connection.rows(sql, name, generation, seq))


def snapshot(connection: Connection, name: str) -> Snapshot | None:
    """The last snapshot of a ranker."""
    row = connection.row("SELECT seq, generation, state, parts FROM snapshots WHERE ranker = ?", name)
    if row is None:
        return None
    seq, generation, state, parts = row
    if parts:
        state = together(connection, name, generation, seq)
    return Snapshot(int(seq), int(generation), bytes(state))


def place(connection: Connection, name: str, keep: bool = False) -> tuple[int, int] | None:
    """(generation, seq) of one ranker's snapshot, without the bytes; with `keep` nobody replaces it before the end of
    the transaction."""
    lock = connection.lock_rows if keep else ""
    row = connection.row(f"SELECT generation, seq FROM snapshots WHERE ranker = ?{lock}", name)
    return None if row is None else (int(row[0]), int(row[1]))


def save_part(connection: Connection, name: str, generation: int, seq: int, number: int, part: bytes) -> None:
    """Keep a part of a large state, which `save_snapshot` makes a snapshot once all are there: to write a hundred
    megabytes at once would keep everyone else from writing for as long as that takes."""
    columns = "ranker, generation, seq, part, state"
    connection.insert("snapshot_parts", columns, [(name, generation, seq, number, part)], "ON CONFLICT DO NOTHING")


def drop_parts(connection: Connection, name: str, limit: int) -> int:
    """Delete some parts that are of no version and no snapshot, nor of one under way: older than the one there is."""
    old = "(SELECT s.generation FROM snapshots s WHERE s.ranker = p.ranker)"
    seq = "(SELECT s.seq FROM snapshots s WHERE s.ranker = p.ranker)"
    sql = (
        f"SELECT p.generation, p.seq, p.part FROM snapshot_parts p WHERE p.ranker = ? "
        f"AND (p.generation < {old} OR (p.generation = {old} AND p.seq < {seq})) "
        "AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.ranker = p.ranker AND v.generation = p.generation "
        f"AND v.seq = p.seq AND v.parts > 0) LIMIT {limit}"
    )
    found = connection.rows(sql, name)
    sql = "DELETE FROM snapshot_parts WHERE ranker = ? AND generation = ? AND seq = ? AND part = ?"
    connection.many(sql, [(name, *row) for row in found])
    return len(found)


def snapshot_seqs(connection: Connection) -> dict[str, tuple[int, int]]:
    """(generation, seq) of every ranker's snapshot, without the bytes."""
    rows = connection.rows("SELECT ranker, generation, seq FROM snapshots")
    return {name: (int(generation), int(seq)) for name, generation, seq in rows}


def save_snapshot(
    connection: Connection,
    name: str,
    generation: int,
    seq: int,
    state: bytes,
    now: float,
    parts: int = 0,
    holder: str | None = None,
) -> bool:
    """Keep a snapshot, unless it is of a state that was replaced meanwhile, or an older one. Of a state that is kept in
    `parts`, `state` is empty.

    With a `holder`, nothing is kept either unless it has the ranker's lease at this moment: whoever was stopped in the
    middle of something and goes on as if nothing had been must not write behind the back of the one who learns now.
    Both fold the same log into the same bits, but what is passed over may have been decided meanwhile.
    """
    current = connection.row(f"SELECT generation FROM rankers WHERE name = ?{connection.lock_rows}", name)
    if current is None or current[0] != generation:
        return False
    if holder is not None:
        lease = connection.row(f"SELECT holder FROM leases WHERE ranker = ?{connection.lock_rows}", name)
        if lease is None or lease[0] != holder:
            return False
    return bool(
        connection.rows(
            "INSERT INTO snapshots (ranker, seq, generation, state, created, parts) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (ranker) DO UPDATE SET seq = excluded.seq, generation = excluded.generation, "
            "state = excluded.state, created = excluded.created, parts = excluded.parts "
            "WHERE excluded.generation > snapshots.generation OR excluded.seq > snapshots.seq RETURNING seq",
            name,
            seq,
            generation,
            state,
            now,
            parts,
        )
    )


def replace_state(
    connection: Connection, name: str, state: bytes, now: float, *, reset: bool, came: lineage.Came | None = None
) -> None:
    """Put another state in the place of what was learned (rollback, reset); the fold goes on from there. `came` says
    more about it than that."""
    connection.run(
        "UPDATE rankers SET generation = generation + 1, epoch = epoch + ?, revision = revision + 1, serving = NULL "
        "WHERE name = ?",
        int(reset),
        name,
    )
    ((generation, epoch),) = connection.rows("SELECT generation, epoch FROM rankers WHERE name = ?", name)
    sql = f"SELECT next_seq FROM heads WHERE ranker = ?{connection.lock_rows}"
    ((seq,),) = connection.rows(sql, name)
    save_snapshot(connection, name, int(generation), int(seq), state, now)
    came = came or (lineage.Came("reset") if reset else lineage.Came("rollback", base=None))
    lineage.begin(connection, name, lineage.Origin(int(generation), int(epoch), int(seq), state), now, came)


def versions(connection: Connection, name: str) -> list[Version]:
    """All kept versions, the newest first."""
    sql = "SELECT version, seq, created, note, generation FROM versions WHERE ranker = ? ORDER BY version DESC"
    return [Version(*row) for row in connection.rows(sql, name)]


def version_state(connection: Connection, name: str, version: int) -> tuple[int, bytes] | None:
    """(seq, state) of a version."""
    sql = "SELECT seq, state, parts, generation FROM versions WHERE ranker = ? AND version = ?"
    row = connection.row(sql, name, version)
    if row is None:
        return None
    seq, state, parts, generation = row
    return int(seq), together(connection, name, generation, seq) if parts else bytes(state)


def keep_version(
    connection: Connection,
    name: str,
    seq: int,
    state: bytes,
    note: str,
    now: float,
    automatic: bool = False,
    generation: int | None = None,
    parts: int = 0,
) -> int:
    """Add a version; its number. `generation` is the ranker's present one, if not given. Of a state that was saved in
    `parts`, `state` is empty: they stay for as long as the version does."""
    owner = connection.row(f"SELECT generation FROM rankers WHERE name = ?{connection.lock_rows}", name)
    if generation is None and owner is not None:
        generation = int(owner[0])
    row = connection.row("SELECT COALESCE(MAX(version), 0) + 1 FROM versions WHERE ranker = ?", name)
    number = int(row[0]) if row else 1
    columns = "ranker, version, seq, state, created, note, automatic, generation, parts"
    connection.insert("versions", columns, [(name, number, seq, state, now, note, int(automatic), generation, parts)])
    return number


def drop_old_versions(connection: Connection, name: str, keep: int) -> int:
    """Delete all but the newest `keep` versions that were made automatically; never one that is served or tried."""
    return connection.run(
        "DELETE FROM versions WHERE ranker = ? AND automatic = 1 AND version NOT IN "
        "(SELECT version FROM versions WHERE ranker = ? AND automatic = 1 ORDER BY version DESC LIMIT ?) "
        "AND version NOT IN (SELECT serving FROM rankers WHERE name = ? AND serving IS NOT NULL) AND version NOT IN "
        "(SELECT version FROM experiments WHERE ranker = ? AND state = 'running' AND version IS NOT NULL)",
        name,
        name,
        keep,
        name,
        name,
    )


def kept(connection: Connection, name: str) -> list[Kept]:
    """All versions with their states, the oldest first."""
    sql = "SELECT version, seq, generation, state, parts FROM versions WHERE ranker = ? ORDER BY version"
    found = []
    for version, seq, generation, state, parts in connection.rows(sql, name):
        whole = together(connection, name, generation, seq) if parts else bytes(state)
        found.append(Kept(int(version), int(seq), None if generation is None else int(generation), whole))
    return found
