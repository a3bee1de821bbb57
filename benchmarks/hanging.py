"""Latency of one ranker beside another whose learner hangs in rank, learn or load."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import machine, print_rows, service

PLACE = "tests.service.hanging:HangsIn"
ITEMS = [{"id": f"i{i}"} for i in range(10)]


def ask(http: httpx.Client, name: str, query: str) -> dict[str, Any]:
    """A list, and a click on it."""
    answer: dict[str, Any] = http.post(f"/v1/rankers/{name}/rank", json={"query": query, "candidates": ITEMS}).json()
    event = {"event_id": answer["impression_id"], "impression_id": answer["impression_id"], "clicks": ["i2"]}
    http.post("/v1/feedback", json={**event, "final": True}).raise_for_status()
    return answer


def measured(http: httpx.Client, seconds: float) -> tuple[np.ndarray[Any, Any], int]:
    """How long each list of the good ranker took, in ms, and how many were fallbacks."""
    took: list[float] = []
    fallbacks, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        body = {"query": f"q{len(took) % 7}", "candidates": ITEMS}
        answer = http.post("/v1/rankers/good/rank", json=body).json()
        took.append((time.perf_counter() - start) * 1e3)
        fallbacks += answer["fallback"]
        event = {"event_id": answer["impression_id"], "impression_id": answer["impression_id"], "clicks": ["i2"]}
        http.post("/v1/feedback", json={**event, "final": True}).raise_for_status()
    return np.array(took), fallbacks


def line(where: str, seconds: float, folder: Path) -> dict[str, Any]:
    """The service afresh, with a learner that hangs in `where`; nowhere: none."""
    os.environ["RANKLOOP_ALLOW"] = PLACE
    os.environ |= {"RANKLOOP_LEARN_SECONDS": "3", "RANKLOOP_WATCHDOG_SECONDS": "4"}
    with service(folder / f"{where}.db") as one, httpx.Client(base_url=one.url, timeout=60) as http:
        common = {"exposure": "full", "guardrail": None}
        http.put("/v1/rankers/good", json={"learner": "bubblerank", **common}).raise_for_status()
        bad = {"learner": PLACE, "parameters": {"where": where}, "timeout_ms": 100.0, **common}
        http.put("/v1/rankers/bad", json=bad).raise_for_status()
        while any(http.get(f"/v1/rankers/{name}").json()["ready"] is False for name in ("good", "bad")):
            time.sleep(0.1)
        measured(http, 1.0)
        if where != "nowhere":
            for query in ("a", "hang", "b"):
                ask(http, "bad", query)
        took, fallbacks = measured(http, seconds)
        status, good = http.get("/v1/rankers/bad").json(), http.get("/v1/rankers/good").json()
        after = http.post("/v1/rankers/bad/rank", json={"query": "a", "candidates": ITEMS}).json()
    return {
        "the other hangs in": where,
        "p50 ms": round(float(np.median(took)), 2),
        "p99 ms": round(float(np.quantile(took, 0.99)), 2),
        "max ms": round(float(took.max()), 1),
        "fallbacks": fallbacks,
        "lag": good["unlearned_impressions"],
        "the other afterwards": status["trouble"] or ("ranks" if not after["fallback"] else after["reason"]),
    }


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks hanging", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rankloop-hanging-", dir="/var/tmp") as folder:
        for where in ("nowhere", "rank", "learn", "spin", "load"):
            rows.append(line(where, options.seconds, Path(folder)))
            sys.stderr.write(f"{rows[-1]}\n")
    print(f"Machine: {machine()}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
