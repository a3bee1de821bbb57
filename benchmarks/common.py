"""What benchmarks share: the machine's name, tables, a running service, a PostgreSQL, processor time of processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, as the figures say

ROOT = Path(__file__).parents[1]
PROC = Path("/proc")


def machine() -> str:
    """The processor's name and the number of cores."""
    lines = (PROC / "cpuinfo").read_text().splitlines() if (PROC / "cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else "unknown processor"


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """A Markdown table."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_text(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


class Running(NamedTuple):
    """A server process that answers."""

    url: str
    pid: int


@contextmanager
def running(
    command: Sequence[str], path: str = "/readyz", source: Path = ROOT, **environment: str
) -> Iterator[Running]:
    """A Python process that serves HTTP, once it answers at `path`; `PORT` in the command becomes a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    python_path = f"{source / 'src'}{os.pathsep}{source}"
    arguments = [sys.executable, *(part.replace("PORT", str(port)) for part in command)]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            arguments, env={**os.environ, "PYTHONPATH": python_path, **environment}, cwd=source, stdout=log, stderr=log
        )
        try:
            end = time.monotonic() + 300
            while not _answers(url + path):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(
                        f"{' '.join(command)} did not start:\n{log.read()[-4000:].decode(errors='replace')}"
                    )
                time.sleep(0.1)
            yield Running(url, process.pid)
        finally:
            process.terminate()
            process.wait(60)


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=5).status_code == 200
    return False


@contextmanager
def service(store: str | Path, *options: str, source: Path = ROOT, **environment: str) -> Iterator[Running]:
    """`rankloop serve` on a store and a free port."""
    command = [
        "-c",
        "from rankloop.cli import main; main()",
        "serve",
        "--port",
        "PORT",
        "--store",
        str(store),
        *options,
    ]
    with running(command, source=source, **environment) as one:
        yield one


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL from pip (pgserver) below a folder; its URL."""
    folder.mkdir(exist_ok=True)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    from pgserver.postgres_server import get_server

    server = get_server(folder / "data")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def children(parent: int) -> list[int]:
    """Processes started by a process, oldest first."""
    found = []
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            fields = _fields(path)
            if int(fields[1]) == parent:
                found.append((int(fields[19]), int(path.parent.name)))
    return [pid for _, pid in sorted(found)]


def parent_of(pid: int) -> int:
    """The process that started a process."""
    return int(_fields(PROC / str(pid) / "stat")[1])


def processor_seconds(pid: int, with_children: bool = False) -> float:
    """Processor time of a process; `with_children`: and of the processes it started."""
    with suppress(OSError):
        times = sum(map(int, _fields(PROC / str(pid) / "stat")[11 : 15 if with_children else 13]))
        below = sum(map(processor_seconds, children(pid))) if with_children else 0.0
        return times / os.sysconf("SC_CLK_TCK") + below
    return 0.0


def resident_bytes(pid: int) -> int:
    """Memory of a process, with its share of shared pages (proportional set size)."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _fields(path: Path) -> list[str]:
    return path.read_text().rpartition(")")[2].split()
