"""The past at scale: `python -m benchmarks.past [--lists 10000000] [--folder DIR] [--stage NAME …]`.

Fills a store with so many settled lists (`benchmarks.past_store`: straight into its tables, as the service writes
them), exports it, estimates and replays from the files, and does the estimates again in memory and over two Dask
workers. Every stage is a process of its own, so that its peak memory is its own; with a tenth of the lists and with all
of them. Ten million take 14 GB in DIR, which is emptied at the end unless --keep.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.common import machine, print_rows
from benchmarks.past_store import BEGAN, PER_DAY, fill
from rankloop.core import codec
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.offline.challengers import planned, try_out
from rankloop.service.offline.estimates import Findings, figures, find
from rankloop.service.offline.replay import open_store, rebuild

USERS = 200_000
RANKER = "shop"


def told(found: Findings) -> dict[str, Any]:
    """The figures, and a digest of all their bits."""
    logged, base = found.policies[0], found.policies[1]
    bits = blake2b(repr([found._replace(idle=[]), [x.hex() for x in found.examination.tolist()]]).encode())
    values = {"logged": logged.value.value, "base": base.value.value, "base by list": base.by_list["ips"].value}
    return {**values, "±": base.value.high - base.value.value, "lists": found.lists, "bits": bits.hexdigest()[:12]}


def do_fill(options: Namespace) -> dict[str, Any]:
    """The store."""
    fill(str(options.folder / "store.db"), options.lists, USERS)
    return {"lists": options.lists}


def do_export(options: Namespace) -> dict[str, Any]:
    """Files of as many lists as are asked for; a bounded export goes to a folder of its own."""
    part = options.part
    until = None if part is None else BEGAN + part * (86_400 / PER_DAY) + 60.0
    folder = options.folder / ("log" if part is None else "part")
    with open_store(str(options.folder / "store.db")) as database:
        (found,) = export_log(database, folder, [RANKER], until=until)
    return {"lists": found.rows, "files": found.files, "MB": found.bytes / 1e6}


def do_estimate(options: Namespace, keep: bool = False) -> dict[str, Any]:
    """What was logged and the base order, from the files; with `keep`, from all lists in memory."""
    return told(find(try_out(planned(options.folder / "log", RANKER, [], at=options.part), keep=keep)))


def do_memory(options: Namespace) -> dict[str, Any]:
    """The same with every list kept."""
    return do_estimate(options, keep=True)


def do_dask(options: Namespace) -> dict[str, Any]:
    """The same by two workers."""
    from rankloop.core.cluster import connect
    from rankloop.service.offline.spread import try_out_on

    with connect("local:2") as cluster:
        tally, idle = try_out_on(cluster, planned(options.folder / "log", RANKER, [], at=options.part))
        peaks = cluster.everywhere(_peak)
    return {**told(figures(tally, idle)), "worker MB": max(one for one in peaks.values() if isinstance(one, float))}


def do_replay(options: Namespace) -> dict[str, Any]:
    """What `pdgd` learns from the files."""
    found = rebuild(options.folder / "log", RANKER, at=options.part)
    return {"lists": found.learned, "bits": blake2b(codec.dumps(found.learner.state())).hexdigest()[:12]}


def do_store_replay(options: Namespace) -> dict[str, Any]:
    """The same from the store."""
    with open_store(str(options.folder / "store.db")) as database:
        found = rebuild(database, RANKER, at=options.part)
    return {"lists": found.learned, "bits": blake2b(codec.dumps(found.learner.state())).hexdigest()[:12]}


def do_challengers(options: Namespace) -> dict[str, Any]:
    """Two learners side by side over two workers, each along the whole of it."""
    from rankloop.core.cluster import connect
    from rankloop.service.offline.spread import try_out_on

    walk = planned(options.folder / "log", RANKER, ["pdgd", "greedy"], at=options.part)
    with connect("local:2") as cluster:
        return told(figures(*try_out_on(cluster, walk)))


def do_walk(options: Namespace) -> dict[str, Any]:
    """The same two in one process."""
    return told(find(try_out(planned(options.folder / "log", RANKER, ["pdgd", "greedy"], at=options.part))))


STAGES: dict[str, Callable[[Namespace], dict[str, Any]]] = {
    "fill": do_fill,
    "export": do_export,
    "estimate": do_estimate,
    "memory": do_memory,
    "dask": do_dask,
    "replay": do_replay,
    "store-replay": do_store_replay,
    "walk": do_walk,
    "challengers": do_challengers,
}
TENTH = ("export", "estimate", "replay", "store-replay", "walk", "challengers")  # done with a tenth of the lists, too …
ONLY_TENTH = ("store-replay", "walk", "challengers")  # … or with that alone


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(options: Namespace, stage: str, part: int | None) -> dict[str, Any]:
    """A stage in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.past", "--one", stage, "--folder", str(options.folder)]
    call += ["--lists", str(options.lists), *(() if part is None else ("--part", str(part)))]
    text = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    row: dict[str, Any] = json.loads(text.splitlines()[-1])
    return row


def one(options: Namespace) -> None:
    """Do a stage here and say what it took."""
    began, cpu = time.perf_counter(), time.process_time()
    found = STAGES[options.one](options)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    lists = found["lists"]
    row = {"stage": options.one, "lists": lists, "s": seconds, "CPU s": used, "lists/s": lists / max(seconds, 1e-9)}
    row |= {"lists/CPU s": lists / max(used, 1e-9), "peak MB": _peak()}
    print(json.dumps(row | found))


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.past", description=__doc__)
    parser.add_argument("--lists", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stage", action="append", choices=list(STAGES), help="all if none is named")
    parser.add_argument("--keep", action="store_true", help="the store and the files")
    parser.add_argument("--part", type=int, help="of --one: so many of the first lists")
    parser.add_argument("--one", choices=list(STAGES), help="a stage, here, as JSON")
    options = parser.parse_args()
    if options.one:
        one(options)
        return
    made = options.folder is None
    options.folder = options.folder or Path(tempfile.mkdtemp(prefix="rankloop-past-"))
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"Machine: {machine()}\n")
    rows = []
    try:
        for stage in options.stage or STAGES:
            parts = [options.lists // 10] if stage in TENTH else []
            for part in [*parts, *([] if stage in ONLY_TENTH else [None])]:
                rows.append(measured(options, stage, part))
                print(rows[-1], flush=True)
    finally:
        if not options.keep and made:
            shutil.rmtree(options.folder, ignore_errors=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print()
    print_rows([{name: row.get(name, "") for name in columns} for row in rows])


if __name__ == "__main__":
    main()
