"""Processor time and memory of processes, by what they do; from /proc, so on Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rankloop.core.errors import RankloopError

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def supported() -> bool:
    """Whether this system tells."""
    return (PROC / "self" / "stat").exists()


def children(parent: int) -> list[int]:
    """The processes that a process has started and that still run, in the order they were started."""
    found = []
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            fields = _fields(path)
            if int(fields[1]) == parent:
                found.append((int(fields[19]), int(path.parent.name)))
    return [pid for _, pid in sorted(found)]


def parent_of(pid: int) -> int:
    """Who has started it."""
    try:
        return int(_fields(PROC / str(pid) / "stat")[1])
    except OSError:
        raise RankloopError(
            f"process {pid} of the database is not on this machine; what a database takes can only be measured where "
            "it runs: start the measurement there, or a PostgreSQL here"
        ) from None


def seconds(pid: int, with_ended: bool = False) -> float:
    """Processor time of all threads of a process; `with_ended`: and of those it started that have ended."""
    with suppress(OSError):
        fields = _fields(PROC / str(pid) / "stat")
        return sum(map(int, fields[11:15] if with_ended else fields[11:13])) / TICK
    return 0.0


def tree_seconds(root: int) -> float:
    """Of a process, those it has started, and those of them that have ended."""
    return seconds(root, with_ended=True) + sum(seconds(pid) for pid in children(root))


def own_bytes(pid: int) -> int:
    """Memory that only this process has, and its share of what it has with others (proportional set size)."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _fields(path: Path) -> list[str]:
    """What stands behind the name, which may hold anything."""
    return path.read_text().rpartition(")")[2].split()


def machine_name() -> str:
    """The processor's name and how many cores there are, so that figures can be compared."""
    names = []
    with suppress(OSError):
        lines = (PROC / "cpuinfo").read_text().splitlines()
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores"


def all_seconds() -> float:
    """Processor time of everything on the machine, whoever it belongs to."""
    fields = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / TICK
