"""Rounds per second of each learner, one core: the whole loop with a simulated user, without evaluation.

`synthetic:mslr` with 100 documents of 136 features, 10 shown, navigational users. The published code's figures (same
shape, one core, over 500 rounds) were measured at another time on a like machine: they show the size of the difference,
not its digits.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from rankloop.lab.data.dataset import Split
from rankloop.lab.data.sources import open_split
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.users.registry import open_user
from rankloop.lab.worlds.world import Stationary
from rankloop.registry import make

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
    """One row a learner: rounds per second over all rounds, and around rounds 1,000 and the last."""
    split = split or open_split(DATA)
    world, user = Stationary(split.train), open_user("navigational", 4)
    rows = []
    for name, params, rounds, published in CASES:
        for _ in simulate(make(name, **params), world, user, 50):  # loads or compiles the kernels
            pass
        start = perf_counter()
        steps = simulate(make(name, **params), world, user, rounds)
        marks = [start, *(perf_counter() for step in steps if (step.t + 1) % WINDOW == 0 or step.t + 1 == rounds)]
        label = name + "".join(f" {key}={value}" for key, value in params.items())
        row: dict[str, Any] = {"learner": label, "rounds": rounds, "rounds/s": round(rounds / (marks[-1] - marks[0]))}
        if len(marks) > 2:
            row["rounds/s, first 1,000"] = round(WINDOW / (marks[1] - marks[0]))
            row["rounds/s, last 1,000"] = round(WINDOW / (marks[-1] - marks[-2]))
        rows.append({**row, "published code": published})
    return rows
