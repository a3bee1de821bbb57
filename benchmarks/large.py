"""What a ranker that knows much keeps waiting: `python -m benchmarks.large [--queries 1000000] [--lists 5000]`.

Two such rankers, one at a time, in a service as it is started, beside a small one that gets a list and feedback every
few milliseconds: `hybrid` that remembers a million queries, and `olranknet` with its network and the 5,000 lists of 136
features that it learns from again. While the large one is saved as a version, and while it is rolled back to one, the
small one's answers, its feedback and how late it is learned are timed from outside; and as long without either.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import http.client
import random
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tests.service.conftest import Postgres
from tests.service.running import Service, ask, wait_for

from benchmarks.common import machine, print_rows
from rankloop.core import codec, registry
from rankloop.core.types import Candidates, Feedback
from rankloop.service.control.rankers import complete
from rankloop.service.ranking.model import fresh_state
from rankloop.service.settings import Settings
from rankloop.service.storage import admin
from rankloop.service.storage.database import Connection
from rankloop.service.supervisor.run import opened
from rankloop.wire.rankers import Spec

REMEMBERED = 10  # items of each query, or of each list
SPEC = Spec(exposure="full", guardrail=None, timeout_ms=60_000.0)


PART = 2**18  # bytes, as the service saves them


class Large(NamedTuple):
    """A ranker, and what it knows."""

    told: str
    spec: Spec
    state: bytes

    def put(self, connection: Connection) -> None:
        """Into a store, as it would have been saved there."""
        admin.add_ranker(connection, "large", self.spec, fresh_state(self.spec), time.time())
        ((generation,),) = connection.rows("SELECT generation FROM rankers WHERE name = 'large'")
        parts = [self.state[first : first + PART] for first in range(0, len(self.state), PART)]
        for number, part in enumerate(parts):
            columns = "ranker, generation, seq, part, state"
            connection.insert("snapshot_parts", columns, [("large", generation, 0, number, part)])
        connection.run("UPDATE snapshots SET state = ?, parts = ? WHERE ranker = 'large'", b"", len(parts))


def remembering(queries: int) -> Large:
    """A hybrid that remembers so many queries."""
    names = [f"f{i}" for i in range(20)]
    spec = complete(msgspec.structs.replace(SPEC, learner="hybrid", features=names, parameters={"max_queries": 2**20}))
    learner: Any = registry.make("hybrid", **spec.parameters)
    arrays, meta = codec.loads(fresh_state(spec))
    learner.load(arrays)
    items = np.arange(REMEMBERED)
    for i in range(queries):
        learner._memory.enter(f"query number {i}", items + i)
    return Large(f"`hybrid`, {queries:,} queries", spec, codec.dumps(learner.state(), meta))


def network(lists: int) -> Large:
    """An olRankNet that has learned so many lists, all of which it keeps."""
    names = [f"f{i}" for i in range(136)]
    spec = complete(msgspec.structs.replace(SPEC, learner="olranknet", features=names, parameters={"steps": 1}))
    learner = registry.make("olranknet", **spec.parameters)
    arrays, meta = codec.loads(fresh_state(spec))
    learner.load(arrays)
    rng = np.random.default_rng(0)
    for i in range(lists):
        rows = rng.random((REMEMBERED, len(names)))
        shown = learner.rank(Candidates(f"q{i}", np.arange(REMEMBERED), rows), REMEMBERED, rng)
        learner.learn(shown, Feedback.clicked(shown, [int(rows[:, 0].argmax())]), rng)
    return Large(f"`olranknet`, {lists:,} lists", spec, codec.dumps(learner.state(), meta))


class Small(threading.Thread):
    """The other ranker: a list and its feedback, again and again, each timed."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.ranked: list[float] = []
        self.fed: list[float] = []
        self.late: list[float] = []
        self.ending = threading.Event()
        self.failure: BaseException | None = None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # told in the thread that waits for this one
            self.failure = error

    def _run(self) -> None:
        rng, waiting = random.Random(2), list[tuple[int, float]]()  # outcomes to be known, when they were acknowledged
        first: int | None = None
        while not self.ending.is_set():
            candidates = [{"id": f"i{i}", "features": [rng.random(), rng.random()]} for i in range(10)]
            began = time.perf_counter()
            answer = ask(self._connection, "POST", "/v1/rankers/small/rank", {"candidates": candidates})
            now = time.perf_counter()
            assert answer.status == 200, answer
            self.ranked.append(now - began)
            knows = int(answer.json["version"].partition("@")[2])
            first = knows if first is None else first
            while waiting and waiting[0][0] <= knows - first:
                self.late.append(now - waiting.pop(0)[1])
            own = answer.json["impression_id"]
            event = {"event_id": own, "impression_id": own, "clicks": ["i1"], "final": True}
            began = time.perf_counter()
            told = ask(self._connection, "POST", "/v1/feedback", event)
            now = time.perf_counter()
            assert told.status == 200, told
            self.fed.append(now - began)
            waiting.append((len(self.fed), now))
            time.sleep(0.005)
        self._connection.close()


def beside(service: Service, seconds: float, act: Callable[[], None]) -> dict[str, Any]:
    """What the small ranker's callers see while something is done to the large one, and at least for so long."""
    small = Small(service.port)
    small.start()
    time.sleep(0.3)
    began = time.perf_counter()
    act()
    took = time.perf_counter() - began
    time.sleep(max(0.5, seconds - took))
    small.ending.set()
    small.join()
    if small.failure is not None:
        raise small.failure

    def at(values: list[float], part: float) -> float:
        return round(float(np.quantile(values, part)) * 1e3, 1)

    return {
        "takes s": round(took, 2),
        "lists": len(small.ranked),
        "rank p99 ms": at(small.ranked, 0.99),
        "longest": at(small.ranked, 1.0),
        "feedback p99 ms": at(small.fed, 0.99),
        "feedback longest": at(small.fed, 1.0),
        "learned late p50 ms": at(small.late, 0.5),
        "late longest": at(small.late, 1.0),
    }


def measured(url: str, kind: str, large: Large, seconds: float, log: Path) -> list[dict[str, Any]]:
    """A store with both rankers, a service on it, and what is done."""
    with opened(Settings(store=url, store_timeout_ms=600_000)) as writer:
        writer.do(large.put, 600)
    service = Service(log, store=url, feedback_timeout_ms=60_000, store_timeout_ms=60_000, watchdog_seconds=600)
    service.start()
    try:
        two = ["a", "b"]
        service.put_ranker("small", features=two, parameters={}, guardrail=None)
        wait_for(lambda: service.status("large")["ready"], "the large one")
        width = len(large.spec.features)

        def learn() -> None:
            for i in range(3):
                candidates = [{"id": j, "features": [((i + j) % 7) / 7] * width} for j in range(10)]
                body = {"candidates": candidates, "query": "query number 7"}
                own = service.ask("POST", "/v1/rankers/large/rank", body).json["impression_id"]
                event = {"event_id": own, "impression_id": own, "clicks": [1], "final": True}
                assert service.ask("POST", "/v1/feedback", event).status == 200
            wait_for(lambda: service.status("large")["unlearned_impressions"] == 0, "the large one to learn")

        def act(path: str, body: dict[str, Any]) -> None:
            answer = service.ask("POST", f"/v1/rankers/large/{path}", body, timeout=600)
            if answer.status not in (200, 201):
                print(f"{kind}, {large.told}, {path}: {answer.status} {answer.body.decode()}", flush=True)

        learn()
        rows = [{"done": "nothing"} | beside(service, seconds, lambda: None)]
        rows.append({"done": "kept as a version"} | beside(service, seconds, lambda: act("versions", {})))
        learn()
        rows.append({"done": "rolled back"} | beside(service, seconds, lambda: act("rollback", {"version": 1})))
        return [{"ranker": large.told, "MB": round(len(large.state) / 1e6), "store": kind} | row for row in rows]
    finally:
        service.stop()


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.large", description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000, help="that `hybrid` remembers")
    parser.add_argument("--lists", type=int, default=5_000, help="that `olranknet` has learned, and keeps")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each row, or longer")
    options = parser.parse_args()
    print(f"Machine: {machine()}\n")
    rows = []
    with tempfile.TemporaryDirectory(prefix="rankloop-large-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Postgres(folder)
        try:
            for make, size in ((remembering, options.queries), (network, options.lists)):
                if not size:
                    continue
                large = make(size)
                rows += measured(str(folder / f"{size}.db"), "SQLite", large, options.seconds, folder / "log")
                rows += measured(server.database(), "PostgreSQL", large, options.seconds, folder / "log")
        finally:
            server.end()
    print_rows(rows)


if __name__ == "__main__":
    main()
