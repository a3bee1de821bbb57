"""The plan against the machine: `python -m benchmarks.capacity_check [--constants FILE] [--workers 1 2 4]`.

A service with 1, 2 and 4 processes that rank on one PostgreSQL (pgserver), the database, the process that learns and
the one that sends on the same cores; every process has all it can do. Beside what is measured stands what the plan
says for it. Its constants come from other runs: other sizes of lists, another learner, one process and cores + 1.
Turns go round, so that what else the machine does meets all alike; medians count. What others had of the cores
meanwhile is told, and the plan is for the rest. Cores of a machine that is shared are not always as quick: how quick
they were is told by what the sender's own work took, which is the same whenever it is done, against what it took while
the constants were measured; beside the plan stands what it says for that.
"""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.__main__ import machine, print_rows
from benchmarks.wrk import store_at
from rankloop.service.capacity.constants import SHIPPED, Constants, load
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.machine import throughput
from rankloop.service.capacity.measure.campaign import CONNECTIONS, size_of, used_by
from rankloop.service.capacity.measure.runs import Run, serving

SIZES = ((20, 20), (100, 136))


def check(
    constants: Constants, workers: Sequence[int], turns: int, seconds: float, share: float, learner: str
) -> list[dict[str, Any]]:
    """Lines of the table."""
    cores = os.cpu_count() or 1
    found: dict[tuple[int, int, int], list[Run]] = {}
    for _ in range(turns):
        for processes in workers:
            with (
                tempfile.TemporaryDirectory(prefix="rankloop-check-") as folder,
                store_at("check", True, Path(folder)) as store,
                serving(store, processes) as bench,
            ):
                for n, d, counts in [(*size, counts) for counts in (False, True) for size in SIZES]:
                    run = bench.run(
                        n,
                        d,
                        learner=learner,
                        connections=CONNECTIONS * processes,
                        feedback=share,
                        seconds=seconds,
                    )
                    if not counts:
                        continue  # a service that has just begun plans its statements and fills its caches
                    found.setdefault((n, d, processes), []).append(run)
    rows = []
    for (n, d, processes), runs in sorted(found.items()):
        rates, others = [run.rate for run in runs], median(run.others for run in runs)
        asked = Load(requests=1, candidates=n, features=d, learner=learner, clicks_per_list=share)
        says = throughput(asked, constants, processes, cores - others, with_sender=True)
        rate, parts = median(rates), constants.store("postgresql")
        size = size_of(runs[0])
        work = parts.sender_list.at(size) + median(run.feedback for run in runs) * parts.sender_event.at(size)
        speed = work / median(run.sender for run in runs)
        rows.append(
            {
                "candidates": f"{n} x {d}",
                "processes": processes,
                "measured/s": round(rate),
                "lowest, highest": f"{min(rates):,.0f}, {max(rates):,.0f}",
                "cores used": round(median(map(used_by, runs)), 2),
                "others'": round(others, 2),
                "plan/s": round(says.rate),
                "limit": says.limit,
                "off": f"{says.rate / rate - 1:+.0%}",
                "cores were as quick": f"{speed:.2f}",
                "plan for that": round(says.rate * speed),
                "is off": f"{says.rate * speed / rate - 1:+.0%}",
            }
        )
    return rows


def main() -> None:
    """Parse, measure, print."""
    parser = ArgumentParser("python -m benchmarks.capacity_check", description=__doc__)
    parser.add_argument("--constants", default=str(SHIPPED))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--feedback", type=float, default=0.3, help="share of lists with an event")
    parser.add_argument("--learner", default="pairrank")
    options = parser.parse_args()
    constants = load(Path(options.constants))
    rows = check(constants, options.workers, options.turns, options.seconds, options.feedback, options.learner)
    print(
        f"Machine: {machine()}, sender and PostgreSQL on it; {options.learner}, {options.feedback:g} events a list; "
        f"constants of {constants.machine}, {constants.measured}\n"
    )
    print_rows(rows)


if __name__ == "__main__":
    main()
