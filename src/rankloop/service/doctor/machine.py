"""The machine a service would run on: its port, disk, memory, limits and clock; and the settings it would find."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rankloop.core.errors import InvalidParameter
from rankloop.service.doctor.finding import Finding, State
from rankloop.service.settings import Settings, from_environment, is_loopback, unknown
from rankloop.service.supervisor import listening

LITTLE_DISK = 2**30
NO_DISK = 64 * 2**20
LITTLE_MEMORY = 2**30
SLOW_SYNC = 0.05  # seconds
FEW_FILES = 1024
SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "ceph", "glusterfs", "lustre", "afs"}
RELEASED = 1_790_000_000  # seconds: no clock that is right says less


def settings(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Variables that mean nothing, or that cannot be read."""
    for name, remedy in unknown(environment):
        yield Finding("settings", "warning", f"{name} is set, which is no setting", remedy)
    try:
        from_environment(environment)
    except InvalidParameter as error:
        yield Finding("settings", "trouble", str(error).partition(";")[0], str(error).partition("; ")[2])


def port(chosen: Settings) -> Iterator[Finding]:
    """Whether the port can be had, or who has it."""
    place = f"{chosen.host}:{chosen.port}"
    try:
        for one in listening.taken(chosen):
            one.close()
        yield Finding("port", "fine", f"{place} is free")
    except InvalidParameter as error:
        text, _, remedy = str(error).partition("; ")
        if (found := _rankloop_at(chosen)) is not None:
            state: State = "fine" if found == "ready" else "warning"
            yield Finding(
                "port", state, f"a rankloop serves {place}: {found}", "" if state == "fine" else "look at its log"
            )
        else:
            yield Finding("port", "trouble", text, remedy)


def keys(chosen: Settings, stored: int = 0) -> Iterator[Finding]:
    """Whether anybody could change rankers who should not."""
    if not is_loopback(chosen.host) and not chosen.keys and not stored:
        remedy = "make one: `rankloop keys create NAME --scopes admin`; `rankloop serve` refuses to start without"
        yield Finding("keys", "trouble", f"host is {chosen.host}, which others can reach, and there is no key", remedy)


def disk(folder: Path) -> Iterator[Finding]:
    """Whether there is room, on a disk that SQLite can work on, and how long it takes to write safely."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        yield Finding(
            "disk", "trouble", f"{there} cannot be written", "give the folder to whoever serves, or another --store"
        )
        return
    yield from room(shutil.disk_usage(there).free, there)
    kind = file_system(there)
    if kind in SHARED:
        remedy = "SQLite's log needs memory that processes share: take a local disk, or PostgreSQL"
        yield Finding("file system", "trouble", f"{there} is on {kind}, a network's file system", remedy)
    yield from syncing(there)


def room(free: int, where: Path) -> Iterator[Finding]:
    """Whether so many bytes are enough."""
    said = f"{free / 2**30:,.1f} GB free at {where}"
    if free < NO_DISK:
        yield Finding("disk", "trouble", said, "make room: feedback is refused when nothing can be written")
    elif free < LITTLE_DISK:
        yield Finding("disk", "warning", said, "make room, or keep less: retention_days")
    else:
        yield Finding("disk", "fine", said)


def syncing(folder: Path, times: int = 10) -> Iterator[Finding]:
    """How long the disk takes to say that it has something: each feedback waits for that."""
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
        yield Finding("fsync", "trouble", f"nothing can be written to {folder}: {error.strerror or error}", remedy)
        return
    yield from sync_time(sorted(took)[times // 2])


def sync_time(seconds: float) -> Iterator[Finding]:
    """Whether that is quick."""
    said = f"a write is on the disk after {seconds * 1e3:.1f} ms"
    if seconds > SLOW_SYNC:
        yield Finding("fsync", "warning", said, "feedback waits for it: put the store on a quicker disk")
    else:
        yield Finding("fsync", "fine", said)


def file_system(folder: Path, mounts: str | None = None) -> str:
    """What kind of file system a folder is on; empty where nothing tells."""
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
    """Whether there is enough for three processes of 200 MB and what they learn."""
    total = limit if limit is not None else _memory()
    if total is None:
        return
    said = f"{total / 2**30:,.1f} GB of memory"
    if total < LITTLE_MEMORY:
        yield Finding("memory", "warning", said, "give it 1 GB at least, or serve with RANKLOOP_LEARN_IN=thread")
    else:
        yield Finding("memory", "fine", said)


def files(limit: int | None = None) -> Iterator[Finding]:
    """Whether enough connections can be open at a time."""
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
    """Whether the time of day can be true."""
    now = time.time() if now is None else now
    if now < RELEASED:
        said = time.strftime("%Y-%m-%d", time.gmtime(now))
        yield Finding("clock", "trouble", f"the clock says {said}", "set it: windows, tokens and retention hang on it")


def _memory() -> int | None:
    """Bytes that this process may have: of the machine, or of the container."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(place).read_text()))
    return min(found) if found else None


def _rankloop_at(chosen: Settings) -> str | None:
    """What a rankloop that has the port says of itself; None if it is none."""
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
