"""What counting costs a request: `python -m benchmarks.metrics [--requests 20000] [--rounds 7]`.

A ranking counts four times and times once. Ours (`rankloop.service.observability.metrics`) against `prometheus_client`:
used as its documentation has it (labels at each call), with the labelled children kept, and in its mode for several
processes, which keeps every number in a file. In turns, the least of some rounds each: a busy machine is busy for all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from rankloop.service.observability.metrics import LATENCY, METRICS, Metrics

COUNTED = ("rank_requests_total", "ranked_positions_total", "explored_positions_total", "rank_fallbacks_total")


def ours() -> Callable[[float], None]:
    """As the engine counts a ranking that fell back: each of the counters, once."""
    metrics = Metrics()

    def ranked(seconds: float) -> None:
        metrics.count("rank_requests_total", ranker="shop", exposure="full")
        metrics.observe("rank_seconds", seconds, ranker="shop")
        metrics.count("ranked_positions_total", 10, ranker="shop")
        metrics.count("explored_positions_total", 2, ranker="shop")
        metrics.count("rank_fallbacks_total", ranker="shop", reason="timeout")

    return ranked


def theirs(kept: bool) -> Callable[[float], None]:
    """The same with prometheus_client; `kept`: the children are looked up once, by whoever counts."""
    from prometheus_client import CollectorRegistry, Counter, Histogram

    registry = CollectorRegistry()
    counters = [Counter(name, METRICS[name].help, METRICS[name].labels, registry=registry) for name in COUNTED]
    requests, positions, explored, fallbacks = counters
    seconds_of = Histogram("rank_seconds", "Time.", ("ranker",), buckets=LATENCY, registry=registry)
    one, two = requests.labels(ranker="shop", exposure="full"), fallbacks.labels(ranker="shop", reason="timeout")
    three, four, five = positions.labels("shop"), explored.labels("shop"), seconds_of.labels("shop")

    def children(seconds: float) -> None:
        one.inc()
        five.observe(seconds)
        three.inc(10)
        four.inc(2)
        two.inc()

    def labelled(seconds: float) -> None:
        requests.labels(ranker="shop", exposure="full").inc()
        seconds_of.labels(ranker="shop").observe(seconds)
        positions.labels(ranker="shop").inc(10)
        explored.labels(ranker="shop").inc(2)
        fallbacks.labels(ranker="shop", reason="timeout").inc()

    return children if kept else labelled


def least(ways: dict[str, Callable[[float], None]], requests: int, rounds: int) -> dict[str, float]:
    """Microseconds a request, the least of some rounds, in turns."""
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, ranked in ways.items():
            began = time.perf_counter()
            for _ in range(requests):
                ranked(0.004)
            found[name] = min(found[name], (time.perf_counter() - began) / requests * 1e6)
    return found


def main() -> None:
    """Print a table; the mode for several processes must be chosen before the library is imported, so in a child."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
    mode = ", several processes" if several else ""
    ways = {
        f"prometheus_client, labels at each call{mode}": theirs(kept=False),
        f"prometheus_client, children kept{mode}": theirs(kept=True),
    }
    for name, cost in least({"ours": ours(), **ways}, given.requests, given.rounds).items():
        print(f"{cost:8.2f} µs a request  {name}")
    if not several:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": folder}
            subprocess.run([sys.executable, "-m", "benchmarks.metrics", *sys.argv[1:]], env=environment, check=True)


if __name__ == "__main__":
    main()
