"""The click bandits against plain Python, request by request; the compiled loop against requests, bit for bit."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core.capabilities import Propensity
from rankloop.core.learner import Learner
from rankloop.core.registry import make
from rankloop.core.types import Candidates, Feedback
from rankloop.kernels.click_models import BROWSING, CASCADE, CHAIN, POSITION, ClickParameters, expected_clicks, react
from rankloop.lab.runs.compiled import QUERY, best_clicks, play
from rankloop.learners.bandits.bubblerank import ANYTIME
from tests.reference import bandits as naive

ONE, TABLE = np.ones(1), np.ones((1, 1))


def user_of(kind: int, m: int, rng: np.random.Generator) -> ClickParameters:
    """Someone with random habits; attractions far enough from 0 and 1 for clicks to come and to fail to come."""
    attraction = rng.uniform(0.1, 0.9, m)
    if kind == CASCADE:
        return ClickParameters(CASCADE, attraction, np.zeros(m), ONE, 1.0, TABLE)
    if kind == POSITION:
        return ClickParameters(
            POSITION, attraction, ONE, ONE, 1.0, np.sort(rng.uniform(0.2, 1, (m, 1)), axis=0)[::-1].copy()
        )
    if kind == CHAIN:
        return ClickParameters(CHAIN, attraction, rng.uniform(0.2, 0.9, m), ONE, 0.9, TABLE)
    return ClickParameters(BROWSING, attraction, ONE, ONE, 1.0, rng.uniform(0.2, 1, (m, m + 1)))


LEARNERS: list[tuple[str, dict[str, Any], Any]] = [
    ("bubblerank", {"horizon": 2}, lambda m, k: naive.BubbleRank(m, k, lambda _: 4 * math.log(2))),
    ("bubblerank", {"delta": 0.5}, lambda m, k: naive.BubbleRank(m, k, lambda _: math.log(2))),
    ("bubblerank", {}, lambda m, k: naive.BubbleRank(m, k, lambda t: ANYTIME / 4 * math.log(1 + t))),
    ("cascade-klucb", {}, lambda m, k: naive.Cascade(m, k, "kl", False)),
    ("cascade-klucb", {"observe": "last"}, lambda m, k: naive.Cascade(m, k, "kl", True)),
    ("cascade-klucb", {"variant": "published"}, lambda m, k: naive.Cascade(m, k, "published", False)),
    ("cascade-ucb1", {}, lambda m, k: naive.Cascade(m, k, "ucb1", False)),
    ("toprank", {"horizon": 10}, lambda m, k: naive.TopRank(m, k, 10)),
    ("batchrank", {"horizon": 3}, lambda m, k: naive.BatchRank(m, k, 3, merge=False)),
    ("batchrank", {"horizon": 3, "variant": "merge"}, lambda m, k: naive.BatchRank(m, k, 3, merge=True)),
]
IDS = [f"{name} {params}" for name, params, _ in LEARNERS]


def shape(name: str, m: int, k: int) -> Any:
    """How many random numbers a list takes."""
    return {"bubblerank": 1 + min(m, k + 1) // 2 + (k < m), "batchrank": (2, m)}.get(name, m)


@pytest.mark.parametrize(("name", "params", "twin_of"), LEARNERS, ids=IDS)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 8), st.sampled_from([CASCADE, POSITION, BROWSING]))
def test_a_learner_does_what_the_paper_says_list_by_list(
    name: str, params: dict[str, Any], twin_of: Any, seed: int, m: int, k: int, kind: int
) -> None:
    k = min(k, m)
    learner, twin = make(name, **params), twin_of(m, k)
    user = user_of(kind, m, np.random.default_rng(seed))
    candidates, of_learner, of_twin = Candidates(QUERY, np.arange(m)), *(np.random.default_rng(seed) for _ in range(2))
    of_user, clicks = np.random.default_rng(seed + 1), np.zeros(k)
    for t in range(200):
        shown = learner.rank(candidates, k, of_learner)
        assert shown.order.tolist() == twin.display(of_twin.random(shape(name, m, k))), f"round {t}"
        react(user, shown.order, of_user.random((2, k)), clicks)
        learner.learn(shown, Feedback.clicks(clicks), of_learner)
        twin.update(clicks)


def by_requests(learner: Learner, user: ClickParameters, rounds: int, k: int, seed: int) -> list[list[int]]:
    """What `play` does, as requests: the same random numbers, in the same order."""
    of_learner, of_user = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    candidates, clicks, lists = Candidates(QUERY, np.arange(user.attraction.size)), np.zeros(k), []
    for _ in range(rounds):
        shown = learner.rank(candidates, k, of_learner)
        react(user, shown.order, of_user.random((2 if user.kind == CHAIN else 1, k)), clicks)
        learner.learn(shown, Feedback.clicks(clicks), of_learner)
        lists.append(shown.order.tolist())
    return lists


def learned(learner: Any, known: list[int]) -> dict[str, Any]:
    """What a learner knows of some items of the one query, and of each pair of them (a lead is the first one's)."""
    table = learner.queries_
    slot = table.find(QUERY)
    numbers = table.numbers(slot, np.array(known)).tolist()
    found: dict[str, Any] = {"rounds": table.rounds(slot)}
    for (field, spec), values in zip(table.columns.items(), table.values(slot), strict=True):
        if spec.per == "query":
            found[field] = values.tolist()
        elif spec.per == "item":
            kept = values[numbers]
            found[field] = (np.argsort(kept) if field == "places" else kept).tolist()
        else:
            for a, i in zip(known, numbers, strict=True):
                for b, j in zip(known, numbers, strict=True):
                    if a < b:
                        value = int(values[max(i, j) * (max(i, j) - 1) // 2 + min(i, j)])
                        found[f"{field} {a} {b}"] = value if i < j or field == "duels" else -value
    return found


@pytest.mark.parametrize(("name", "params"), [entry[:2] for entry in LEARNERS], ids=IDS)
@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([CASCADE, POSITION, BROWSING, CHAIN]),
    st.integers(1, 400),
)
def test_the_compiled_loop_is_requests_bit_for_bit(
    name: str, params: dict[str, Any], seed: int, m: int, k: int, kind: int, chunk: int
) -> None:
    k = min(k, m)
    user = user_of(kind, m, np.random.default_rng(seed))
    served: Any = make(name, **params)
    looped: Any = make(name, **params)
    lists = by_requests(served, user, 400, k, seed)
    outcome = play(looped, user, [150, 400], seed, k=k, top=3, chunk=chunk)
    known = [i for i in range(m) if served.queries_.numbers(0, np.array([i]))[0] >= 0]  # the others were never shown
    assert learned(served, known) == learned(looped, known)
    assert outcome.at.tolist() == [150, 400]
    assert regret_of(lists, user, k) == pytest.approx(outcome.regret[-1])
    candidates = Candidates(QUERY, np.arange(m))
    assert served.best(candidates, m).tolist() == looped.best(candidates, m).tolist()
    assert served.rank(candidates, k, np.random.default_rng(9)).order.tolist() == (
        looped.rank(candidates, k, np.random.default_rng(9)).order.tolist()
    )


def regret_of(lists: list[list[int]], user: ClickParameters, k: int) -> float:
    """By the click model's own chances, list by list."""
    work, best = np.zeros((3, k + 1)), best_clicks(user, k, 3)
    return sum(best - expected_clicks(user, np.array(shown), 3, work) for shown in lists)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bubblerank", {}),
        ("toprank", {"horizon": 2, "max_items": 3}),
        ("cascade-ucb1", {"max_items": 3}),
        ("cascade-klucb", {}),
        ("cascade-ucb1", {"ties": "base", "max_items": 3}),
    ],
)
@pytest.mark.parametrize("lessons", [0, 60])
def test_lists_come_as_often_as_they_are_said_to(name: str, parameters: dict[str, Any], lessons: int) -> None:
    """Every list of 3 of 5, cold and taught; items beyond `max_items` included."""
    learner, rng = make(name, **parameters), np.random.default_rng(7)
    candidates = Candidates("q", np.arange(5))
    for _ in range(lessons):
        shown = learner.rank(candidates, 3, rng)
        learner.learn(shown, Feedback.clicks(shown.items == 2), rng)
    assert isinstance(learner, Propensity)
    lists = list(permutations(range(5), 3))
    chances = np.exp([learner.log_propensity(candidates, np.array(order)) for order in lists])
    assert chances.sum() == pytest.approx(1.0)
    draws = 2000
    came = dict.fromkeys(lists, 0)
    for _ in range(draws):
        shown = learner.rank(candidates, 3, rng)
        came[tuple(shown.order.tolist())] += 1
        assert np.exp(shown.memo["log_propensity"][0]) == pytest.approx(chances[lists.index(tuple(shown.order))])
    rates = np.array(list(came.values())) / draws
    assert (np.abs(rates - chances) <= 5 * np.sqrt(chances * (1 - chances) / draws) + 1e-12).all()
