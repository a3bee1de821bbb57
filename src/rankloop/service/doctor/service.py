"""Checks of the machine a service runs on, its settings, and its store."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rankloop.core import codec
from rankloop.core.errors import CodecError, InvalidParameter, RankloopError
from rankloop.service.doctor import Finding, State, with_remedy
from rankloop.service.ranking.feature_spec import catalog_warnings
from rankloop.service.settings import Settings, from_environment, is_loopback, unknown
from rankloop.service.storage import catalog, events, open_database, snapshots
from rankloop.service.storage import rankers as stored_rankers
from rankloop.service.storage.database import Connection, Database, Retryable, without_password
from rankloop.service.storage.schema import CURRENT, applied_steps
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.supervisor.run import bind
from rankloop.wire.calls import RejectedEvent

LITTLE_DISK = 2**30
NO_DISK = 64 * 2**20
LITTLE_MEMORY = 2**30
SLOW_SYNC = 0.05  # seconds
FEW_FILES = 1024
SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "ceph", "glusterfs", "lustre", "afs"}
RELEASED = 1_790_000_000  # seconds: no clock that is right says less
APART = 2.0  # seconds by which two clocks may differ
LARGE_LOG = 256 * 2**20  # bytes of write-ahead log
CHECKED = 4 * 2**30  # bytes; a larger file takes minutes to look through


def examine(
    environment: Mapping[str, str], store_url: str | None, host: str | None, port_number: int | None
) -> Iterator[Finding]:
    """All checks of a service with these settings."""
    yield from memory()
    yield from files()
    yield from clock()
    yield from settings(environment)
    try:
        chosen = from_environment(environment, store=store_url, host=host, port=port_number)
    except InvalidParameter as error:
        if store_url is not None or host is not None or port_number is not None:  # else `settings` has reported it
            yield with_remedy("options", "error", error, "give --store, --host and --port as for `rankloop serve`")
        return
    yield from port(chosen)
    yield from store(chosen)


def settings(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Variables that are unknown or invalid."""
    for name, remedy in unknown(environment):
        yield Finding("settings", "warning", f"{name} is set, which is no setting", remedy)
    try:
        from_environment(environment)
    except InvalidParameter as error:
        yield with_remedy("settings", "error", error)


def port(chosen: Settings) -> Iterator[Finding]:
    """Whether the port is free, or what uses it."""
    place = f"{chosen.host}:{chosen.port}"
    try:
        for one in bind(chosen):
            one.close()
        yield Finding("port", "ok", f"{place} is free")
    except InvalidParameter as error:
        if (found := _rankloop_at(chosen)) is not None:
            state: State = "ok" if found == "ready" else "warning"
            remedy = "" if state == "ok" else "look at its log"
            yield Finding("port", state, f"a rankloop serves {place}: {found}", remedy)
        else:
            yield with_remedy("port", "error", error)


def keys(chosen: Settings, stored: int = 0) -> Iterator[Finding]:
    """Whether the service would be open to others without a key."""
    if not is_loopback(chosen.host) and not chosen.keys and not stored:
        remedy = "create one: `rankloop keys create NAME --scopes admin`; `rankloop serve` refuses to start without"
        yield Finding("keys", "error", f"host is {chosen.host}, which others can reach, and there is no key", remedy)


def disk(folder: Path) -> Iterator[Finding]:
    """Whether the disk has space, supports SQLite, and syncs fast."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        yield Finding(
            "disk",
            "error",
            f"{there} cannot be written",
            "make it writable for the user that serves, or choose another --store",
        )
        return
    yield from room(shutil.disk_usage(there).free, there)
    kind = file_system(there)
    if kind in SHARED:
        remedy = "SQLite's log needs shared memory: use a local disk, or PostgreSQL"
        yield Finding("file system", "error", f"{there} is on {kind}, a network file system", remedy)
    yield from syncing(there)


def room(free: int, where: Path) -> Iterator[Finding]:
    """Whether the free space is enough."""
    said = f"{free / 2**30:,.1f} GB free at {where}"
    if free < NO_DISK:
        yield Finding("disk", "error", said, "make room: feedback is refused when nothing can be written")
    elif free < LITTLE_DISK:
        yield Finding("disk", "warning", said, "make room, or keep less: retention_days")
    else:
        yield Finding("disk", "ok", said)


def syncing(folder: Path, times: int = 10) -> Iterator[Finding]:
    """How long fsync takes: each feedback waits for it."""
    took = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(times):
                file.write(b"x" * 4096)
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - began)
    except OSError as error:
        remedy = "make room there, or give this user the right to write: feedback is refused until then"
        yield Finding("fsync", "error", f"nothing can be written to {folder}: {error.strerror or error}", remedy)
        return
    yield from sync_time(sorted(took)[times // 2])


def sync_time(seconds: float) -> Iterator[Finding]:
    """Whether fsync is fast enough."""
    said = f"a write is on the disk after {seconds * 1e3:.1f} ms"
    if seconds > SLOW_SYNC:
        yield Finding("fsync", "warning", said, "feedback waits for it: put the store on a faster disk")
    else:
        yield Finding("fsync", "ok", said)


def file_system(folder: Path, mounts: str | None = None) -> str:
    """The type of the file system of a folder; empty if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:
            return ""
    best = ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        if folder.absolute().is_relative_to(place) and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]


def memory(limit: int | None = None) -> Iterator[Finding]:
    """Whether there is enough memory for three processes of 200 MB and their models."""
    total = limit if limit is not None else _memory()
    if total is None:
        return
    said = f"{total / 2**30:,.1f} GB of memory"
    if total < LITTLE_MEMORY:
        yield Finding("memory", "warning", said, "give it 1 GB at least, or serve with RANKLOOP_LEARN_IN=thread")
    else:
        yield Finding("memory", "ok", said)


def files(limit: int | None = None) -> Iterator[Finding]:
    """Whether enough connections can be open at the same time."""
    if limit is None:
        try:
            import resource
        except ImportError:
            return
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit = FEW_FILES if limit == resource.RLIM_INFINITY else limit
    if limit < FEW_FILES:
        remedy = "raise it (`ulimit -Hn`, LimitNOFILE of systemd): each connection is one"
        yield Finding("files", "warning", f"a process may have {limit} files open", remedy)


def clock(now: float | None = None) -> Iterator[Finding]:
    """Whether the clock can be right."""
    now = time.time() if now is None else now
    if now < RELEASED:
        said = time.strftime("%Y-%m-%d", time.gmtime(now))
        yield Finding(
            "clock", "error", f"the clock says {said}", "set it: attribution windows, tokens and retention depend on it"
        )


def _memory() -> int | None:
    """Bytes that this process may use: of the machine, or of the container."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(place).read_text()))
    return min(found) if found else None


def _rankloop_at(chosen: Settings) -> str | None:
    """The status that a rankloop on the port reports; None if it is none."""
    host = "127.0.0.1" if chosen.host in ("0.0.0.0", "::") else chosen.host
    connection = http.client.HTTPConnection(host, chosen.port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        answer = json.loads(connection.getresponse().read())
        return str(answer.get("status")) if isinstance(answer, dict) and "status" in answer else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


# -- the store ------------------------------------------------------------------------------------------------------


def store(chosen: Settings) -> Iterator[Finding]:
    """Checks of the store that do not change it."""
    shown = without_password(chosen.store)
    try:
        database = open_database(chosen.store, time_limits=True)
    except InvalidParameter as error:
        yield with_remedy("store", "error", error)
        return
    try:
        if isinstance(database, SQLite):
            yield from disk(database.path.parent)
            if not (folder := database.path.parent).is_dir():
                remedy = "create it, or choose another one for --store"
                yield Finding("store", "error", f"{folder} is not a folder", remedy)
                return
            if not database.path.exists():
                yield Finding("store", "note", f"{shown} does not exist yet", "`rankloop serve` creates it")
                yield from keys(chosen)
                return
            yield from _file(database.path)
        yield from _contents(chosen, database, shown)
    except (RankloopError, Retryable, sqlite3.Error) as error:
        yield with_remedy("store", "error", f"{shown}: {error}", "check --store, and that the database runs")
    finally:
        database.close()


def _file(path: Path) -> Iterator[Finding]:
    """Whether the file is an intact SQLite database with a log of normal size."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        if path.stat().st_size <= CHECKED:
            ((said,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if said != "ok":
                remedy = "stop the service, keep the file, and recover what can be read: `sqlite3 FILE .recover`"
                yield Finding("store", "error", f"{path} is damaged: {said}", remedy)
    finally:
        connection.close()
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG:
        text = f"the write-ahead log is {log.stat().st_size / 2**20:,.0f} MB"
        yield Finding("store", "warning", text, "a program keeps a read transaction open: find it (`lsof`)")


def _contents(chosen: Settings, database: Database, shown: str) -> Iterator[Finding]:
    try:
        applied = database.read(applied_steps)
    except (sqlite3.Error, RankloopError) as error:
        if "no such table" not in str(error) and "does not exist" not in str(error):
            raise
        remedy = "give what `rankloop serve --store` has; a new database is filled at the first start"
        yield Finding("store", "note", f"{shown} holds nothing of rankloop", remedy)
        return
    if applied > CURRENT:
        yield Finding(
            "store", "error", f"{shown} was written by a later release", "install that release, or a newer one"
        )
        return
    if applied < CURRENT:
        text = f"{shown} is of an earlier release ({CURRENT - applied} steps behind)"
        yield Finding("store", "note", text, "copy it first; the next `rankloop serve` brings it up to date")
        return
    counted = "SELECT (SELECT COUNT(*) FROM rankers), (SELECT COUNT(*) FROM keys)"
    ((rankers, stored_keys),) = database.read(lambda connection: connection.rows(counted))
    yield Finding("store", "ok", f"{shown}: {rankers} ranker{'' if rankers == 1 else 's'}")
    yield from keys(chosen, int(stored_keys))
    yield from _clocks(database)
    yield from database.read(lambda connection: list(_rankers(connection)))
    yield from database.read(lambda connection: list(_events(connection, time.time())))
    yield from database.read(lambda connection: list(_catalogs(connection)))


def _clocks(database: Database) -> Iterator[Finding]:
    """Whether this clock and the store's agree: attribution windows depend on it."""
    if not isinstance(database, SQLite):
        sql = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"
        before = time.time()
        ((there,),) = database.read(lambda connection: connection.rows(sql))
        yield from apart((before + time.time()) / 2 - float(there), "the database's")
        return
    ((newest,),) = database.read(lambda connection: connection.rows("SELECT MAX(created) FROM impressions"))
    if newest is not None and float(newest) > time.time() + APART:
        yield from apart(time.time() - float(newest), "the newest list's")


def apart(seconds: float, whose: str) -> Iterator[Finding]:
    """Whether two clocks differ by too much."""
    if abs(seconds) > APART:
        text = f"this clock is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} {whose}"
        yield Finding("clock", "warning", text, "synchronize both (chrony, systemd-timesyncd)")


def _rankers(connection: Connection) -> Iterator[Finding]:
    """Quarantined, damaged and paused rankers."""
    for name, text in connection.rows("SELECT ranker, text FROM quarantine WHERE active = 1"):
        remedy = "fix the learner; it is tried again by itself within 10 minutes, or when the ranker changes"
        yield Finding("rankers", "warning", f"{name} is in quarantine: {text}", remedy)
    for one in stored_rankers.list_rankers(connection):
        snapshot = snapshots.snapshot(connection, one.name)
        damage = _damage(None if snapshot is None else snapshot.state)
        if damage:
            remedy = f"`POST /v1/rankers/{one.name}/rollback` to a version, or `rankloop replay` to rebuild it"
            yield Finding("rankers", "error", f"the state of {one.name} is damaged: {damage}", remedy)
        if one.serving is not None:
            found = snapshots.version_state(connection, one.name, one.serving)
            if damage := _damage(None if found is None else found[1]):
                remedy = (
                    f"`POST /v1/rankers/{one.name}/promote` another version, or `live`; the baseline ranking is shown "
                    "until then"
                )
                text = f"v{one.serving}, which {one.name} serves, is damaged: {damage}"
                yield Finding("rankers", "error", text, remedy)
        if not one.learning:
            remedy = f"`POST /v1/rankers/{one.name}/resume` when you want it to"
            yield Finding("rankers", "note", f"{one.name} is paused: feedback is kept and not learned", remedy)


def _events(connection: Connection, now: float) -> Iterator[Finding]:
    """Feedback events that were not accepted in the last days, and impressions that wait for a correction."""
    for name, one in events.event_counts(connection, now).items():
        rejected, late, orphan = (
            sum(getattr(day, kind) for day in one.days) for kind in ("rejected", "late", "orphan")
        )
        of = name or "unknown impressions"
        if rejected or one.needs_attention:
            last = "" if one.last_rejected is None else f"; the last was {_described(one.last_rejected)}"
            text = f"{of}: {rejected:,} events were rejected in the last {events.DAYS} days{last}"
            if one.needs_attention:
                text += f"; {one.needs_attention:,} impressions wait for a correction"
            remedy = "correct what sends them, and send the events again with the same event_id (docs/feedback.md)"
            yield Finding("feedback", "warning", text, remedy)
        if late:
            remedy = "make window_seconds longer, or send final later (docs/feedback.md)"
            yield Finding("feedback", "note", f"{of}: {late:,} events came late in the last days", remedy)
        if orphan:
            remedy = "send the impression_id of the answer; impressions go after the retention"
            yield Finding("feedback", "note", f"{orphan:,} events of the last days name unknown impressions", remedy)


def _described(one: RejectedEvent) -> str:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one.time))
    return f"event {one.event_id!r} on {when}: {one.reason}"


def _catalogs(connection: Connection) -> Iterator[Finding]:
    """Features that cannot be computed from the catalogs they read."""
    rankers = [one for one in stored_rankers.list_rankers(connection) if one.spec.catalog is not None]
    parts = catalog.by_name(connection) if rankers else {}
    for one in rankers:
        for text in catalog_warnings(one.spec, parts):
            yield with_remedy("catalogs", "warning", f"{one.name}: {text}")


def _damage(state: bytes | None) -> str:
    """What is wrong with a stored state; empty if nothing is."""
    if state is None:
        return "there is none"
    try:
        codec.loads(state, "state")
    except CodecError as error:
        return str(error)
    return ""
