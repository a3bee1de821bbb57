"""Speed and memory of the LETOR reader, beside scikit-learn's on the same files in the same run.

Ours reads the text, writes the kept form and maps it (`normalise="none"`, as scikit-learn does not normalise); theirs
is `load_svmlight_file(query_id=True)` and `toarray()`; best of three each. Peak memory is that of a fresh process which
reads, normalises and then goes through all features, above what it had after a tiny file, in units of the dense table
(Linux only).
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from rankloop.lab.datasets.letor import read_letor

SHAPES = {"dense, MSLR's shape": (120, 136, 1.0), "sparse, Yahoo's shape": (24, 700, 0.32)}  # docs, features, filled
# VmHWM, because ru_maxrss of a child begins at what its parent had
_PEAK = """
import re, sys
from rankloop.lab.datasets.letor import read_letor
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
read_letor(sys.argv[1])
before = peak()
data = read_letor(sys.argv[2])
data.features.sum()
print((peak() - before) / data.features.nbytes)
"""


def run(megabytes: int = 100) -> list[dict[str, Any]]:
    """One row a file: MB/s of both readers, the ratio, milliseconds of a second load, peak memory."""
    rows: list[dict[str, Any]] = []
    before = os.environ.get("RANKLOOP_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RANKLOOP_CACHE"] = str(Path(folder, "cache"))
        tiny = Path(folder, "tiny.txt")
        tiny.write_text("1 qid:1 1:1\n")
        read_letor(tiny)  # compiles
        for name, shape in SHAPES.items():
            path = Path(folder, "data.txt")
            _write(path, megabytes, *shape)
            packed = Path(folder, "data.txt.gz")
            with path.open("rb") as plain, gzip.open(packed, "wb", 1) as file:
                shutil.copyfileobj(plain, file)
            size = path.stat().st_size / 1e6
            ours, again = _seconds(_our_read, path), _seconds(_our_read, path, fresh=False)
            theirs, zipped = _seconds(_their_read, path), _seconds(_our_read, packed)
            rows.append(
                {
                    "file": name,
                    "MB": size,
                    "ours MB/s": size / ours,
                    "scikit-learn MB/s": size / theirs,
                    "times as fast": theirs / ours,
                    "gzip MB/s": size / zipped,
                    "second load ms": 1000 * again,
                    "peak memory": _peak(tiny, path),
                }
            )
    os.environ.pop("RANKLOOP_CACHE")
    if before is not None:
        os.environ["RANKLOOP_CACHE"] = before
    return rows


def _our_read(path: Path) -> object:
    return read_letor(path, normalise="none")


def _their_read(path: Path) -> object:
    return load_svmlight_file(str(path), query_id=True)[0].toarray()


def _seconds(read: Callable[[Path], object], path: Path, fresh: bool = True) -> float:
    """The best of three; `fresh` forgets the kept form before each."""
    times = []
    for _ in range(3):
        if fresh:
            shutil.rmtree(os.environ["RANKLOOP_CACHE"], ignore_errors=True)
        os.sync()  # what was written before must not slow down what is timed
        start = perf_counter()
        read(path)
        times.append(perf_counter() - start)
    return min(times)


def _peak(tiny: Path, path: Path) -> float:
    shutil.rmtree(os.environ["RANKLOOP_CACHE"], ignore_errors=True)
    done = subprocess.run([sys.executable, "-c", _PEAK, tiny, path], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _write(path: Path, megabytes: int, docs: int, features: int, filled: float) -> None:
    """Counts, zeros, and values of six decimals, as the real sets have them."""
    rng = np.random.default_rng(0)
    row = 0
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            values = rng.random((docs, features)) * 100
            values[:, ::4] //= 4
            values[:, 1::4] *= rng.random((docs, (features + 2) // 4)) < (0.4 if filled == 1 else 1)
            for document in values:
                kept = np.flatnonzero(rng.random(features) < filled)
                cells = " ".join(f"{j + 1}:{document[j]:.8g}" for j in kept)
                file.write(f"{rng.integers(5)} qid:{row // docs + 1} {cells}\n")
                row += 1


if __name__ == "__main__":
    for row in run(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        print(row.pop("file"))
        for what, value in row.items():
            print(f"  {what:<18} {value:10.2f}")
