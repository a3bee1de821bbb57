"""Plackett-Luce against the textbook product over all documents."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtrc

from rankloop.kernels import plackett_luce, ranking
from tests.kernels.inputs import SCORES, SEEDS, frozen, pair_rows, positions
from tests.reference import plackett_luce as naive
from tests.reference.pairwise import all_pairs

LISTS = st.lists(SCORES, min_size=1, max_size=7)
# Gaps of up to 600: weights e^-600 of the highest are still floats.
WITHIN = st.lists(SCORES.map(lambda score: max(-300.0, min(300.0, score))), min_size=1, max_size=7)


@given(scores=LISTS, k=st.integers(1, 10), seed=SEEDS)
def test_sample_is_the_gumbel_trick(scores: list[float], k: int, seed: int) -> None:
    uniforms = frozen(np.random.default_rng(seed).random(len(scores)))
    assert plackett_luce.sample(frozen(scores), uniforms, k).tolist() == naive.sample(scores, uniforms.tolist(), k)


def test_sample_takes_a_uniform_of_zero() -> None:
    """`Generator.random` may return 0, where the Gumbel noise is -∞."""
    assert plackett_luce.sample(frozen([0.0, 0.0, 0.0]), frozen([0.0, 0.9, 0.5]), 3).tolist() == [1, 2, 0]
    assert sorted(plackett_luce.sample(frozen([1.0, 2.0]), frozen([0.0, 0.0]), 2).tolist()) == [0, 1]


@pytest.mark.parametrize(("scores", "k"), [([0.0, 0.0, 0.0, 0.0], 4), ([1.0, 0.0, -0.5, 0.3], 2), ([2.0, 0.0, 0.0], 3)])
def test_sample_follows_plackett_luce(scores: list[float], k: int) -> None:
    """Chi-square over every possible list."""
    rng, draws = np.random.default_rng(20), 20_000
    frozen_scores = frozen(scores)
    lists = (plackett_luce.sample(frozen_scores, frozen(rng.random(len(scores))), k) for _ in range(draws))
    seen = Counter(tuple(ranking.tolist()) for ranking in lists)
    law = naive.distribution(scores, k)
    assert sum(law.values()) == pytest.approx(1.0)
    statistic = sum((seen[ranking] - draws * p) ** 2 / (draws * p) for ranking, p in law.items())
    assert set(seen) <= set(law)
    assert chdtrc(len(law) - 1, statistic) > 0.01


@given(data=st.data(), scores=WITHIN)
def test_rest_weight(data: st.DataObject, scores: list[float]) -> None:
    order = data.draw(st.permutations(range(len(scores))))[: data.draw(st.integers(1, len(scores)))]
    rest = plackett_luce.rest_weight(frozen(scores), positions(order))
    assert rest == pytest.approx(naive.rest_weight(scores, order), rel=1e-12, abs=1e-12)


@given(data=st.data(), scores=LISTS)
def test_log_probability(data: st.DataObject, scores: list[float]) -> None:
    """The product multiplied out in decimals, with gaps of up to 2,000 between scores."""
    order = data.draw(st.permutations(range(len(scores))))[: data.draw(st.integers(1, len(scores)))]
    rest = plackett_luce.rest_weight(frozen(scores), positions(order))
    found = plackett_luce.log_probability(frozen([scores[i] for i in order]), rest)
    assert found == pytest.approx(float(naive.probability(scores, order).ln(naive.WIDE)), rel=1e-12, abs=1e-12)


@given(data=st.data(), scores=WITHIN)
def test_swap_shares(data: st.DataObject, scores: list[float]) -> None:
    """Every pair of positions, both ways round."""
    order = data.draw(st.permutations(range(len(scores))))[: data.draw(st.integers(1, len(scores)))]
    pairs = list(permutations(range(len(order)), 2))
    rest = naive.rest_weight(scores, order)
    shares = plackett_luce.swap_shares(frozen([scores[i] for i in order]), rest, pair_rows(pairs))
    expected = [naive.swap_share(scores, order, a, b) for a, b in pairs]
    assert shares == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(data=st.data(), scores=LISTS)
def test_huge_gaps_stay_finite(data: st.DataObject, scores: list[float]) -> None:
    """Scores up to 2,000 apart, with the log weight of the rest as the kernel has it and as it is."""
    order = data.draw(st.permutations(range(len(scores))))[: data.draw(st.integers(1, len(scores)))]
    shown, pairs = frozen([scores[i] for i in order]), pair_rows(list(permutations(range(len(order)), 2)))
    for rest in (plackett_luce.rest_weight(frozen(scores), positions(order)), naive.rest_weight(scores, order)):
        shares = plackett_luce.swap_shares(shown, rest, pairs)
        assert ((shares >= 0) & (shares <= 1)).all()
        assert np.isfinite(plackett_luce.pdgd_pulls(shown, rest, frozen(np.arange(shown.size) % 2.0), pairs)).all()


def test_rest_weight_far_below_a_shown_document() -> None:
    assert plackett_luce.rest_weight(frozen([1000.0, 0.0]), positions([0])) == 0.0


def test_swap_share_by_hand() -> None:
    """Two of three documents shown: P(R) = (a/1)(b/(1-a)), P(R*) = (b/1)(a/(1-b)) with weights a + b + c = 1."""
    a, b, c = 0.5, 0.3, 0.2
    shown, swapped = a * b / (1 - a), b * a / (1 - b)
    shares = plackett_luce.swap_shares(frozen([math.log(a), math.log(b)]), math.log(c), pair_rows([(0, 1)]))
    assert shares == pytest.approx([swapped / (shown + swapped)])


@given(data=st.data(), scores=WITHIN, seed=SEEDS)
def test_pdgd_gradient(data: st.DataObject, scores: list[float], seed: int) -> None:
    order = data.draw(st.permutations(range(len(scores))))[: data.draw(st.integers(1, len(scores)))]
    values = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=len(order), max_size=len(order)))
    seen = data.draw(st.integers(-1, len(order)))
    pairs = all_pairs(values, True, seen)
    features = np.random.default_rng(seed).random((len(scores), 3))
    rest = naive.rest_weight(scores, order)
    gradient = plackett_luce.pdgd_gradient(
        frozen(features[order]), frozen([scores[i] for i in order]), rest, frozen(values), True, seen
    )
    better = [values[a] - values[b] for a, b in pairs]
    expected = naive.pdgd_gradient(features.tolist(), scores, order, pairs, better) if pairs else []
    assert gradient == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(WITHIN, SEEDS, st.integers(1, 8))
def test_a_list_is_drawn_with_all_that_belongs_to_it(scores: list[float], seed: int, k: int) -> None:
    """Order, rows, scores, the weight of the rest and log P, of the kernels that give each alone."""
    features, numbers = np.array(scores)[:, None], np.random.default_rng(seed).random(len(scores))
    order, rows, shown, rest, chance = plackett_luce.draw(frozen(features), frozen([1.0]), frozen(numbers), k)
    assert order.tolist() == plackett_luce.sample(frozen(scores), frozen(numbers), k).tolist()
    assert rows.tolist() == features[order].tolist()
    assert shown.tolist() == [scores[i] for i in order]
    assert rest == plackett_luce.rest_weight(frozen(scores), order)
    assert chance == plackett_luce.log_probability(shown, rest)


@given(st.integers(1, 12), st.integers(1, 5), SEEDS)
def test_the_base_order_needs_no_column(n: int, d: int, seed: int) -> None:
    """What is made of the rows as they are is, bit for bit, what is made of rows with the base order as a column."""
    rng = np.random.default_rng(seed)
    features, theta, uniforms = frozen(rng.normal(size=(n, d))), frozen(rng.normal(size=d + 1)), frozen(rng.random(n))
    places = positions(rng.permutation(50)[:n])
    rows = frozen(ranking.with_places(features, places))
    scores = ranking.scores_with_places(features, places, theta)
    assert scores.tobytes() == ranking.linear_scores(rows, theta).tobytes()
    whole = frozen(ranking.with_places(features, positions(range(n))))
    plain, based = (
        plackett_luce.draw(whole, theta, uniforms, 4),
        plackett_luce.draw_from_base(features, theta, uniforms, 4),
    )
    assert plain[0].tolist() == based[0].tolist()
    assert plain[1][:, :d].tobytes() == based[1].tobytes()
    assert plain[2].tobytes() == based[2].tobytes()
    assert plain[3:] == based[3:]
    clicks = frozen(rng.random(n) < 0.4)
    gradient = plackett_luce.pdgd_gradient(rows, frozen(scores), 0.3, clicks, True, -1)
    found = plackett_luce.pdgd_gradient_from_base(features, places, frozen(scores), 0.3, clicks, True, -1)
    assert found.tobytes() == gradient.tobytes()


def test_a_step_of_pdgd() -> None:
    gradient = frozen([1.0, -2.0])
    assert plackett_luce.pdgd_step(frozen([]), gradient, 0.5).tolist() == [0.5, -1.0]
    assert plackett_luce.pdgd_step(frozen([1.0, 1.0]), gradient, 0.5).tolist() == [1.5, 0.0]
