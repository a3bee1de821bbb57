"""Latency and processor time of ranking with and without ten open status pages, in turns on one service.

A page is its requests: `ASKED` is what a real one sends, which tests/page checks.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.common import machine, print_rows, processor_seconds, service
from rankloop.service.load_generator import ConnectionPool, LoadPlan, LoadReport, RequestFailed, run, start

RANKER = "watched"
ASKED: dict[str, float] = {  # path -> seconds between two requests of a page that shows one ranker
    "/v1/rankers": 3.0,
    f"/v1/rankers/{RANKER}/series?seconds=900": 3.0,
    f"/v1/rankers/{RANKER}/impressions?limit=6": 3.0,
    f"/v1/rankers/{RANKER}/weights": 10.0,
    f"/v1/rankers/{RANKER}/movement": 10.0,
    f"/v1/rankers/{RANKER}/versions": 10.0,
    f"/v1/rankers/{RANKER}/experiments": 10.0,
    "/v1/service": 10.0,
}


def watch(url: str, pages: int) -> None:
    """Be so many open pages, until ended."""

    async def ask(pool: ConnectionPool, path: str, every: float, delay: float) -> None:
        await asyncio.sleep(delay)
        while True:
            with suppress(RequestFailed):
                await pool.request("GET", path, seconds=10)
            await asyncio.sleep(every)

    async def main() -> None:
        pool = ConnectionPool(url, 2 * pages)
        jobs = [ask(pool, p, every, i * every / pages) for i in range(pages) for p, every in ASKED.items()]
        await asyncio.gather(*jobs)

    asyncio.run(main())


def measured(plan: LoadPlan, pages: int) -> LoadReport:
    """One run, with so many pages open."""
    watcher = multiprocessing.get_context("spawn").Process(target=watch, args=(plan.url, pages)) if pages else None
    if watcher:
        watcher.start()
    try:
        return start(run(plan))
    finally:
        if watcher:
            watcher.terminate()
            watcher.join()


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks pages", description=__doc__)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=60.0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rankloop-bench-") as folder, service(Path(folder, "b.db")) as one:
        plan = LoadPlan(url=one.url, ranker=RANKER, rate=options.rate, seconds=options.seconds)
        start(run(plan))  # warm
        for turn in range(options.rounds):
            for pages in (0, options.pages) if turn % 2 else (options.pages, 0):
                used, begin = processor_seconds(one.pid, with_children=True), time.monotonic()
                report = measured(plan, pages)
                busy = (processor_seconds(one.pid, with_children=True) - used) / (time.monotonic() - begin)
                latency = {"p50 ms": report.rank.p50, "p90 ms": report.rank.p90, "p99 ms": report.rank.p99}
                rows.append({"pages": pages, **latency, "% of a core": 100 * busy})
    print(f"Machine: {machine()}; {options.rate:g} rankings a second, {options.seconds:g} s a run, in turns\n")
    print_rows(rows)
    print()
    print_rows(
        [
            {"pages": pages}
            | {
                f"{name} of {what}": function([row[what] for row in rows if row["pages"] == pages])
                for what in ("p50 ms", "p99 ms", "% of a core")
                for name, function in (("median", statistics.median), ("least", min))
            }
            for pages in (0, options.pages)
        ]
    )


if __name__ == "__main__":
    main()
