"""Three hosts in network namespaces with network, process and clock faults, and a checker from outside (needs root)."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from tests.cluster.checker import Verdict, check, read_record
from tests.cluster.cluster import RANKERS, Cluster, cluster
from tests.cluster.faults import KINDS, Fault, Faults, TakeOver, take_overs
from tests.cluster.spaces import lacking

from benchmarks.common import machine, print_rows
from rankloop.cli._out import people, progress_bars

CALM = 20.0  # seconds before the first fault, for comparison
PAUSE = 0.1  # seconds between two lists of a host


def calm(made: Cluster, since: float, until: float) -> list[float]:
    """How long it takes without a fault until something is learned and saved that was logged after a moment."""
    found = []
    for name in RANKERS:
        looks = [look for look in made.watcher.looks[name] if look.at >= since]
        for moment in np.arange(since, until, 1.0):
            after = [look for look in looks if look.at >= moment]
            learned = next((look for look in after if look.learned > after[0].head), None)
            if learned is not None:
                found.append(learned.at - float(moment))
    return found


def row(what: str, faults: int, leases: list[float], learned: list[float]) -> dict[str, Any]:
    """A line of the table of take-overs, in seconds."""

    def seconds(values: list[float], share: float) -> str:
        return f"{np.quantile(values, share):.1f}" if values else "–"

    return {
        "fault": what,
        "faults": faults,
        "rankers": len(learned),
        "moved": len(leases),
        "lease taken, median s": seconds(leases, 0.5),
        "longest s": seconds(leases, 1.0),
        "learning goes on, median s": seconds(learned, 0.5),
        "the longest s": seconds(learned, 1.0),
    }


def table(faults: list[Fault], found: list[TakeOver], undisturbed: list[float]) -> list[dict[str, Any]]:
    """By kind of fault."""
    by_kind: dict[str, list[TakeOver]] = defaultdict(list)
    for one in found:
        by_kind[one.kind].append(one)
    rows = [row("none, for comparison", 0, [], undisturbed)]
    for kind in KINDS:
        some = by_kind[kind]
        count = sum(fault.kind == kind for fault in faults)
        leases = [one.lease for one in some if one.lease is not None]
        rows.append(row(kind, count, leases, [one.learned for one in some]))
    return rows


def verdict_rows(found: Verdict, left: int) -> list[dict[str, Any]]:
    """What the checker counted."""
    took = np.array(found.took) * 1e3
    said: dict[str, float] = dict(sorted(found.told.items()))
    said |= {f"lists in the caller's order ({reason})": count for reason, count in sorted(found.reasons.items())}
    said |= {"outcomes": found.outcomes, "events that nobody acknowledged in the end": left}
    said |= {"p50 of a list, ms": round(float(np.median(took)), 1), "p99": round(float(np.quantile(took, 0.99)), 1)}
    said |= {"slowest list": round(float(took.max()), 1), "found wrong": len(found.problems)}
    return [{"what clients were told, and the checker found": what, "count": count} for what, count in said.items()]


def run(count: int, seed: int, keep: Path | None) -> int:
    """The whole of it; how many things are wrong."""
    with cluster(seed, PAUSE) as made, progress_bars() as bars:
        made.begin()
        since = time.time()
        time.sleep(CALM)
        until = time.time() - 5.0
        faults, bar = Faults(made, seed), bars.add_task("faults", total=count)

        def tell(fault: Fault) -> None:
            bars.advance(bar)
            people.print(f"{fault.since - since:7.1f} s  {fault.kind}  {fault.host}  {', '.join(fault.held)}")

        try:
            faults.run(count - count // 2, 1, tell)
            alone = len(faults.made)
            faults.run(count // 2, 2, tell)
            left = made.settle()
        finally:
            if keep is not None:
                for path in (made.users.record, *(host.log_file for host in made.hosts.values())):
                    (keep / path.name).write_bytes(path.read_bytes())
        found = check(read_record(made.users.record), made.server.inside, RANKERS, faults.away(), faults.crashes)
        taken = [(fault, one) for fault in faults.made for one in take_overs(faults, [fault])]
        minutes = (time.time() - since) / 60
    print(f"Machine: {machine()}\n\n{count} faults in {minutes:.0f} minutes, seed {seed}\n\nOne at a time:\n")
    first = faults.made[:alone]
    print_rows(table(first, [one for fault, one in taken if fault in first], calm(made, since, until)))
    print("\nTwo at a time:\n")
    second = faults.made[alone:]
    print_rows(table(second, [one for fault, one in taken if fault in second], [])[1:])
    print()
    print_rows(verdict_rows(found, left))
    for problem in found.problems:
        print(f"WRONG: {problem}")
    if keep is not None:
        told = [{**vars(fault), "taken": [vars(one) for one in take_overs(faults, [fault])]} for fault in faults.made]
        (keep / "faults.json").write_text(json.dumps(told, indent=1))
    return len(found.problems) + left


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks hosts", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the record, the logs and the faults")
    options = parser.parse_args()
    reason = lacking()
    if reason is not None:
        sys.exit(f"there can be no hosts here: {reason}")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    sys.exit(1 if run(options.faults, options.seed, options.keep) else 0)


if __name__ == "__main__":
    main()
