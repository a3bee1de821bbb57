"""Any number of lists open at a time: every click bandit with a query of 10 items, 6 shown, worst first, and a cascade
user (attractions .1, .3 and .8); the oldest of 1, 2, 3, 4 or 8 open lists is answered first. After 10,000 lists: how
often each item was shown at least and at most; how often each two neighbouring positions were left to a coin (in
BubbleRank; the last position's partner comes from outside); expected clicks of the learned list at its first 5 before
and after, and the pairs that it has the wrong way round, counted where the upper item is shown."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import numpy as np

from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.bandits import misordered_above
from rankloop.kernels.click_models import CASCADE, ClickParameters, expected_clicks, react

BANDITS = ("bubblerank", "cascade-klucb", "cascade-ucb1", "toprank", "batchrank")
OPEN = (1, 2, 3, 4, 8)
M, K, TOP, LISTS, RUNS = 10, 6, 5, 10_000, 1
ATTRACTION = np.repeat([0.1, 0.3, 0.8], [4, 3, 3])
USER = ClickParameters(CASCADE, ATTRACTION, np.zeros(M), np.ones(1), 1.0, np.ones((1, 1)))


def serve(name: str, waiting: int, seed: int) -> dict[str, float]:
    """One run."""
    learner, rng, page = make(name), np.random.default_rng(seed), Candidates("q", np.arange(M))
    clicks, shown, tossed = np.zeros(K), np.zeros(M, np.int64), np.zeros(K, np.int64)
    queue = deque[Impression]()
    for _ in range(LISTS):
        queue.append(learner.rank(page, K, rng))
        shown[queue[-1].order] += 1
        tossed += queue[-1].memo.get("pairs", np.zeros(K)) > 0
        if len(queue) == waiting:
            oldest = queue.popleft()
            react(USER, oldest.order, rng.random((1, K)), clicks)
            learner.learn(oldest, Feedback.clicks(clicks), rng)
    before, after = np.arange(M), learner.best(page, M)
    return {
        "item least": float(shown.min()),
        "item most": float(shown.max()),
        "pair least": float(tossed.min()),
        "pair most": float(tossed.max()),
        "clicks before": _clicks(before),
        "clicks after": _clicks(after),
        "wrong before": float(misordered_above(USER.attraction, before, K)),
        "wrong after": float(misordered_above(USER.attraction, after, K)),
    }


def _clicks(order: Array) -> float:
    return float(expected_clicks(USER, order, TOP, np.zeros((3, M + 1))))


def run(seed: int = 0) -> list[dict[str, Any]]:
    """A row a bandit and number of open lists."""
    rows = []
    for name in BANDITS:
        for waiting in OPEN:
            found = [serve(name, waiting, number) for number in range(seed, seed + RUNS)]
            means = {column: float(np.mean([one[column] for one in found])) for column in found[0]}
            row: dict[str, Any] = {"bandit": name, "open": waiting}
            for column, value in means.items():
                row[column] = f"{value:.3f}" if "clicks" in column else f"{value:,.0f}"
                if "pair" in column and name != "bubblerank":
                    row[column] = ""
            rows.append(row)
            print(".", end="", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    from benchmarks.common import print_rows

    print_rows(run())
