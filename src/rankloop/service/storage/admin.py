"""Everything beside the log and what was learned: rankers, leases and workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from rankloop.service.storage import lineage, states, tombstones
from rankloop.service.storage.database import Connection, Row, marks
from rankloop.service.storage.migrations import MIGRATIONS
from rankloop.wire.rankers import Spec


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


def stored_spec(text: bytes | str) -> Spec:
    """A stored spec; early releases stored `catalog` under its British spelling."""
    try:
        return msgspec.json.decode(text, type=Spec)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(text)
        return msgspec.convert({"catalog" if key == "catalogue" else key: fields[key] for key in fields}, Spec)


_RANKER = "SELECT name, spec, created, epoch, generation, revision, learning, serving FROM rankers"


def _ranker(row: Row) -> Ranker:
    name, spec, created, epoch, generation, revision, learning, serving = row
    return Ranker(name, stored_spec(spec), created, int(epoch), int(generation), int(revision), bool(learning), serving)


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


def _stored(spec: Spec) -> bytes:
    """A spec as JSON, which processes of an earlier release can read unless it declares a reward."""
    fields = msgspec.to_builtins(spec)
    if spec.reward is None:
        del fields["reward"]
    if spec.click_reward is None:
        del fields["click_reward"]
    return msgspec.json.encode(fields)


def add_ranker(connection: Connection, name: str, spec: Spec, state: bytes, now: float) -> bool:
    """Add a ranker, with the state of a learner that has learned nothing; False if the name is taken."""
    # Counted from the time it is made: a ranker deleted and made again must not look like the one others remember.
    first = int(now * 1000)
    row = (name, _stored(spec), now, first, first, first, 1)
    columns = "name, spec, created, epoch, generation, revision, learning"
    if not connection.insert("rankers", columns, [row], "ON CONFLICT DO NOTHING RETURNING name"):
        return False
    tombstones.refuse(connection, name)  # after the insert, which waits for whoever deletes one of this name just now
    connection.run("INSERT INTO heads (ranker, next_seq, next_number) VALUES (?, 0, 0)", name)
    states.save_snapshot(connection, name, first, 0, state, now)
    lineage.begin(connection, name, lineage.Origin(first, first, 0, state), now, lineage.Came("made"))
    return True


def change_spec(connection: Connection, name: str, spec: Spec) -> None:
    """Store a changed spec."""
    sql = "UPDATE rankers SET spec = ?, revision = revision + 1 WHERE name = ?"
    connection.run(sql, _stored(spec), name)


def touch(connection: Connection, name: str) -> None:
    """Let other processes look again: something that belongs to a ranker has changed."""
    connection.run("UPDATE rankers SET revision = revision + 1 WHERE name = ?", name)


def set_learning(connection: Connection, name: str, learning: bool) -> None:
    """Pause or resume."""
    connection.run("UPDATE rankers SET learning = ?, revision = revision + 1 WHERE name = ?", int(learning), name)


def set_serving(connection: Connection, name: str, version: int | None) -> None:
    """Serve a version, or live."""
    connection.run("UPDATE rankers SET serving = ?, revision = revision + 1 WHERE name = ?", version, name)


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


def beat(connection: Connection, worker: str, machine: str, learns: bool, silent: Collection[str] = ()) -> set[str]:
    """Say that `worker` lives; the rankers whose lease it holds. Beats are counted, not timed: clocks do not matter.

    For rankers that it is `silent` about it does not beat: whoever sees that may take their leases.
    """
    # `report` is not used: processes of earlier releases wrote their metrics there.
    connection.run(
        "INSERT INTO workers (id, machine, beat, learns, report, knows) VALUES (?, ?, 0, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET beat = workers.beat + 1",
        worker,
        machine,
        int(learns),
        b"",
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


def forget_worker(connection: Connection, worker: str, seen_beat: int) -> None:
    """Strike a dead worker off the list."""
    connection.run("DELETE FROM workers WHERE id = ? AND beat = ?", worker, seen_beat)
