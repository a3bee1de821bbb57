"""The service under load: `python -m benchmarks.service [--postgres] [--soak MINUTES] [--quick]`.

A service of one process on a fresh store, a load generator beside it on the same machine, learning on (`pairrank`, full
exposure), every impression answered by a simulated user. Latency counts from the time a request was due. First the two
rates that the service promises, then the highest rate of each kind sustained with p99 below the limit, then, with
--soak, so many minutes at half of that: no error, and no growth of memory or lag.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine, print_rows
from rankloop.client import Client
from rankloop.service.load_test.load import LoadPlan, LoadReport, find_maximum, run, start

LIMIT_MS = 15.0
KINDS = {"100 x 136": (100, 136, 100.0), "20 x 20": (20, 20, 500.0)}  # candidates, features, promised rate


@contextmanager
def service(store: str, workers: int = 1) -> Iterator[str]:
    """A running service on a free port; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from rankloop.cli import main; main()"
    options = ["serve", "--port", str(port), "--store", store, "--workers", str(workers)]
    process = subprocess.Popen([sys.executable, "-c", code, *options], stderr=subprocess.DEVNULL)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            client.wait_ready(120)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def row(kind: str, store: str, what: str, report: LoadReport) -> dict[str, Any]:
    """A line of the table."""
    return {
        "candidates": kind,
        "store": store,
        "run": what,
        "asked/s": report.plan.rate,
        "achieved/s": report.achieved_rate,
        "rank p50 ms": report.rank.p50,
        "rank p99 ms": report.rank.p99,
        "feedback p50 ms": report.feedback.p50,
        "feedback p99 ms": report.feedback.p99,
        "errors": sum(report.errors.values()),
        "fallbacks": report.fallbacks,
        "worst lag": report.lag or 0,
        "memory MB": f"{(report.rss_growth or 0) / 1e6:+.1f}",
    }


def measure(url: str, store: str, seconds: float, soak: float, only: str | None) -> list[dict[str, Any]]:
    """All runs against one service."""
    rows = []
    for kind, (candidates, features, rate) in KINDS.items():
        if only and only != kind:
            continue
        plan = LoadPlan(url=url, candidates=candidates, features=features, rate=rate, seconds=seconds, clean_up=True)
        rows.append(row(kind, store, f"{seconds:g} s", start(run(plan))))
        found = start(find_maximum(plan, limit_ms=LIMIT_MS, factor=1.15))
        best = [report for report, why in found.steps if not why]
        if best:
            rows.append(row(kind, store, f"highest with p99 <= {LIMIT_MS:g} ms", best[-1]))
        if soak and found.rate:
            half = replace(plan, rate=found.rate / 2, seconds=soak * 60, sample_seconds=10.0)
            rows.append(row(kind, store, f"{soak:g} min at half of it", start(run(half))))
    return rows


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.service", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="also on a PostgreSQL from pip (pgserver)")
    parser.add_argument("--soak", type=float, default=0.0, help="minutes at half the maximum")
    parser.add_argument("--quick", action="store_true", help="10 s a run instead of 30")
    parser.add_argument("--only", choices=list(KINDS))
    options = parser.parse_args()
    seconds = 10.0 if options.quick else 30.0
    rows = []
    with tempfile.TemporaryDirectory(prefix="rankloop-bench-") as folder:
        with service(str(Path(folder, "bench.db"))) as url:
            rows += measure(url, "SQLite", seconds, options.soak, options.only)
        if options.postgres:
            os.environ.setdefault("XDG_RUNTIME_DIR", folder)
            from pgserver.postgres_server import get_server

            server = get_server(Path(folder, "pg"))
            try:
                with service(server.get_uri()) as url:
                    rows += measure(url, "PostgreSQL", seconds, options.soak, options.only)
            finally:
                server.cleanup()
    print(f"Machine: {machine()}, load generator on the same machine\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
