"""The doubled network of paper 001 as it is printed, its tangent features a weight at a time, its pairs one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np

from rankloop.core.types import Array


class Doubled:
    """f(x) = √m W₂ φ(W₁ [x; x]/√2), with W₁ (m, 2d) and then W₂ (m,) flat in one vector θ (Algorithm 1, line 2)."""

    def __init__(self, features: int, width: int) -> None:
        self.d, self.m = features, width
        self.size = 2 * width * features + width

    def start(self, rng: np.random.Generator) -> Array:
        """W₁ = (W, 0; 0, W) with N(0, 4/m), W₂ = (w, -w) with N(0, 2/m)."""
        half = self.m // 2
        block, zero = rng.normal(0, math.sqrt(4 / self.m), (half, self.d)), np.zeros((half, self.d))
        last = rng.normal(0, math.sqrt(2 / self.m), half)
        first = np.block([[block, zero], [zero, block]])
        return np.concatenate([first.ravel(), last, -last])

    def score(self, theta: Array, x: Array) -> float:
        first, last = theta[: -self.m].reshape(self.m, 2 * self.d), theta[-self.m :]
        doubled = [*(v / math.sqrt(2) for v in x), *(v / math.sqrt(2) for v in x)]
        total = 0.0
        for j in range(self.m):
            total += last[j] * max(sum(w * v for w, v in zip(first[j], doubled, strict=True)), 0.0)
        return math.sqrt(self.m) * total

    def tangent(self, theta: Array, x: Array, step: float = 1e-6) -> Array:
        """g(x) by central differences, a weight at a time; exact up to rounding away from kinks."""
        found = np.empty(theta.size)
        for q in range(theta.size):
            up, down = theta.copy(), theta.copy()
            up[q] += step
            down[q] -= step
            found[q] = (self.score(up, x) - self.score(down, x)) / (2 * step)
        return found


def mean_of_copies(theta: Array, features: int, width: int) -> Array:
    """What the structured network keeps of a doubled one: the mean of the two copies of each hidden weight."""
    first = theta[:-width].reshape(width, 2, features)
    return np.concatenate([first.mean(1).ravel(), theta[-width:]])


def covariance(
    tangents: Sequence[tuple[Array, Array]], counts: Sequence[float] | Array, level: float, width: int
) -> Array:
    """A = λI + Σ count · g_ij g_ijᵀ/m, whole."""
    size = len(tangents[0][0])
    found = level * np.eye(size)
    for (a, b), count in zip(tangents, counts, strict=True):
        found += count * np.outer(a - b, a - b) / width
    return found


def width_of(a: Array, b: Array, covariance: Array, width: int, diagonal: bool) -> float:
    """‖g_ij/√m‖ in the norm of A⁻¹, or of that of its diagonal."""
    g = (a - b) / math.sqrt(width)
    matrix = np.diag(np.diag(covariance)) if diagonal else covariance
    return math.sqrt(float(g @ np.linalg.solve(matrix, g)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def certain(scores: Sequence[float], widths: Callable[[int, int], float], alpha: float) -> list[list[bool]]:
    """Definition 3.4 with the sign mended and ε(m) = 0, for every ordered pair."""
    n = len(scores)
    return [
        [i != j and sigmoid(scores[i] - scores[j]) - alpha * widths(i, j) > 0.5 for j in range(n)] for i in range(n)
    ]


def ndcg(order: Sequence[int], labels: Sequence[float]) -> float:
    """Of a whole list, against the best of all its orders."""

    def dcg(ranked: Sequence[int]) -> float:
        return sum((2 ** labels[i] - 1) / math.log2(p + 2) for p, i in enumerate(ranked))

    best = max(dcg(other) for other in permutations(range(len(labels))))
    return dcg(order) / best if best else 0.0


def swap_gain(scores: Sequence[float], labels: Sequence[float], a: int, b: int) -> float:
    """|ΔNDCG| of swapping a and b in the order of the scores: both lists written out."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # stable: equal ones in list order
    swapped = [{a: b, b: a}.get(i, i) for i in order]
    return abs(ndcg(order, labels) - ndcg(swapped, labels))


def pair_loss(margin: float, target: float) -> float:
    """Cross entropy of a pair's label under σ(margin)."""
    p = sigmoid(margin)
    return -target * math.log(p) - (1 - target) * math.log(1 - p)


def gate_gain(
    line: Sequence[float], net: Sequence[float], pairs: Sequence[Sequence[int]], weights: Sequence[float]
) -> float:
    """Log-likelihood of the pairs under the sum of two scores, less that of guessing."""
    both = [a + b for a, b in zip(line, net, strict=True)]
    return sum(
        weight * (math.log(sigmoid(both[a] - both[b])) - math.log(0.5))
        for (a, b), weight in zip(pairs, weights, strict=True)
    )


def product(left: Array, right: Array) -> Array:
    """A matrix product, each entry a sum of one term after the other in the precision of its terms."""
    found = np.zeros((left.shape[0], right.shape[1]), left.dtype)
    for i in range(left.shape[0]):
        for j in range(right.shape[1]):
            for c in range(left.shape[1]):
                found[i, j] = found[i, j] + left[i, c] * right[c, j]
    return found


def adam(
    weights: Array, slopes: Sequence[Array], rate: float, keep: tuple[float, float] = (0.9, 0.999), tiny: float = 1e-8
) -> Array:
    """Algorithm 1 of Kingma and Ba 2015, as printed, over a sequence of slopes."""
    theta, first, second = weights.copy(), np.zeros(weights.size), np.zeros(weights.size)
    for t, g in enumerate(slopes, start=1):
        first = keep[0] * first + (1 - keep[0]) * g
        second = keep[1] * second + (1 - keep[1]) * g**2
        theta -= rate * (first / (1 - keep[0] ** t)) / (np.sqrt(second / (1 - keep[1] ** t)) + tiny)
    return theta
