"""What `rankloop search` learns from simulated people, and how long it takes to the first result.

    python -m benchmarks.search quality [--visits 1500] [--seeds 10-12] [--path FOLDER]
    python -m benchmarks.search start [--path FOLDER]

`quality`: NDCG@10, by the people's hidden taste and on queries that nobody ever typed, of the engine's own order and of
what the service shows (its trials included), and what the interleaved lists say. Seeds 0 and 1 were looked at before,
and nothing was tuned. `start`: seconds from the command to its page, its first result and its first list by the ranker,
with nothing indexed and then again; kernels are compiled anew with RANKLOOP_KERNELS set to an empty folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.common import machine
from rankloop.client import Client
from rankloop.search.app import Search
from rankloop.search.index import Index
from rankloop.search.simulation import People
from rankloop.service.settings import Settings
from rankloop.service.supervisor.embedded import HOST, address, embedded, listening


def quality(root: Path, seeds: range, visits: int) -> None:
    """Print a row for each seed, and their means."""
    print(f"{visits} visits, {root}\n")
    print("| seed | engine | learned | gain | clicks say | preference | mixed lists | verdict after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    with tempfile.TemporaryDirectory() as folder, listening(0) as taken:
        settings = Settings(store=f"{folder}/clicks.db", host=HOST)
        with embedded(settings, taken), Client(address(taken), timeout=60.0, rank_timeout=60.0, queue=0) as client:
            index = Index(Path(folder, "index.db"))
            for seed in seeds:
                search = Search(index, client, f"seed-{seed}", seed)
                index.update([root], search.know, lambda *_: None)
                client.wait_warm(search.ranker)
                people = People(search, seed)
                for _ in range(visits):
                    people.visit()
                while client.ranker(search.ranker).unlearned_impressions:
                    time.sleep(0.05)
                engine, learned = people.quality()
                rows.append((engine, learned))
                trial = search.state()["trial"]
                low, high = trial.interval
                after = f"{trial.evidence.lists} lists" if trial.evidence else ""
                said = f"{trial.preference:+.2f} ({low:+.2f} to {high:+.2f})"
                numbers = f"{engine:.3f} | {learned:.3f} | {learned - engine:+.3f}"
                print(f"| {seed} | {numbers} | {trial.verdict} | {said} | {trial.lists} | {after} |", flush=True)
    engine, learned = (sum(row[i] for row in rows) / len(rows) for i in (0, 1))
    print(f"| mean | {engine:.3f} | {learned:.3f} | {learned - engine:+.3f} | | | | |")


def start(root: Path | None) -> None:
    """Print a row for a start with nothing indexed, and one for the next."""
    print("| start | page | first result | first list by the ranker | all read | a search then |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for which in ("first", "second"):
            row = _started(folder, ["--path", str(root)] if root else [])
            print(f"| {which} | {' | '.join(row)} |", flush=True)


def _started(cache: str, options: list[str]) -> list[str]:
    log, kernels = Path(cache, "log"), os.environ.get("RANKLOOP_KERNELS")
    kept = kernels or str(Path("~/.cache/rankloop/kernels").expanduser())
    environment = {**os.environ, "RANKLOOP_CACHE": cache, "RANKLOOP_KERNELS": kept}
    command = [sys.executable, "-m", "rankloop", "search", "--port", "0", "--no-browser", *options]
    began, times = time.perf_counter(), []

    def reached() -> None:
        times.append(f"{time.perf_counter() - began:.1f} s")

    with log.open("w") as said:
        process = subprocess.Popen(command, stderr=said, env=environment)
    try:
        while not (found := re.search(r"http://127\S+", log.read_text())):
            time.sleep(0.02)
        reached()
        while not _asked(f"{found[0]}/search?q=parse+json")["engine"]:
            time.sleep(0.02)
        reached()
        while _asked(f"{found[0]}/search?q=parse+json")["instead"]:
            time.sleep(0.05)
        reached()
        known = _asked(f"{found[0]}/state")["read"]
        while known[0] < known[1]:
            time.sleep(0.2)
            known = _asked(f"{found[0]}/state")["read"]
        reached()
        took = []
        for _ in range(21):
            asked = time.perf_counter()
            _asked(f"{found[0]}/search?q=parse+json")
            took.append(time.perf_counter() - asked)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    return [*times, f"{1e3 * sorted(took)[10]:.0f} ms"]


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("table", choices=["quality", "start"])
    parser.add_argument("--visits", type=int, default=1500)
    parser.add_argument("--seeds", default="10-12", help="first-last; choose on others than these")
    parser.add_argument("--path", type=Path, help="quality: the standard library; start: all that is installed")
    given = parser.parse_args()
    print(f"Machine: {machine()}\n")
    if given.table == "start":
        start(given.path)
    else:
        first, last = (int(part) for part in given.seeds.split("-"))
        quality(given.path or Path(sysconfig.get_path("stdlib")), range(first, last + 1), given.visits)


if __name__ == "__main__":
    main()
