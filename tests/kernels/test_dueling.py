"""Dueling kernels against their twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import dueling, interleaving
from tests.kernels.inputs import SEEDS, frozen
from tests.reference import dueling as naive

TAUS = st.sampled_from([0.0, 1.0, 3.0])  # 0 asks for documents far down as often as for the first


@given(SEEDS, st.integers(1, 12), st.integers(1, 40), st.integers(1, 15), st.booleans(), TAUS)
def test_lists_from_scores_are_those_from_rankings_bit_for_bit(
    seed: int, R: int, n: int, k: int, tied: bool, tau: float
) -> None:
    rng, k = np.random.default_rng(seed), min(k, n)
    scores = frozen(rng.integers(0, 4, (R, n)) if tied else rng.normal(size=(R, n)))
    ties, coins = frozen(rng.random(n)), frozen(rng.random((2, k)))
    weights, tails = interleaving.soft_ranks(n, tau)
    order, credit = interleaving.interleave(scores, ties, coins, frozen(weights), frozen(tails))
    wanted, posterior = interleaving.probabilistic(interleaving.rankings(scores, ties), coins, k, tau)
    assert order.tolist() == wanted.tolist()
    assert credit.tobytes() == posterior.tobytes()


@given(SEEDS, st.integers(1, 9), st.integers(0, 12), st.integers(1, 6))
def test_projections_are_least_squares(seed: int, d: int, m: int, repeats: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    rows = frozen(rows[rng.integers(0, m, repeats * m)] if m else rows)  # with repetitions: the span is smaller
    direction = frozen(dueling.unit_rows(rng.normal(size=(1, d)))[0])
    assert dueling.projected(direction, rows) == pytest.approx(
        naive.onto_span(direction.tolist(), rows.tolist()), abs=1e-8
    )
    assert dueling.null_directions(direction[None, :], rows)[0] == pytest.approx(
        naive.off_span(direction.tolist(), rows.tolist()), abs=1e-8
    )


@given(SEEDS, st.integers(1, 8), st.integers(2, 30))
def test_null_directions_are_orthogonal_to_the_bad_ones_and_projections_stay_in_the_span(
    seed: int, m: int, d: int
) -> None:
    rng = np.random.default_rng(seed)
    bad = frozen(dueling.unit_rows(rng.normal(size=(m, d))))
    tried = frozen(dueling.unit_rows(rng.normal(size=(5, d))))
    kept = dueling.null_directions(tried, bad)
    assert np.abs(kept @ bad.T).max() < 1e-9
    lengths = np.sqrt((kept**2).sum(axis=1))
    assert all(length == pytest.approx(1.0) or length == 0.0 for length in lengths)
    inside = dueling.projected(tried[0], bad)
    again = dueling.projected(frozen(inside), bad)
    assert inside == pytest.approx(again, abs=1e-9)


@given(SEEDS, st.integers(1, 7), st.integers(1, 6))
def test_a_round_of_experts_is_hedge_then_steps_then_the_ball(seed: int, N: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    weights, experts, step = rng.dirichlet(np.ones(N)), frozen(rng.normal(size=(N, d))), frozen(rng.normal(size=d))
    rates, aggregate = frozen(rng.random(N)), frozen(dueling.mixture(frozen(weights), experts))
    logs, moved, middle = dueling.track(frozen(np.log(weights)), experts, aggregate, step, rates, 0.3, 2.0, 1.5)
    found = np.exp(logs)
    wanted, _ = naive.hedge(weights.tolist(), experts.tolist(), step.tolist(), 0.3, 2.0)
    assert found == pytest.approx(wanted)
    for expert, rate, now in zip(experts, rates, moved, strict=True):
        assert now == pytest.approx(naive.in_ball((expert + rate * step).tolist(), 1.5))
    assert middle == pytest.approx(found @ moved)


@given(SEEDS, st.integers(1, 7), st.integers(1, 6))
def test_hedge_is_by_the_book_and_its_losses_cancel(seed: int, N: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    weights, experts, step = rng.dirichlet(np.ones(N)), frozen(rng.normal(size=(N, d))), frozen(rng.normal(size=d))
    wanted, losses = naive.hedge(weights.tolist(), experts.tolist(), step.tolist(), 0.3, 2.0)
    aggregate = dueling.mixture(frozen(weights), experts)
    logs = frozen(np.log(weights))
    assert np.exp(dueling.hedge(logs, experts, aggregate, step, 0.3, 2.0)) == pytest.approx(wanted)
    assert float(np.dot(weights, losses)) == pytest.approx(0.0, abs=1e-12)


def test_hedge_stays_finite_whatever_the_gain_and_forgets_nobody() -> None:
    """e^(±50,000) is no float64. Gains undone one by one bring the weights back to where they were."""
    experts, middle = frozen([[1.0], [-1.0], [0.5]]), frozen([0.0])
    first = frozen(np.log([0.5, 0.3, 0.2]))
    far = frozen(dueling.hedge(first, experts, middle, frozen([5e4]), 1.0, 1.0))
    assert np.isfinite(far).all()
    assert np.exp(far).tolist() == [1.0, 0.0, 0.0]
    back = dueling.hedge(far, experts, middle, frozen([-5e4]), 1.0, 1.0)
    assert np.exp(back) == pytest.approx([0.5, 0.3, 0.2])


def test_the_mean_is_over_those_more_likely_to_have_won() -> None:
    directions = frozen([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    win, loss = frozen([0.0, 0.6, 0.5, 0.2]), frozen([0.0, 0.3, 0.1, 0.2])  # the last one drew
    mean, count = dueling.mean_winner(directions, win, loss)
    assert (mean.tolist(), count) == ([0.5, 0.5], 2)


def test_a_ball_shortens_what_is_longer_and_leaves_the_rest() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    dueling.within_ball(rows, 1.0)
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4]]))
    dueling.within_ball(rows, 0.0)
    assert rows[1].tolist() == [0.3, 0.4]


@given(SEEDS, st.integers(0, 3), st.integers(1, 6))
def test_a_duel_is_scores_then_mixing_then_rows(seed: int, m: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    theta, directions = frozen(rng.normal(size=4)), frozen(rng.normal(size=(m, 4)))
    features, ties, coins = frozen(rng.normal(size=(6, 4))), frozen(rng.random(6)), frozen(rng.random((2, k)))
    soft = [frozen(part) for part in interleaving.soft_ranks(6, 3.0)]
    order, rows, credit = dueling.duel(features, theta, directions, 0.5, ties, coins, *soft)
    scores = frozen(dueling.explorers(theta, directions, 0.5) @ features.T)
    expected, shares = interleaving.interleave(scores, ties, coins, *soft)
    assert order.tolist() == expected.tolist()
    assert rows.tolist() == features[order].tolist()
    assert credit == pytest.approx(shares)


def test_only_clicks_that_an_explorer_more_likely_owns_give_a_direction() -> None:
    directions, clicks = frozen([[1.0, 0.0], [0.0, 1.0]]), frozen([1.0, 0.0])
    credit = frozen([[0.2, 0.7, 0.1], [0.4, 0.3, 0.3]])  # of the ranker itself, then of the two explorers
    assert dueling.winning_direction(directions, credit, clicks).tolist() == [1.0, 0.0]
    assert dueling.winning_direction(directions, credit, frozen([0.0, 0.0])).size == 0
    assert dueling.winning_direction(directions, frozen([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]]), clicks).size == 0
    assert dueling.winning_direction(frozen(np.zeros((0, 2))), frozen([[1.0], [1.0]]), clicks).size == 0
