"""A service as a process of its own, and the load it gets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import end_with_run, ended
from tests.waiting import PATIENCE as PATIENCE
from tests.waiting import wait_for as wait_for

FEATURES = 8
SPEC: dict[str, Any] = {
    "learner": "pairrank",
    "parameters": {"pairs": "matched"},  # draws random numbers when it learns: the same in every replay
    "features": [f"f{i}" for i in range(FEATURES)],
    "exposure": "full",
    "k": 10,
    "window_seconds": 1.5,
    "timeout_ms": 60_000,
    "seed": 7,
}
LOST = (OSError, http.client.HTTPException)  # a connection that breaks, in any of the ways it can


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Service:
    """`rankloop serve` with settings from the environment.

    Its store may take long unless a test says otherwise: on a busy machine the default time-outs end in the base order
    and in status 503.
    """

    def __init__(self, log_file: Path, **settings: Any) -> None:
        self.log_file = log_file
        settings = {"store_timeout_ms": 60_000, "feedback_timeout_ms": 60_000, **settings}
        self.port = int(settings.pop("port", 0)) or free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKLOOP_")}
        self._environment = kept | {f"RANKLOOP_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment["RANKLOOP_PORT"] = str(self.port)
        self._environment["TMPDIR"] = str(log_file.parent)  # what processes that are killed leave there goes, too
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, wait: bool = True) -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, "-c", "from rankloop.cli import main; main()", "serve"]
        with self.log_file.open("ab") as output:
            # A session of its own, so that workers can be killed with their parent.
            self.process = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        end_with_run(self.process.pid)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the service ended: {self.log()}"
            try:
                return self.ask("GET", "/readyz").status == 200
            except LOST:
                return False

        wait_for(ready, "the service to be ready", every=0.02)

    def kill(self) -> None:
        """SIGKILL to it and its workers: no handler runs, nothing is flushed."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            ended(self.process.pid)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def ask(self, method: str, path: str, body: Any = None, timeout: float = PATIENCE) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return ask(connection, method, path, body)
        finally:
            connection.close()

    def put_ranker(self, name: str, **changes: Any) -> None:
        answer = self.ask("PUT", f"/v1/rankers/{name}", {**SPEC, **changes})
        assert answer.status in (200, 201), answer
        wait_for(lambda: self.status(name)["ready"], f"the kernels of {name}")

    def status(self, name: str) -> dict[str, Any]:
        answer = self.ask("GET", f"/v1/rankers/{name}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    def log(self) -> str:
        return self.log_file.read_text()[-4000:]


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Answer:
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may end while we look
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def free_port() -> int:
    """A port that nobody uses, below those that the system gives to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def rank_request(rng: random.Random, n: int = 10) -> dict[str, Any]:
    candidates = [{"id": f"i{i}", "features": [rng.random() for _ in range(FEATURES)]} for i in range(n)]
    return {"candidates": candidates, "query": f"q{rng.randrange(20)}"}


class Load(threading.Thread):
    """Ranks and reports without pause, outlives a service that dies, and remembers exactly what was acknowledged.

    Some lists get no feedback, some several events, some a final one, some the same event twice. What was not
    acknowledged is mostly sent again with the same id, sometimes given up.
    """

    def __init__(self, name: str, port: int, ranker: str = "shop", pause: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self.ranker = ranker
        self.shown: dict[str, list[str]] = {}  # acknowledged impressions
        self.answers: dict[str, bytes] = {}  # by request_id
        self.sent: dict[str, dict[str, Any]] = {}  # events, by id
        self.acknowledged: dict[str, list[str]] = defaultdict(list)  # event id -> every status it was answered with
        self.reasons: Counter[str] = Counter()  # of fallbacks
        self.versions: list[str] = []
        self.refused: list[Answer] = []  # feedback that was not taken
        self.unranked: list[Answer] = []  # rankings that failed: there should be none, whatever happens
        self.lost = 0  # connections that broke
        self._rng = random.Random(name)
        self._pause = pause
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._requests: deque[dict[str, Any]] = deque()
        self._events: deque[dict[str, Any]] = deque()
        self._numbers = 0
        self._ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._turn()
                except LOST:
                    self.lost += 1
                    self._connection.close()
                    time.sleep(0.01)
                time.sleep(self._pause)
        except BaseException as error:  # told by `end`, in the thread of the test
            self.failure = error
        finally:
            self._connection.close()

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure

    def _turn(self) -> None:
        if self._events and self._rng.random() < 0.7:
            self._report(self._events.popleft())
        else:
            self._rank(self._requests.popleft() if self._requests else self._new_request())

    def _number(self) -> str:
        self._numbers += 1
        return f"{self.name}-{self._numbers}"

    def _new_request(self) -> dict[str, Any]:
        request = rank_request(self._rng)
        if self._rng.random() < 0.5:
            request["request_id"] = self._number()
        return request

    def _rank(self, request: dict[str, Any]) -> None:
        known = request.get("request_id")
        try:
            answer = ask(self._connection, "POST", f"/v1/rankers/{self.ranker}/rank", request)
        except LOST:
            if known and self._rng.random() < 0.8:
                self._requests.append(request)
            raise
        if answer.status != 200:
            self.unranked.append(answer)
            return
        found = answer.json
        if found["fallback"]:
            self.reasons[found["reason"]] += 1
        if found["impression_id"] is None:
            return
        shown = [item["id"] for item in found["items"]]
        if known:
            assert self.answers.setdefault(known, answer.body) == answer.body, "a repeated request, another answer"
            if self._rng.random() < 0.1:
                self._requests.append(request)
        if found["impression_id"] not in self.shown:
            self.versions.append(found["version"])
            self.shown[found["impression_id"]] = shown
            self._plan(found["impression_id"], shown)

    def _plan(self, impression: str, shown: list[str]) -> None:
        """What the user of this list will do."""

        def event(**fields: Any) -> dict[str, Any]:
            made = {"event_id": self._number(), "impression_id": impression, **fields}
            self._events.append(made)
            return made

        def clicks() -> list[str]:
            return self._rng.sample(shown, self._rng.randrange(3))

        kind = self._rng.random()
        if kind < 0.1:
            return  # silence
        if kind < 0.2:
            event(clicks=clicks())  # the window will close it
        elif kind < 0.6:
            last = event(clicks=clicks(), final=True)
            if self._rng.random() < 0.3:
                self._events.append(last)  # twice
        elif kind < 0.9:
            event(clicks=clicks())
            event(clicks=clicks(), final=True)
        else:
            event(clicks=clicks())
            event(final=True)

    def _report(self, event: dict[str, Any]) -> None:
        self.sent[event["event_id"]] = event
        try:
            answer = ask(self._connection, "POST", "/v1/feedback", event)
        except LOST:
            if self._rng.random() < 0.8:
                self._events.append(event)
            raise
        if answer.status != 200:
            self.refused.append(answer)
            self._events.append(event)
            time.sleep(0.05)
            return
        (receipt,) = answer.json["results"]
        assert receipt["event_id"] == event["event_id"]
        self.acknowledged[event["event_id"]].append(receipt["status"])
