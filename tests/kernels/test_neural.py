"""The structured network against the doubled one of the paper: scores, gradients, tangent features, confidence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import neural
from tests.kernels.inputs import SEEDS, frozen, pair_rows, positions
from tests.reference import neural as naive


class Case:
    """A small doubled network with weights all over, some rows, and what the kernels take of both."""

    def __init__(self, n: int, d: int, m: int, seed: int, learned: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.net, self.n, self.m, self.d = naive.Doubled(d, m), n, m, d
        self.theta = self.net.start(rng)
        if learned:  # both copies move alike, as the gradient makes them
            moved = rng.normal(size=(m, 1, d)) * 0.3
            self.theta[:-m] += np.broadcast_to(moved, (m, 2, d)).ravel()
            self.theta[-m:] += rng.normal(size=m) * 0.3
        self.rows = frozen(rng.normal(size=(n, d)))
        flat = naive.mean_of_copies(self.theta, d, m)
        self.hidden, self.output = frozen(flat[:-m].reshape(m, d)), frozen(flat[-m:])
        self.active = frozen(neural.activations(self.rows, self.hidden))
        self.level = float(rng.uniform(0.1, 2.0))
        self.counts = frozen(rng.uniform(0.2, 1.0, 3))
        self.pairs = pair_rows(rng.integers(0, n, (3, 2)))

    def smooth(self) -> bool:
        """No unit of any row is at its kink, where there is no gradient."""
        inputs = self.rows @ self.hidden.T
        return bool(np.abs(inputs).min() > 1e-4)

    def tangents(self) -> list[Array]:
        return [self.net.tangent(self.theta, x) for x in self.rows]

    def copies(self, flat: Array) -> Array:
        """A structured vector of one copy written out for both."""
        first = flat[: -self.m].reshape(self.m, 1, self.d)
        return np.concatenate([np.broadcast_to(first, (self.m, 2, self.d)).ravel(), flat[-self.m :]])


def cases(learned: bool = True) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        n=st.integers(2, 5),
        d=st.integers(1, 4),
        m=st.sampled_from([2, 4, 6]),
        seed=SEEDS,
        learned=st.just(learned),
    )


@given(case=cases())
def test_scores(case: Case) -> None:
    expected = [case.net.score(case.theta, x) for x in case.rows]
    assert neural.outputs(case.active, case.output) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(n=st.integers(1, 40), d=st.integers(1, 70), half=st.integers(1, 60), single=st.booleans(), seed=SEEDS)
def test_a_symmetric_start_scores_exactly_zero(n: int, d: int, half: int, single: bool, seed: int) -> None:
    """Not to rounding: to the bit, whatever the shapes, so that nothing is preferred before anything is learned."""
    kind = np.float32 if single else np.float64
    rng = np.random.default_rng(seed)
    block, last = rng.normal(size=(half, d)), rng.normal(size=half)
    hidden, output = frozen(np.concatenate([block, block]), kind), frozen(np.concatenate([last, -last]), kind)
    active = neural.activations(frozen(rng.normal(size=(n, d)), kind), hidden)
    assert (neural.outputs(frozen(active, kind), output) == 0.0).all()


@given(case=cases(), seed=SEEDS)
def test_the_gradient_is_that_of_one_copy(case: Case, seed: int) -> None:
    assume(case.smooth())
    pull = frozen(np.random.default_rng(seed).normal(size=case.n))
    expected = sum(p * g for p, g in zip(pull, case.tangents(), strict=True))
    found = neural.gradient(case.rows, case.active, case.output, pull)
    assert case.copies(found) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@given(case=cases())
def test_tangent_features_are_finite_differences(case: Case) -> None:
    """The structured ones have each pair of copies along their common direction: same lengths and angles."""
    assume(case.smooth())
    explicit = np.array(case.tangents()) / np.sqrt(case.m)
    first = explicit[:, : -case.m].reshape(case.n, case.m, 2, case.d)
    expected = np.concatenate(
        [(first.sum(2) / np.sqrt(2)).reshape(case.n, -1), explicit[:, -case.m :]],
        axis=1,
    )
    found = neural.tangents(case.rows, case.active, case.output)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert found @ found.T == pytest.approx(explicit @ explicit.T, rel=1e-6, abs=1e-7)


@given(case=cases())
def test_the_structured_confidence_is_the_naive_one(case: Case) -> None:
    """Diagonal of A, and ‖g_ij/√m‖ in the norm of its inverse, against a whole (2md + m)² matrix."""
    assume(case.smooth())
    g = case.tangents()
    whole = naive.covariance([(g[a], g[b]) for a, b in case.pairs], case.counts, case.level, case.m)
    diagonal = case.level + neural.tangent_squares(case.rows, case.active, case.output, case.pairs, case.counts)
    assert case.copies(diagonal) == pytest.approx(np.diag(whole), rel=1e-5, abs=1e-7)
    inverse = frozen(1 / diagonal)
    order, everyone = positions(np.random.default_rng(0).permutation(case.n)), positions(range(case.n))
    gram = neural.tangent_gram(case.rows, case.active, case.output, inverse, order, everyone)
    lengths, _ = neural.tangent_lengths(case.rows, case.active, case.output, inverse)
    for above, i in enumerate(order):
        for j in order[above + 1 :]:
            squared = lengths[i] + lengths[j] - 2 * gram[i, j]
            expected = naive.width_of(g[i], g[j], whole, case.m, diagonal=True) ** 2
            assert squared == pytest.approx(expected, rel=1e-5, abs=1e-6)


@given(case=cases())
def test_the_full_confidence_is_the_naive_one(case: Case) -> None:
    assume(case.smooth())
    g = case.tangents()
    whole = naive.covariance([(g[a], g[b]) for a, b in case.pairs], case.counts, case.level, case.m)
    tangents = neural.tangents(case.rows, case.active, case.output)
    kept = case.level * np.eye(tangents.shape[1])
    for (a, b), count in zip(case.pairs, case.counts, strict=True):
        kept += count * np.outer(tangents[a] - tangents[b], tangents[a] - tangents[b])
    gram = tangents @ np.linalg.inv(kept) @ tangents.T
    squared = gram[0, 0] + gram[1, 1] - 2 * gram[0, 1]
    expected = naive.width_of(g[0], g[1], whole, case.m, diagonal=False) ** 2
    assert squared == pytest.approx(expected, rel=1e-5, abs=1e-6)


@given(case=cases(), seed=SEEDS)
def test_gram_and_lengths_are_those_of_the_tangent_features(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = neural.tangents(case.rows, case.active, case.output)
    inverse = frozen(rng.uniform(0.1, 3.0, g.shape[1]))
    some = positions(np.flatnonzero(rng.random(case.n) < 0.6))
    order = rng.permutation(case.n)
    gram = neural.tangent_gram(case.rows, case.active, case.output, inverse, positions(order), some)
    above = np.argsort(order)[:, None] < np.argsort(order)[some]
    assert gram == pytest.approx((g * inverse) @ g[some].T * above, rel=1e-9, abs=1e-9)
    whole, centred = neural.tangent_lengths(case.rows, case.active, case.output, inverse)
    assert whole == pytest.approx((g * g) @ inverse, rel=1e-9, abs=1e-9)
    assert centred == pytest.approx((g - g.mean(0)) ** 2 @ inverse, rel=1e-9, abs=1e-9)


def test_single_precision_is_close() -> None:
    """float32 is what runs; 1e-5 of the longest tangent feature is far below any confidence width."""
    rng = np.random.default_rng(3)
    n, d, m = 30, 40, 20
    rows, hidden, output = rng.random((n, d)), rng.normal(size=(m, d)) / 3, rng.normal(size=m) / 3
    inverse, everyone = frozen(rng.uniform(0.1, 3.0, m * d + m)), positions(range(n))
    found = {}
    for kind in (np.float32, np.float64):
        given_rows, last = frozen(rows, kind), frozen(output, kind)
        active = frozen(neural.activations(given_rows, frozen(hidden, kind)), kind)
        found[kind] = (
            neural.outputs(active, last),
            neural.gradient(given_rows, active, last, frozen(rng.normal(size=n))),
            neural.tangent_gram(given_rows, active, last, inverse, everyone, everyone),
            *neural.tangent_lengths(given_rows, active, last, inverse),
        )
        rng = np.random.default_rng(4)
    for k, (single, double) in enumerate(zip(found[np.float32], found[np.float64], strict=True)):
        if k != 1:  # pulls differ in the first pass
            assert single == pytest.approx(double, abs=1e-5 * np.abs(double).max())


@given(n=st.integers(1, 12), d=st.integers(1, 11), w=st.integers(1, 40), single=st.booleans(), seed=SEEDS)
def test_products_have_one_order(n: int, d: int, w: int, single: bool, seed: int) -> None:
    """To the bit what a loop gives that adds term after term: nothing is left to a processor."""
    kind, rng = (np.float32 if single else np.float64), np.random.default_rng(seed)
    left, right = (
        frozen(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7), kind),
        frozen(rng.normal(size=(d, w)), kind),
    )
    expected = naive.product(left, right)
    assert (neural.sparse_product(left, right) == expected).all()
    first = w // 3
    one, two = np.empty(w - first, kind), np.empty(w - first, kind)
    neural.add_two_combinations(one, two, left[0], left[-1], right, first)
    assert (one == expected[0, first:]).all()
    assert (two == expected[-1, first:]).all()


@given(n=st.integers(2, 6), seed=SEEDS)
def test_gains_of_gates_are_log_likelihoods_over_guessing(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    line, net = frozen(rng.normal(size=n)), frozen(3.0 * rng.normal(size=n))
    gates, scales = frozen([0.0, 0.25, 1.0]), frozen([1.0, 4.0])
    pairs, weights = pair_rows(rng.integers(0, n, (4, 2))), frozen(rng.uniform(0.0, 1.0, 4))
    found = neural.gate_gains(line, net, gates, scales, pairs, weights)
    for q, g in enumerate(gates):
        for r, c in enumerate(scales):
            expected = naive.gate_gain((c * line).tolist(), (g * net).tolist(), pairs.tolist(), weights.tolist())
            assert found[q, r] == pytest.approx(expected, abs=1e-9)


def test_gains_of_gates_far_apart_are_finite() -> None:
    line, net, pairs = frozen([2000.0, 0.0]), frozen([0.0, 2000.0]), pair_rows([(0, 1), (1, 0)])
    found = neural.gate_gains(line, net, frozen([0.0, 1.0]), frozen([1.0]), pairs, frozen([1.0, 1.0]))
    assert found.ravel() == pytest.approx([2.0 * np.log(2.0) - 2000.0, 0.0])


@given(steps=st.integers(1, 5), size=st.integers(1, 6), pull=st.sampled_from([0.0, 0.3]), seed=SEEDS)
def test_adam(steps: int, size: int, pull: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, slopes = frozen(rng.normal(size=size)), [frozen(rng.normal(size=size)) for _ in range(steps)]
    weights, first, second = start + 0.1, np.zeros(size), np.zeros(size)
    begin, seen = weights.copy(), []
    for t, slope in enumerate(slopes, start=1):
        seen.append(slope + pull * (weights - start))
        neural.adam(weights, first, second, slope, start, pull, 0.01, t)
    assert weights == pytest.approx(naive.adam(begin, seen, 0.01), rel=1e-9)
