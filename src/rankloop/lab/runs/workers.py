"""Runs on local processes, on a Dask cluster, or here: trials in, outcomes out, in whatever order they finish.

Workers are started afresh ("spawn") with one BLAS thread each, and are given runs on the data set that they have open.
A worker that dies, for want of memory say, costs the run that it was at and is replaced. Those of a Dask cluster are
somebody else's: they are asked beforehand, and again with each run, whether they have the same code and files
(`rankloop.lab.runs.provenance`), they begin runs data set by data set and keep those open, and a run whose worker died
is given to another.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Literal, Protocol

from rankloop.core.cluster import Cluster, ClusterError, Lost, Tell, for_workers
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.provenance import Provenance, provenance

_OPEN = 2  # data sets that a process keeps open
_LINES = 20  # of what is wrong with workers, before it is only counted


class Result(Protocol):
    """What came of a run, such as `rankloop.lab.runs.trial.Record`."""

    @property
    def conventions(self) -> dict[str, Any]:
        """What its numbers mean."""

    def rows(self) -> list[dict[str, Any]]:
        """A row a checkpoint."""


class Runnable(Protocol):
    """A run as data, such as `rankloop.lab.runs.trial.Trial`.

    What it was computed by is found from its type, its functions, and its fields `learner`, `params`, `user` and
    `world`, what it read from `data`, `user` and `models`; a property `modules` names other modules than those of its
    type and functions (`rankloop.lab.runs.provenance`).
    """

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""

    @property
    def data(self) -> str:
        """Runs with the same go to the same process one after the other."""

    @property
    def rounds(self) -> int:
        """How long it is."""

    def carry_out(self, opened: Callable[[str], Split], on_progress: Callable[[int], None]) -> Result:
        """Run; `opened` opens a data set, or finds it open."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a sweep, for whoever watches.

    `kept`: the run is there from before. `outdated`: it is, but from other code or other data (the reason says
    which), so it is run again. `started`, `progress` (with the rounds done), and at the end `finished` or `failed`
    (with the reason). The last three fields tell how far the whole sweep is.
    """

    kind: Literal["kept", "outdated", "started", "progress", "finished", "failed"]
    trial: Runnable
    rounds: int = 0
    reason: str = ""
    done: int = 0  # runs kept, finished or failed
    runs: int = 0  # of so many
    share: float = 0.0  # of all rounds that are done: what a progress bar shows


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end."""

    trial: Runnable
    reason: str  # one line
    details: str = ""  # the traceback, where the reason alone would not tell


Outcome = Result | Failure
Outcomes = Generator[tuple[Runnable, Outcome], None, None]
OnEvent = Callable[[Event], None]


def outcomes(trials: Sequence[Runnable], processes: int, on_event: OnEvent, cluster: Cluster | None = None) -> Outcomes:
    """Carry out trials, on a cluster or else in processes; yields each as soon as it is done. Close it to stop what is
    under way."""
    if processes < 1:
        raise InvalidParameter(f"processes is {processes}; it must be at least 1")
    if cluster is not None:
        yield from _on_cluster(trials, cluster, on_event)
        return
    if processes > 1 and len(trials) > 1:
        yield from _in_processes(trials, min(processes, len(trials)), on_event)
        return
    opened = lru_cache(maxsize=_OPEN)(open_split)
    for trial in chain(*_by_data(trials).values()):
        on_event(Event("started", trial))
        yield trial, _attempt(trial, opened, partial(_tell_progress, on_event, trial))


def _tell_progress(on_event: OnEvent, trial: Runnable, rounds: int) -> None:
    on_event(Event("progress", trial, rounds))


def _attempt(trial: Runnable, opened: Callable[[str], Split], on_progress: Callable[[int], None]) -> Outcome:
    try:
        return trial.carry_out(opened, on_progress)
    except RankloopError as error:  # its message says all there is to say
        return Failure(trial, str(error))
    except Exception as error:
        return Failure(trial, f"{type(error).__name__}: {error}", traceback.format_exc())


# -- processes -----------------------------------------------------------------------------------------------------


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    trial: Runnable | None = None


def _in_processes(trials: Sequence[Runnable], processes: int, on_event: OnEvent) -> Outcomes:
    waiting = _by_data(trials)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                workers.append(_start())
                _hand_out(workers[-1], waiting, workers, on_event)
            for worker in _ready(workers):
                trial = worker.trial
                assert trial is not None  # a worker without one is stopped at once
                try:
                    found = worker.pipe.recv()
                except (EOFError, OSError):
                    found = Failure(
                        trial, f"the process died (exit code {_exit_code(worker)}); memory may have run out"
                    )
                if isinstance(found, int):
                    on_event(Event("progress", trial, found))
                    continue
                died = worker.process.exitcode is not None
                if waiting and not died:
                    _hand_out(worker, waiting, workers, on_event)
                else:
                    workers.remove(worker)
                    _stop(worker)
                yield trial, found
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            _stop(worker)


def _start() -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with for_workers():
        process.start()
    theirs.close()  # so that the worker's death is an end of file here
    return _Worker(process, ours)


def _serve(pipe: Connection) -> None:
    """The worker: runs what comes through the pipe until nothing more does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    opened = lru_cache(maxsize=_OPEN)(open_split)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            pipe.send(_attempt(pipe.recv(), opened, pipe.send))


def _hand_out(worker: _Worker, waiting: dict[str, list[Runnable]], workers: list[_Worker], on_event: OnEvent) -> None:
    """Give a worker its next run: of its own data set if there are any, else of the one with most runs to a worker."""
    data = worker.trial.data if worker.trial else ""
    if data not in waiting:
        at_work = [other.trial.data for other in workers if other.trial and other is not worker]
        data = max(waiting, key=lambda name: len(waiting[name]) / (1 + at_work.count(name)))
    worker.trial = waiting[data].pop(0)
    if not waiting[data]:
        del waiting[data]
    with suppress(OSError):  # it died meanwhile, which reading from it will tell
        worker.pipe.send(worker.trial)
    on_event(Event("started", worker.trial))


def _ready(workers: list[_Worker]) -> list[_Worker]:
    ready = connection.wait([worker.pipe for worker in workers])
    return [worker for worker in workers if worker.pipe in ready]


def _exit_code(worker: _Worker) -> int | None:
    worker.process.join(timeout=5)
    return worker.process.exitcode


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.join(timeout=5)
    if worker.process.exitcode is None:
        worker.process.kill()
        worker.process.join()
    worker.process.close()


# -- a cluster -----------------------------------------------------------------------------------------------------

_open_there = lru_cache(maxsize=_OPEN)(open_split)  # for as long as a Dask worker lives


def _on_cluster(trials: Sequence[Runnable], cluster: Cluster, on_event: OnEvent) -> Outcomes:
    ordered = list(chain(*_by_data(trials).values()))
    sent = [(trial, provenance(trial)) for trial in ordered]
    _check_workers(sent, cluster)
    names = [getattr(trial, "label", "") or trial.id for trial in ordered]

    def on_note(i: int, rounds: int) -> None:
        on_event(Event("progress" if rounds else "started", ordered[i], rounds))

    with closing(cluster.map(_run_there, sent, names, on_note)) as stream:
        for i, found in stream:
            yield ordered[i], Failure(ordered[i], found.reason) if isinstance(found, Lost) else found


def _run_there(sent: tuple[Runnable, Provenance], tell: Tell) -> Outcome:
    """On a Dask worker."""
    trial, wanted = sent
    different = _difference(trial, wanted, provenance(trial))
    if different:  # a worker that came later, or files that were changed since
        raise ClusterError(f"it has {different}; {_REMEDY}")
    tell(0)
    found = _attempt(trial, _open_there, tell)
    if provenance(trial) != wanted:
        return Failure(trial, "its data changed while it ran; the same call runs it again")
    return found


_REMEDY = (
    "give all machines the same code and the same files, under the same path (one that is relative begins where a "
    "worker was started), and start workers anew whose code has changed"
)


def _check_workers(sent: Sequence[tuple[Runnable, Provenance]], cluster: Cluster) -> None:
    """Refuse workers that have other code or other files than this process, by name."""
    one_of_each = {wanted: trial for trial, wanted in sent}
    lines = []
    for worker, said in cluster.everywhere(_provenances, list(one_of_each.values())).items():
        if isinstance(said, Exception):
            lines.append(f"  {worker} cannot tell: {type(said).__name__}: {said}")
            continue
        differences = map(_difference, one_of_each.values(), one_of_each, said)
        lines += [f"  {worker} has {text}" for text in dict.fromkeys(filter(None, differences))]
    if lines:
        more = [f"  and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
        head = "workers have other code or data than this process:"
        raise ClusterError("\n".join([head, *lines[:_LINES], *more, _REMEDY]))


def _provenances(trials: Sequence[Runnable]) -> list[Provenance]:
    return [provenance(trial) for trial in trials]


def _difference(trial: Runnable, wanted: Provenance, found: Provenance) -> str:
    """In words, what a worker has otherwise; "" if nothing."""
    if found.code != wanted.code:
        return f"code {found.code} of {getattr(trial, 'label', trial.id)} instead of {wanted.code}"
    if found.files != wanted.files:
        return f"files {found.files or 'none'} of {trial.data} instead of {wanted.files or 'none'}"
    return ""


def _by_data(trials: Sequence[Runnable]) -> dict[str, list[Runnable]]:
    queues: dict[str, list[Runnable]] = {}
    for trial in trials:
        queues.setdefault(trial.data, []).append(trial)
    return queues
