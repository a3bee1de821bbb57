"""Learning across machines on one PostgreSQL: time until others rank with what was learned, idle load.

Machines are processes with machine names of their own on one PostgreSQL. Parts: reach, idle.
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

from benchmarks.common import machine, print_rows
from rankloop.service.control.rankers import complete
from rankloop.service.ranking.model import fresh_state
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import NewEvent, rankers
from rankloop.service.supervisor.run import opened
from rankloop.wire.calls import FeedbackEvent, RankAnswer
from rankloop.wire.rankers import Spec

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
            writer.do(lambda c, n=f"r{i}": rankers.add_ranker(c, n, full, state, time.time()))  # type: ignore[misc]


# -- reach ---------------------------------------------------------------------------------------------------------


def node(url: str, name: str, learns: bool, takes: bool, seconds: float) -> None:
    """One machine, as a process: says on standard output when it ranks with how much, and when it was told what."""
    engine = Engine(settings(url, learn=learns))
    engine.machine, engine.worker = name, f"{name}:1:bench"
    engine.start()
    engine.kernels_ready.wait(300)
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
    from rankloop.service.storage.postgres import PostgresConnection

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
        engine.kernels_ready.wait(300)
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


# -- all -----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks across", description=__doc__)
    parser.add_argument("what", nargs="*", default=["reach", "idle"])
    parser.add_argument("--seconds", type=float, default=20.0)
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
                print_rows(_table(what, server, options.seconds))
                print(flush=True)
        finally:
            server.end()


def _table(what: str, server: Any, seconds: float) -> list[dict[str, Any]]:
    if what == "reach":
        return [reach(server.database(), where, seconds) for where in ("the learner's machine", "another machine")]
    counts = ((1, False), (100, False), (1000, False), (1, True), (100, True), (1000, True))
    return [idle(server.database(), count, learns, seconds / 2) for count, learns in counts]


if __name__ == "__main__":
    main()
