"""A sweep on local processes and on a Dask cluster of real ones: `python -m benchmarks.cluster [--workers 2] …`.

Ten learners on two data sets, with ten seeds 200 runs: in local processes; on `dask worker` processes; on those with
one of them killed (-9) every so often. The table says how long each took, how many runs began twice, whether the
Parquet file is the one of local processes byte for byte (without the columns that say how long runs took), and how many
of the learners' names Dask's dashboard had. Both roads compute the same: what differs in time is what the road costs.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import tempfile
import time
import urllib.request
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pyarrow.parquet as pq
from tests.dask_processes import dask_processes

from benchmarks.common import machine, print_rows
from rankloop.core.cluster import Cluster, connect
from rankloop.core.registry import parse_learner
from rankloop.lab.runs.results import read_results
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.workers import Event

LEARNERS = (
    *("pairrank", "pairrank?alpha=0.01", "pdgd", "pdgd?rate=0.001", "dbgd"),
    *("mgd", "greedy", "bubblerank", "cascade-klucb", "neural-pdgd"),
)
DATA = ("synthetic:mslr?queries=200", "synthetic:mq2007?queries=200")
TIMES = ["seconds", "rounds_per_second"]
MINUS = "\N{MINUS SIGN}"  # for a hyphen within a label, at which Dask would cut it


class Watch:
    """Counts what begins, kills a worker after every so many runs, and reads the names off the dashboard."""

    def __init__(self, cluster: Cluster | None = None, every: int = 0) -> None:
        self.cluster, self.every, self.killed, self.shown = cluster, every, 0, set[str]()
        self.begun: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """An event of the sweep."""
        self.begun[event.trial.id] += event.kind == "started"
        if self.cluster is None or event.kind != "finished":
            return
        if event.done % 10 == 5:
            page = self.cluster.dashboard.replace("/status", "/metrics")
            with urllib.request.urlopen(page, timeout=30) as answer:
                self.shown |= set(re.findall(r'task_prefix_name="([^"]*)"', answer.read().decode()))
        if self.every and event.done % self.every == 0 and event.done < event.runs:
            workers = [pid for pid in self.cluster.everywhere(os.getpid).values() if isinstance(pid, int)]
            os.kill(workers[self.killed % len(workers)], signal.SIGKILL)
            self.killed += 1


def main(arguments: Sequence[str]) -> None:
    """Run and print."""
    parser = ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kill-every", type=int, default=40, help="runs between two kills")
    asked = parser.parse_args(arguments)
    trials = [
        Trial(name, data, "navigational", params, asked.rounds, seed=seed)
        for data in DATA
        for name, params in map(parse_learner, LEARNERS)
        for seed in range(asked.seeds)
    ]
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(trials, Path(folder), asked.workers, asked.kill_every)
    print(f"Machine: {machine()}; {len(trials)} runs of {asked.rounds:,} rounds\n")
    print_rows(rows)


def _rows(trials: Sequence[Trial], folder: Path, workers: int, every: int) -> list[dict[str, Any]]:
    carry_out(trials[:: len(trials) // (2 * len(LEARNERS))], None, workers)  # compiles what is not compiled yet
    watch = Watch()
    seconds = _timed(trials, folder / "local.parquet", workers, watch)
    local = _digest(folder / "local.parquet")
    rows: list[dict[str, Any]] = [{"on": f"{workers} local processes", "seconds": seconds, "Parquet": local}]
    with dask_processes(folder, workers=workers) as started, connect(started.address) as cluster:
        for name, kills in ((f"{workers} Dask workers", 0), ("the same, killed in turn", every)):
            watch, out = Watch(cluster, kills), folder / f"{kills}.parquet"
            seconds = _timed(trials, out, workers, watch)
            wanted = {trial.label.replace("-", MINUS) if "=" in trial.label else trial.label for trial in trials}
            rows.append(
                {
                    "on": name,
                    "seconds": seconds,
                    "Parquet": _digest(out),
                    "the same": "yes" if _digest(out) == local else "no",
                    "killed": watch.killed,
                    "began twice": sum(watch.begun.values()) - len(trials),
                    "names on the dashboard": f"{len(wanted & watch.shown)} of {len(wanted)}",
                }
            )
    return rows


def _timed(trials: Sequence[Trial], out: Path, processes: int, watch: Watch) -> float:
    begin = time.perf_counter()
    carry_out(trials, out, processes, watch, watch.cluster)
    return time.perf_counter() - begin


def _digest(out: Path) -> str:
    """Of the file without how long runs took."""
    buffer = io.BytesIO()
    pq.write_table(read_results(out).drop_columns(TIMES), buffer)
    return blake2b(buffer.getvalue(), digest_size=6).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
