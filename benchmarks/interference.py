"""Ranking latency beside clients that do not read, waiting operators, a large catalog, and many rankers."""

from __future__ import annotations

import http.client
import json
import os
import random
import select
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.client import Client
from rankloop.service.control.rankers import complete
from rankloop.service.ranking.model import fresh_state
from rankloop.service.settings import Settings
from rankloop.service.storage import rankers
from rankloop.service.supervisor.run import opened, prepare_ranker
from rankloop.wire.rankers import Spec

CANDIDATES, FEATURES = 20, 20
DOCS = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
AHEAD = 20  # requests that a client which does not read sends at once
Call = Callable[[], Any]


@contextmanager
def serving(store: Path, *options: str, **settings: str) -> Iterator[str]:
    """A running service; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from rankloop.cli import main; main()", "serve"]
    command += ["--port", str(port), "--store", str(store), *options]
    environment = os.environ | {f"RANKLOOP_{name.upper()}": value for name, value in settings.items()}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            client.wait_ready(300)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Asking:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=120)

    def post(self, path: str, body: bytes) -> Any:
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{path}: {response.status} {text[:200]!r}")
        return json.loads(text)

    def close(self) -> None:
        self._connection.close()


def bodies(count: int, seed: int = 0) -> list[bytes]:
    """Requests to rank, encoded."""
    rng = random.Random(seed)
    return [
        json.dumps(
            {
                "query": f"q{rng.randrange(50)}",
                "candidates": [
                    {"id": f"i{i}", "features": [round(rng.random(), 6) for _ in range(FEATURES)]}
                    for i in range(CANDIDATES)
                ],
            }
        ).encode()
        for _ in range(count)
    ]


def measure(url: str, what: str, options: Namespace, seconds: float = 0.0) -> dict[str, Any]:
    """Rank so many times, and for so many seconds at least; a line of the table."""
    asking, sent = Asking(url), bodies(100)
    try:
        for body in sent[:20]:
            asking.post("/v1/rankers/shop/rank", body)
        took: list[float] = []
        fallbacks, end = 0, time.monotonic() + seconds
        while len(took) < options.requests or time.monotonic() < end:
            began = time.perf_counter()
            answer = asking.post("/v1/rankers/shop/rank", sent[len(took) % len(sent)])
            took.append(time.perf_counter() - began)
            fallbacks += bool(answer["fallback"])
    finally:
        asking.close()
    p50, p99 = np.percentile(took, [50, 99]) * 1e3
    return {
        "beside": what,
        "requests": len(took),
        "p50 ms": round(float(p50), 2),
        "p99 ms": round(float(p99), 2),
        "max ms": round(max(took) * 1e3, 1),
        "fallbacks": fallbacks,
        "memory MB": round(memory(url) / 1e6),
    }


def memory(url: str) -> float:
    """Of the largest process of the service, in bytes."""
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=120)
    with closing(connection):
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return max(float(line.rpartition(" ")[2]) for line in lines if line.startswith("process_resident_memory_bytes"))


@contextmanager
def beside(work: Call) -> Iterator[None]:
    """Call `work` in a thread, again and again."""
    ending = threading.Event()

    def run() -> None:
        while not ending.is_set():
            with suppress(OSError, RuntimeError, http.client.HTTPException):
                work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(120)


@contextmanager
def clients_that_do_not_read(url: str, count: int) -> Iterator[None]:
    """So many connections at any time."""
    address, poll = ("127.0.0.1", urlsplit(url).port), select.poll()
    held: dict[int, socket.socket] = {}

    def replace() -> None:
        while len(held) < count:
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            try:
                one.connect(address)
                one.sendall(DOCS * AHEAD)
            except OSError:
                one.close()
                break
            held[one.fileno()] = one
            poll.register(one, select.POLLRDHUP)  # not POLLIN: what comes is not read
        for number, _ in poll.poll(100):
            poll.unregister(number)
            held.pop(number).close()

    replace()
    try:
        with beside(replace):
            yield
    finally:
        for one in held.values():
            one.close()


def make_ranker(store: Path) -> None:
    spec = Spec(features=[f"f{i}" for i in range(FEATURES)], exposure="full", guardrail=None, timeout_ms=60_000.0)
    prepare_ranker(Settings(store=str(store)), "shop", spec)


def readers(store: Path, options: Namespace) -> Iterator[dict[str, Any]]:
    """Alone, and beside clients that do not read."""
    with serving(store, request_seconds="3") as url:  # so that many are dropped meanwhile
        yield measure(url, "nothing", options)
        with clients_that_do_not_read(url, options.connections):
            yield measure(url, f"{options.connections} clients that do not read", options)


def operators(store: Path, options: Namespace) -> Iterator[dict[str, Any]]:
    """Beside operator calls that block, since nobody learns."""
    with serving(store, "--no-learn") as url:
        yield measure(url, "nothing, with no learner", options)
        asking = Asking(url)
        shown = asking.post("/v1/rankers/shop/rank", bodies(1)[0])
        event = {"event_id": "1", "impression_id": shown["impression_id"], "clicks": [], "final": True}
        asking.post("/v1/feedback", json.dumps(event).encode())
        asking.close()
        with ExitStack() as stack:
            for _ in range(options.operators):
                one = Asking(url)
                stack.callback(one.close)
                stack.enter_context(beside(lambda one=one: one.post("/v1/rankers/shop/versions", b"{}")))  # type: ignore[misc]
            time.sleep(1.0)  # until they block
            yield measure(url, f"{options.operators} x POST /versions, with no learner", options)


def catalog(store: Path, options: Namespace) -> Iterator[dict[str, Any]]:
    """Beside a large catalog in the store."""
    now = time.time()
    rows = (
        (1, f"item-{i}", i, 100, json.dumps({"price": i % 997, "brand": f"brand {i % 500}"}).encode(), now)
        for i in range(options.items)
    )
    part = (1, "large", "items", options.items, 0, options.items, 100 * options.items, b"{}", now)
    with closing(sqlite3.connect(store)) as connection, connection:
        columns = "part, catalog, kind, seq, forgotten, rows, bytes, fields, created"
        connection.execute(f"INSERT INTO catalogs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", part)
        columns = "part, id, seq, size, body, changed"
        connection.executemany(f"INSERT INTO catalog_rows ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    with serving(store) as url:
        yield measure(url, f"a catalog of {options.items:,} items", options, options.sweep_seconds)


def many(store: Path, options: Namespace) -> Iterator[dict[str, Any]]:
    """Beside many rankers that are in use."""
    names = [f"tenant-{i}" for i in range(options.rankers)]
    spec = complete(Spec(learner="greedy", features=["a", "b"], exposure="full", guardrail=None))
    state = fresh_state(spec)
    with opened(Settings(store=str(store))) as writer:
        for first in range(0, len(names), 100):
            some = names[first : first + 100]
            writer.do(lambda c, some=some: [rankers.add_ranker(c, one, spec, state, time.time()) for one in some])  # type: ignore[misc]
    with serving(store) as url:
        asking = Asking(url)
        body = json.dumps({"candidates": [{"id": i, "features": [i, 1]} for i in range(10)]}).encode()
        for name in names:
            asking.post(f"/v1/rankers/{name}/rank", body)
        turn = iter(range(10**9))

        def next_ranker() -> None:
            asking.post(f"/v1/rankers/{names[next(turn) % len(names)]}/rank", body)
            time.sleep(0.05)

        with beside(next_ranker):
            yield measure(url, f"{options.rankers:,} rankers in use", options)
        asking.close()


CONDITIONS = {"readers": readers, "operators": operators, "catalog": catalog, "rankers": many}


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks interference", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=3000, help="rankings per line")
    parser.add_argument("--connections", type=int, default=200, help="clients that do not read")
    parser.add_argument("--operators", type=int, default=12, help="concurrent operator calls")
    parser.add_argument("--items", type=int, default=2_000_000, help="rows of the catalog")
    parser.add_argument("--rankers", type=int, default=1000)
    parser.add_argument(
        "--sweep-seconds", type=float, default=40.0, help="ranking beside the catalog; sweeps are 30 s apart"
    )
    parser.add_argument("--only", choices=list(CONDITIONS), action="append")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see whether it works")
    options = parser.parse_args()
    if options.quick:
        quick = {"requests": 200, "connections": 20, "items": 20_000, "rankers": 20, "sweep_seconds": 2.0}
        vars(options).update(quick)
    rows: list[dict[str, Any]] = []
    for name in options.only or CONDITIONS:
        with tempfile.TemporaryDirectory(prefix="rankloop-bench-") as folder:
            store = Path(folder, "bench.db")
            make_ranker(store)
            rows += CONDITIONS[name](store, options)
    print(f"Machine: {machine()}; one client, {CANDIDATES} x {FEATURES}, on the same machine\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
