"""Runs of a real service under a set load, and what each process took for it.

A `Bench` is a service on a fresh store with so many processes that rank. `Bench.run` makes a ranker, lets the sender
warm it up, looks at every process's time, sends, waits until everything is learned, and looks again: what was taken in
between, less what the same processes take when nothing comes, belongs to the lists and events in between. Times are
processor times, so others on the machine disturb them little; the rate is what it is.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import httpx

from rankloop.core.errors import RankloopError
from rankloop.core.registry import parse_learner
from rankloop.service.capacity.measure import processes

PATIENCE = 120.0  # seconds for a service to come up, kernels included
IDLE = 1.0  # seconds to watch processes that have nothing to do
LOOKS = 3  # times
WARM = 0.7  # seconds of requests before anything is counted
LAG = 60.0  # seconds for a learner to catch up
ROLES = ("ranking", "learning", "database")
SERVICE = "from rankloop.cli import main; main()"
COUNTERS = (
    "SELECT xact_commit, pg_current_wal_insert_lsn() - '0/0', tup_inserted + tup_updated, pg_database_size(datname) "
    "FROM pg_stat_database WHERE datname = current_database()"
)


@dataclass(frozen=True)
class Run:
    """What was asked, and what a list took; times in seconds a list, bytes a list."""

    candidates: int
    features: int
    k: int
    learner: str
    workers: int
    connections: int
    feedback: float
    lists: int
    events: int
    rate: float
    others: float  # cores that somebody else had meanwhile
    p50: float
    p99: float
    quantiles: tuple[float, ...]
    events_p50: float
    ranking: float
    learning: float
    database: float
    sender: float
    commits: float
    wal: float
    rows: float
    stored: float
    request: float
    received: float
    reported: float
    memory_ranking: float
    memory_learning: float


@dataclass(frozen=True)
class _Look:
    """At one moment."""

    at: float
    ranking: float
    learning: float
    database: float
    everything: float
    counted: tuple[float, ...]


class Bench:
    """A service that runs."""

    def __init__(self, url: str, supervisor: int, workers: int, store: str) -> None:
        self.url, self.workers, self.store = url, workers, store
        pids = processes.children(supervisor)
        if len(pids) != workers + 1:
            raise RankloopError(f"the service has {len(pids)} processes instead of {workers + 1}; see its log")
        self._ranking, self._learning = pids[:workers], pids[workers]
        self._database, self._postmaster = None, 0
        if "://" in store:
            import psycopg

            self._database = psycopg.connect(store, autocommit=True)
            found = self._database.execute("SELECT pg_backend_pid()").fetchone()
            self._postmaster = processes.parent_of(found[0] if found else 0)
        time.sleep(IDLE)  # what a start leaves behind is over
        looks = [self._look()]
        for _ in range(LOOKS):
            time.sleep(IDLE)
            looks.append(self._look())
        # The least of some: a database that tidies up meanwhile would seem to need that all the time.
        self._idle = {
            role: min((getattr(b, role) - getattr(a, role)) / (b.at - a.at) for a, b in itertools.pairwise(looks))
            for role in ROLES
        }

    def _look(self) -> _Look:
        at = time.monotonic()
        counted: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
        if self._database is not None:
            found = self._database.execute(COUNTERS).fetchone()
            counted = tuple(map(float, found or counted))
        else:
            with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as file:
                pages, each = (file.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
            counted = (0.0, 0.0, 0.0, float(pages * each))  # what is in the write-ahead log only counts, too
        return _Look(
            at,
            sum(map(processes.seconds, self._ranking)),
            processes.seconds(self._learning),
            processes.tree_seconds(self._postmaster) if self._postmaster else 0.0,
            processes.all_seconds(),
            counted,
        )

    def run(
        self,
        candidates: int,
        features: int,
        *,
        learner: str = "pairrank",
        k: int = 10,
        connections: int = 8,
        feedback: float = 0.0,
        seconds: float = 1.5,
    ) -> Run:
        """One load on a fresh ranker."""
        name = f"m{time.time_ns()}"
        self._make(name, learner, features, k)
        asked = {
            "url": self.url,
            "name": name,
            "ranker": name,
            "candidates": candidates,
            "features": features,
            "k": k,
            "connections": connections,
            "feedback": feedback,
            "seconds": seconds,
            "warm": WARM,
        }
        command = [sys.executable, "-m", "rankloop.service.capacity.measure.sender", json.dumps(asked)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RankloopError("the sender of the measurement ended before it began; see its message above")
            self._caught_up(name)
            before = self._look()
            process.stdin.write("\n")
            process.stdin.flush()
            told: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
            sent = self._look()
        if not told.get("lists") or told["errors"]:
            raise RankloopError(
                f"{candidates} x {features}: {told.get('errors', 'all')} of {told.get('lists', 0)} requests failed; "
                "constants are of a service that answers: see its log, or measure with fewer connections"
            )
        self._caught_up(name)
        if self._database is not None:
            time.sleep(1.1)  # backends tell their counts once a second
        after = self._look()
        ours = sum(getattr(sent, role) - getattr(before, role) for role in ROLES) + told["cpu"]
        others = max(sent.everything - before.everything - ours, 0.0) / (sent.at - before.at)
        lists, took = told["lists"], after.at - before.at
        spent = {
            role: max(getattr(after, role) - getattr(before, role) - idle * took, 0.0) / lists
            for role, idle in self._idle.items()
        }
        counts = [(new - old) / lists for new, old in zip(after.counted, before.counted, strict=True)]
        return Run(
            candidates=candidates,
            features=features,
            k=k,
            learner=learner,
            workers=self.workers,
            connections=connections,
            feedback=told["events"] / lists,
            lists=lists,
            events=told["events"],
            rate=told["rate"],
            others=others,
            p50=told["p50"],
            p99=told["p99"],
            quantiles=tuple(told["quantiles"]),
            events_p50=told["events_p50"],
            **spent,
            sender=told["cpu"] / lists,
            commits=counts[0],
            wal=counts[1],
            rows=counts[2],
            stored=counts[3],
            request=told["request"],
            received=told["received"] / lists,
            reported=told["reported"] / lists,
            memory_ranking=max(map(processes.own_bytes, self._ranking)),
            memory_learning=processes.own_bytes(self._learning),
        )

    def _make(self, name: str, learner: str, features: int, k: int) -> None:
        chosen, parameters = parse_learner(learner)
        spec = {
            "learner": chosen,
            "parameters": parameters,
            "features": [f"f{j}" for j in range(features)],
            "k": k,
            "exposure": "full",
            "guardrail": None,
        }
        self._ask("PUT", f"/v1/rankers/{name}", spec)
        end = time.monotonic() + PATIENCE
        while not self._ask("GET", f"/v1/rankers/{name}").get("ready", True):
            if time.monotonic() > end:
                raise RankloopError(f"{learner}: its kernels were not compiled within {PATIENCE:g} s; run it again")
            time.sleep(0.05)

    def _caught_up(self, name: str) -> None:
        end = time.monotonic() + LAG
        while self._ask("GET", f"/v1/rankers/{name}").get("lag"):
            if time.monotonic() > end:
                raise RankloopError(f"the learner is behind by more than {LAG:g} s; measure with less feedback")
            time.sleep(0.05)

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = httpx.request(method, self.url + quote(path), json=body, timeout=60)
        if answer.status_code >= 300:
            raise RankloopError(f"{method} {path}: {answer.status_code}: {answer.text[:300]}")
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def close(self) -> None:
        """Let go of the database."""
        if self._database is not None:
            self._database.close()


@contextmanager
def serving(store: str, workers: int) -> Iterator[Bench]:
    """A service on a store, with so many processes that rank; ended afterwards."""
    if not processes.supported():
        raise RankloopError("processor times are read from /proc, which this system does not have: measure on Linux")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", SERVICE, "serve", "--port", str(port)]
    command += ["--store", store, "--workers", str(workers)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > end:
                raise RankloopError(
                    f"a service on {store} did not come up; `rankloop serve --store {store}` says why, and "
                    "`rankloop doctor` what it stands on"
                )
            time.sleep(0.1)
        bench = Bench(url, process.pid, workers, store)
        try:
            yield bench
        finally:
            bench.close()
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url + "/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def as_rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Plain, for a file."""
    return [asdict(run) for run in runs]
