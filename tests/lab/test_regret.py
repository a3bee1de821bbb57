"""Regret against the best fixed ranking, by trying all of them; graders; sequences of relevance vectors."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.clicks.users import Grader, open_user
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.lab.runs.hindsight import LOSSES, MEASURES, Regret
from rankloop.lab.runs.sweep import check_trials
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.item_worlds import Alternating, Corrupted, Switching, open_item_world
from rankloop.papers.observability import value_of
from tests.kernels.inputs import SEEDS

RNG = np.random.default_rng(0)


def naive_value(measure: str, order: Array, grades: Array, cut: int) -> float:
    ranks = np.argsort(order) + 1
    if measure in ("ndcg", "ap") and not grades.any():
        return 0.0  # the paper's convention is 1: the same for all rankings, and in no regret
    if measure == "precision":
        grades = np.minimum(grades, 1)
    return float(value_of(measure, ranks.tolist(), [int(g) for g in grades], cut))


@given(st.sampled_from(MEASURES), SEEDS, st.integers(1, 5), st.integers(1, 12), st.integers(1, 5))
def test_regret_is_that_against_the_best_of_all_rankings(measure: str, seed: int, m: int, T: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    highest = 1 if measure in ("pairwise", "auc", "ap") else 3
    grades = rng.integers(0, highest + 1, (T, m)).astype(float)
    orders = np.array([rng.permutation(m) for _ in range(T)])
    regret = Regret(measure, m, cut)
    for begin in range(0, T, 5):
        regret.add(orders[begin : begin + 5], grades[begin : begin + 5])

    def total(lists: Any) -> float:
        return sum(naive_value(measure, np.array(o), g, cut) for o, g in zip(lists, grades, strict=True))

    shown, fixed = total(orders), [total([p] * T) for p in permutations(range(m))]
    wanted = shown - min(fixed) if measure in LOSSES else max(fixed) - shown
    assert regret.value == pytest.approx(wanted, abs=1e-9)
    assert regret.loss == pytest.approx(shown, abs=1e-9)
    assert regret.rounds == T


@given(SEEDS, st.integers(1, 8), st.integers(1, 20))
def test_sumloss_regret_is_pairwise_regret(seed: int, m: int, T: int) -> None:
    """Ailon (2014): for two grades the two are equal, though the losses are not."""
    rng = np.random.default_rng(seed)
    grades, orders = rng.integers(0, 2, (T, m)), np.array([rng.permutation(m) for _ in range(T)])
    one, other = Regret("sumloss", m), Regret("pairwise", m)
    for regret in (one, other):
        regret.add(orders, grades)
    assert one.value == pytest.approx(other.value, abs=1e-9)


# -- graders ---------------------------------------------------------------------------------------------------------


def test_graders_reveal_the_first_grades() -> None:
    grades = np.array([2, 0, 4])
    for top, seen in ((0, [2, 0, 4]), (1, [2]), (2, [2, 0]), (9, [2, 0, 4])):
        told = Grader(top).react(grades, RNG)
        assert (told.kind, told.values.tolist()) == ("grades", seen)
    assert Grader(2, "clicks").react(grades, RNG).values.tolist() == [1.0, 0.0]


def test_graders_by_name() -> None:
    assert open_user("grader?top=2", 4, "grades") == Grader(2)
    assert open_user("grader", 4) == Grader(0, "clicks")
    with pytest.raises(InvalidParameter, match="user 'perfect' clicks, but this learner needs grades"):
        open_user("perfect", 4, "grades")
    with pytest.raises(InvalidParameter, match="has no option 'k'; it has top"):
        open_user("grader?k=2", 4)
    with pytest.raises(UnknownName, match="grader"):
        open_user("gradr", 4)
    with pytest.raises(InvalidParameter, match="top is -1"):
        Grader(-1)


def test_learners_of_grades_and_of_clicks_run_on_the_same_graders() -> None:
    data = "synthetic:mq2008?queries=30&vali=1&test=20&features=8"
    for name in ("rtopk", "rtopk-items", "listnet-full", "ftpl-full", "pdgd", "random"):
        found = run(Trial(name, data, "grader?top=2", rounds=60, evaluations=2))
        assert 0 < found.last("online.ndcg") < 1
        assert found.conventions["stop_requires_click"] is None
    with pytest.raises(InvalidParameter, match="needs grades"):
        check_trials([Trial("rtopk", data, "navigational")])


# -- relevance vectors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [Corrupted(highest=3), Switching(every=7), Alternating(items=5, flip=0.3)])
def test_vectors_are_those_of_the_rounds(world: Corrupted | Switching | Alternating) -> None:
    streams = Rng(4)
    many = world.vectors(streams, 11, 30)
    one_by_one = np.array([world.at(t, streams.for_event("world", t)).grades for t in range(11, 41)])
    assert many.tobytes() == one_by_one.tobytes()
    assert set(np.unique(many)) <= set(range(world.highest + 1))


def test_a_corrupted_vector_is_flipped_as_often_as_told() -> None:
    world = Corrupted(items=20, relevant=5, flip=0.1)
    vectors = world.vectors(Rng(0), 0, 5000)
    truth = world.truths(np.array([0]))[0]
    assert truth.sum() == 5
    assert (vectors != truth).mean(0) == pytest.approx(np.full(20, 0.1), abs=4 * np.sqrt(0.09 / 5000))
    assert world.at(3, np.random.default_rng(0)).candidates.n == world.k == 20


def test_alternating_misleads_who_follows_the_leader() -> None:
    """The unperturbed leader is wrong in half of the rounds or more; the perturbed one is not."""
    from rankloop.lab.runs.compiled import run_items
    from rankloop.learners.grades.ftpl_full import FTPLFull

    world = Alternating(items=2, flip=0.0)
    misled = run_items(FTPLFull("sumloss", grades=1, epsilon=1e9), world, 2000, measures=["sumloss"])
    perturbed = run_items(FTPLFull("sumloss", grades=1, horizon=2000), world, 2000, measures=["sumloss"])
    assert perturbed.regret["sumloss"][0] < 0.1 * 2000
    assert misled.regret["sumloss"][0] >= perturbed.regret["sumloss"][0] + 400


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("corruptd", "did you mean 'corrupted'"),
        ("corrupted?every=5", "has no option 'every'"),
        ("corrupted?flip=2", "flip is 2.0"),
        ("corrupted?relevant=30", "there are 20 items only"),
        ("corrupted?items=0", "items is 0"),
        ("switching?every=0", "every is 0"),
    ],
)
def test_bad_sequences_are_named(spec: str, words: str) -> None:
    with pytest.raises((InvalidParameter, UnknownName), match=words):
        open_item_world(spec)
