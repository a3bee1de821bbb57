"""Rounds per second of each world alone, without learner and user, one core.

`synthetic:mslr` with 100 documents of 136 features. The last three score the documents of the round's query by the
taste of the moment; with 500 queries these rows come from memory, not from a cache, and that is most of the time.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from rankloop.core.rng import Rng
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.worlds.world import WORLDS, open_world

DATA = "synthetic:mslr?queries=500&docs=100&sizes=fixed&vali=1&test=200"
ROUNDS = 20_000


def run(split: Split | None = None) -> list[dict[str, Any]]:
    """One row a world: the best of three goes, and milliseconds to grade 200 held-out queries."""
    split = split or open_split(DATA)
    rows = []
    for name in WORLDS:
        world, streams = open_world(name, split.train), Rng(0)
        world.grades(split.test, 0)
        goes = []
        for _ in range(3):
            start = perf_counter()
            for t in range(ROUNDS):
                world.at(t, streams.for_event("world", t))
            goes.append(perf_counter() - start)
        start = perf_counter()
        world.grades(split.test, 1)
        milliseconds = 1e3 * (perf_counter() - start)
        rows.append({"world": name, "rounds/s": round(ROUNDS / min(goes)), "held-out grades, ms": milliseconds})
    return rows
