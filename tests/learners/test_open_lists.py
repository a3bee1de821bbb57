"""Any number of lists may be open at a time: no bandit stops trying anything, and each learns a better list."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from rankloop.core.learner import Learner
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels.click_models import CASCADE, ClickParameters, expected_clicks, react

M, K, LISTS = 6, 4, 2400
USER = ClickParameters(CASCADE, np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), np.zeros(M), np.ones(1), 1.0, np.ones((1, 1)))
BANDITS: list[tuple[str, dict[str, Any]]] = [
    ("bubblerank", {"delta": 0.05}),
    ("cascade-klucb", {}),
    ("cascade-ucb1", {}),
    ("toprank", {"horizon": 100}),
    ("batchrank", {"horizon": 10}),
    ("batchrank", {"horizon": 10, "variant": "merge"}),
]
IDS = ["-".join([name, *filter(None, [params.get("variant")])]) for name, params in BANDITS]


def serve(learner: Learner, waiting: int, seed: int) -> tuple[Array, Array]:
    """How often each item was shown, and each pair of neighboring positions left to a coin, with so many lists open.

    Always the oldest list is answered first, so with an even number the parities of what is learned would match.
    """
    rng, page, clicks = np.random.default_rng(seed), Candidates("q", np.arange(M)), np.zeros(K)
    shown, tossed, queue = np.zeros(M, np.int64), np.zeros(K, np.int64), deque[Impression]()
    for _ in range(LISTS):
        queue.append(learner.rank(page, K, rng))
        shown[queue[-1].order] += 1
        tossed += queue[-1].memo.get("pairs", np.zeros(K)) > 0
        if len(queue) == waiting:
            oldest = queue.popleft()
            react(USER, oldest.order, rng.random((1, K)), clicks)
            learner.learn(oldest, Feedback.clicks(clicks), rng)
    return shown, tossed


@pytest.mark.parametrize("waiting", range(1, 9))
@pytest.mark.parametrize(("name", "parameters"), BANDITS, ids=IDS)
@pytest.mark.slow
def test_nothing_starves_and_the_list_gets_better(name: str, parameters: dict[str, Any], waiting: int) -> None:
    learner, page, work = make(name, **parameters), Candidates("q", np.arange(M)), np.zeros((3, K + 1))
    shown, tossed = serve(learner, waiting, seed=waiting)
    before, after = (expected_clicks(USER, order, 3, work) for order in (np.arange(K), learner.best(page, K)))
    assert after > before + 0.1
    assert shown.min() >= 10
    if name == "bubblerank":
        assert tossed.min() > LISTS / 10  # the last one with an item from outside


@pytest.mark.parametrize("waiting", [1, 2, 4, 8])
def test_bubblerank_tries_each_pair_about_as_often_however_many_lists_are_open(waiting: int) -> None:
    """Nothing is ever decided here, so each pair is left to a coin in half of the lists."""
    _, tossed = serve(make("bubblerank", delta=1e-300), waiting, seed=5)
    assert tossed.tolist() == pytest.approx([LISTS / 2] * K, abs=5 * np.sqrt(LISTS / 4))
