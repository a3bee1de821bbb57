"""Work on a Dask cluster: what `--on tcp://host:8786` and `--on local:4` mean.

`connect` opens a cluster and refuses workers on which the same call could give other bits: other sources of rankloop,
another Python, numpy, numba or scipy, more than one thread for linear algebra, or for tasks: what PyTorch draws random
numbers from is one for a process, and two runs in it would take turns. `Cluster.map` then carries out items as
they are asked for and gives results as they come. Never more items are out than the workers have threads, so that a
worker which dies costs what it was at and nothing that it only had in its queue; Dask gives those to others.

Dask is imported when a cluster is opened (`pip install 'rankloop[cluster]'`), and never for work on one machine.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

from rankloop.core.errors import InvalidParameter, MissingExtra, RankloopError

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE = 60.0  # seconds that a cluster may be without any worker before work on it is given up
_ANSWER = 10.0  # seconds for a scheduler to answer
_COME = 30.0  # seconds for the first of its workers to come
_LOOK = 1.0  # seconds between two looks at how many threads there are
_NOTES = 0.2  # seconds between two notes of an item
_ADDRESS = re.compile(r"(tcp|tls|ws|wss)://[^/\s]+:\d+")
_LOCAL = re.compile(r"local:([1-9]\d*)")

Item = TypeVar("Item")
Found = TypeVar("Found")
Tell = Callable[[Any], None]  # sends a note (numbers, texts, lists of them) to who asked for the work


class ClusterError(RankloopError):
    """A cluster that cannot be reached, has no workers, or has workers that cannot take part."""


@dataclass(frozen=True)
class Lost:
    """In the place of a result: every worker that had the item died."""

    reason: str


@contextmanager
def connect(on: str) -> Iterator[Cluster]:
    """The cluster at a scheduler's address, or as many processes of this machine as `local:N` says.

    Its workers are looked at before anything is sent to them.
    """
    local = _LOCAL.fullmatch(on)
    if not local and not _ADDRESS.fullmatch(on):
        raise InvalidParameter(
            f"on is {on!r}; it must be the address of a Dask scheduler, such as tcp://10.0.0.5:8786, or local:4 for "
            "four processes of this machine"
        )
    try:
        import distributed
    except ImportError:
        raise MissingExtra(f"--on {on}", "dask.distributed", "cluster") from None
    # of a connection that breaks, it would write pages before the error that says so here
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    if not local:
        try:
            client = distributed.Client(on, timeout=_ANSWER, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {on} ({error or 'too slow'}); start one with `dask scheduler`, then "
                f"workers with `dask worker {on} --nthreads 1`"
            ) from None
        with client:
            yield _checked(client, on)
        return
    with for_workers():
        # no limit of memory, as for any process: with a share of it each, runs would end that have room
        processes = distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=int(local[1]), threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
        )
    with processes, distributed.Client(processes, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        yield _checked(client, on)


@contextmanager
def for_workers() -> Iterator[None]:
    """Processes started within have one thread for linear algebra, since more would only fight over the cores, and
    never see a Ctrl-C, which goes to all processes of a terminal: this one decides."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    held = hasattr(signal, "pthread_sigmask")  # not on Windows
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if held else set()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if held:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Cluster:
    """A Dask cluster that is open; made by `connect`."""

    def __init__(self, client: Any, on: str) -> None:
        self._client, self.on = client, on
        self._topic = f"rankloop-{uuid4().hex}"
        self._inboxes: dict[str, SimpleQueue[tuple[int, Any, Any]]] = {}
        client.subscribe_topic(self._topic, self._on_note)

    @property
    def dashboard(self) -> str:
        """Where a browser sees what the cluster does; tasks are called by the names given to `map`."""
        return str(self._client.dashboard_link)

    def threads(self) -> dict[str, int]:
        """Worker -> its threads, now."""
        try:
            return dict(self._client.nthreads())
        except Exception as error:  # whatever the connection broke with: there is one thing to say
            raise self._gone() from error

    def everywhere(self, function: Callable[..., Found], *arguments: Any) -> dict[str, Found | Exception]:
        """Worker -> what a function gives there, or what it raised; beside whatever the worker is at."""

        async def aside() -> Found:
            from asyncio import to_thread

            return await to_thread(function, *arguments)

        try:
            return dict(self._client.run(aside, on_error="return"))
        except OSError as error:
            raise self._gone() from error

    def map(
        self,
        function: Callable[[Item, Tell], Found],
        items: Sequence[Item],
        names: Sequence[str],
        on_note: Callable[[int, Any], None] | None = None,
    ) -> Generator[tuple[int, Found | Lost], None, None]:
        """Position and result of each item, as they come; `names` are what the dashboard calls them.

        Items begin in their order. `function`, which workers must be able to import, is called with an item and with
        what sends a note to `on_note`; the first note goes at once, others at most five times a second. What it raises
        is raised here. Close the generator to stop: what waits is taken back, and what runs ends at its next note.
        """
        call, inbox = uuid4().hex, SimpleQueue[tuple[int, Any, Any]]()
        self._inboxes[call] = inbox
        waiting, out = deque(range(len(items))), dict[int, Any]()
        pool = _Pool(self)
        try:
            while waiting or out:
                while waiting and len(out) < pool.threads():
                    i = waiting.popleft()
                    key = f"{_prefix(names[i])}-{i}-{call}"
                    sent = (function, items[i], i, _wanted(), self._topic, call)
                    out[i] = self._client.submit(_carry_out, *sent, key=key, pure=False)
                    out[i].add_done_callback(lambda future, i=i: inbox.put((i, future, None)))
                try:
                    i, future, note = inbox.get(timeout=_LOOK)
                except Empty:
                    pool.threads()
                    continue
                if future is not None:
                    found = self._result(future)
                    del out[i]
                    yield i, found
                elif i in out and on_note:  # else of one whose result was faster
                    on_note(i, note)
        finally:
            del self._inboxes[call]
            with suppress(Exception):  # the scheduler may be gone, which is told already
                self._client.cancel(list(out.values()), force=True)

    def _result(self, future: Any) -> Any:
        from distributed import CancelledError, KilledWorker

        try:
            return future.result()
        except CancelledError as error:  # this process did not: its connection to the scheduler is lost
            raise self._gone() from error
        except KilledWorker as error:
            times = error.allowed_failures + 1
            died = f"{times} worker{'s' * (times > 1)} died with it, the last at {error.last_worker.address}"
            return Lost(f"{died}; memory may have run out")
        except ModuleNotFoundError as error:  # a worker that came later
            raise ClusterError(f"a worker of {self.on} cannot import {error.name}; install the same on all") from error
        finally:
            future.release()

    def _gone(self) -> ClusterError:
        return ClusterError(f"the connection to the Dask scheduler of {self.on} broke; is it running?")

    def _on_note(self, event: tuple[float, Any]) -> None:
        call, i, note = event[1]
        if call in self._inboxes:
            self._inboxes[call].put((i, None, note))


class _Pool:
    """How many threads a cluster has, looked up once a second: workers come and go."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.found, self.looked, self.seen = cluster, 0, -_LOOK, time.monotonic()

    def threads(self) -> int:
        now = time.monotonic()
        if now - self.looked >= _LOOK:
            self.found, self.looked = sum(self.cluster.threads().values()), now
        if self.found:
            self.seen = now
        elif now - self.seen > PATIENCE:
            raise ClusterError(
                f"{self.cluster.on} has had no workers for {PATIENCE:.0f} seconds; start some with "
                "`dask worker ADDRESS --nthreads 1`, and the same call again"
            )
        return self.found


def _prefix(name: str) -> str:
    """What Dask's dashboard will call a task: it cuts names at a hyphen before anything but letters, so in those there
    are minus signs instead.

    >>> _prefix("offline-ranknet"), _prefix("pdgd(rate=1e-3)") == "pdgd(rate=1e\N{MINUS SIGN}3)"
    ('offline-ranknet', True)
    """
    return name if all(word.isalpha() for word in name.split("-")[1:]) else name.replace("-", "\N{MINUS SIGN}")


# -- on the workers ------------------------------------------------------------------------------------------------


def _carry_out(
    function: Callable[[Item, Tell], Found], item: Item, i: int, wanted: Mapping[str, str], topic: str, call: str
) -> Found:
    from distributed import get_worker

    worker: Any = get_worker()
    key, last = worker.get_current_task(), 0.0
    wrong = _differing(_has(worker), wanted)
    if wrong:  # it came after the others were looked at
        raise ClusterError(_refusal({worker.address: wrong}))

    def tell(note: Any) -> None:
        nonlocal last
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise _Unwanted
        if time.monotonic() - last >= _NOTES:
            last = time.monotonic()
            worker.log_event(topic, (call, i, note))

    try:
        return function(item, tell)
    except RankloopError as error:
        told = f"{worker.address}: {error}"
    raise RankloopError(told)  # out here the error itself, which need not survive the journey, does not go with it


class _Unwanted(BaseException):
    """Ends an item whose result nobody waits for any more; no `except Exception` takes it for a failure."""


# -- who may take part ---------------------------------------------------------------------------------------------


def _asking() -> Callable[..., dict[str, str]]:
    """The function that says what a process has. Made in here, it is sent as it is instead of by its name, so that a
    worker without rankloop, or with an older one, can answer too."""

    def said(dask_worker: Any = None) -> dict[str, str]:  # so called, Dask gives it the worker
        import os
        import platform
        import sys
        from hashlib import blake2b
        from importlib import import_module
        from pathlib import Path

        import psutil

        found, loaded = {"python": platform.python_version()}, "rankloop" in sys.modules
        for name in ("numpy", "numba", "scipy", "rankloop"):
            try:
                found[name] = str(import_module(name).__version__)
            except ImportError:
                found[name] = "none"
        if found["rankloop"] != "none":
            folder, made = Path(str(sys.modules["rankloop"].__file__)).parent, blake2b(digest_size=6)
            sources = sorted(folder.rglob("*.py"))
            for source in sources:
                made.update(source.relative_to(folder).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
            found["sources of rankloop"] = made.hexdigest()
            newest = max(source.stat().st_mtime for source in sources)
            edited = loaded and newest > psutil.Process().create_time()  # then nobody knows which code it runs
            found["sources edited since it started"] = "yes" if edited else "no"
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            found[name] = os.environ.get(name, "not set")
        if dask_worker is not None:
            found["threads"] = str(dask_worker.state.nthreads)
        return found

    return said


_says = _asking()


@cache
def _has(worker: Any = None) -> dict[str, str]:
    return _says(worker)


@cache
def _wanted() -> dict[str, str]:
    """What workers must have: what this process has, and one thread each, whatever it has of those."""
    ours = {**_has(), "sources edited since it started": "no"}
    return {**ours, **{name: "1" for name in ours if name in ONE_THREAD}, "threads": "1"}


def _differing(theirs: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """In words, what a worker has otherwise."""
    if theirs["rankloop"] == "none":
        return ["no rankloop that it can import"]
    return [
        f"{name} {theirs.get(name, 'unknown')} instead of {value}"
        for name, value in wanted.items()
        if theirs.get(name) != value
    ]


def _refusal(wrong: Mapping[str, Sequence[str]]) -> str:
    lines = [f"  {worker} has {', '.join(what)}" for worker, what in wrong.items()]
    return "\n".join(
        [
            "workers could give other results than this process:",
            *lines,
            "install the same there, and start them again with `dask worker ADDRESS --nthreads 1`, N of them with "
            "--nworkers N; its nanny, unless told otherwise, gives linear algebra one thread",
        ]
    )


def _checked(client: Any, on: str) -> Cluster:
    try:
        client.wait_for_workers(1, timeout=_COME)
    except TimeoutError:
        raise ClusterError(
            f"the Dask scheduler of {on} has no workers; start some with `dask worker {on} --nthreads 1`"
        ) from None
    wrong: dict[str, list[str]] = {}
    for worker, said in client.run(_says, on_error="return").items():
        if isinstance(said, Exception):
            wrong[worker] = [f"no answer: {said}"]
        elif _differing(said, _wanted()):
            wrong[worker] = _differing(said, _wanted())
    if wrong:
        raise ClusterError(_refusal(wrong))
    return Cluster(client, on)
