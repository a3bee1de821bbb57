"""The service under load: latency at two rates, and the highest rate with p99 below 15 ms, on SQLite or PostgreSQL."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from benchmarks.common import machine, postgres, print_rows, service
from rankloop.service.load_generator import LoadPlan, LoadReport, find_maximum, run, start

LIMIT_MS = 15.0
KINDS = {"100 x 136": (100, 136, 100.0), "20 x 20": (20, 20, 500.0)}  # candidates, features, promised rate


def row(kind: str, store: str, what: str, report: LoadReport) -> dict[str, Any]:
    """A line of the table."""
    return {
        "candidates": kind,
        "store": store,
        "run": what,
        "rate/s": report.plan.rate,
        "achieved/s": report.achieved_rate,
        "rank p50 ms": report.rank.p50,
        "rank p99 ms": report.rank.p99,
        "feedback p50 ms": report.feedback.p50,
        "feedback p99 ms": report.feedback.p99,
        "errors": sum(report.errors.values()),
        "fallbacks": report.fallbacks,
        "worst lag": report.lag or 0,
    }


def measure(url: str, store: str, seconds: float, kinds: list[str]) -> list[dict[str, Any]]:
    """All runs against one service."""
    rows = []
    for kind in kinds:
        candidates, features, rate = KINDS[kind]
        plan = LoadPlan(url=url, candidates=candidates, features=features, rate=rate, seconds=seconds, clean_up=True)
        rows.append(row(kind, store, f"{seconds:g} s", start(run(plan))))
        found = start(find_maximum(plan, limit_ms=LIMIT_MS, factor=1.15))
        best = [report for report in found.steps if not report.not_sustained(LIMIT_MS)]
        if best:
            rows.append(row(kind, store, f"highest with p99 <= {LIMIT_MS:g} ms", best[-1]))
    return rows


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks service", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="also on a PostgreSQL from pip (pgserver)")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rankloop-bench-") as folder:
        with service(Path(folder, "bench.db")) as one:
            rows += measure(one.url, "SQLite", options.seconds, options.kinds)
        if options.postgres:
            with postgres(Path(folder, "pg")) as store, service(store) as one:
                rows += measure(one.url, "PostgreSQL", options.seconds, options.kinds)
    print(f"Machine: {machine()}, load generator on the same machine\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
