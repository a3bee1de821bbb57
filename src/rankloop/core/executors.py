"""Where work runs: local processes or a Dask cluster, each behind `concurrent.futures.Executor`."""

from __future__ import annotations

import logging
import os
import platform
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import metadata
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rankloop.core.errors import InvalidParameter, MissingExtra, RankloopError
from rankloop.core.sources import digest_of

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
_CONNECT_SECONDS = 10.0
_WORKER_SECONDS = 30.0  # to wait for the first worker of a cluster
_ADDRESS = re.compile(r"(tcp|tls|ws|wss)://[^/\s]+:\d+")

P = ParamSpec("P")
T = TypeVar("T")


class ClusterError(RankloopError):
    """A cluster cannot be reached, has no workers, or has workers with other software than this process."""


class ProcessDied(RankloopError):
    """The process that ran a call ended before the call did."""


@contextmanager
def open_executor(
    processes: int = 1, cluster: str | None = None, on_open: Callable[[str], None] | None = None
) -> Iterator[Executor | None]:
    """Open the executor for `processes` local processes or for a Dask scheduler; None means this process.

    `on_open` receives a line about the cluster, with the address of its dashboard. An error inside the block stops
    calls that are running in local processes.
    """
    if processes < 1:
        raise InvalidParameter(f"processes is {processes}; it must be at least 1")
    if cluster is not None:
        with _dask_client(cluster) as client:
            workers = len(client.nthreads())
            if on_open:
                on_open(f"{workers} worker{'s' * (workers > 1)} of {cluster}; dashboard: {client.dashboard_link}")
            yield client.get_executor(pure=False)
        return
    if processes == 1:
        yield None
        return
    executor = ProcessExecutor(processes)
    try:
        yield executor
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


# -- local processes -----------------------------------------------------------------------------------------------


class ProcessExecutor(ThreadPoolExecutor):
    """Local processes, each with a pool of its own: one that dies costs only the call it was running."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes)
        self._own, self._lock = threading.local(), threading.Lock()
        self._pools: dict[ProcessPoolExecutor, int] = {}  # and the id of its process

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in one of the processes."""
        return super().submit(self._call, partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for all calls, or with `cancel_futures` terminate the processes."""
        if cancel_futures:
            super().shutdown(False, cancel_futures=True)
            for pid in list(self._pools.values()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        super().shutdown(wait, cancel_futures=cancel_futures)
        for pool in self._pools:
            pool.shutdown(wait)

    def _call(self, call: Callable[[], T]) -> T:
        try:
            pool = getattr(self._own, "pool", None) or self._start()
            return pool.submit(call).result()
        except BrokenProcessPool:
            self._own.pool = None
            raise ProcessDied("the process died; memory may have run out") from None

    def _start(self) -> ProcessPoolExecutor:
        with self._lock, single_threaded():
            pool = ProcessPoolExecutor(1, get_context("spawn"), _initialize_process)
            self._pools[pool] = pool.submit(os.getpid).result()
        self._own.pool = pool
        return pool


@contextmanager
def single_threaded() -> Iterator[None]:
    """Start processes in which linear algebra has one thread: bits depend on it, and more would share the cores."""
    before = {name: os.environ.get(name) for name in BLAS_THREADS}
    os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _initialize_process() -> None:
    """In a new process: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # a spawned process has one
    connection.wait([parent.sentinel])
    os._exit(1)


# -- Dask ----------------------------------------------------------------------------------------------------------


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    """Connect to a scheduler whose workers all have the software of this process."""
    if not _ADDRESS.fullmatch(address):
        raise InvalidParameter(
            f"cluster is {address!r}; it must be the address of a Dask scheduler, such as tcp://10.0.0.5:8786"
        )
    try:
        import distributed
    except ImportError:
        raise MissingExtra(f"--cluster {address}", "dask.distributed", "cluster") from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # the errors here say what broke
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({error or 'too slow'}); start one with `dask scheduler`, then "
            f"workers with `dask worker {address} --nthreads 1`"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except TimeoutError:
            raise ClusterError(
                f"the Dask scheduler at {address} has no workers; start some with `dask worker {address} --nthreads 1`"
            ) from None
        _check_workers(client)
        yield client


def _check_workers(client: Any) -> None:
    """Refuse workers that could compute other bits than this process, by name."""
    expected = _expected()
    lines = []
    for worker, found in client.run(environment, on_error="return").items():
        if isinstance(found, Exception):
            lines.append(f"  {worker} cannot import rankloop: {found}")
            continue
        different = [
            f"{name} {found.get(name)}, not {value}" for name, value in expected.items() if found.get(name) != value
        ]
        lines += [f"  {worker} has {', '.join(different)}"] if different else []
    lines += [f"  {worker} has {n} threads, not 1" for worker, n in client.nthreads().items() if n != 1]
    if lines:
        raise ClusterError(
            "\n".join(["workers could compute other results than this process:", *lines])
            + "\ninstall the same software there, and restart them with `dask worker ADDRESS --nthreads 1`"
        )


def _expected() -> dict[str, str]:
    return {**environment(), **dict.fromkeys(BLAS_THREADS[:3], "1")}


@cache
def environment() -> dict[str, str]:
    """What must be equal on all machines for a run to give the same bits."""
    found = {"Python": platform.python_version()}
    found |= {name: metadata.version(name) for name in ("numpy", "numba", "scipy")}
    found["sources of rankloop"] = digest_of(sorted(Path(__file__).parents[1].rglob("*.py")))
    return found | {name: os.environ.get(name, "not set") for name in BLAS_THREADS[:3]}


def result_of(future: Future[T]) -> T:
    """The result of a finished call; `ProcessDied` if its worker died, `ClusterError` if the scheduler did."""
    try:
        return future.result()
    except CancelledError:
        raise ClusterError("the connection to the Dask scheduler broke; is it running?") from None
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # named, so that Dask need not be installed
            raise
        raise ProcessDied(f"{error}; memory may have run out") from None
