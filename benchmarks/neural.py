"""The neural learners, one core: milliseconds to rank with confidence and to learn.

`synthetic:mslr` with non-linear relevance, 100 documents of 136 features, 10 shown, m = 100, navigational users.
Medians over lists, and over events that had a pair, without the first fifth of the rounds. late/early is the median of
learning in the last fifth against that in the second: whether an event costs more the more there were, as `refit` does.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from rankloop.clicks.users import open_user
from rankloop.core.registry import make
from rankloop.core.rng import Rng
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.worlds.world import Stationary

DATA = "synthetic:mslr?queries=500&docs=100&sizes=fixed&vali=1&test=1&relevance=nonlinear"
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("olranknet", {}, 3000),
    ("olranknet", {"line": "none"}, 3000),
    ("ollambdarank", {}, 3000),
    ("olranknet", {"explore": "none"}, 3000),
    ("olranknet", {"explore": "ensemble", "nets": 5}, 1500),
    ("olranknet", {"update": "refit", "steps": 1}, 400),
    ("neural-pdgd", {}, 3000),
    ("neural-dbgd", {}, 3000),
    ("pairrank", {}, 3000),
]
TORCH: tuple[str, dict[str, Any], int] = ("olranknet", {"net": "three-layer"}, 60)
STRETCH = 5  # parts of a run; the second is compared with the last


def run() -> list[dict[str, Any]]:
    """One row a learner; a network of PyTorch's too where that is installed."""
    split = open_split(DATA)
    world, user = Stationary(split.train), open_user("navigational", 4)
    return [_measured(name, params, rounds, world, user) for name, params, rounds in [*CASES, *_torch()]]


def _torch() -> list[tuple[str, dict[str, Any], int]]:
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(1)
    return [TORCH]


def _measured(name: str, params: dict[str, Any], rounds: int, world: Any, user: Any) -> dict[str, Any]:
    learner, streams = make(name, **params), Rng(0)
    ranking, learning, taught = np.zeros(rounds), np.zeros(rounds), np.zeros(rounds, bool)
    for t in range(rounds):
        query = world.at(t, streams.for_event("world", t))
        begin = perf_counter()
        shown = learner.rank(query.candidates, world.k, streams.for_event("rank", t))
        ranked = perf_counter()
        feedback = user.react(query.grades[shown.order], streams.for_event("user", t))
        reacted = perf_counter()
        learner.learn(shown, feedback, streams.for_event("learn", t))
        ranking[t], learning[t] = ranked - begin, perf_counter() - reacted
        taught[t] = 0 < feedback.values.sum() < shown.k
    parts = np.array_split(np.arange(rounds), STRETCH)
    early, late = (float(np.median(learning[part][taught[part]])) for part in (parts[1], parts[-1]))
    settled = np.concatenate(parts[1:])
    rank = float(np.median(ranking[settled]))
    return {
        "learner": name + "".join(f" {key}={value}" for key, value in params.items()),
        "rounds": rounds,
        "rank, ms": 1e3 * rank,
        "rankings/s": round(1 / rank),
        "learn, ms": 1e3 * float(np.median(learning[settled][taught[settled]])),
        "learn, 99 %, ms": 1e3 * float(np.quantile(learning[settled][taught[settled]], 0.99)),
        "late/early": late / early,
        "state, kB": round(sum(array.nbytes for array in learner.state().values()) / 1000),
    }
