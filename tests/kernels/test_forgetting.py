"""Evidence that fades in O(d²), against whole matrices; who log_likelihood_ratio the clicks, against the formula."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import forgetting
from rankloop.kernels.pairwise import rank_one_update
from tests.kernels.inputs import SEEDS, frozen, pair_rows, spd
from tests.reference import forgetting as naive

KEEP = st.sampled_from([0.3, 0.5, 0.9, 0.99, 0.999, 1.0])


@given(d=st.integers(1, 9), keep=KEEP, prior=st.sampled_from([0.1, 10.0]), turn=st.integers(0, 50), seed=SEEDS)
def test_fade(d: int, keep: float, prior: float, turn: int, seed: int) -> None:
    matrix = spd(d, np.random.default_rng(seed))
    inverse = np.linalg.inv(matrix)
    gained = forgetting.discount_precision(inverse, keep, prior, turn)
    expected = naive.discounted_variances(matrix, keep, prior, turn)
    assert inverse == pytest.approx(np.linalg.inv(expected), rel=1e-9, abs=1e-9)
    assert (inverse == inverse.T).all()
    assert gained == pytest.approx(np.linalg.slogdet(expected)[1] - np.linalg.slogdet(matrix)[1], abs=1e-8)


@given(d=st.integers(1, 9), keep=st.sampled_from([0.2, 0.5]), seed=SEEDS)
def test_half_and_less_is_kept_exactly(d: int, keep: float, seed: int) -> None:
    """All coordinates have their turn at every event: the exact form."""
    matrix = spd(d, np.random.default_rng(seed))
    inverse = np.linalg.inv(matrix)
    forgetting.discount_precision(inverse, keep, 3.0, 7)
    assert inverse == pytest.approx(np.linalg.inv(naive.exactly_faded(matrix, keep, 3.0)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("d", "keep", "m"), [(46, 0.99, 1), (136, 0.99, 2), (136, 0.9, 21), (5, 0.4, 5)])
def test_coordinates_an_event(d: int, keep: float, m: int) -> None:
    assert forgetting.coordinates_an_event(d, keep) == m
    assert m == d or keep ** (d / m) >= 0.5


@pytest.mark.parametrize(("d", "keep"), [(7, 0.99), (46, 0.98), (30, 0.9)])
def test_without_data_the_prior_stays(d: int, keep: float) -> None:
    """No wind-up: where nothing is learned for 2,000 events the matrix is the prior's, between λ/2 and 1.7 λ, λ on
    average."""
    prior, inverse, total = 3.0, np.eye(d) / 3.0, np.zeros(d)
    for turn in range(2000):
        forgetting.discount_precision(inverse, keep, prior, turn)
        left = 1.0 / np.diagonal(inverse)
        assert (left > 0.5 * prior * (1 - 1e-9)).all()
        assert (left < 1.7 * prior).all()
        total += left * (turn >= 1000)
    assert total / 1000 == pytest.approx(np.full(d, prior), rel=0.02)


def test_a_hundred_thousand_events() -> None:
    """Positive definite and symmetric at all times, though half of the directions are never excited; in the end what
    whole matrices say, and close to the exact form. Evidence before the last 3,000 events is down to 1e-13."""
    rng, d, keep, prior = np.random.default_rng(3), 12, 0.99, 2.0
    seen = rng.normal(size=(6, d)) / 6
    inverse, exact, cyclic = np.eye(d) / prior, prior * np.eye(d), prior * np.eye(d)
    for turn in range(100_000):
        x = rng.normal(size=6) @ seen
        forgetting.discount_precision(inverse, keep, prior, turn)
        rank_one_update(inverse, x, 0.2)
        if turn % 1000 == 0:
            values = np.linalg.eigvalsh(inverse)
            assert values[0] > 0.0
            assert values[-1] < 2.0 / prior
        if turn >= 97_000:
            exact = naive.exactly_faded(exact, keep, prior) + 0.2 * np.outer(x, x)
            cyclic = naive.discounted_variances(cyclic, keep, prior, turn) + 0.2 * np.outer(x, x)
    assert inverse == pytest.approx(np.linalg.inv(cyclic), rel=1e-9, abs=1e-11)
    close = np.linalg.eigvals(inverse @ exact).real  # all 1 where the two are the same
    assert 0.85 < close.min() <= close.max() < 1.15


PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1]), max_size=9)


@given(pairs=PAIRS, d=st.integers(1, 5), others=st.integers(0, 3), scale=st.sampled_from([0.1, 1.0, 20.0]), seed=SEEDS)
def test_foretold(pairs: list[tuple[int, int]], d: int, others: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, weights, theta, models = (
        rng.random((6, d)),
        rng.random(len(pairs)),
        rng.normal(size=d),
        rng.normal(size=(others, d)),
    )
    given_, expected = (frozen(scale * theta), frozen(scale * models)), (scale * theta, scale * models)
    found = forgetting.log_likelihood_ratio(frozen(rows), pair_rows(pairs), frozen(weights), *given_)
    assert found == pytest.approx(
        naive.log_likelihood_ratio(rows, pairs, weights.tolist(), *expected), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_rival_of_the_truth_gains_nothing_on_average(seed: int) -> None:
    """The mean likelihood ratio is 1 at most: all clicks of two by three documents, each seen with its probability.

    Of each pair one document is clicked: by the truth, whichever way the other pairs went. Documents are shared, so the
    pairs of a list are not independent; here only those of one matching are, the rest follow them.
    """
    rng = np.random.default_rng(seed)
    rows, truth, rival = rng.random((6, 3)), 2 * rng.normal(size=3), 2 * rng.normal(size=(1, 3))
    sides = [(0, 3), (1, 4), (2, 5)]
    mean = 0.0
    for turned in product([False, True], repeat=3):
        chance = 1.0
        pairs: list[tuple[int, int]] = []
        for (a, b), over in zip(sides, turned, strict=True):
            up, down = (b, a) if over else (a, b)
            chance /= 1.0 + np.exp(-(rows[up] - rows[down]) @ truth)
            pairs += [(up, down)] * (1 + a)  # told twice or three times it is no more evidence
        mean += chance * np.exp(
            forgetting.log_likelihood_ratio(rows, pair_rows(pairs), np.full(6, 0.9), truth, rival)[0]
        )
    assert 0.0 < mean <= 1.0 + 1e-12


def test_a_longer_rival_gains_nothing_by_its_length() -> None:
    """The same direction, twice as sure, though every pair says so; half as sure is another model, and does worse."""
    rng = np.random.default_rng(3)
    rows, theta = rng.random((4, 3)), rng.normal(size=3)
    up = np.argsort(-rows @ theta)
    pairs = pair_rows([(int(up[0]), int(up[1])), (int(up[2]), int(up[3]))])
    found = forgetting.log_likelihood_ratio(rows, pairs, np.ones(2), theta, np.stack([2.0 * theta, theta, 0.5 * theta]))
    assert found[:2] == pytest.approx([0.0, 0.0], abs=1e-15)
    assert found[2] < -1e-3
    from_nothing = forgetting.log_likelihood_ratio(rows, pairs, np.ones(2), np.zeros(3), theta[None])
    assert from_nothing == pytest.approx([0.0], abs=1e-15)
