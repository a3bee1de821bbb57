"""Kernels of the learners of grades against their twins."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import surrogates, topk
from rankloop.learners.grades.rtopk import SURROGATES
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import topk as naive

NAMES = st.sampled_from(sorted(SURROGATES))


def rule_of(surrogate: str, top: int, **more: Any) -> topk.Rule:
    given = {
        "highest": 4.0,
        "rate": 0.1,
        "explore": 0.7,
        "relaxed": False,
        "sampled": False,
        "radius": 1e9,
        "temperature": 0.5,
        **more,
    }
    return topk.Rule(surrogate=SURROGATES[surrogate], top=top, **given)


@given(NAMES, SEEDS, st.integers(1, 7), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans())
def test_the_gradient_is_that_of_the_twin(
    name: str, seed: int, n: int, top: int, explore: bool, relaxed: bool, sampled: bool
) -> None:
    rng = np.random.default_rng(seed)
    features, theta = frozen(rng.integers(-2, 3, (n, 3)) / 2), frozen(3 * rng.normal(size=3))
    grades, rounds, k = rng.integers(0, 4, n).astype(float), float(seed % 50), n - seed % 2 if n > 1 else n
    rule = rule_of(name, top, relaxed=relaxed, sampled=sampled)
    numbers = frozen([0.0 if explore else 0.999, *rng.random(2 * n)])
    order, weights, propensity, known = topk.display(features, theta, rounds, numbers, k, rule)

    scores = [sum(x * t for x, t in zip(row, theta, strict=True)) for row in features.tolist()]
    ties, keys = numbers[1 : n + 1].tolist(), numbers[n + 1 :].tolist()
    leader = sorted(range(n), key=lambda i: (-round(scores[i], 12), ties[i]))
    wanted = sorted(range(n), key=lambda i: -keys[i]) if explore else leader
    assert order.tolist() == wanted[:k]

    r = min(top, k)
    gamma = min(0.5, 0.7 / (rounds + 1) ** (1 / 3))
    slopes = naive.estimate(
        name,
        scores,
        wanted,
        leader,
        grades.tolist().__getitem__,
        r,
        gamma,
        0.5,
        relaxed,
        sampled and name != "smoothdcg",
    )
    graded = order[:r]
    found = topk.gradient(
        frozen(features[graded]),
        frozen(weights),
        frozen(propensity),
        frozen(known),
        frozen(grades[graded]),
        rule,
    )
    assert found == pytest.approx(naive.times(slopes, features.tolist()), rel=1e-9, abs=1e-9)
    moved = topk.learned(
        theta, rounds, frozen(features[graded]), weights, propensity, known, frozen(grades[graded]), rule
    )
    rate = 0.1 / (rounds + 1) ** (2 / 3)
    assert moved == pytest.approx(naive.descended(theta.tolist(), found.tolist(), rate, 1e9), rel=1e-9, abs=1e-12)


@given(NAMES, SEEDS, st.integers(1, 7))
def test_the_loss_is_that_of_the_twin_and_its_slope_is_the_gradient(name: str, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scores, grades = 3 * rng.normal(size=n), rng.integers(0, 5, n).astype(float)
    found = topk.surrogate_loss(frozen(scores), frozen(grades), rule_of(name, 1))
    assert found == pytest.approx(naive.loss(name, scores.tolist(), grades.tolist(), 0.5), rel=1e-9, abs=1e-9)
    slopes = naive.slopes(name, scores.tolist(), grades.tolist(), 0.5)
    for i in range(n):
        step = np.zeros(n)
        step[i] = 1e-6
        up, down = (naive.loss(name, (scores + s * step).tolist(), grades.tolist(), 0.5) for s in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(slopes[i], rel=1e-4, abs=1e-4)


@given(SEEDS, st.integers(2, 6), st.integers(1, 3), st.floats(0.01, 0.5))
def test_propensities_are_frequencies_of_the_lists(seed: int, n: int, r: int, gamma: float) -> None:
    """Sum the chances of all lists in which these documents stand at these positions."""
    rng, r = np.random.default_rng(seed), min(r, n)
    leader, shown = rng.permutation(n).tolist(), rng.permutation(n).tolist()
    lists = list(permutations(range(n)))
    chance = {p: gamma / len(lists) + (1 - gamma) * (list(p) == leader) for p in lists}
    found = topk.propensities(positions(leader), positions(shown[:r]), n, gamma, False, False)
    wanted = [sum(c for p, c in chance.items() if p[a] == shown[a]) for a in range(r)]
    assert found == pytest.approx(wanted)
    found = topk.propensities(positions(leader), positions(shown[:r]), n, gamma, True, False)
    pairs = [(a, b) for a in range(r) for b in range(a + 1, r)]
    both = [sum(c for p, c in chance.items() if {p[a], p[b]} == {shown[a], shown[b]}) for a, b in pairs]
    assert found == pytest.approx(both)


@given(SEEDS, st.integers(1, 5), st.floats(0.1, 3))
def test_the_ball_holds(seed: int, d: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    theta, slope = frozen(rng.normal(size=d)), frozen(rng.normal(size=d) * 10.0 ** rng.integers(-3, 3))
    found = topk.descend(theta, slope, 0.5, radius)
    assert found == pytest.approx(naive.descended(theta.tolist(), slope.tolist(), 0.5, radius))
    assert np.linalg.norm(found) <= radius * (1 + 1e-12)
    assert topk.descend(frozen([]), slope, 1.0, 1e9) == pytest.approx(-slope)


def test_huge_features_leave_the_weights_finite() -> None:
    found = topk.descend(frozen([0.0, 0.0]), frozen([-3e200, -4e200]), 1.0, 5.0)
    assert found == pytest.approx([3.0, 4.0])


@given(SEEDS, st.integers(1, 50))
def test_listnet_goes_down_its_cross_entropy(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rows, grades = frozen(rng.normal(size=(n, 3))), frozen(rng.integers(0, 5, n))
    theta = frozen(rng.normal(size=3))
    order, scores = topk.listnet_display(rows, theta, frozen(rng.random(n)), n)
    assert scores == pytest.approx(rows[order] @ theta)
    assert (np.diff(scores) <= 1e-12).all()
    moved = topk.listnet_learned(theta, 3.0, frozen(rows[order]), frozen(scores), frozen(grades[order]), 0.4, 1e9)
    slope = naive.times(naive.listnet_slopes(scores.tolist(), grades[order].tolist()), rows[order].tolist())
    assert moved == pytest.approx(naive.descended(theta.tolist(), slope, 0.2, 1e9))


@given(st.sampled_from(["squared", "kl", "ranksvm"]), SEEDS, st.integers(1, 4))
def test_losses_over_a_data_set(name: str, seed: int, queries: int) -> None:
    """Weighed by how often each query comes; the hinge is rounded off over the slack, lower by half of it at most."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, queries)
    offsets = positions([0, *np.cumsum(sizes)])
    scores, grades = frozen(3 * rng.normal(size=sizes.sum())), frozen(rng.integers(0, 5, sizes.sum()))
    counts = frozen(rng.integers(0, 4, queries))
    for slack in (1e-9, 0.5):
        found, slopes = surrogates.weighed_loss(scores, grades, offsets, counts, SURROGATES[name], 4.0, slack)
        parts = [(int(b), int(e)) for b, e in pairwise(offsets)]
        lists = [(scores[b:e].tolist(), grades[b:e].tolist()) for b, e in parts]
        wanted = sum(c * naive.loss(name, s, g, 1.0) for c, (s, g) in zip(counts, lists, strict=True))
        pairs = sum(c * sum(x > y for x in g for y in g) for c, (_, g) in zip(counts, lists, strict=True))
        assert wanted - slack / 2 * pairs - 1e-6 <= found <= wanted + 1e-6
        if slack < 1e-6:
            told = [c * v for c, (s, g) in zip(counts, lists, strict=True) for v in naive.slopes(name, s, g, 1.0)]
            assert slopes == pytest.approx(told, abs=1e-6)
