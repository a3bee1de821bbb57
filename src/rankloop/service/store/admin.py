"""Everything beside the log: rankers, snapshots, versions, leases and workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from rankloop.service.store import graves, lineage
from rankloop.service.store.database import Connection, Row, marks
from rankloop.service.store.migrations import MIGRATIONS
from rankloop.service.store.published import together
from rankloop.service.wire.rankers import Spec


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


_RANKER = "SELECT name, spec, created, epoch, generation, revision, learning, serving FROM rankers"


def _ranker(row: Row) -> Ranker:
    name, spec, created, epoch, generation, revision, learning, serving = row
    decoded = msgspec.json.decode(spec, type=Spec)
    return Ranker(name, decoded, created, int(epoch), int(generation), int(revision), bool(learning), serving)


def rankers(connection: Connection) -> list[Ranker]:
    """All rankers by name."""
    return [_ranker(row) for row in connection.rows(f"{_RANKER} ORDER BY name")]


def ranker(connection: Connection, name: str, lock: bool = False) -> Ranker | None:
    """One ranker; with `lock`, no one else changes it until the transaction ends."""
    row = connection.row(f"{_RANKER} WHERE name = ?{connection.lock_rows if lock else ''}", name)
    return None if row is None else _ranker(row)


def revisions(connection: Connection) -> dict[str, int]:
    """A cheap look at whether any ranker has changed."""
    return {name: int(revision) for name, revision in connection.rows("SELECT name, revision FROM rankers")}


def revision(connection: Connection, name: str) -> int | None:
    """The same of one ranker; None if there is none."""
    row = connection.row("SELECT revision FROM rankers WHERE name = ?", name)
    return None if row is None else int(row[0])


def add_ranker(connection: Connection, name: str, spec: Spec, state: bytes, now: float) -> bool:
    """Add a ranker, with the state of a learner that has learned nothing; False if the name is taken."""
    # Counted from the time it is made: a ranker deleted and made again must not look like the one others remember.
    first = int(now * 1000)
    row = (name, msgspec.json.encode(spec), now, first, first, first, 1)
    columns = "name, spec, created, epoch, generation, revision, learning"
    if not connection.insert("rankers", columns, [row], "ON CONFLICT DO NOTHING RETURNING name"):
        return False
    graves.refuse(connection, name)  # after the insert, which waits for whoever deletes one of this name just now
    connection.run("INSERT INTO heads (ranker, next_seq, next_number) VALUES (?, 0, 0)", name)
    save_snapshot(connection, name, first, 0, state, now)
    lineage.begin(connection, name, lineage.Origin(first, first, 0, state), now, lineage.Came("made"))
    return True


def change_spec(connection: Connection, name: str, spec: Spec) -> None:
    """Store a changed spec."""
    sql = "UPDATE rankers SET spec = ?, revision = revision + 1 WHERE name = ?"
    connection.run(sql, msgspec.json.encode(spec), name)


def touch(connection: Connection, name: str) -> None:
    """Let other processes look again: something that belongs to a ranker has changed."""
    connection.run("UPDATE rankers SET revision = revision + 1 WHERE name = ?", name)


def set_learning(connection: Connection, name: str, learning: bool) -> None:
    """Pause or resume."""
    connection.run("UPDATE rankers SET learning = ?, revision = revision + 1 WHERE name = ?", int(learning), name)


def set_serving(connection: Connection, name: str, version: int | None) -> None:
    """Serve a version, or live."""
    connection.run("UPDATE rankers SET serving = ?, revision = revision + 1 WHERE name = ?", version, name)


# -- snapshots and versions ----------------------------------------------------------------------------------------


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
    owner = ranker(connection, name, lock=True)
    if generation is None and owner is not None:
        generation = owner.generation
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


# -- leases and workers --------------------------------------------------------------------------------------------


def leases(connection: Connection) -> dict[str, tuple[str, int]]:
    """(holder, beat) of every lease."""
    return {name: (holder, int(beat)) for name, holder, beat in connection.rows("SELECT * FROM leases")}


def take_lease(connection: Connection, name: str, holder: str, before: tuple[str, int] | None) -> bool:
    """Take a ranker's lease if it is still as it was seen `before` (None: nobody's)."""
    if before is None:
        row = (name, holder, 0)
        return bool(connection.insert("leases", "ranker, holder, beat", [row], "ON CONFLICT DO NOTHING RETURNING beat"))
    sql = "UPDATE leases SET holder = ?, beat = beat + 1 WHERE ranker = ? AND holder = ? AND beat = ?"
    return connection.run(sql, holder, name, *before) == 1


def beat(
    connection: Connection, worker: str, machine: str, learns: bool, report: bytes, silent: Collection[str] = ()
) -> set[str]:
    """Say that `worker` lives; the rankers whose lease it holds. Beats are counted, not timed: clocks do not matter.

    For rankers that it is `silent` about it does not beat: whoever sees that may take their leases.
    """
    connection.run(
        "INSERT INTO workers (id, machine, beat, learns, report, knows) VALUES (?, ?, 0, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET beat = workers.beat + 1, report = excluded.report",
        worker,
        machine,
        int(learns),
        report,
        len(MIGRATIONS),
    )
    but = f" AND ranker NOT IN ({marks(silent)})" if silent else ""
    rows = connection.rows(f"UPDATE leases SET beat = beat + 1 WHERE holder = ?{but} RETURNING ranker", worker, *silent)
    return {row[0] for row in rows}


def release(connection: Connection, worker: str) -> None:
    """Give up all leases and leave the list of workers."""
    connection.run("DELETE FROM leases WHERE holder = ?", worker)
    connection.run("DELETE FROM workers WHERE id = ?", worker)


def release_lease(connection: Connection, name: str, worker: str) -> None:
    """Give up one lease."""
    connection.run("DELETE FROM leases WHERE ranker = ? AND holder = ?", name, worker)


def workers(connection: Connection) -> dict[str, tuple[str, int, bool]]:
    """(machine, beat, learns) of every worker."""
    rows = connection.rows("SELECT id, machine, beat, learns FROM workers")
    return {name: (machine, int(beat), bool(learns)) for name, machine, beat, learns in rows}


def reports(connection: Connection, machine: str) -> dict[str, bytes]:
    """The metrics of all workers of a machine."""
    rows = connection.rows("SELECT id, report FROM workers WHERE machine = ?", machine)
    return {name: bytes(report) for name, report in rows}


def forget_worker(connection: Connection, worker: str, seen_beat: int) -> None:
    """Strike a dead worker off the list."""
    connection.run("DELETE FROM workers WHERE id = ? AND beat = ?", worker, seen_beat)
