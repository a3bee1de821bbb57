"""What `rank`, `learn` and a learner's state take by themselves, by size of the list: in this process, one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import NamedTuple

import numpy as np

from rankloop.clicks.users import DependentClickUser
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Candidates
from rankloop.service.capacity.curves import Size

SIZES = (
    Size(10, 10, 5),
    Size(50, 30, 10),
    Size(20, 80, 10),
    Size(200, 50, 10),
    Size(50, 136, 10),
    Size(150, 136, 20),
    Size(300, 100, 10),
    Size(60, 220, 10),
)
QUERIES = 40
WARM = 250  # lists before anything is counted: a learner that knows nothing yet ranks at another price
COUNTED = 120
GOES = 3
GRADES = (0.5, 0.75, 0.9, 0.97)  # shares of candidates below grade 1, 2, 3 and 4


class Cost(NamedTuple):
    """Of one learner at one size: seconds a rank, seconds a learn, bytes of its state."""

    size: Size
    rank: float
    learn: float
    state: float


def costs(
    spec: str, sizes: Sequence[Size] = SIZES, seed: int = 0, on_step: Callable[[], None] | None = None
) -> list[Cost]:
    """At each size, after the learner has learned from some lists; users are navigational.

    Medians of a rank, means of a learn (which depends on what was clicked), and of several goes the quickest: whatever
    else the machine does only adds.
    """
    found = []
    for size in sizes:
        goes = [_cost(spec, size, seed) for _ in range(GOES)]
        found.append(goes[0]._replace(rank=min(go.rank for go in goes), learn=min(go.learn for go in goes)))
        if on_step is not None:
            on_step()
    return found


def _cost(spec: str, size: Size, seed: int) -> Cost:
    streams, user = Rng(seed), DependentClickUser.named("navigational", 4)
    rng = streams.for_event("capacity/truth", 0)
    weights = np.zeros(size.d)
    weights[rng.permutation(size.d)[:10]] = 1.0
    rows = rng.random((QUERIES, size.n, size.d))
    scores = rows @ weights
    grades = np.searchsorted(np.quantile(scores, GRADES), scores, side="right")
    asked = [
        Candidates(f"q{q}", [f"q{q}/item-{i}" for i in range(size.n)], np.ascontiguousarray(rows[q]))
        for q in range(QUERIES)
    ]
    name, parameters = parse_learner(spec)
    learner = make(name, **parameters)
    ranked, learned = [], []
    for t in range(WARM + COUNTED):
        q = int(streams.for_event("capacity/query", t).integers(QUERIES))
        chance = streams.for_event("capacity/rank", t)
        begun = thread_time()
        shown = learner.rank(asked[q], size.k, chance)
        ranked.append(thread_time() - begun)
        told, chance = (
            user.react(grades[q][shown.order], streams.for_event("capacity/user", t)),
            streams.for_event("learn", t),
        )
        begun = thread_time()
        learner.learn(shown, told, chance)
        learned.append(thread_time() - begun)
    state = sum(array.nbytes for array in learner.state().values())
    return Cost(size, median(ranked[WARM:]), float(np.mean(learned[WARM:])), float(state))
