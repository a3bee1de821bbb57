"""Rounds per second of each learner, one core: a trial as `compare` runs it, with a simulated user, without evaluation.

`synthetic:mslr` with 100 documents of 136 features, 10 shown, navigational users. The published code's figures (same
shape, one core, over 500 rounds) were measured at another time on a like machine: they show the size of the difference,
not its digits.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.trial import run as carried_out

DATA = "synthetic:mslr?queries=500&docs=100&sizes=fixed&vali=1&test=1"
CASES: list[tuple[str, dict[str, Any], int, str]] = [
    ("pairrank", {}, 20_000, "15-20, falling"),
    ("pairrank", {"update": "refit", "pairs": "matched"}, 500, "15-20, falling"),
    ("pairrank", {"update": "refit"}, 500, "15-20, falling"),
    ("pdgd", {}, 20_000, "1,200-2,300"),
    ("greedy", {}, 20_000, ""),
    ("epsilon-greedy", {}, 20_000, ""),
    ("random", {}, 20_000, ""),
    ("dbgd", {}, 10_000, ""),
    ("dm2l", {}, 10_000, ""),
    ("mgd", {"candidates": 49, "mixing": "probabilistic"}, 4_000, ""),
    ("m3l", {"base_parameters": {"candidates": 49}}, 4_000, ""),
    ("nsgd", {}, 3_000, ""),
    ("nm2l", {}, 3_000, ""),
    ("pm2l", {}, 10_000, ""),
]
WINDOW = 1000


def run(split: Split | None = None) -> list[dict[str, Any]]:
    """One row a learner: rounds per second over all rounds, and over the first and the last 1,000."""
    split = split or open_split(DATA)
    rows = []
    for name, params, rounds, published in CASES:
        trial = Trial(name, DATA, "navigational", params, rounds, evaluations=1)
        marks: dict[int, float] = {}
        carried_out(trial, split, partial(_mark, marks))
        begin, end = min(marks), max(marks)  # the first mark comes after opening and warming up
        row: dict[str, Any] = {"learner": trial.label, "rounds": rounds, "rounds/s": _rate(marks, begin, end)}
        if rounds > 2 * WINDOW:
            row["rounds/s, first 1,000"] = _rate(marks, begin, min(t for t in marks if t >= begin + WINDOW))
            row["rounds/s, last 1,000"] = _rate(marks, max(t for t in marks if t <= end - WINDOW), end)
        rows.append({**row, "published code": published})
    return rows


def _mark(marks: dict[int, float], done: int) -> None:
    marks[done] = perf_counter()


def _rate(marks: dict[int, float], begin: int, end: int) -> int:
    return round((end - begin) / (marks[end] - marks[begin]))
