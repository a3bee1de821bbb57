"""Held-out evaluation, and the memory of a whole run.

2,000 queries of 120 documents and 136 features: milliseconds of one held-out evaluation (best of five), and the peak
memory of a fresh process that generates nothing, maps the data, runs and evaluates, over the data's own size.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rankloop.core.registry import make
from rankloop.lab.datasets.sources import open_split, write_letor
from rankloop.lab.runs.probes import held_out

DATA = "synthetic:mslr?queries=2000&docs=120&sizes=fixed&vali=1&test=1"
# Peak resident memory over what the interpreter with its libraries and kernels takes; Linux only.
_RUN = """
import re, sys
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.datasets.sources import open_split
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
run(Trial("pairrank", "synthetic:mslr?queries=5&docs=20&sizes=fixed&vali=1&test=1", rounds=60))
before = peak()
split = open_split(sys.argv[1])
run(Trial("pairrank", sys.argv[1], "navigational", rounds=2000, evaluations=3), split)
size = sum(part.features.nbytes for part in split.parts.values())
print((peak() - before) / size, size / 1e6)
"""


def run() -> list[dict[str, Any]]:
    """Two rows: the evaluation's milliseconds, the run's peak memory."""
    split = open_split(DATA)
    learner, probe = make("pdgd"), held_out(split.train)
    learner.load({"theta_": np.random.default_rng(0).normal(size=136), "rate_": np.array([0.1])})
    probe(learner)
    seconds = []
    for _ in range(5):
        start = perf_counter()
        probe(learner)
        seconds.append(perf_counter() - start)
    documents = int(split.train.offsets[-1])
    rows: list[dict[str, Any]] = [
        {
            "what": "held-out NDCG@10",
            "of": f"2,000 queries, {documents:,} documents",
            "value": f"{1e3 * min(seconds):.1f} ms",
        }
    ]
    if Path("/proc/self/status").exists():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "data.txt")
            write_letor(split.train, path)
            environment = {**os.environ, "RANKLOOP_CACHE": folder, "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-c", _RUN, str(path)], env=environment, capture_output=True, text=True, check=True
            )
        ratio, size = (float(word) for word in done.stdout.split())
        rows.append(
            {
                "what": "peak memory of read, run, evaluate",
                "of": f"{size:.0f} MB of features",
                "value": f"{ratio:.2f} x",
            }
        )
    return rows
