"""A Dask cluster of real processes: `dask scheduler` and `dask worker`, as an operator would start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankloop.cluster import ONE_THREAD


class Processes:
    """A scheduler on loopback, and the workers that a test starts and kills."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._about = folder / "scheduler.json"
        self._settings = settings
        self.scheduler = self._start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        deadline = time.monotonic() + 60
        while not self._about.exists():
            if time.monotonic() > deadline or self.scheduler.poll() is not None:
                raise AssertionError((folder / "scheduler-0.log").read_text("utf-8", "replace"))
            time.sleep(0.05)
        said: dict[str, Any] = json.loads(self._about.read_text())
        self.address: str = said["address"]
        self.dashboard = f"http://127.0.0.1:{said['services']['dashboard']}"

    def worker(self, *options: str, python_path: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
        """`dask worker` with one thread for each process, unless options say otherwise."""
        options = options if "--nthreads" in options else (*options, "--nthreads", "1")
        folder = ("--local-directory", str(self.folder / "space"))
        started = self._start("worker", "--no-dashboard", *folder, *options, python_path=python_path, **environment)
        self.workers.append(started)
        return started

    def _start(
        self, kind: str, *options: str, python_path: str | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
        path = python_path if python_path is not None else os.pathsep.join(part for part in sys.path if part)
        environment = {**inherited, **self._settings, "PYTHONPATH": path, **environment}
        call = [sys.executable, "-m", "dask", kind, "--host", "127.0.0.1", "--scheduler-file", str(self._about)]
        with (self.folder / f"{kind}-{len(self._started)}.log").open("wb") as log:
            started = subprocess.Popen([*call, *options], env=environment, stdout=log, stderr=log, cwd=self.folder)
        self._started.append(started)
        return started

    def wait_for(self, workers: int, seconds: float = 120.0) -> None:
        """Until the scheduler has so many workers; a busy machine takes its time to start them."""
        deadline = time.monotonic() + seconds
        while True:
            with urllib.request.urlopen(f"{self.dashboard}/json/counts.json", timeout=30) as answer:
                if json.load(answer)["workers"] >= workers:
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"fewer than {workers} workers came; their output is in {self.folder}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End all of them, at once: a worker whose nanny is killed ends itself."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()


@contextmanager
def dask_processes(folder: Path, workers: int = 0, **settings: str) -> Iterator[Processes]:
    """A scheduler, and as many workers of one thread each; `settings` are of their environment."""
    processes = Processes(folder, **settings)
    try:
        if workers:
            processes.worker("--nworkers", str(workers))
            processes.wait_for(workers)
        yield processes
    finally:
        processes.stop()
