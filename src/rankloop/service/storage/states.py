"""What rankers know, as it is kept: the last snapshot, versions, and what each generation began with. Inside a
transaction.

A state lies in its row or, if it is large, elsewhere: a hundred megabytes in one write would keep everyone else from
writing for as long as that takes. `parts` of a row says where: 0, in the row; a number, in so many `snapshot_parts`,
written before it one by one; AS_BEGUN, it is what its generation began with. A generation whose own state is empty
began with that of the version that was gone back to, which stays for it. So to keep a version, to promote one and to go
back to one is to write a row, however much the ranker knows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rankloop.service.storage import lineage
from rankloop.service.storage.database import Connection
from rankloop.service.storage.schema import alone


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


class Stored(NamedTuple):
    """Where in the log a state belongs, without its bytes."""

    kind: Literal["origin", "version", "snapshot"]
    seq: int  # outcomes 0 … seq-1 are in it
    generation: int | None  # None: an earlier release kept it
    epoch: int | None = None  # of an origin
    version: int | None = None  # of a version


LARGE = 2**20  # bytes of a state that does not lie in its row
AT_ONCE = 16  # parts that one statement reads: the time limit is one of statements, however large the state is
AS_BEGUN = -1  # `parts` of a state that is the one its generation began with


def _whole(connection: Connection, name: str, generation: int, seq: int, state: bytes, parts: int) -> bytes:
    """A row's state, wherever it lies."""
    if parts == 0:
        return bytes(state)
    if parts == AS_BEGUN:
        return _begun_with(connection, name, generation) or b""
    where = "ranker = ? AND generation = ? AND seq = ? AND part >= ? AND part < ?"
    sql, found = f"SELECT state FROM snapshot_parts WHERE {where} ORDER BY part", list[bytes]()
    for first in range(0, parts, AT_ONCE):
        rows = connection.rows(sql, name, generation, seq, first, min(first + AT_ONCE, parts))
        found += [bytes(row[0]) for row in rows]
    return b"".join(found)


def snapshot(connection: Connection, name: str) -> Snapshot | None:
    """The last snapshot of a ranker."""
    row = connection.row("SELECT seq, generation, state, parts FROM snapshots WHERE ranker = ?", name)
    if row is None:
        return None
    seq, generation, state, parts = row
    return Snapshot(int(seq), int(generation), _whole(connection, name, generation, seq, state, parts))


def place(connection: Connection, name: str, keep: bool = False) -> tuple[int, int] | None:
    """(generation, seq) of one ranker's snapshot, without the bytes; with `keep` nobody replaces it before the end of
    the transaction."""
    lock = connection.lock_rows if keep else ""
    row = connection.row(f"SELECT generation, seq FROM snapshots WHERE ranker = ?{lock}", name)
    return None if row is None else (int(row[0]), int(row[1]))


def progress(connection: Connection, name: str) -> tuple[int, int] | None:
    """(seq, part) of the newest part of any snapshot, also of one that is being saved."""
    sql = "SELECT seq, part FROM snapshot_parts WHERE ranker = ? ORDER BY generation DESC, seq DESC, part DESC LIMIT 1"
    row = connection.row(sql, name)
    return None if row is None else (int(row[0]), int(row[1]))


def save_part(connection: Connection, name: str, generation: int, seq: int, number: int, part: bytes) -> None:
    """Keep a part of a large state, which `save_snapshot` makes a snapshot once all are there."""
    columns = "ranker, generation, seq, part, state"
    connection.insert("snapshot_parts", columns, [(name, generation, seq, number, part)], "ON CONFLICT DO NOTHING")


def make_room(connection: Connection, name: str, generation: int, seq: int, holder: str, limit: int) -> int:
    """Delete some parts that lie where a snapshot is to be saved: of whoever was killed in the middle of saving it,
    perhaps of a release that cuts states otherwise. How many; 0 if there are none, or they are of a snapshot."""
    lease = connection.row(f"SELECT holder FROM leases WHERE ranker = ?{connection.lock_rows}", name)
    there = place(connection, name, keep=True)
    if lease is None or lease[0] != holder or there is None or there >= (generation, seq):
        return 0
    return drop_parts(connection, name, (generation, seq), limit)


def old_places(connection: Connection, name: str) -> list[tuple[int, int]]:
    """(generation, seq) of parts that are of no version and no snapshot, nor of one under way: older than the one there
    is. They stay so: only the last snapshot becomes a version."""
    last, found = place(connection, name), list[tuple[int, int]]()
    rows = connection.rows("SELECT generation, seq FROM versions WHERE ranker = ? AND parts > 0", name)
    pinned = {(int(generation), int(seq)) for generation, seq in rows}
    # From one place to the next: there may be two dozen, with a thousand parts each.
    sql = (
        "SELECT generation, seq FROM snapshot_parts WHERE ranker = ? AND (generation, seq) > (?, ?) "
        "ORDER BY generation, seq LIMIT 1"
    )
    at = (-1, -1)
    while last is not None and (row := connection.row(sql, name, *at)) is not None:
        at = (int(row[0]), int(row[1]))
        if at >= last:
            break
        if at not in pinned:
            found.append(at)
    return found


def drop_parts(connection: Connection, name: str, at: tuple[int, int], limit: int) -> int:
    """Delete some of the parts that lie at one of the `old_places`; how many."""
    where = "ranker = ? AND generation = ? AND seq = ?"
    some = f"(SELECT part FROM snapshot_parts WHERE {where} ORDER BY part LIMIT {limit})"
    return connection.run(f"DELETE FROM snapshot_parts WHERE {where} AND part IN {some}", name, *at, name, *at)


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
    """Keep a snapshot, unless it is of a state that was replaced meanwhile, or an older one. Of a state that does not
    lie in its row (`parts`), `state` is empty.

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
    if parts > 0:
        sql = "SELECT COUNT(*) FROM snapshot_parts WHERE ranker = ? AND generation = ? AND seq = ? AND part < ?"
        if connection.rows(sql, name, generation, seq, parts) != [(parts,)]:
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
    connection: Connection,
    name: str,
    state: bytes,
    now: float,
    *,
    reset: bool,
    carry: bool = False,
    came: lineage.Came | None = None,
) -> None:
    """Begin a new generation with another state (rollback, reset, change). `came` describes how it came about. An empty
    state stands for that of the version that `came` names.

    A reset begins a new epoch, and impressions of earlier ones are not learned any more. With `carry` a new epoch
    begins, too, but they are still learned, and a promoted version stays promoted: both carry over to a changed spec.

    The new generation begins where the last snapshot ends, not at the head of the log. So every acknowledged outcome is
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
    last = place(connection, name, keep=True)
    assert last is not None  # every ranker has a snapshot from the start
    save_snapshot(connection, name, int(generation), last[1], state, now, 0 if state else AS_BEGUN)
    if reset:  # what is reported about rankings shown before is late from now on: nothing can be corrected
        connection.run("DELETE FROM attention WHERE ranker = ?", name)
    came = came or (lineage.Came("reset") if reset else lineage.Came("rollback", base=None))
    if not carry:  # the scale of rewards belongs to what was learned: it starts again, or is that of the version
        kept = "SELECT v.rewards FROM versions v WHERE v.ranker = heads.ranker AND v.version = ?"
        connection.run(f"UPDATE heads SET rewards = ({kept}) WHERE ranker = ?", came.version, name)
    lineage.begin(connection, name, lineage.Origin(int(generation), int(epoch), last[1], state), now, came)


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
    return int(seq), _whole(connection, name, generation, seq, state, parts)


def keep_version(
    connection: Connection,
    name: str,
    note: str,
    now: float,
    automatic: bool = False,
    at: tuple[int, int] | None = None,
) -> int | None:
    """Keep the last snapshot as a version; its number. What does not lie in the snapshot's row stays where it is,
    unless earlier releases may still run, which would not find it.

    None if the last snapshot is not the one of `at` (generation, seq), where that is given.
    """
    # Nobody else adds one, nor replaces the snapshot and deletes its parts before it is seen that they are a version's.
    connection.row(f"SELECT 1 FROM rankers WHERE name = ?{connection.lock_rows}", name)
    there = place(connection, name, keep=True)
    if there is None or (at is not None and there != at):
        return None
    ((number,),) = connection.rows("SELECT COALESCE(MAX(version), 0) + 1 FROM versions WHERE ranker = ?", name)
    columns = "ranker, version, seq, state, created, note, automatic, generation, parts, rewards"
    rewards = "SELECT rewards FROM heads WHERE heads.ranker = snapshots.ranker"
    if not alone(connection):
        whole = snapshot(connection, name)
        assert whole is not None
        row = (name, int(number), whole.seq, whole.state, now, note, int(automatic), whole.generation, 0, None)
        connection.insert("versions", columns, [row])
        return int(number)
    connection.run(
        f"INSERT INTO versions ({columns}) "
        f"SELECT ranker, ?, seq, state, ?, ?, ?, generation, parts, ({rewards}) FROM snapshots WHERE ranker = ?",
        int(number),
        now,
        note,
        int(automatic),
        name,
    )
    return int(number)


def drop_old_versions(connection: Connection, name: str, keep: int) -> int:
    """Delete all but the newest `keep` versions that were made automatically; never one that is served or tried, nor
    one whose state a generation has for its own."""
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


# -- all of them ---------------------------------------------------------------------------------------------------


def stored(connection: Connection, name: str) -> list[Stored]:
    """Every state there is of a ranker: where its generations began, its versions, the oldest first, the snapshot."""
    sql = "SELECT generation, epoch, seq FROM origins WHERE ranker = ? ORDER BY generation"
    found = [Stored("origin", int(seq), int(g), int(epoch)) for g, epoch, seq in connection.rows(sql, name)]
    for one in reversed(versions(connection, name)):
        generation = None if one.generation is None else int(one.generation)
        found.append(Stored("version", int(one.seq), generation, version=one.version))
    last = place(connection, name)
    return found if last is None else [*found, Stored("snapshot", last[1], last[0])]


def state_of(connection: Connection, name: str, one: Stored) -> bytes | None:
    """Its bytes; None if it is not there any more."""
    if one.kind == "origin":
        return _begun_with(connection, name, one.generation)
    if one.kind == "version":
        assert one.version is not None
        found = version_state(connection, name, one.version)
        return None if found is None else found[1]
    if place(connection, name) != (one.generation, one.seq):
        return None
    last = snapshot(connection, name)
    return None if last is None else last.state


def _begun_with(connection: Connection, name: str, generation: int | None) -> bytes | None:
    """What a generation began with; None if it is not there any more."""
    origin = "SELECT state FROM origins WHERE ranker = ? AND generation = ?"
    version = (
        "SELECT v.generation, v.seq, v.state, v.parts FROM generations g JOIN versions v ON v.ranker = g.ranker "
        "AND v.version = g.version WHERE g.ranker = ? AND g.generation = ?"
    )
    while (row := connection.row(origin, name, generation)) is not None:
        if row[0]:
            return bytes(row[0])
        if (row := connection.row(version, name, generation)) is None:
            break
        generation, seq, state, parts = row
        if parts != AS_BEGUN:
            return _whole(connection, name, generation, seq, state, parts)
    return None
