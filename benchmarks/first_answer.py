"""Seconds from nothing to the first answer: installing, importing, compiling, ranking and learning."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from benchmarks.common import machine, print_rows

ROOT = Path(__file__).parents[1]
IMPORT = "import rankloop"
ANSWER = """
import numpy as np, rankloop
from rankloop.learners import PairRank
rng, learner = np.random.default_rng(0), PairRank()
candidates = rankloop.Candidates("shoes", None, rng.random((20, 20)))
shown = learner.rank(candidates, 10, rng)
"""
LEARN = ANSWER + "learner.learn(shown, rankloop.Feedback.clicks([0, 1, 0]), rng); learner.rank(candidates, 10, rng)\n"
MANY = (
    LEARN
    + """
import time
wide = rankloop.Candidates("wide", None, rng.random((100, 136)))
learner = PairRank()
for t in range(1300):
    if t == 300:
        began = time.process_time()
    shown = learner.rank(wide, 10, rng)
    learner.learn(shown, rankloop.Feedback.clicks((rng.random(10) < 0.3).astype(float)), rng)
print(f"{1000 / (time.process_time() - began):,.0f} rounds/s of 100 x 136")
"""
)


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float, str]:
    """Wall seconds, processor seconds, what it printed."""
    before, began = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    after = getrusage(RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, spent, done.stdout.strip()


def main() -> None:
    """Print the table."""
    parser = ArgumentParser("python -m benchmarks first_answer", description=__doc__)
    parser.add_argument("--install", action="store_true", help="into an empty environment; fetches packages")
    parser.add_argument("--cpu", help="as numba names it: generic, skylake-avx512, …; this machine's if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rankloop-first-") as folder:
        kept = Path(folder, "kernels")
        environment = os.environ | {"RANKLOOP_KERNELS": str(kept), "PYTHONPATH": str(ROOT / "src")}
        if options.cpu:
            environment["NUMBA_CPU_NAME"] = options.cpu
        python, rows = sys.executable, []
        steps = {
            "import rankloop": IMPORT,
            "first list of pairrank, nothing compiled": ANSWER,
            "first clicks learned, ranking compiled": LEARN,
            "the same in the next process": LEARN,
            "a thousand rounds": MANY,
        }
        if options.install:
            environment.pop("PYTHONPATH")
            venv = Path(folder, "venv")
            subprocess.run([python, "-m", "venv", str(venv)], check=True)
            python = str(venv / "bin" / "python")
            command = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(ROOT)]
            wall, spent, _ = timed(command, environment)
            rows.append({"step": "pip install rankloop", "s": round(wall, 1), "of a core, s": round(spent, 1)})
        for name, code in steps.items():
            wall, spent, said = timed([python, "-c", code], environment)
            size = sum(file.stat().st_size for file in kept.rglob("*.nbc")) / 1e6 if kept.exists() else 0.0
            rows.append(
                {
                    "step": name,
                    "s": round(wall, 1),
                    "of a core, s": round(spent, 1),
                    "machine code, MB": round(size, 1),
                    "": said,
                }
            )
        print(f"Machine: {machine()}; numba compiles for {options.cpu or 'this processor'}\n")
        print_rows(rows)


if __name__ == "__main__":
    main()
