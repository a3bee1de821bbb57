"""Local processes and Dask workers: results, deaths, and workers that are refused."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from rankloop.core import executors
from rankloop.core.errors import InvalidParameter, MissingExtra, RankloopError
from rankloop.core.executors import ClusterError, ProcessDied, open_executor, result_of
from tests.dask_processes import Processes, dask_processes
from tests.waiting import wait_for


def squared(number: int) -> int:
    return number * number


def blas_threads() -> str | None:
    return os.environ.get("OPENBLAS_NUM_THREADS")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise RankloopError("refused")


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with dask_processes(tmp_path_factory.mktemp("dask"), workers=2) as started:
        yield started


def check(executor: Executor) -> None:
    """What every executor does."""
    died = executor.submit(die)
    assert [result_of(future) for future in [executor.submit(squared, n) for n in range(5)]] == [0, 1, 4, 9, 16]
    assert result_of(executor.submit(blas_threads)) == "1"
    with pytest.raises(RankloopError, match="refused"):
        result_of(executor.submit(refuse))
    with pytest.raises(ProcessDied, match="memory may have run out"):
        result_of(died)


@pytest.mark.slow
def test_local_processes_survive_a_call_that_kills_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with open_executor(2) as executor:
        assert executor is not None
        check(executor)
    assert blas_threads() is None


@pytest.mark.slow
def test_dask_workers_survive_a_call_that_kills_its_worker(processes: Processes) -> None:
    lines: list[str] = []
    processes.wait_for(2)
    with open_executor(cluster=processes.address, on_open=lines.append) as executor:
        assert executor is not None
        assert re.match(r"2 workers of tcp://127\.0\.0\.1:\d+; dashboard: http://", lines[0])
        check(executor)


@pytest.mark.slow
def test_workers_with_other_software_are_refused_by_name(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = processes.worker("--no-nanny", "--nthreads", "2")
    processes.wait_for(3)
    with pytest.raises(ClusterError) as refused, open_executor(cluster=processes.address):
        pass
    processes.end(bare)
    processes.wait_for(2)
    assert re.search(r"tcp://127.0.0.1:\d+ has OPENBLAS_NUM_THREADS not set, not 1", str(refused.value))
    assert re.search(r"tcp://127.0.0.1:\d+ has 2 threads, not 1", str(refused.value))
    wanted = {**executors.environment(), "numpy": "0.1"}
    monkeypatch.setattr(executors, "_expected", lambda: wanted)
    with pytest.raises(ClusterError, match=r"has numpy [\d.]+, not 0\.1"), open_executor(cluster=processes.address):
        pass


@pytest.mark.slow
def test_a_scheduler_that_ends_is_reported(tmp_path: Path) -> None:
    with dask_processes(tmp_path, workers=1) as started, open_executor(cluster=started.address) as executor:
        assert executor is not None
        future: Future[None] = executor.submit(signal.pause)
        started.scheduler.kill()
        with pytest.raises(ClusterError, match="connection to the Dask scheduler broke"):
            result_of(future)


@pytest.mark.slow
def test_the_fixture_waits_until_the_file_of_the_scheduler_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scheduler.json").touch()
    with dask_processes(tmp_path) as started:
        assert started.address.startswith("tcp://127.0.0.1:")
        monkeypatch.setattr(executors, "_WORKER_SECONDS", 0.5)
        with pytest.raises(ClusterError, match="has no workers; start some"), open_executor(cluster=started.address):
            pass
    wait_for(lambda: started.scheduler.returncode is not None, "the scheduler to end")


def test_what_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("local:2", "10.0.0.5:8786", "tcp://", "http://10.0.0.5:80", ""):
        with pytest.raises(InvalidParameter, match="must be the address of a Dask"), open_executor(cluster=wrong):
            pass
    with pytest.raises(InvalidParameter, match="processes is 0"), open_executor(0):
        pass
    monkeypatch.setattr(executors, "_CONNECT_SECONDS", 0.5)
    nobody = "tcp://127.0.0.1:9"
    with pytest.raises(ClusterError, match="no Dask scheduler answers at"), open_executor(cluster=nobody):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rankloop\[cluster\]'"), open_executor(cluster=nobody):
        pass
