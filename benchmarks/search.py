"""NDCG@10 of the search example after simulated visits, beside its engine's own order, on queries that nobody typed."""

from __future__ import annotations

import argparse
import os
import sysconfig
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from examples.embedded import HOST, address, embedded, listen
from examples.search.app import Search
from examples.search.index import Index
from examples.search.simulation import People

from benchmarks.common import machine
from rankloop.client import Client
from rankloop.service.settings import Settings


def quality(root: Path, seeds: range, visits: int) -> None:
    """Print a row for each seed, and their means."""
    print(f"{visits} visits, {root}\n")
    print("| seed | engine | learned | gain | clicks say | preference | mixed lists | verdict after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    with tempfile.TemporaryDirectory() as folder, listen(0) as taken:
        settings = Settings(store=f"{folder}/clicks.db", host=HOST)
        with embedded(settings, taken), Client(address(taken), timeout=60.0, rank_timeout=60.0, queue=0) as client:
            index = Index(Path(folder, "index.db"))
            for seed in seeds:
                search = Search(index, client, f"seed-{seed}", seed)
                index.update([root], search.know, lambda *_: None)
                client.wait_compiled(search.ranker)
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


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--visits", type=int, default=1500)
    parser.add_argument("--seeds", default="10-12", help="first-last; choose on others than these")
    parser.add_argument("--path", type=Path, help="default: the standard library")
    given = parser.parse_args()
    print(f"Machine: {machine()}\n")
    first, last = (int(part) for part in given.seeds.split("-"))
    quality(given.path or Path(sysconfig.get_path("stdlib")), range(first, last + 1), given.visits)


if __name__ == "__main__":
    main()
