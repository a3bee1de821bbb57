"""Three hosts, a database and users on one wire; and someone who watches, past the wire, who learns what."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.cluster.client import FEATURES, Terms
from tests.cluster.hosts import KEY, PORT, Host, Server, folder
from tests.cluster.spaces import Network
from tests.waiting import PATIENCE, wait_for

HOSTS = ("h1", "h2", "h3")
WRONG = {"h1": 0.0, "h2": 170.0, "h3": -240.0}  # seconds that clocks are off
RANKERS = ("shop", "films", "songs")  # as many as hosts: each learns one while all is well
SPEC: dict[str, Any] = {
    "learner": "pairrank",
    "parameters": {"pairs": "matched"},  # draws random numbers when it learns: they must be the same in every fold
    "features": [f"f{i}" for i in range(FEATURES)],
    "exposure": "full",
    "guardrail": None,
    "k": 5,
    "window_seconds": 20.0,
    "timeout_ms": 60_000,  # of the learner: a slow machine is no failure
    "seed": 7,
}
LOOK_EVERY = 0.05  # seconds
TO_BEGIN = 600.0  # seconds for a host to begin, or for all to be learned: half of the test's time-out


class Look(NamedTuple):
    """What the store said of a ranker at a moment."""

    at: float
    holder: str | None  # the host whose process has the lease
    head: int  # outcomes that are logged
    learned: int  # outcomes that are in the last snapshot


class Watcher(threading.Thread):
    """Looks at the store again and again, by a way that no fault of the network is in."""

    def __init__(self, inside: str) -> None:
        super().__init__(name="watcher", daemon=True)
        self._inside, self._ending = inside, threading.Event()
        self.looks: dict[str, list[Look]] = {name: [] for name in RANKERS}
        self.learners: list[str] = []  # processes that learn, as they are called in the store

    def run(self) -> None:
        """Until `end`."""
        connection: psycopg.Connection[Any] | None = None
        while not self._ending.wait(LOOK_EVERY):
            try:
                connection = connection or psycopg.connect(self._inside, autocommit=True, connect_timeout=2)
                rows = connection.execute(
                    "SELECT h.ranker, l.holder, h.next_seq, s.seq FROM log_offsets h "
                    "JOIN snapshots s ON s.ranker = h.ranker "
                    "LEFT JOIN leases l ON l.ranker = h.ranker"
                ).fetchall()
                workers = connection.execute("SELECT id FROM workers WHERE learns = 1").fetchall()
            except psycopg.Error:  # it is being restarted
                if connection is not None:
                    connection.close()
                connection = None
                continue
            now, self.learners = time.time(), [str(row[0]) for row in workers]
            for name, holder, head, learned in rows:
                host = None if holder is None else str(holder).partition("/")[0]
                self.looks[name].append(Look(now, host, int(head), int(learned)))
        if connection is not None:
            connection.close()

    def end(self) -> None:
        """Stop looking."""
        self._ending.set()
        if self.is_alive():
            self.join(PATIENCE)

    def last(self, ranker: str) -> Look:
        """The newest look at a ranker."""
        return wait_for(lambda: self.looks[ranker][-1:], f"a look at {ranker}")[0]


class Users:
    """The client in its namespace, and what it says on its output."""

    def __init__(self, network: Network, record: Path, seed: int, pause: float) -> None:
        hosts = {name: f"{network[name].address}:{PORT}" for name in HOSTS}
        terms = Terms(hosts, list(RANKERS), KEY, str(record), seed, pause)
        self.record = record
        self.ready: dict[str, tuple[bool, float]] = dict.fromkeys(HOSTS, (False, 0.0))  # and since when
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        command = [sys.executable, "-m", "tests.cluster.client", json.dumps(terms.__dict__)]
        self._process = network["users"].run(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._listening = threading.Thread(target=self._listen, name="listening", daemon=True)
        self._listening.start()
        self.tell("look")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "ready" in said:
                self.ready[said["host"]] = (said["ready"], said["at"])
            else:
                self._answers.put(said)

    def tell(self, *words: str) -> None:
        """A command."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(words) + "\n").encode())
        self._process.stdin.flush()

    def put(self, host: str, name: str, spec: dict[str, Any]) -> None:
        """Make a ranker."""
        self.tell("put", host, name, json.dumps(spec))
        answer = self._answers.get(timeout=PATIENCE)
        assert answer["answer"] is not None, answer
        assert answer["answer"][0] in (200, 201), answer

    def finish(self) -> int:
        """No more lists; how many events were not acknowledged in the end."""
        self.tell("finish")
        left: int = self._answers.get(timeout=TO_BEGIN)["left"]
        self._process.wait(PATIENCE)
        return left

    def kill(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait(PATIENCE)
        self._listening.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Cluster:
    """All of it. Whoever uses it calls `tend` now and then: a host that ended is started again, as systemd would."""

    def __init__(self, place: Path, seed: int, pause: float, **settings: Any) -> None:
        self.down: set[str] = set()  # hosts that are not to run just now
        with ExitStack() as stack:  # if one part does not start, those before it are ended
            self.network = Network([*HOSTS, "db", "users"])
            stack.callback(self.network.close)
            self.server = Server(self.network["db"], place)
            stack.callback(self.server.kill)
            self.server.start()
            self.hosts = {
                name: Host(self.network[name], place / f"{name}.log", WRONG[name], store=self.server.url, **settings)
                for name in HOSTS
            }
            for host in self.hosts.values():
                stack.callback(host.kill)
            self.users = Users(self.network, place / "record.jsonl", seed, pause)
            stack.callback(self.users.kill)
            self.watcher = Watcher(self.server.inside)
            stack.callback(self.watcher.end)
            self._stack = stack.pop_all()

    def begin(self, **spec: Any) -> None:
        """Start all hosts, make the rankers, wait until each host learns one; then the load."""
        for host in self.hosts.values():
            host.start()
        self.wait_ready(HOSTS)
        for name in RANKERS:
            self.users.put(HOSTS[0], name, {**SPEC, **spec})
        self.watcher.start()
        wait_for(self.spread, "each host to learn a ranker", TO_BEGIN)
        self.users.tell("load")

    def spread(self) -> bool:
        """Whether every host has a lease."""
        return {self.watcher.last(name).holder for name in RANKERS} == set(HOSTS)

    def tend(self) -> None:
        """Start again what ended."""
        for name, host in self.hosts.items():
            if name not in self.down and not host.running:
                host.start()

    def wait_ready(self, names: Sequence[str]) -> None:
        """Wait until these hosts say that they are."""

        def ready() -> bool:
            self.tend()
            return all(self.users.ready[name][0] for name in names)

        wait_for(ready, f"{', '.join(names)} to be ready", TO_BEGIN)

    def settle(self) -> int:
        """No more load; wait until all that is logged is learned and saved, then stop the hosts. How many events nobody
        acknowledged."""
        self.wait_ready(HOSTS)
        left = self.users.finish()

        def settled() -> bool:
            self.tend()
            with psycopg.connect(self.server.inside) as connection:
                waiting = connection.execute("SELECT COUNT(*) FROM impressions WHERE open = 1").fetchone()
            looks = [self.watcher.last(name) for name in RANKERS]
            return waiting == (0,) and all(look.head == look.learned for look in looks)

        wait_for(settled, "the last windows to close and all to be learned", TO_BEGIN, every=0.2)
        for host in self.hosts.values():
            host.stop()
        self.watcher.end()
        return left

    def close(self) -> None:
        """End what still runs."""
        self._stack.close()


@contextmanager
def cluster(seed: int = 0, pause: float = 0.05, **settings: Any) -> Iterator[Cluster]:
    """A cluster that has not begun; nothing of it is left afterwards."""
    with folder() as place:
        made = Cluster(place, seed, pause, **settings)
        try:
            yield made
        finally:
            made.close()
