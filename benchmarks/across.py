"""Learning across machines on one PostgreSQL: `python -m benchmarks.across [reach] [idle] [saving] [commits]`.

- `reach`: how long after feedback was acknowledged a process of another machine ranks with what was learned from it,
  where the machine that took the feedback learns and where it does not.
- `idle`: statements, and rows they returned, that a ranking process and a learning one send each second while nobody
  asks anything, with 1, 100 and 1,000 rankers.
- `saving`: what a large snapshot keeps waiting: feedback commits of the same process, and the learning of another
  ranker beside it.
- `commits`: commits a second of four writers that say nothing, that say NOTIFY inside of each transaction, and that
  leave it to a connection of its own. What decides where the word is said.

Machines are processes with machine names of their own: what lies on one host is not known to another except through
the database.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from benchmarks.__main__ import machine, print_rows
from rankloop import codec
from rankloop.service.engine import Engine
from rankloop.service.learning.fold import Fold
from rankloop.service.operations.rankers import complete
from rankloop.service.ranking.model import fresh_state
from rankloop.service.run import opened
from rankloop.service.settings import Settings
from rankloop.service.store import NewEvent, admin, log
from rankloop.service.wire.calls import FeedbackEvent, RankAnswer
from rankloop.service.wire.rankers import Spec

FEATURES = 136
SPEC = Spec(
    learner="pairrank",
    features=[f"f{i}" for i in range(FEATURES)],
    exposure="full",
    guardrail=None,
    timeout_ms=60_000.0,
)


def request(rng: random.Random, width: int = FEATURES) -> bytes:
    """Ten candidates."""
    candidates = [{"id": f"i{i}", "features": [rng.random() for _ in range(width)]} for i in range(10)]
    return msgspec.json.encode({"candidates": candidates, "query": f"q{rng.randrange(50)}"})


async def click(engine: Engine, name: str, body: bytes) -> None:
    """A list, and a click on its second item; acknowledged when this returns."""
    answer = msgspec.json.decode(await engine.rank(name, body), type=RankAnswer)
    event = FeedbackEvent(f"e-{answer.impression_id}", str(answer.impression_id), [answer.items[1].id], final=True)
    await engine.feedback([NewEvent(event, msgspec.json.encode(event))])


def settings(url: str, **changes: Any) -> Settings:
    """Those of a service; the rest as it comes."""
    return Settings(store=url, store_timeout_ms=60_000, feedback_timeout_ms=60_000, **changes)


def make_rankers(url: str, count: int, spec: Spec = SPEC) -> None:
    """`r0` … in the store."""
    full = complete(spec)
    state = fresh_state(full)
    with opened(settings(url)) as writer:
        for i in range(count):
            writer.do(lambda c, n=f"r{i}": admin.add_ranker(c, n, full, state, time.time()))  # type: ignore[misc]


# -- reach ---------------------------------------------------------------------------------------------------------


def node(url: str, name: str, learns: bool, takes: bool, seconds: float) -> None:
    """One machine, as a process: says on standard output when it ranks with how much, and when it was told what."""
    engine = Engine(settings(url, learn=learns))
    engine.machine, engine.worker = name, f"{name}:1:bench"
    engine.start()
    engine.warm.wait(300)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    live, end, told, known = engine.rankers["r0"], time.time() + seconds, 0, -1
    seen: list[tuple[float, int]] = []
    sent: list[float] = []

    def look() -> None:
        nonlocal known
        while time.time() < end + 8.0:
            model = live.model
            if model is not None and model.learned != known:
                known = model.learned
                seen.append((time.time(), known))
            time.sleep(0.002)

    looking = threading.Thread(target=look)
    looking.start()

    async def story() -> None:
        nonlocal told
        rng = random.Random(1)
        while time.time() < end:
            await click(engine, "r0", request(rng))
            sent.append(time.time())
            told += 1
            await asyncio.sleep(rng.expovariate(10.0))

    if takes:
        asyncio.run(story())
    looking.join()
    print(json.dumps({"seen": seen, "sent": sent}), flush=True)
    engine.stop()


def reach(url: str, where: str, seconds: float) -> dict[str, Any]:
    """From acknowledged to ranked with, in the machine that does not learn."""
    make_rankers(url, 1)
    takes = {"here": "learner" in where, "there": "learner" not in where}
    command = [sys.executable, "-m", "benchmarks.across", "--node", url, "--seconds", str(seconds)]
    nodes = {}
    for name, learns in (("here", "1"), ("there", "0")):
        line = [*command, "--name", f"{name}/1", "--learns", learns, "--takes", str(int(takes[name]))]
        nodes[name] = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert nodes[name].stdout is not None
        nodes[name].stdout.readline()  # type: ignore[union-attr]
    time.sleep(3)  # both have seen each other
    for one in nodes.values():
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = {name: json.loads(one.communicate(timeout=seconds + 60)[0].splitlines()[-1]) for name, one in nodes.items()}
    sent = said["here" if takes["here"] else "there"]["sent"]
    seen = said["there"]["seen"]
    took, never = [], 0
    for number, at in enumerate(sent):
        known = next((when for when, learned in seen if learned > number and when >= at), None)
        if known is None:
            never += 1
        else:
            took.append(known - at)
    found = np.array(took) * 1e3
    return {
        "feedback taken by": where,
        "outcomes": len(sent),
        "p50 ms": round(float(np.median(found))),
        "p99 ms": round(float(np.quantile(found, 0.99))),
        "max ms": round(float(found.max())),
        "never": never,
    }


# -- idle ----------------------------------------------------------------------------------------------------------


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Statements that this process sends to PostgreSQL, and rows that come back."""
    from rankloop.service.store.postgres import PostgresConnection

    found = {"statements": 0, "rows": 0}
    run, rows, many = PostgresConnection.run, PostgresConnection.rows, PostgresConnection.many

    def counted_run(self: Any, sql: str, *parameters: Any) -> int:
        found["statements"] += 1
        return run(self, sql, *parameters)

    def counted_rows(self: Any, sql: str, *parameters: Any) -> Any:
        found["statements"] += 1
        got = rows(self, sql, *parameters)
        found["rows"] += len(got)
        return got

    def counted_many(self: Any, sql: str, parameters: Any) -> int:
        found["statements"] += 1
        return many(self, sql, parameters)

    PostgresConnection.run, PostgresConnection.rows = counted_run, counted_rows  # type: ignore[method-assign]
    PostgresConnection.many = counted_many  # type: ignore[method-assign]
    try:
        yield found
    finally:
        PostgresConnection.run, PostgresConnection.rows = run, rows  # type: ignore[method-assign]
        PostgresConnection.many = many  # type: ignore[method-assign]


def idle(url: str, count: int, learns: bool, seconds: float) -> dict[str, Any]:
    """What a process asks while nobody asks it anything."""
    spec = msgspec.structs.replace(SPEC, features=["a", "b"])
    make_rankers(url, count, spec)
    with counted() as found:
        engine = Engine(settings(url, learn=learns))
        engine.start()
        engine.warm.wait(300)
        time.sleep(6)
        before, began, busy = dict(found), time.monotonic(), time.process_time()
        time.sleep(seconds)
        took, busy = time.monotonic() - began, time.process_time() - busy
        after = dict(found)
        engine.stop()
    rate = {name: (after[name] - before[name]) / took for name in after}
    return {
        "process": "learns and ranks" if learns else "ranks",
        "rankers": count,
        "statements/s": round(rate["statements"], 1),
        "rows/s": round(rate["rows"], 1),
        "CPU %": round(100 * busy / took, 1),
    }


# -- saving --------------------------------------------------------------------------------------------------------


def large(url: str, queries: int) -> int:
    """A hybrid that remembers so many queries, in the store; bytes of its state."""
    from rankloop.learners.pairwise.hybrid import Hybrid

    spec = complete(
        msgspec.structs.replace(
            SPEC, learner="hybrid", features=[f"f{i}" for i in range(20)], parameters={"max_queries": 1_000_000}
        )
    )
    learner = Hybrid(**spec.parameters)
    learner.load(codec.loads(fresh_state(spec))[0])
    items = np.arange(10)
    for i in range(queries):
        learner._memory.enter(f"query number {i}", items + i)
    arrays, meta = learner.state(), codec.loads(fresh_state(spec))[1]
    state = codec.dumps(arrays, meta)
    with opened(settings(url)) as writer:
        writer.do(lambda c: admin.add_ranker(c, "large", spec, state, time.time()), 600)
    return len(state)


def saving(url: str, kind: str, queries: int, seconds: float) -> list[dict[str, Any]]:
    """Commits of feedback, and steps of another ranker, in the seconds around a large snapshot and without one."""
    size = large(url, queries)
    make_rankers(url, 1, msgspec.structs.replace(SPEC, features=["a", "b"]))
    engine = Engine(settings(url))
    engine.machine = "here/1"
    engine.start()
    engine.warm.wait(600)
    assert engine.learning is not None
    for _ in range(600):
        if all(name in engine.learning.folds and engine.learning.folds[name].held for name in ("large", "r0")):
            break
        time.sleep(0.1)
    rows = [_around(engine, kind, size, saves, seconds) for saves in (False, True)]
    engine.stop()
    return rows


def _around(engine: Engine, kind: str, size: int, saves: bool, seconds: float) -> dict[str, Any]:
    assert engine.learning is not None
    took: list[float] = []
    lags: list[float] = []
    ending = threading.Event()
    folds: dict[str, Fold] = engine.learning.folds

    async def story() -> None:
        rng = random.Random(2)
        end = time.monotonic() + seconds
        while time.monotonic() < end or not ending.is_set():
            body = request(rng, 2)
            answer = msgspec.json.decode(await engine.rank("r0", body), type=RankAnswer)
            event = FeedbackEvent(f"e-{answer.impression_id}", str(answer.impression_id), [], final=True)
            began = time.perf_counter()
            await engine.feedback([NewEvent(event, msgspec.json.encode(event))])
            took.append(time.perf_counter() - began)
            head = engine.database.read(lambda c: log.heads(c)["r0"])
            began = time.perf_counter()
            while folds["r0"].learned < head:
                await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)

    saved = [0.0]

    def save() -> None:
        if saves:
            time.sleep(0.5)
            asyncio.run(click(engine, "large", request(random.Random(3), 20)))
            before = folds["large"].snapshot_seq
            began = time.perf_counter()
            engine.writer.do(lambda c: log.want(c, "large"))
            engine.wake_learner(["large"])
            while folds["large"].snapshot_seq == before:
                time.sleep(0.01)
            saved[0] = time.perf_counter() - began
        ending.set()

    other = threading.Thread(target=save)
    other.start()
    asyncio.run(story())
    other.join()
    feedback, lag = np.array(took) * 1e3, np.array(lags) * 1e3
    return {
        "store": kind,
        "snapshot MB": round(size / 1e6) if saves else 0,
        "takes s": round(saved[0], 2),
        "feedback p50 ms": round(float(np.median(feedback)), 1),
        "p99 ms": round(float(np.quantile(feedback, 0.99)), 1),
        "longest ms": round(float(feedback.max()), 1),
        "other ranker late p50 ms": round(float(np.median(lag)), 1),
        "late longest ms": round(float(lag.max()), 1),
    }


# -- commits -------------------------------------------------------------------------------------------------------


def commits(url: str, how: str, seconds: float, writers: int = 4) -> dict[str, Any]:
    """Commits a second, on the disk, of writers that have a row each."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS beats (id INT PRIMARY KEY, n BIGINT NOT NULL)")
        for i in range(writers):
            connection.execute("INSERT INTO beats VALUES (%s, 0) ON CONFLICT DO NOTHING", (i,))
    done, took, end = [0] * writers, [[] for _ in range(writers)], time.monotonic() + seconds  # type: ignore[var-annotated]
    pending = threading.Event()

    def write(i: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while time.monotonic() < end:
                began = time.perf_counter()
                with connection.transaction():
                    connection.execute("UPDATE beats SET n = n + 1 WHERE id = %s", (i,))
                    if how == "inside each transaction":
                        connection.execute("SELECT pg_notify('bench', %s)", (str(i),))
                took[i].append(time.perf_counter() - began)
                pending.set()
                done[i] += 1

    def say() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            while time.monotonic() < end:
                if pending.wait(0.1):
                    pending.clear()
                    connection.execute("SELECT pg_notify('bench', 'x')")
                time.sleep(0.02)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(writers)]
    if how == "by a connection of its own":
        threads.append(threading.Thread(target=say))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_took = np.concatenate([np.array(one) for one in took]) * 1e3
    return {
        "NOTIFY": how,
        "commits/s": round(sum(done) / seconds),
        "p50 ms": round(float(np.median(all_took)), 2),
        "p99 ms": round(float(np.quantile(all_took, 0.99)), 2),
    }


# -- all -----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.across", description=__doc__)
    parser.add_argument("what", nargs="*", default=["reach", "idle", "saving", "commits"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--queries", type=int, default=300_000, help="that the large ranker of `saving` remembers")
    parser.add_argument("--node", default="", help="used by `reach` itself")
    parser.add_argument("--name", default="")
    parser.add_argument("--learns", type=int, default=0)
    parser.add_argument("--takes", type=int, default=0)
    options = parser.parse_args()
    if options.node:
        node(options.node, options.name, bool(options.learns), bool(options.takes), options.seconds)
        return
    print(f"Machine: {machine()}\n")
    with tempfile.TemporaryDirectory(prefix="rankloop-across-", dir="/var/tmp") as folder:
        from pathlib import Path

        from tests.service.conftest import Postgres

        Path(folder).chmod(0o755)
        server = Postgres(Path(folder))
        try:
            for what in options.what:
                print(f"## {what}\n")
                print_rows(_table(what, server, options.seconds, options.queries, folder))
                print(flush=True)
        finally:
            server.end()


def _table(what: str, server: Any, seconds: float, queries: int, folder: str) -> list[dict[str, Any]]:
    if what == "reach":
        return [reach(server.database(), where, seconds) for where in ("the learner's machine", "another machine")]
    if what == "idle":
        counts = ((1, False), (100, False), (1000, False), (1, True), (100, True), (1000, True))
        return [idle(server.database(), count, learns, seconds / 2) for count, learns in counts]
    if what == "saving":
        rows = saving(f"{folder}/store.db", "SQLite", queries, seconds / 4)
        return rows + saving(server.database(), "PostgreSQL", queries, seconds / 4)
    return [
        commits(server.database(), how, seconds / 4)
        for how in ("none", "inside each transaction", "by a connection of its own")
    ]


if __name__ == "__main__":
    main()
