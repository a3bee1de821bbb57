"""Click bandits, one query of 10 items, all 10 shown, attractions .50 to .05, users of the cascade (CM) and the
position-based model (PBM): million rounds a second in the compiled loop, user included, best of several stretches; the
same in requests (`rank` and `learn` through the learner); and bytes a query. Then a table of 200,000 queries: time to
copy it for a snapshot, and to load it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from rankloop.core.registry import make
from rankloop.core.types import Candidates, Feedback
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, react
from rankloop.lab.runs.compiled_bandits import QUERY, play

LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("bubblerank", {"horizon": 10_000_000}),
    ("bubblerank", {}),
    ("cascade-klucb", {}),
    ("cascade-ucb1", {}),
    ("toprank", {"horizon": 10_000_000}),
    ("batchrank", {"horizon": 10_000_000}),
    ("batchrank", {"horizon": 10_000_000, "variant": "merge"}),
]
ROUNDS, REQUESTS, QUERIES = 600_000, 5_000, 200_000
ONE, TABLE = np.ones(1), np.ones((1, 1))


def users() -> dict[str, ClickParameters]:
    """Who clicks."""
    attraction, examination = 0.55 - 0.05 * np.arange(1, 11), np.linspace(0.9, 0.3, 10).reshape(-1, 1)
    return {
        "CM": ClickParameters(CASCADE, attraction, np.zeros(10), ONE, 1.0, TABLE),
        "PBM": ClickParameters(POSITION, attraction, ONE, ONE, 1.0, examination),
    }


def rounds_a_second(name: str, params: dict[str, Any], user: ClickParameters) -> float:
    """In the loop; the fastest of twenty stretches, which other work on the machine disturbs least."""
    play(make(name, **params), user, [10], 0)
    marks: list[tuple[int, float]] = []
    stretch = ROUNDS // 20

    def note(done: int) -> None:
        if not marks or done - marks[-1][0] >= stretch:
            marks.append((done, time.perf_counter()))

    play(make(name, **params), user, [ROUNDS], 1, on_progress=note)
    return max((b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(marks))


def requests_a_second(name: str, params: dict[str, Any], user: ClickParameters) -> float:
    """Through `rank` and `learn`, the user included."""
    learner, page = make(name, **params), Candidates(QUERY, np.arange(10))
    rng, clicks, best = np.random.default_rng(0), np.zeros(10), np.inf
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(REQUESTS // 5):
            shown = learner.rank(page, 10, rng)
            react(user, shown.order, rng.random((1, 10)), clicks)
            learner.learn(shown, Feedback.clicks(clicks), rng)
        best = min(best, (time.perf_counter() - begin) / (REQUESTS // 5))
    return 1.0 / best


def table_seconds(name: str, params: dict[str, Any]) -> tuple[float, float]:
    """Seconds to copy the state of many queries, and to load it."""
    params = {**params, "max_queries": QUERIES}
    learner: Any = make(name, **params)
    items = np.arange(10)
    for query in range(QUERIES):
        learner.queries_.enter(str(query), items)
    if name == "bubblerank":
        learner.queries_.arrays["places"][: 10 * QUERIES] = np.tile(np.arange(10), QUERIES)
    state = learner.state()
    again = make(name, **params)
    return _best(learner.state), _best(lambda: again.load(state))


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def run() -> list[dict[str, Any]]:
    """A row a learner."""
    rows = []
    for name, params in LEARNERS:
        learner: Any = make(name, **params)
        row: dict[str, Any] = {"learner": f"{name} {', '.join(f'{k}={v}' for k, v in params.items())}".strip()}
        for user_name, user in users().items():
            row[f"{user_name}, million/s"] = rounds_a_second(name, params, user) / 1e6
        row["requests/s"] = int(requests_a_second(name, params, users()["CM"]))
        row["bytes a query"] = learner.queries_.bytes_of(10)
        copy, load = table_seconds(name, params)
        row["copy, s"], row["load, s"] = copy, load
        rows.append(row)
    return rows
