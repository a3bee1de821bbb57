"""Back up a store under load, lose it, restore it, and check that every outcome before the recovery point is there."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from benchmarks import past_store
from benchmarks.common import ROOT, machine, print_rows, service

LEARNED = 100_000  # impressions; stores up to this size are learned
CANDIDATES, WIDTH = 10, 10
CODE = "from rankloop.cli import main; main()"
SPEC = {
    "learner": "pairrank",
    "features": [f"f{j}" for j in range(WIDTH)],
    "exposure": "full",
    "guardrail": None,
    "timeout_ms": 10_000.0,
}


class Asked(NamedTuple):
    """One ranking and the feedback on it, as a caller saw them."""

    began: float  # Unix seconds
    ranked: float  # seconds that the ranking took
    acknowledged: float  # Unix seconds at which the feedback was acknowledged
    impression: str


class Callers:
    """Threads that rank and report a click without pause until they are stopped."""

    def __init__(self, url: str, number: int) -> None:
        self.asked: list[Asked] = []
        self.failed = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(url, seed)) for seed in range(number)]
        for thread in self._threads:
            thread.start()

    def _call(self, url: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        bodies = [
            {"query": f"q{i % 7}", "candidates": [{"id": f"i{c}", "features": row} for c, row in enumerate(rows)]}
            for i, rows in enumerate(rng.random((50, CANDIDATES, WIDTH)).round(3).tolist())
        ]
        with httpx.Client(base_url=url, timeout=60) as http:
            while not self._stop.is_set():
                began, start = time.time(), time.perf_counter()
                answer = http.post("/v1/rankers/live/rank", json=bodies[rng.integers(len(bodies))]).json()
                ranked, own = time.perf_counter() - start, answer.get("impression_id")
                if own is None:
                    self.failed += 1
                    continue
                event = {"event_id": own, "impression_id": own, "clicks": [answer["items"][1]["id"]], "final": True}
                if http.post("/v1/feedback", json=event).is_success:
                    self.asked.append(Asked(began, ranked, time.time(), own))
                else:
                    self.failed += 1

    def stop(self) -> None:
        """End all of them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def latency(self, begin: float, end: float, share: float) -> float:
        """A percentile of rankings that began in an interval, in ms; NaN if there are none."""
        took = [one.ranked * 1e3 for one in self.asked if begin <= one.began < end]
        return float(np.percentile(took, share)) if took else float("nan")


def command(*arguments: str) -> dict[str, Any]:
    """The JSON of a `rankloop` command."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CODE, *arguments, "--json"], env=environment, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"rankloop {' '.join(arguments)} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fill(store: Path, size: int) -> None:
    """A store of `size` impressions, with a snapshot that covers them."""
    from rankloop.service.offline.replay import rebuild
    from rankloop.service.ranking.model import state_bytes
    from rankloop.service.storage import open_database, rankers, snapshots

    past_store.fill(str(store), size, users=size // 20 or 1)
    database = open_database(str(store))
    connection = database.connect(time_limits=False)
    if size > LEARNED:
        with connection.transaction():
            connection.run("UPDATE outcomes SET learn = 0")
    row = database.read(lambda c: rankers.get_ranker(c, "shop"))
    assert row is not None
    learner = rebuild(database, "shop").learner
    with connection.transaction():
        state = state_bytes(row.spec, learner.state())
        assert snapshots.save_snapshot(connection, "shop", row.generation, size, state, time.time())
    connection.close()
    database.truncate_log()
    database.close()


def put_live(url: str) -> None:
    """Make the ranker that is under load, and wait for its kernels."""
    with httpx.Client(base_url=url, timeout=300) as http:
        http.put("/v1/rankers/live", json=SPEC).raise_for_status()
        while not http.get("/v1/rankers/live").json()["ready"]:
            time.sleep(0.1)


def line(size: int, seconds: float, callers: int, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """One size: the figures, and what went wrong."""
    store, backup, restored = folder / "store.db", folder / "backup.db", folder / "new" / "store.db"
    restored.parent.mkdir()
    fill(store, size)
    with service(store) as one:
        put_live(one.url)
        load = Callers(one.url, callers)
        try:
            time.sleep(min(2.0, seconds / 2))  # until connections are open and code is loaded
            alone = time.time()
            time.sleep(seconds)
            began = time.time()
            made = command("backup", str(backup), "--store", str(store))
            ended = time.time()
            time.sleep(min(2.0, seconds / 2))  # what comes after the recovery point
        finally:
            load.stop()
    check = made["check"]
    verifying = ended - check["seconds"]
    problems = [f"{one['ranker']}: {one['problem']}" for one in check["rankers"] if one["problem"]]
    problems += [f"{load.failed} calls failed under load"] if load.failed else []
    size_before = store.stat().st_size
    store.unlink()  # the machine is lost

    start = time.perf_counter()
    back = command("restore", str(backup), "--store", str(restored))
    restoring = time.perf_counter() - start
    with closing(sqlite3.connect(restored)) as connection:
        there = {row[0] for row in connection.execute("SELECT impression_id FROM outcomes WHERE ranker = 'live'")}
    due = {one.impression for one in load.asked if one.acknowledged < check["taken"]}
    if missing := due - there:
        problems.append(f"{len(missing)} of {len(due)} outcomes acknowledged before the recovery point are missing")
    if not due or len(due) == len(load.asked):
        problems.append("there was no load before, or none after, the recovery point")
    start = time.perf_counter()
    with service(restored) as one:
        ready = time.perf_counter() - start
        again = Callers(one.url, 1)
        time.sleep(1.0)
        again.stop()
        if again.failed or not again.asked:
            problems.append("the restored service does not take feedback")
    for ranker in ("shop", "live"):
        replayed = command("replay", ranker, "--store", str(restored))
        if not replayed["equal"] or not replayed["compared"]:
            problems.append(f"replay of {ranker} does not equal its stored states")
    counted = {one["ranker"]: one["outcomes"] for one in back["check"]["rankers"]}
    figures = {
        "impressions": size,
        "store MB": size_before / 1e6,
        "backup MB": made["bytes"] / 1e6,
        "copy s": made["copy_seconds"],
        "verify s": check["seconds"],
        "p50 alone ms": load.latency(alone, began, 50),
        "p99 alone ms": load.latency(alone, began, 99),
        "p99 copying ms": load.latency(verifying - made["copy_seconds"], verifying, 99),
        "p99 verifying ms": load.latency(verifying, ended, 99),
        "longest ms": load.latency(began, ended, 100),
        "restore s": restoring,
        "start s": ready,
        "acknowledged before": len(due),
        "restored": counted["live"],
    }
    return figures, problems


def main() -> None:
    """The table."""
    parser = ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000], help="impressions")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load before the backup")
    parser.add_argument("--callers", type=int, default=3, help="threads that rank and report")
    given = parser.parse_args()
    os.environ["RANKLOOP_RETENTION_DAYS"] = "0"  # the filled impressions have a date of their own
    rows, wrong = [], []
    for size in given.sizes:
        folder = Path(tempfile.mkdtemp(prefix="rankloop-backup-"))
        try:
            figures, problems = line(size, given.seconds, given.callers, folder)
        finally:
            shutil.rmtree(folder)
        rows.append(figures)
        wrong += [f"{size:,} impressions: {problem}" for problem in problems]
        print(f"{size:,} impressions: {'; '.join(problems) or 'every check passed'}", flush=True)
    print(f"\n{machine()}, {given.callers} callers\n")
    print_rows([{"": name, **{f"{row['impressions']:,}": row[name] for row in rows}} for name in list(rows[0])[1:]])
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
