"""Hybrid: PairRank that remembers. What is proved of it, and what it is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels import pairwise
from rankloop.kernels.ranking import linear_scores
from rankloop.lab.runs.trial import Trial, run
from rankloop.learners.models.query_memory import MAX_ITEMS
from rankloop.learners.pairwise.hybrid import Hybrid
from rankloop.learners.pairwise.pairrank import PairRank
from tests.kernels.inputs import SEEDS


def shelf(query: int, n: int = 12, d: int = 3) -> Candidates:
    return Candidates(f"q{query}", np.arange(n), np.random.default_rng(query).random((n, d)))


def clicks(rng: np.random.Generator, k: int) -> Feedback:
    return Feedback("clicks", (rng.random(k) < 0.3).astype(float))


@given(SEEDS, st.integers(2, 6), st.integers(0, 12))
@settings(deadline=None)
def test_remembering_is_a_newton_step_a_pair(seed: int, k: int, m: int) -> None:
    """The kernel against the sentences of its docstring, number by number."""
    rng = np.random.default_rng(seed)
    scores, own, precision = rng.normal(size=k), rng.normal(size=k + 2), rng.uniform(0.5, 4.0, size=k + 2)
    numbers = rng.permutation(k + 2)[:k]
    if k > 3:
        numbers[0] = -1
    pairs = np.array([rng.permutation(k)[:2] for _ in range(m)], np.int64).reshape(-1, 2)
    weights = rng.random(m)
    u, p = own.tolist(), precision.tolist()
    for (a, b), weight in zip(pairs.tolist(), weights.tolist(), strict=True):
        i, j = numbers[a], numbers[b]
        if min(i, j) < 0:
            continue
        z, q = scores[a] + u[i] - scores[b] - u[j], 1 / p[i] + 1 / p[j]
        right = 1 / (1 + math.exp(-z))
        step = weight * (1 - right) / (1 + weight * right * (1 - right) * q)
        u[i], u[j] = u[i] + step / p[i], u[j] - step / p[j]
        there = 1 / (1 + math.exp(-(z + step * q)))
        p[i], p[j] = p[i] + weight * there * (1 - there), p[j] + weight * there * (1 - there)
    pairwise.update_query_offsets(scores, own, precision, numbers, pairs, weights)
    np.testing.assert_allclose(own, u, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(precision, p, rtol=1e-9)


@given(SEEDS, st.integers(1, 8), st.integers(0, 8))
@settings(deadline=None)
def test_recalling_finds_each_item_by_its_id(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(12)
    known, wanted = ids[:m], rng.permutation(12)[:n]
    scores, own, precision = rng.normal(size=n), rng.normal(size=m), rng.uniform(3.0, 9.0, size=m)
    found, spread = pairwise.add_query_offsets(scores, known, own, precision, wanted, 0.3, 0.01)
    for i, item in enumerate(wanted.tolist()):
        at = known.tolist().index(item) if item in known else -1
        assert found[i] == (scores[i] + own[at] if at >= 0 else scores[i])
        assert spread[i] == 0.01 * (1.0 / precision[at] if at >= 0 else 0.3)


def test_what_the_rows_say_is_the_shared_part() -> None:
    rng = np.random.default_rng(4)
    rows, theta, pairs = rng.normal(size=(4, 3)), rng.normal(size=3), np.array([[0, 2], [3, 1]])
    numbers, weights = np.array([2, 0, 1, -1]), np.array([0.5, 1.0])
    one, other = (np.zeros(3), np.full(3, 3.0)), (np.zeros(3), np.full(3, 3.0))
    pairwise.update_query_offsets_of_rows(rows, theta, *one, numbers, pairs, weights)
    pairwise.update_query_offsets(linear_scores(rows, theta), *other, numbers, pairs, weights)
    assert [a.tobytes() for a in one] == [b.tobytes() for b in other]
    assert one[0].any()


@given(SEEDS, st.integers(1, 6), st.integers(1, 40))
@settings(deadline=None)
def test_a_row_is_known_again_by_its_mark(seed: int, k: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((k, d))
    marks = pairwise.row_marks(rows)
    golden = (math.sqrt(5) - 1) / 2
    plain = [sum(x * (1 + (golden * (j + 1)) % 1) for j, x in enumerate(row)) for row in rows.tolist()]
    np.testing.assert_allclose(marks, plain, rtol=1e-9)
    assert pairwise.row_marks(rows.copy()).tobytes() == marks.tobytes()
    i, j = int(rng.integers(k)), int(rng.integers(d))
    rows[i, j] += 0.01
    assert (pairwise.row_marks(rows) != marks).tolist() == [row == i for row in range(k)]


@given(SEEDS, st.integers(1, 8), st.integers(2, 8), st.integers(0, 12))
@settings(deadline=None)
def test_news_is_what_the_own_parts_have_not_taken_in(seed: int, n: int, k: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    known, shown, prior = rng.permutation(12)[:n], rng.permutation(12)[:k], 0.4
    precision = 1.0 / prior + rng.exponential(size=n)
    before, rows = rng.integers(0, 2, n).astype(float), rng.integers(0, 2, k).astype(float)  # marks: many are equal
    pairs = np.array([rng.permutation(k)[:2] for _ in range(m)], np.int64).reshape(-1, 2)
    weights = rng.random(m)
    gained = dict(zip(zip(known.tolist(), before.tolist(), strict=True), precision - 1.0 / prior, strict=True))
    taken_in = [gained.get((item, row), 0.0) for item, row in zip(shown.tolist(), rows.tolist(), strict=True)]
    expected = [
        weight / (1.0 + prior * (taken_in[a] + taken_in[b])) for (a, b), weight in zip(pairs, weights, strict=True)
    ]
    found = pairwise.novelty_weights(known, precision, before, shown, rows, prior, pairs, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("start", ["zero", "base"])
def test_theta_learns_what_pairrank_learns_from_queries_that_come_once(start: str) -> None:
    hybrid, plain, rng = Hybrid(init=start), PairRank(init=start), np.random.default_rng(0)
    for t in range(60):
        shown = hybrid.rank(shelf(t), 6, rng)
        told = clicks(rng, 6)
        hybrid.learn(shown, told, np.random.default_rng(t))
        plain.learn(shown, told, np.random.default_rng(t))
    assert hybrid.theta_.tobytes() == plain.theta_.tobytes()
    assert hybrid.inverse_.tobytes() == plain.inverse_.tobytes()


def test_a_query_that_comes_again_and_again_says_ever_less_of_the_others() -> None:
    """The same list a hundred times: the confidence in θ stops growing, though PairRank's goes on."""
    found: dict[type, list[float]] = {}
    learners: tuple[Hybrid | PairRank, ...] = (Hybrid(), PairRank())
    for learner in learners:
        rng, gained = np.random.default_rng(1), []
        shown = learner.rank(shelf(0), 6, rng)
        for _ in range(100):
            learner.learn(shown, Feedback("clicks", np.array([0.0, 1, 0, 1, 0, 0])), rng)
            gained.append(-float(np.linalg.slogdet(learner.inverse_)[1]))
        found[type(learner)] = gained
    assert found[Hybrid][0] == found[PairRank][0]  # the first time all is news
    late = [gained[-1] - gained[49] for gained in found.values()]
    assert late[0] < 0.5 * late[1]


@pytest.mark.parametrize("start", ["zero", "base"])
def test_items_whose_features_change_teach_all_they_tell(start: str) -> None:
    """One query, the same ids, features of the user who asks: θ learns what PairRank's learns, bit for bit."""
    hybrid, plain, rng = Hybrid(init=start), PairRank(init=start), np.random.default_rng(0)
    for t in range(60):
        shown = hybrid.rank(Candidates("home", np.arange(12), rng.random((12, 3))), 6, rng)
        told = clicks(rng, 6)
        hybrid.learn(shown, told, np.random.default_rng(t))
        plain.learn(shown, told, np.random.default_rng(t))
    assert hybrid.theta_.tobytes() == plain.theta_.tobytes()
    assert hybrid.inverse_.tobytes() == plain.inverse_.tobytes()


def test_a_query_that_never_came_is_ranked_as_pairrank_ranks_it() -> None:
    hybrid, plain, rng = Hybrid(), PairRank(), np.random.default_rng(1)
    for t in range(60):
        shown = hybrid.rank(shelf(t % 4), 6, rng)
        hybrid.learn(shown, clicks(rng, 6), rng)
    assert hybrid.report().remembered == 4
    plain.load({name: value for name, value in hybrid.state().items() if not name.startswith("memory_")})
    for new in range(100, 140):
        ours = hybrid.rank(shelf(new), 6, np.random.default_rng(new))
        theirs = plain.rank(shelf(new), 6, np.random.default_rng(new))
        assert ours.order.tolist() == theirs.order.tolist()
        assert all(ours.memo[name].tobytes() == theirs.memo[name].tobytes() for name in theirs.memo)


def test_the_certain_relation_is_a_strict_partial_order() -> None:
    """Asymmetric and transitive, with the items' own intervals in it: the squared width is that of a norm."""
    rng = np.random.default_rng(2)
    learner = Hybrid(memory_alpha=1.0)
    for t in range(80):
        shown = learner.rank(shelf(t % 3), 8, rng)
        learner.learn(shown, clicks(rng, 8), rng)
    for query in range(3):
        certain = learner.model_.confidence(shelf(query), learner.alpha).certain()
        assert not (certain & certain.T).any()
        two_steps = (certain.astype(int) @ certain.astype(int)) > 0
        assert not (two_steps & ~certain).any()
        assert certain.any()


def test_what_is_remembered_becomes_certain_and_wider_intervals_explore_more() -> None:
    def open_pairs(beta: float, rounds: int) -> int:
        learner, rng = Hybrid(memory_alpha=beta), np.random.default_rng(3)
        same = Candidates("same", ["a", "b", "c"], np.ones((3, 2)))
        for _ in range(rounds):
            shown = learner.rank(same, 3, rng)
            learner.learn(shown, Feedback.clicked(shown, ["b"]), rng)
        return len(learner.explain(learner.rank(same, 3, rng)).uncertain)

    assert open_pairs(0.1, 1) >= open_pairs(0.1, 40)
    assert open_pairs(20.0, 3) >= open_pairs(0.1, 3)
    assert open_pairs(0.1, 40) <= 1  # a and c are alike, b is above both


def test_items_come_and_go_and_queries_are_forgotten() -> None:
    learner, rng = Hybrid(max_queries=3), np.random.default_rng(5)
    for t in range(40):
        items = rng.permutation(200)[:8]
        candidates = Candidates(f"q{rng.integers(6)}", items, rng.random((8, 2)))
        shown = learner.rank(candidates, 8, rng)
        learner.learn(shown, clicks(rng, 8), rng)
        assert learner.model_.remembered <= 3, t
    assert learner.model_.offsets_.arrays["sizes"].max() <= MAX_ITEMS


def test_a_query_costs_what_the_docstring_says() -> None:
    table = Hybrid().model_.offsets_
    assert [table.bytes_of(m) for m in (0, 1, 10)] == [40, 76, 400]


@pytest.mark.parametrize("user", ["navigational", "informational"])
def test_it_serves_those_who_come_back_better_than_pairrank(user: str) -> None:
    """40 queries that come 15 times each; held-out it is where PairRank is."""
    found: dict[str, Array] = {}
    for name in ("pairrank", "hybrid"):
        runs = [
            run(Trial(name, data="synthetic:mq2008?queries=40&vali=1&test=40", user=user, rounds=600, seed=seed))
            for seed in range(3)
        ]
        found[name] = np.array([[r.last("online.cndcg"), r.last("offline.ndcg@10")] for r in runs]).mean(0)
    assert found["hybrid"][0] > 1.05 * found["pairrank"][0]
    assert found["hybrid"][1] > found["pairrank"][1] - 0.03
