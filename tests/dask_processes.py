"""A Dask cluster of real processes: `dask scheduler` and `dask worker`, as an operator would start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rankloop.core import executors
from rankloop.core.executors import BLAS_THREADS
from tests.waiting import PATIENCE, wait_for


class Processes:
    """A scheduler on loopback, and the workers that a test starts and kills. `stop` ends all of them."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._about = folder / "scheduler.json"
        self._settings = settings
        self.scheduler = self._start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        try:
            about = wait_for(self._read_about, "the scheduler to write its address")
        except BaseException:
            self.stop()
            raise
        self.address: str = about["address"]
        self.dashboard = f"http://127.0.0.1:{about['services']['dashboard']}"

    def _read_about(self) -> dict[str, Any] | None:
        """Return the content of the scheduler's file; None while the file is missing, empty or incomplete."""
        assert self.scheduler.poll() is None, (self.folder / "scheduler-0.log").read_text("utf-8", "replace")
        try:
            about: dict[str, Any] = json.loads(self._about.read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return about

    def worker(self, *options: str, python_path: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
        """Start `dask worker` with one thread per process, unless the options set another number."""
        options = options if "--nthreads" in options else (*options, "--nthreads", "1")
        folder = ("--local-directory", str(self.folder / "space"))
        started = self._start("worker", "--no-dashboard", *folder, *options, python_path=python_path, **environment)
        self.workers.append(started)
        return started

    def _start(
        self, kind: str, *options: str, python_path: str | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}
        path = python_path if python_path is not None else os.pathsep.join(part for part in sys.path if part)
        environment = {**inherited, **self._settings, "PYTHONPATH": path, **environment}
        call = [sys.executable, "-m", "dask", kind, "--host", "127.0.0.1", "--scheduler-file", str(self._about)]
        with (self.folder / f"{kind}-{len(self._started)}.log").open("wb") as log:
            # A session of its own, so that `end` also kills the worker that a nanny started.
            started = subprocess.Popen(
                [*call, *options], env=environment, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._started.append(started)
        return started

    def count(self) -> int:
        """The number of workers that the scheduler knows."""
        assert self.scheduler.poll() is None, f"the scheduler ended; its output is in {self.folder}"
        with urllib.request.urlopen(f"{self.dashboard}/json/counts.json", timeout=PATIENCE) as answer:
            return int(json.load(answer)["workers"])

    def wait_for(self, workers: int) -> None:
        """Wait until the scheduler knows exactly this many workers."""
        wait_for(lambda: self.count() == workers, f"{workers} workers, whose output is in {self.folder}")

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one process and everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Kill all processes."""
        for process in self._started:
            self.end(process)


@contextmanager
def dask_processes(folder: Path, workers: int = 0, **settings: str) -> Iterator[Processes]:
    """Start a scheduler and workers with one thread each; `settings` are added to their environment.

    `open_executor` waits for connections as long as a test may: on a busy machine they take long.
    """
    processes = Processes(folder, **settings)
    patient = patch.multiple(executors, _CONNECT_SECONDS=PATIENCE, _WORKER_SECONDS=PATIENCE)
    try:
        patient.start()
        if workers:
            processes.worker("--nworkers", str(workers))
            processes.wait_for(workers)
        yield processes
    finally:
        patient.stop()
        processes.stop()
