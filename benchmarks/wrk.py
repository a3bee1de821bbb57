"""The service beside a bare handler that parses the same body: latency and rate by form and connections, with wrk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx

from benchmarks.common import ROOT, machine, postgres, print_rows, running, service
from benchmarks.parsing import bodies

FORMS = ("rows by name", "rows as lists", "columns", "packed float64", "packed float32")
SIZES = {"100x136": (100, 136), "20x20": (20, 20)}
TURNS = 3
FED = 20  # candidates in the feeder's requests
SCRIPT = """
local file = io.open(os.getenv("RANKLOOP_BODY"), "rb")
wrk.method, wrk.body = "POST", file:read("*a")
wrk.headers["Content-Type"] = "application/json"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{"p50": %f, "p99": %f, "rate": %f, "lost": %d, "refused": %d}\\n',
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, summary.requests / (summary.duration / 1e6),
    e.connect + e.read + e.write + e.timeout, e.status))
end
"""


class Contestant(NamedTuple):
    """Someone who answers."""

    name: str
    url: str

    @property
    def path(self) -> str:
        """Where it ranks."""
        return f"{self.url}/v1/rankers/wrk/rank"


@contextmanager
def serving(name: str, source: Path, store: str, workers: int, features: int) -> Iterator[Contestant]:
    """A service with a ranker that learns."""
    with service(store, "--workers", str(workers), source=source) as one:
        spec = {
            "learner": "pairrank",
            "features": [f"feature_{j}" for j in range(features)],
            "exposure": "full",
            "guardrail": None,
        }
        httpx.put(f"{one.url}/v1/rankers/wrk", json=spec, timeout=300).raise_for_status()
        while not httpx.get(f"{one.url}/v1/rankers/wrk").json().get("ready", True):  # its kernels are being compiled
            time.sleep(0.1)
        yield Contestant(name, one.url)


@contextmanager
def feeding(one: Contestant, features: int, rate: float) -> Iterator[None]:
    """Meanwhile somebody ranks and clicks, so many times a second."""
    over = threading.Event()
    body = bodies(FED, features)[1]["rows as lists"]

    def feed() -> None:
        with httpx.Client(timeout=30) as http:
            while not over.wait(1 / rate):
                answer = http.post(one.path, content=body).json()
                event = {
                    "event_id": f"{os.getpid()}-{time.monotonic_ns()}",
                    "impression_id": answer["impression_id"],
                    "clicks": [item["id"] for item in answer["items"][1:2]],
                    "final": True,
                }
                http.post(f"{one.url}/v1/feedback", json=event)

    thread = threading.Thread(target=feed) if rate else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread is not None:
            thread.join()


def wrk(one: Contestant, script: Path, body: Path, connections: int, seconds: float) -> dict[str, float]:
    """One turn."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script), one.path]
    found = subprocess.run(
        command, env={**os.environ, "RANKLOOP_BODY": str(body)}, capture_output=True, text=True, check=True
    )
    told: dict[str, float] = json.loads(found.stdout.strip().splitlines()[-1])
    if told["lost"] or told["refused"]:
        raise SystemExit(
            f"{one.name}: {told['refused']:g} requests were refused, {told['lost']:g} lost\n{found.stdout}"
        )
    return told


def fallbacks(one: Contestant) -> float:
    """How often it has answered with the caller's order."""
    text = httpx.get(f"{one.url}/metrics", timeout=30).text if one.name != "bare" else ""
    lines = [line for line in text.splitlines() if line.startswith("rankloop_rank_fallbacks_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def takes(one: Contestant, body: bytes) -> bool:
    """Whether it knows this form."""
    return httpx.post(one.path, content=body, timeout=60).status_code == 200


def measure(size: str, options: Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of the table for one size."""
    n, d = SIZES[size]
    _, sent = bodies(n, d)
    script = folder / "wrk.lua"
    script.write_text(SCRIPT)
    with ExitStack() as stack:
        bare = stack.enter_context(running(["-m", "benchmarks.bare", "PORT", str(d)], "/"))
        all_of_them = [Contestant("bare", bare.url)]
        sources = {"service": ROOT} | ({"before": Path(options.against).resolve()} if options.against else {})
        for name, source in sources.items():
            store = str(folder / f"{name}-{n}.db")
            if options.postgres:
                store = stack.enter_context(postgres(folder / f"pg-{name}-{n}"))
            all_of_them.append(stack.enter_context(serving(name, source, store, options.workers, d)))
        for form in options.forms:
            body = folder / "body.json"
            body.write_bytes(sent[form])
            able = [one for one in all_of_them if takes(one, sent[form])]
            for connections in options.connections:
                yield from _rows(size, form, connections, able, options, (script, body), d)


def _rows(
    size: str, form: str, connections: int, able: list[Contestant], options: Namespace, files: tuple[Path, Path], d: int
) -> Iterator[dict[str, Any]]:
    before = {one.name: fallbacks(one) for one in able}
    turns: dict[str, list[dict[str, float]]] = {one.name: [] for one in able}
    for turn in range(options.turns + 1):
        for one in able:
            with feeding(one, d, options.feed):
                told = wrk(one, *files, connections, 1.0 if turn == 0 else options.seconds)
            if turn:  # the first is to get warm
                turns[one.name].append(told)
    base = median(told["p50"] for told in turns["bare"])
    for one in able:
        p50, p99, rate = (median(told[what] for told in turns[one.name]) for what in ("p50", "p99", "rate"))
        yield {
            "candidates": size,
            "form": form,
            "connections": connections,
            "who": one.name,
            "p50 ms": round(p50, 2),
            "p99 ms": round(p99, 2),
            "requests/s": round(rate),
            "p50 / bare": round(p50 / base, 2),
            "fallbacks": round(fallbacks(one) - before[one.name]),
        }


def main() -> None:
    """Parse, run, print line by line."""
    parser = ArgumentParser("python -m benchmarks wrk", description=__doc__)
    parser.add_argument("--against", help="another checkout of rankloop, measured in the same turns")
    parser.add_argument("--seconds", type=float, default=5.0, help="a turn")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--workers", type=int, default=1, help="processes of the service")
    parser.add_argument("--feed", type=float, default=10.0, help="lists a second that are clicked meanwhile; 0: none")
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL from pip (pgserver) instead of SQLite")
    parser.add_argument("--folder", help="where stores are made; on the disk that is to be measured")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rankloop-wrk-", dir=options.folder) as folder:
        for size in options.sizes:
            for row in measure(size, options, Path(folder)):
                print(" ".join(f"{value}" for value in row.values()), file=sys.stderr, flush=True)
                rows.append(row)
    store = "PostgreSQL" if options.postgres else "SQLite"
    print(f"Machine: {machine()}, wrk on the same machine; {store}, {options.workers} process(es)\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
