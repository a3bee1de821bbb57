"""Lists to learn from: what swapping two documents changes, and slopes against differences of the loss."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import listwise
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import neural as naive

RULES = (listwise.EQUAL, listwise.RAW, listwise.BATCH, listwise.LIST)


@given(st.data())
def test_gathered(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(SEEDS))
    count, longest = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    rows, sizes = frozen(rng.random((count, longest, 2))), positions(rng.integers(0, longest + 1, count))
    chosen = positions(rng.integers(0, count, data.draw(st.integers(0, 6))))
    found, offsets = listwise.gathered(rows, sizes, chosen)
    expected = [rows[c, : sizes[c]] for c in chosen]
    assert found.tolist() == np.concatenate([np.zeros((0, 2)), *expected]).tolist()
    assert offsets.tolist() == np.cumsum([0, *(len(part) for part in expected)]).tolist()


@given(st.data())
def test_swap_gains_are_those_of_lists_written_out(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 5))
    scores = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.0, 3.5]), min_size=n, max_size=n))
    labels = data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 3.0]), min_size=n, max_size=n))
    gains = listwise.swap_gains(frozen(scores), frozen(labels))
    for a in range(n):
        for b in range(n):
            assert gains[a, b] == pytest.approx(naive.swap_gain(scores, labels, a, b), abs=1e-12)


class Lists:
    """Random lists with pairs, labels and targets."""

    def __init__(self, seed: int, noisy: bool) -> None:
        rng = np.random.default_rng(seed)
        count, longest = 4, 5
        self.sizes = rng.integers(1, longest + 1, count)
        self.labels = frozen(rng.integers(0, 2, (count, longest)))
        counts = rng.uniform(0.1, 1.0, (count, longest, longest)) * (rng.random((count, longest, longest)) < 0.4)
        self.pairs = np.zeros((count, longest, longest))
        for c, size in enumerate(self.sizes):
            self.pairs[c, :size, :size] = counts[c, :size, :size]
        self.targets = frozen(1 + 0.3 * rng.normal(size=(count, longest, longest)) if noisy else np.zeros((0, 0, 0)))
        self.chosen = positions(rng.integers(0, count, 3))
        self.offsets = positions(np.cumsum([0, *self.sizes[self.chosen]]))
        self.scores = rng.normal(size=self.offsets[-1]) * 2

    def gains(self, rule: int) -> list[Array]:
        """Of each chosen list what swapping two would change at the scores as are, as the rule has it."""
        found: list[Array] = []
        everything: list[tuple[float, float]] = []
        for q, c in enumerate(self.chosen):
            first, n = self.offsets[q], self.sizes[c]
            at, labels, counts = self.scores[first : first + n].tolist(), self.labels[c, :n].tolist(), self.pairs[c]
            made = np.ones((n, n))
            if rule != listwise.EQUAL:
                made = np.array([[naive.swap_gain(at, labels, a, b) for b in range(n)] for a in range(n)])
                told = [(counts[a, b], made[a, b]) for a in range(n) for b in range(n) if counts[a, b]]
                everything += told
                if rule == listwise.LIST:
                    made = made / (_mean(told) or 1.0)
            found.append(made)
        whole = _mean(everything) if rule == listwise.BATCH else 1.0
        return [made / whole if whole else 0.0 * made for made in found]

    def loss(self, scores: Array, gains: list[Array]) -> tuple[float, float]:
        """Pair by pair, at other scores but the same gains: the loss holds them fixed."""
        total = loss = 0.0
        for q, c in enumerate(self.chosen):
            first, n = self.offsets[q], self.sizes[c]
            part = scores[first : first + n]
            for a in range(n):
                for b in range(n):
                    count = self.pairs[c, a, b]
                    if count:
                        target = self.targets[c, a, b] if self.targets.size else 1.0
                        total += count
                        loss += count * gains[q][a, b] * naive.pair_loss(part[a] - part[b], target)
        return (loss / total if total else 0.0), total


def _mean(told: list[tuple[float, float]]) -> float:
    """Of gains, by what their pairs count."""
    return float(np.average([g for _, g in told], weights=[w for w, _ in told])) if told else 0.0


@given(seed=SEEDS, noisy=st.booleans(), rule=st.sampled_from(RULES))
def test_pair_pulls_are_the_slope_of_the_loss(seed: int, noisy: bool, rule: int) -> None:
    lists = Lists(seed, noisy)
    slope, loss, total = listwise.pair_pulls(
        frozen(lists.scores), lists.offsets, lists.chosen, frozen(lists.pairs), lists.labels, lists.targets, rule
    )
    gains = lists.gains(rule)
    expected, weight = lists.loss(lists.scores, gains)
    assert loss == pytest.approx(expected)
    assert total == pytest.approx(weight)
    for i in range(lists.scores.size):
        up, down = lists.scores.copy(), lists.scores.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        difference = lists.loss(up, gains)[0] - lists.loss(down, gains)[0]
        assert slope[i] == pytest.approx(difference / 2e-6, abs=1e-7)


@pytest.mark.parametrize(("rule", "differ"), [("RAW", True), ("BATCH", True), ("LIST", False)])
def test_where_the_only_pair_of_a_list_stands_counts(rule: str, differ: bool) -> None:
    """Lists of four with one pair, at the top or at the bottom of the order: |ΔNDCG| .37 and .07, but as "list"."""
    scores, labels = frozen([3.0, 2.0, 1.0, 0.0]), frozen([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    pairs = np.zeros((2, 4, 4))
    pairs[0, 1, 0] = pairs[1, 3, 2] = 1.0  # the lower one was clicked, by a margin of -1 in both
    both, offsets = np.concatenate([scores, scores]), positions([0, 4, 8])
    slope, _, _ = listwise.pair_pulls(
        both, offsets, positions([0, 1]), pairs, labels, np.zeros((0, 4, 4)), getattr(listwise, rule)
    )
    top, bottom = slope[0], slope[6]
    expected = (1 - 1 / np.log2(3)) / (1 / np.log2(4) - 1 / np.log2(5)) if differ else 1.0
    assert top / bottom == pytest.approx(expected)


def test_a_far_margin_does_not_overflow() -> None:
    pairs = frozen([[[0.0, 1.0], [0.0, 0.0]]])
    for margin, expected in ((2000.0, 0.0), (-2000.0, 2000.0)):
        slope, loss, _ = listwise.pair_pulls(
            frozen([margin, 0.0]),
            positions([0, 2]),
            positions([0]),
            pairs,
            frozen([[1, 0]]),
            frozen(pairs[:0]),
            listwise.EQUAL,
        )
        assert loss == pytest.approx(expected)
        assert slope.tolist() == pytest.approx([0.0, 0.0] if margin > 0 else [-1.0, 1.0])


@given(seed=SEEDS)
def test_label_pulls_are_the_slope_of_lambdaranks_loss(seed: int) -> None:
    """Per query a mean weighted by |ΔNDCG|, then the mean over queries that have a pair, by how often each came."""
    rng = np.random.default_rng(seed)
    offsets = positions(np.cumsum([0, *rng.integers(1, 6, 3)]))
    scores, grades = rng.normal(size=offsets[-1]), rng.integers(0, 3, offsets[-1]).astype(np.float64)
    counts = frozen(rng.integers(1, 4, 3))

    told = []  # of each query with a pair: its count, where it begins, its pairs, what swapping each would change
    for count, (first, last) in zip(counts, pairwise(offsets.tolist()), strict=True):
        at, labels = scores[first:last].tolist(), grades[first:last].tolist()
        pairs = [(a, b) for a in range(len(at)) for b in range(len(at)) if labels[a] > labels[b]]
        gains = [naive.swap_gain(at, labels, a, b) for a, b in pairs]
        if sum(gains):
            told.append((count, first, pairs, gains))

    def loss_at(moved: Array) -> float:
        means = [
            np.average([naive.pair_loss(moved[first + a] - moved[first + b], 1.0) for a, b in pairs], weights=gains)
            for _, first, pairs, gains in told
        ]
        return float(np.average(means, weights=[count for count, *_ in told])) if means else 0.0

    slope, loss = listwise.label_pulls(frozen(scores), frozen(grades), offsets, counts)
    assert loss == pytest.approx(loss_at(scores))
    for i in range(scores.size):
        up, down = scores.copy(), scores.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        assert slope[i] == pytest.approx((loss_at(up) - loss_at(down)) / 2e-6, abs=1e-7)
