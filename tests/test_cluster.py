"""Work on a Dask cluster of real processes: what comes back, who is refused, and what is lost with whom."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rankloop
from rankloop.core import cluster
from rankloop.core.cluster import ClusterError, Lost, Tell, connect
from rankloop.core.errors import InvalidParameter, MissingExtra, RankloopError
from tests.dask_processes import Processes, dask_processes
from tests.waiting import PATIENCE, wait_for


def squared(number: int, tell: Tell) -> int:
    tell(number)
    return number * number


def slow(seconds: float, tell: Tell) -> int:
    """Who it was carried out by, after so many seconds of small steps."""
    until = time.monotonic() + seconds
    tell("begun")
    while time.monotonic() < until:
        time.sleep(0.02)
        tell("at it")
    return os.getpid()


def held(place: str, tell: Tell) -> int:
    """Run until a file exists; return the process id."""
    tell("begun")
    while not Path(place).exists():
        time.sleep(0.02)
        tell("waiting")
    time.sleep(0.1)
    return os.getpid()


def touching(place: str, tell: Tell) -> None:
    """Touch a file again and again, until the work is stopped."""
    while True:
        Path(place).touch()
        time.sleep(0.02)
        tell("touched")


def deadly(number: int, tell: Tell) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return squared(number, tell)


def refusing(number: int, _tell: Tell) -> int:
    raise MissingExtra(f"number {number}", "numbers", "none")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with dask_processes(tmp_path_factory.mktemp("dask"), workers=2) as started:
        yield started


def opened(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_the_fixture_waits_until_the_file_of_the_scheduler_is_complete(tmp_path: Path) -> None:
    (tmp_path / "scheduler.json").touch()
    with dask_processes(tmp_path) as started:
        assert started.address.startswith("tcp://127.0.0.1:")
    assert started.scheduler.returncode is not None


def test_results_and_notes_come_back_and_the_dashboard_calls_work_by_its_name(processes: Processes) -> None:
    notes: list[tuple[int, int]] = []
    with connect(processes.address) as on:
        wait_for(lambda: len(on.threads()) == 2, "two workers")
        names = ["offline-ranknet", "pdgd(rate=1e-3)", "pairrank"]
        found = dict(on.map(squared, [3, 4, 5], names, lambda i, note: notes.append((i, note))))
        assert found == {0: 9, 1: 16, 2: 25}
        assert set(notes) <= {(0, 3), (1, 4), (2, 5)}
        assert notes
        work = on.map(slow, [1.0, 1.0], ["offline-ranknet", "pdgd(rate=1e-3)"], lambda i, note: notes.append((i, note)))
        next(work)
        # as Prometheus reads them
        shown = set(re.findall(r'task_prefix_name="([^"]*)"', opened(f"{processes.dashboard}/metrics")))
        assert {"offline-ranknet", "pdgd(rate=1e\N{MINUS SIGN}3)"} <= shown
        work.close()
        assert on.dashboard.startswith("http://127.0.0.1:")


def test_a_worker_that_is_killed_costs_what_it_was_at(processes: Processes, tmp_path: Path) -> None:
    begun: Counter[int] = Counter()
    release = tmp_path / "release"
    with connect(processes.address) as on:
        wait_for(lambda: len(on.threads()) == 2, "two workers")
        before = on.everywhere(os.getpid)
        killed = next(iter(before.values()))
        assert isinstance(killed, int)

        def on_note(i: int, note: str) -> None:
            begun[i] += note == "begun"
            if note == "begun" and sum(begun.values()) == 2:  # each worker holds one item
                os.kill(killed, signal.SIGKILL)
                wait_for(lambda: not Path(f"/proc/{killed}").exists(), "the worker to end")
                release.touch()

        found = dict(on.map(held, [str(release)] * 6, ["held"] * 6, on_note))
        assert sorted(found) == list(range(6))
        assert sum(begun.values()) == 7, "the item of the killed worker began twice, no other"
        assert killed not in found.values()


def test_closing_stops_what_runs(processes: Processes, tmp_path: Path) -> None:
    place = tmp_path / "touched"
    with connect(processes.address) as on:
        work = on.map(touching, [str(place)], ["touching"], _interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(work)
        wait_for(place.exists, "the work to begin")
        wait_for(lambda: time.time() - place.stat().st_mtime > 1.0, "the work to stop")
        assert dict(on.map(squared, [7], ["next"])) == {0: 49}


def test_what_is_raised_there_is_raised_here_and_says_where(processes: Processes) -> None:
    with (
        connect(processes.address) as on,
        pytest.raises(RankloopError, match=r"tcp://127\.0\.0\.1:\d+: number 3 needs numbers"),
    ):
        list(on.map(refusing, [3], ["refusing"]))


def test_workers_that_could_give_other_bits_are_refused_by_name(processes: Processes, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(rankloop.__file__).parent, other / "rankloop", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "rankloop" / "metrics.py").open("a") as source:
        source.write("\nHALF = 0.5\n")
    elsewhere = os.pathsep.join([str(other), *(part for part in sys.path if part.endswith("site-packages"))])
    strange = processes.worker("--name", "strange", python_path=elsewhere)
    bare = processes.worker("--name", "bare", "--no-nanny", "--nthreads", "2")
    processes.wait_for(4)
    with pytest.raises(ClusterError) as refused, connect(processes.address):
        pass
    for process in (strange, bare):
        processes.end(process)
    processes.wait_for(2)
    told = str(refused.value)
    assert re.search(r"tcp://127.0.0.1:\d+ has sources of rankloop [0-9a-f]{12} instead of [0-9a-f]{12}\n", told)
    assert re.search(
        r"tcp://127.0.0.1:\d+ has OPENBLAS_NUM_THREADS not set instead of 1, .*threads 2 instead of 1\n", told
    )
    assert told.count("tcp://") == 2, "the two that are right are not named"


def test_a_worker_that_came_later_is_looked_at_too(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(processes.address) as on:
        wanted = {**cluster._wanted(), "numpy": "0.1"}
        monkeypatch.setattr(cluster, "_wanted", lambda: wanted)
        with pytest.raises(RankloopError, match=r"tcp://127\.0\.0\.1:\d+ has numpy [\d.]+ instead of 0\.1"):
            list(on.map(squared, [1], ["late"]))


def test_without_workers_with_a_deadly_item_and_without_a_scheduler_it_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with ExitStack() as stack:
        started = stack.enter_context(dask_processes(tmp_path, 0, **once))
        monkeypatch.setattr(cluster, "_COME", 0.5)
        with pytest.raises(ClusterError, match="has no workers; start some"), connect(started.address):
            pass
        monkeypatch.undo()
        started.worker()
        started.wait_for(1)
        on = stack.enter_context(connect(started.address))
        found = dict(on.map(deadly, [0, 1, 2], ["deadly"] * 3))
        lost = found.pop(1)
        assert isinstance(lost, Lost)
        assert re.match(r"1 worker died with it, the last at tcp://127.0.0.1:\d+; memory", lost.reason)
        assert found == {0: 0, 2: 4}
        for worker in started.workers:
            started.end(worker)
        wait_for(lambda: not on.threads(), "the workers to leave")
        monkeypatch.setattr(cluster, "PATIENCE", 0.5)
        with pytest.raises(ClusterError, match=r"tcp://\S+ has had no workers for 0 seconds"):
            next(on.map(slow, [30.0], ["slow"]))
        monkeypatch.undo()
        work = on.map(slow, [30.0], ["slow"])
        started.scheduler.kill()
        with pytest.raises(ClusterError, match=r"connection to the Dask scheduler of tcp://\S+ broke"):
            next(work)


def test_what_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("local:0", "local", "10.0.0.5:8786", "tcp://", "http://10.0.0.5:80", ""):
        with pytest.raises(InvalidParameter, match="must be the address of a Dask scheduler"), connect(wrong):
            pass
    monkeypatch.setattr(cluster, "_ANSWER", 0.5)
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        connect("tcp://127.0.0.1:9"),
    ):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rankloop\[cluster\]'"), connect("local:2"):
        pass


def _interrupt(_i: int, _note: str) -> None:
    raise KeyboardInterrupt
