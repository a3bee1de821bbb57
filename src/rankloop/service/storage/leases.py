"""The workers of a store, and the leases by which one of them learns each ranker.

Heartbeats are counters, not times, so clocks do not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rankloop.service.storage.database import Connection, marks


def list_leases(connection: Connection) -> dict[str, tuple[str, int]]:
    """Return (holder, heartbeat) of every lease."""
    rows = connection.rows("SELECT ranker, holder, heartbeat FROM leases")
    return {name: (holder, int(heartbeat)) for name, holder, heartbeat in rows}


def take_lease(connection: Connection, name: str, holder: str, before: tuple[str, int] | None) -> bool:
    """Take a ranker's lease if it is unchanged since it was read as `before` (None: no holder)."""
    if before is None:
        tail = "ON CONFLICT DO NOTHING RETURNING heartbeat"
        return bool(connection.insert("leases", "ranker, holder, heartbeat", [(name, holder, 0)], tail))
    sql = "UPDATE leases SET holder = ?, heartbeat = heartbeat + 1 WHERE ranker = ? AND holder = ? AND heartbeat = ?"
    return connection.run(sql, holder, name, *before) == 1


def heartbeat(
    connection: Connection, worker: str, machine: str, learns: bool, silent: Collection[str] = ()
) -> set[str]:
    """Write the heartbeat of a worker and of its leases, except those of `silent` rankers, which others may then take;
    return the rankers whose lease it holds."""
    connection.insert(
        "workers",
        "id, machine, heartbeat, learns",
        [(worker, machine, 0, int(learns))],
        "ON CONFLICT (id) DO UPDATE SET heartbeat = workers.heartbeat + 1",
    )
    but = f" AND ranker NOT IN ({marks(silent)})" if silent else ""
    sql = f"UPDATE leases SET heartbeat = heartbeat + 1 WHERE holder = ?{but} RETURNING ranker"
    return {row[0] for row in connection.rows(sql, worker, *silent)}


def release_all(connection: Connection, worker: str) -> None:
    """Release all leases of a worker, and remove it."""
    connection.run("DELETE FROM leases WHERE holder = ?", worker)
    connection.run("DELETE FROM workers WHERE id = ?", worker)


def release_lease(connection: Connection, name: str, worker: str) -> None:
    """Release one lease."""
    connection.run("DELETE FROM leases WHERE ranker = ? AND holder = ?", name, worker)


def list_workers(connection: Connection) -> dict[str, tuple[str, int, bool]]:
    """Return (machine, heartbeat, learns) of every worker."""
    rows = connection.rows("SELECT id, machine, heartbeat, learns FROM workers")
    return {name: (machine, int(count), bool(learns)) for name, machine, count, learns in rows}


def remove_worker(connection: Connection, worker: str, seen: int) -> None:
    """Remove a dead worker, if its heartbeat is still the one that was seen."""
    connection.run("DELETE FROM workers WHERE id = ? AND heartbeat = ?", worker, seen)


def save_loads(connection: Connection, loads: Mapping[str, float]) -> None:
    """Store the load of learning rankers, in shares of a core."""
    if loads:
        tail = "ON CONFLICT (ranker) DO UPDATE SET load = excluded.load"
        connection.insert("learning_loads", "ranker, load", list(loads.items()), tail)


def learning_loads(connection: Connection) -> dict[str, float]:
    """Return the stored load of each ranker."""
    return {name: float(load) for name, load in connection.rows("SELECT ranker, load FROM learning_loads")}
