"""Swap shares of PairRank's own lists: exact, and what makes learning from them unbiased."""

from __future__ import annotations

from itertools import permutations, product
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import certainty, preferences
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import certainty as naive


def random_relation(n: int, density: float, rng: np.random.Generator) -> Array:
    """Documents in a random score order; a better one is certain over a worse one with probability `density`."""
    ranks, certain = rng.permutation(n), np.zeros((n, n), np.bool_)
    for i, j in permutations(range(n), 2):
        certain[i, j] = ranks[i] < ranks[j] and rng.random() < density
    return frozen(certain, np.bool_)


def swapped(order: list[int], p: int, q: int) -> list[int]:
    other = list(order)
    other[p], other[q] = other[q], other[p]
    return other


@given(n=st.integers(1, 7), k=st.integers(1, 7), density=st.sampled_from([0.0, 0.2, 0.5, 0.9]), seed=SEEDS)
def test_topological_swap_shares(n: int, k: int, density: float, seed: int) -> None:
    """Every two positions, against the two lists' probabilities multiplied out in full."""
    rng = np.random.default_rng(seed)
    certain = random_relation(n, density, rng)
    order = certainty.random_topological(certain, frozen(rng.random(min(k, n))), k).tolist()
    shares = certainty.topological_swap_shares(certain, positions(order))
    shown = naive.list_probability(certain, order)
    assert shown > 0
    for p, q in permutations(range(len(order)), 2):
        other = naive.list_probability(certain, swapped(order, p, q))
        assert shares[p, q] == pytest.approx(other / (shown + other))


@given(n=st.integers(1, 5), k=st.integers(1, 5), density=st.sampled_from([0.0, 0.2, 0.5, 0.9]), seed=SEEDS)
def test_topological_log_probability(n: int, k: int, density: float, seed: int) -> None:
    """Every list there is, against the law written out."""
    certain = random_relation(n, density, np.random.default_rng(seed))
    law = naive.topological_orders(certain, k)
    for order in permutations(range(n), min(k, n)):
        found = certainty.topological_log_probability(certain, positions(order))
        assert exp(found) == pytest.approx(float(law.get(order, 0)), rel=1e-12)


@given(data=st.data(), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3), k=st.integers(1, 6))
def test_block_log_probability(data: st.DataObject, sizes: list[int], k: int) -> None:
    """The same for shuffled blocks."""
    ranked = data.draw(st.permutations(range(sum(sizes))))
    ends = np.cumsum(sizes)
    parts = [ranked[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    law = naive.shuffled_blocks(parts, k)
    for order in permutations(range(sum(sizes)), min(k, sum(sizes))):
        found = certainty.block_log_probability(positions(ranked), positions(ends), positions(order))
        assert exp(found) == pytest.approx(float(law.get(order, 0)), rel=1e-12)


def test_block_swap_shares() -> None:
    """Blocks {0, 1}, {2}, {3, 4, 5} cut after four positions: one half inside a block, nothing across."""
    shares = certainty.block_swap_shares(positions([2, 3, 6]), 5)
    half = {(0, 1), (1, 0), (3, 4), (4, 3)}
    assert {(p, q) for p, q in product(range(5), range(5)) if shares[p, q] == 0.5} == half
    assert shares.sum() == 0.5 * len(half)


@pytest.mark.parametrize("stop", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("density", [0.0, 0.3, 0.7])
def test_equally_liked_documents_are_not_pulled_apart(stop: float, density: float) -> None:
    """Σ over all lists and all clicks of P · Σ pairs ρ (clicked - unclicked) = 0 where all are liked alike.

    Users read from the top, click with probability .4 and may stop after it, and pairs are taken down to one below the
    last click: position bias and a lopsided choice of pairs, and still nothing is learned from nothing.
    """
    n, k = 5, 4
    certain = random_relation(n, density, np.random.default_rng(3))
    pull, plain = np.zeros(n), np.zeros(n)
    for order in permutations(range(n), k):
        probability = naive.list_probability(certain, order)
        if probability == 0:
            continue
        shares = certainty.topological_swap_shares(certain, positions(order))
        for clicks, chance in click_patterns(k, 0.4, stop):
            for a, b in preferences.click_pairs(frozen(clicks), True, -1, preferences.ALL, frozen(clicks)):
                pull[order[a]] += probability * chance * shares[a, b]
                pull[order[b]] -= probability * chance * shares[a, b]
                plain[order[a]] += probability * chance
                plain[order[b]] -= probability * chance
    assert pull == pytest.approx(np.zeros(n), abs=1e-15)
    if density > 0:
        assert np.abs(plain).max() > 0.01  # without the shares they would be


def click_patterns(k: int, click: float, stop: float) -> list[tuple[list[float], float]]:
    """Every click pattern of that user on k positions, with its probability."""
    done, reading = [], [([0.0] * k, 1.0)]
    for p in range(k):
        going = []
        for clicks, chance in reading:
            going.append((clicks, chance * (1 - click)))
            hit = [*clicks[:p], 1.0, *clicks[p + 1 :]]
            going.append((hit, chance * click * (1 - stop)))
            done.append((hit, chance * click * stop))
        reading = going
    return done + reading


def test_propensity_weights() -> None:
    """Random pairs keep their share; fixed ones count one half above a further click, else what is left to doubt."""
    shares = np.zeros((4, 4))
    shares[0, 1] = shares[1, 0] = 0.3
    pairs = preferences.click_pairs(frozen([1, 0, 0, 1]), True, -1, preferences.ALL, frozen(np.zeros(4)))
    assert pairs.tolist() == [[0, 1], [0, 2], [3, 1], [3, 2]]
    doubtful = frozen([0.11, 0.12, 0.13, 0.14])
    weights = preferences.propensity_weights(frozen(shares), doubtful, frozen([1, 0, 0, 1]), pairs)
    assert weights.tolist() == [0.3, 0.5, 0.13, 0.14]


@pytest.mark.parametrize("stop", [0.0, 0.5])
def test_fixed_pairs_of_equally_liked_documents_are_not_pulled_apart_either(stop: float) -> None:
    """One list, always shown: given a click below both, upper and lower are clicked alone equally often.

    (With no weight for doubtful pairs; what weight they have pulls against the order, which keeps it revisable.)
    """
    k, shares = 4, frozen(np.zeros((4, 4)))
    pull = np.zeros(k)
    for clicks, chance in click_patterns(k, 0.4, stop):
        pairs = preferences.click_pairs(frozen(clicks), True, -1, preferences.ALL, frozen(clicks))
        weights = preferences.propensity_weights(shares, frozen(np.zeros(len(pairs))), frozen(clicks), pairs)
        for (a, b), weight in zip(pairs, weights, strict=True):
            pull[a] += chance * weight
            pull[b] -= chance * weight
    assert pull == pytest.approx(np.zeros(k), abs=1e-15)
