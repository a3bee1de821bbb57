"""Rounds per second of compiled runs of the learners of grades, one core, whole rounds: world, learner, measure.

Items: 20 items, 5 relevant, grades flipped with probability .1, whole lists, regret under DCG. Contextual: generated
mslr, 25 documents of 136 features, NDCG@10. The best of three goes; the plain loop, which gives the same runs, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from rankloop.clicks.users import Grader
from rankloop.core.learner import clone
from rankloop.core.registry import make
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.compiled_grades import run_contextual, run_items
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.item_worlds import Corrupted
from rankloop.lab.worlds.world import Stationary

DATA = "synthetic:mslr?queries=500&docs=25&sizes=fixed&vali=1&test=1"
ITEMS: list[tuple[str, dict[str, Any]]] = [
    ("rtopk-items", {"grades": 1}),
    ("rtopk-items", {"grades": 1, "top": 5}),
    ("ftpl-full", {"grades": 1}),
]
CONTEXTUAL: list[tuple[str, dict[str, Any]]] = [
    ("rtopk", {"surrogate": "ranksvm", "top": 2}),
    ("rtopk", {"surrogate": "kl", "top": 1}),
    ("rtopk", {"surrogate": "squared", "top": 1, "known": "exact"}),
    ("rtopk", {"surrogate": "smoothdcg", "top": 1}),
    ("listnet-full", {}),
    ("random", {}),
]
ROUNDS, PLAIN = 500_000, 3000


def run() -> list[dict[str, Any]]:
    """One row a learner."""
    rows = []
    world, dataset = Corrupted(), open_split(DATA).train
    for name, params in ITEMS:
        learner: Any = make(name, **params)
        rate = _best(partial(run_items, learner, world), ROUNDS)
        rows.append(_row(name, params, "20 items", rate, _plain(learner, world)))
    for name, params in CONTEXTUAL:
        learner = make(name, **params)
        rate = _best(partial(run_contextual, learner, dataset), ROUNDS // 5)
        k = 25 if name == "listnet-full" else 10
        rows.append(_row(name, params, "25 x 136", rate, _plain(learner, Stationary(dataset, k))))
    return rows


def _best(go: Callable[[int], object], rounds: int) -> float:
    go(100)  # loads or compiles the kernels
    times = []
    for _ in range(3):
        start = perf_counter()
        go(rounds)
        times.append(perf_counter() - start)
    return rounds / min(times)


def _plain(learner: Any, world: Any) -> float:
    user = Grader(getattr(learner, "top", 0), learner.feedback)
    for _ in simulate(clone(learner), world, user, 50):
        pass
    start = perf_counter()
    for _ in simulate(clone(learner), world, user, PLAIN):
        pass
    return PLAIN / (perf_counter() - start)


def _row(name: str, params: dict[str, Any], size: str, compiled: float, plain: float) -> dict[str, Any]:
    label = name + "".join(f" {key}={value}" for key, value in params.items())
    return {"learner": label, "size": size, "compiled rounds/s": round(compiled), "plain loop": round(plain)}
