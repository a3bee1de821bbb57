"""RTop-kF with context: its estimates are unbiased by enumeration, a round by hand, what it refuses."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import clone
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.learners.grades.listnet_full import ListNetFull
from rankloop.learners.grades.rtopk import RTopK
from tests.reference import topk as naive

SURROGATES = ("squared", "ranksvm", "kl", "smoothdcg")


class Numbers(np.random.Generator):
    """A generator that gives what it was told."""

    def __init__(self, numbers: Array) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = numbers

    def random(self, size: int) -> Array:  # type: ignore[override]
        assert size == self.numbers.size
        return self.numbers


def step_of(learner: RTopK, candidates: Candidates, grades: Array, numbers: Array, k: int) -> Array:
    """The slope of the step that the learner takes when it ranks with these numbers and hears the true grades."""
    shown = learner.rank(candidates, k, Numbers(numbers))
    after = clone(learner)
    after.load(learner.state())
    told = grades[shown.order[: learner.top]]
    after.learn(shown, Feedback.grades(told), np.random.default_rng(0))
    rate = learner.rate / (learner.rounds_[0] + 1) ** (2 / 3)
    return np.asarray((learner.theta_ - after.theta_) / rate)


def ways(m: int, gamma: float) -> list[tuple[float, Array]]:
    """All that random numbers can say, with their probabilities: explore or not, the random order, how one tie breaks.

    Numbers that break ties are in the order of the documents or in the opposite one: enough where two are equal.
    """
    numbers = np.linspace(0.1, 0.9, m)
    orders = list(permutations(numbers))
    return [
        (chance / 2 / len(orders), np.concatenate([[coin], ties, keys]))
        for coin, chance in ((0.0, gamma), (0.9999, 1 - gamma))
        for ties in (numbers, numbers[::-1])
        for keys in orders
    ]


def expected_step(learner: RTopK, candidates: Candidates, grades: Array, k: int) -> Array:
    """Exactly."""
    gamma = min(0.5, learner.explore / (learner.rounds_[0] + 1) ** (1 / 3))
    steps = [chance * step_of(learner, candidates, grades, drawn, k) for chance, drawn in ways(candidates.n, gamma)]
    return np.asarray(np.sum(steps, axis=0))


CASES = [
    *((name, m, top, "weighted") for name in SURROGATES for m in (2, 3, 4, 5) for top in (1, 2, 3)),
    *((name, m, top, "exact") for name in ("squared", "kl") for m in (2, 3, 4, 5) for top in (1, 2)),
]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("surrogate", "m", "top", "known"), [c for c in CASES if c[0] != "ranksvm" or c[2] > 1])
def test_the_estimate_is_unbiased(surrogate: Any, m: int, top: int, known: Any, tied: bool) -> None:
    """E[z] = Xᵀ∇_s, for each surrogate, also from several grades and where scores and grades are equal."""
    rng = np.random.default_rng([m, top])
    features = rng.normal(size=(m, 3))
    theta, grades = rng.normal(size=3), rng.integers(0, 4, m).astype(float)
    if tied:
        features[-1] = features[0]  # the same score for sure
        grades[0], grades[1] = 2.0, 2.0
    learner = RTopK(surrogate, top, random_propensity="exact", explore=0.6, radius=1e9, temperature=0.5, known=known)
    learner.load({"theta_": theta, "rounds_": np.array([7.0])})
    found = expected_step(learner, Candidates("q", features=features), grades, m)
    slopes = naive.slopes(surrogate, (features @ theta).tolist(), grades.tolist(), 0.5)
    assert found == pytest.approx(features.T @ np.array(slopes), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("surrogate", ["squared", "kl"])
def test_short_lists_change_nothing(surrogate: Any) -> None:
    """Showing only as many as are graded, of five candidates, gives the same estimate: the memo has the rest."""
    rng = np.random.default_rng(3)
    learner = RTopK(surrogate, 2, explore=0.6, radius=1e9, known="exact")
    learner.load({"theta_": rng.normal(size=3), "rounds_": np.zeros(1)})
    candidates, grades = Candidates("q", features=rng.normal(size=(5, 3))), rng.integers(0, 4, 5).astype(float)
    numbers = rng.random(11)
    whole, short = (step_of(learner, candidates, grades, numbers, k) for k in (5, 2))
    assert whole == pytest.approx(short, rel=1e-12)


def test_the_known_part_from_graded_documents_has_less_variance() -> None:
    """Once scores are near the grades, what is divided by a small chance is their difference, and that is small."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4, 4))
    grades = np.array([3.0, 0.0, 1.0, 2.0])
    theta = np.linalg.solve(features, grades + 0.1 * rng.normal(size=4))
    spread = {}
    for known in ("exact", "weighted"):
        learner = RTopK("kl", 1, random_propensity="exact", explore=0.3, radius=1e9, known=known)
        learner.load({"theta_": theta, "rounds_": np.zeros(1)})
        chances = [chance for chance, _ in ways(4, 0.3)]
        steps = [step_of(learner, Candidates("q", features=features), grades, drawn, 4) for _, drawn in ways(4, 0.3)]
        mean = np.average(steps, axis=0, weights=chances)
        spread[known] = float(np.average(((np.array(steps) - mean) ** 2).sum(1), weights=chances))
    assert spread["weighted"] < spread["exact"] / 10


def test_a_round_by_hand() -> None:
    """RankSVM, three documents, exploiting: w ← w + (a/t^(2/3)) (x_1 - x_2) / p, p = 1 - γ + 2γ/6."""
    learner = RTopK("ranksvm", 2, rate=0.5, explore=0.4)
    learner.load({"theta_": np.array([1.0, 0.0]), "rounds_": np.array([7.0])})
    candidates = Candidates("q", ["a", "b", "c"], [[0.2, 0.0], [0.9, 0.3], [0.5, 1.0]])
    shown = learner.rank(candidates, 3, Numbers(np.array([0.99, *6 * [0.5]])))
    assert shown.items.tolist() == ["b", "c", "a"]
    gamma = 0.4 / 8 ** (1 / 3)  # t = 8
    assert shown.memo["propensity"] == pytest.approx([1 - gamma + gamma / 3])
    learner.learn(shown, Feedback.grades([1, 3]), np.random.default_rng(0))
    step = 0.5 / 8 ** (2 / 3) / (1 - gamma + gamma / 3)
    assert learner.theta_ == pytest.approx([1.0 + step * (0.5 - 0.9), step * (1.0 - 0.3)])
    assert learner.rounds_.tolist() == [8.0]


def test_lists_of_others_count_their_graded_documents_alone() -> None:
    """squared on an adopted list is plain regression on what was graded: 2 (s - R) x, averaged."""
    learner = RTopK("squared", 2, rate=1.0)
    learner.load({"theta_": np.array([0.5, 0.0]), "rounds_": np.zeros(1)})
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    shown = learner.adopt(Candidates("q", features=rows), np.array([1, 0, 2]))
    learner.learn(shown, Feedback.grades([2, 1, 4]), np.random.default_rng(0))
    assert learner.theta_ == pytest.approx([0.5 - (0.5 - 1.0), 0.0 - (0.0 - 2.0)])


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 9], r"position 2 is 9"),
        ([1], r"feedback has 1 grades"),
        ([], r"feedback has 0 grades"),
        ([1, np.nan], "finite number"),
        ([1, -1], "at least 0"),
        ([1, 1, 1, 1], "at most one value a slot"),
        (["good", "bad"], "a number for each slot"),
    ],
)
def test_bad_grades_are_named_and_change_nothing(name: Any, values: list[Any], words: str) -> None:
    learner, rng = RTopK(name, 2), np.random.default_rng(0)
    candidates = Candidates("q", features=rng.random((3, 2)))
    shown = learner.rank(candidates, 3, rng)
    learner.learn(shown, Feedback.grades([1, 2]), rng)
    before = {name: value.tobytes() for name, value in learner.state().items()}
    with pytest.raises(InvalidInput, match=words):
        learner.learn(shown, Feedback.grades(values), rng)
    assert before == {name: value.tobytes() for name, value in learner.state().items()}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"top": 1}, "ranksvm needs pairs"),
        ({"top": 0}, "top is 0"),
        ({"top": 2.5}, "whole number"),
        ({"grades": 0}, "grades is 0"),
        ({"grades": 31}, "at most 30"),
        ({"surrogate": "hinge"}, "one of squared, ranksvm, kl, smoothdcg"),
        ({"random_propensity": "none"}, "one of exact, gamma"),
        ({"known": "no"}, "one of exact, weighted"),
        ({"radius": 0}, "above 0"),
        ({"rate": 0}, "above 0"),
        ({"explore": -1}, "at least 0"),
        ({"temperature": 0.0}, "above 0"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        RTopK(**parameters)


def test_the_weights_stay_in_the_ball() -> None:
    learner, rng = RTopK("squared", 1, rate=10.0, radius=2.0), np.random.default_rng(0)
    for _ in range(20):
        shown = learner.rank(Candidates("q", features=1e99 * rng.uniform(-1, 1, (4, 3))), 4, rng)
        learner.learn(shown, Feedback.grades([4]), rng)
        assert np.linalg.norm(learner.theta_) <= 2.0 * (1 + 1e-12)


# -- ListNet with all grades -----------------------------------------------------------------------------------------


def test_listnet_learns_from_as_much_of_the_list_as_is_graded() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4, 3))
    learner = ListNetFull(rate=0.3)
    shown = learner.adopt(Candidates("q", features=rows), np.array([2, 0, 3]))
    learner.learn(shown, Feedback.grades([1]), rng)
    assert learner.rounds_[0] == 0  # one document alone has no order
    learner.learn(shown, Feedback.grades([0, 4]), rng)
    slope = naive.times(naive.listnet_slopes([0.0, 0.0], [0.0, 4.0]), rows[[2, 0]].tolist())
    assert learner.theta_ == pytest.approx([-0.3 * value for value in slope])
    with pytest.raises(InvalidInput, match="position 1 is 5"):
        learner.learn(shown, Feedback.grades([5]), rng)
