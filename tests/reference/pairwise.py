"""Pairs by the three rules, and pairwise logistic regression with whole d x d matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from rankloop.core.types import Array

Pair = tuple[int, int]


def examined_count(clicks: Sequence[float], examine_next: bool, seen: int = -1) -> int:
    """Positions down to the last click, and the next one if there is one; nothing is known without a click.

    If the first `seen` are known to have come into view (-1: not known), those, or down to the last click.
    """
    clicked = [position for position, click in enumerate(clicks) if click]
    if not clicked:
        return 0
    return min(len(clicks), clicked[-1] + 1 + examine_next if seen == -1 else max(clicked[-1] + 1, seen))


def split(clicks: Sequence[float], examine_next: bool, seen: int = -1) -> tuple[list[int], list[int]]:
    """Clicked and unclicked among the examined positions."""
    examined = range(examined_count(clicks, examine_next, seen))
    return [i for i in examined if clicks[i]], [i for i in examined if not clicks[i]]


def all_pairs(values: Sequence[float], examine_next: bool, seen: int = -1) -> list[Pair]:
    """Every two examined ones of different value, the higher first."""
    examined = range(examined_count(values, examine_next, seen))
    return [(a, b) for a in examined for b in examined if values[a] > values[b]]


def adjacent_pairs(values: Sequence[float], examine_next: bool, seen: int = -1) -> list[Pair]:
    """Of (0, 1), (2, 3), … those with both examined and different values, the higher first."""
    return [(a, b) for a, b in all_pairs(values, examine_next, seen) if min(a, b) % 2 == 0 and abs(a - b) == 1]


def matched_pairs(values: Sequence[float], examine_next: bool, keys: Sequence[float], seen: int = -1) -> list[Pair]:
    """The highest beside the lowest, equal ones in the order of their keys, as long as one is higher."""
    examined = range(examined_count(values, examine_next, seen))
    highest = sorted(examined, key=lambda i: (-values[i], keys[i]))
    lowest = sorted(examined, key=lambda i: (values[i], keys[i]))
    return [(a, b) for a, b in zip(highest, lowest, strict=True) if values[a] > values[b]]


def matchings(clicks: Sequence[float], examine_next: bool) -> set[frozenset[Pair]]:
    """Every way to pair clicked with unclicked positions until one side is used up."""
    clicked, unclicked = split(clicks, examine_next)
    size = min(len(clicked), len(unclicked))
    return {
        frozenset(zip(left, right, strict=True))
        for left in permutations(clicked, size)
        for right in permutations(unclicked, size)
    }


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), or e^x / (1 + e^x) where the first would overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def onepass(
    theta: Array, hessian: Array, features: Array, pairs: Sequence[Sequence[int]], weights: Sequence[float]
) -> tuple[Array, Array]:
    """θ and H after one step a pair, ALGORITHMS.md section 1 with η = 1, each solved with the whole H."""
    for (a, b), rho in zip(pairs, weights, strict=True):
        x = features[a] - features[b]
        p = sigmoid(float(x @ theta))
        ahead = hessian + rho * p * (1 - p) * np.outer(x, x)
        theta = theta + rho * (1 - p) * (np.linalg.inv(ahead) @ x)
        p = sigmoid(float(x @ theta))
        hessian = hessian + rho * p * (1 - p) * np.outer(x, x)
    return theta, hessian


def longest_pair(features: Array, pairs: Sequence[Sequence[int]]) -> float:
    """The largest Euclidean distance of a pair, 0 without pairs."""
    return max((math.dist(features[a], features[b]) for a, b in pairs), default=0.0)


def loss(theta: Array, rows: Array, weights: Array, ridge: float) -> float:
    """Σ weight · log(1 + exp(-xᵀθ)) + ridge/2 ‖θ‖²."""
    return float(weights @ np.logaddexp(0.0, -rows @ theta) + ridge / 2 * theta @ theta)


def gradient(theta: Array, rows: Array, weights: Array, ridge: float) -> Array:
    """Of `loss`: ridge θ - Σ weight · sigmoid(-xᵀθ) x."""
    slope: Array = ridge * theta - rows.T @ (weights * expit(-rows @ theta))
    return slope


def hessian(theta: Array, rows: Array, weights: Array, ridge: float) -> Array:
    """Of `loss`: ridge I + Σ weight · sigmoid(xᵀθ) sigmoid(-xᵀθ) xxᵀ."""
    p = expit(rows @ theta)
    curvature: Array = ridge * np.eye(rows.shape[1]) + (rows.T * (weights * p * (1 - p))) @ rows
    return curvature


def fit(rows: Array, weights: Array, ridge: float) -> Array:
    """argmin of `loss` from zero by SciPy's trust region, which uses the exact Hessian."""
    found = minimize(
        loss,
        np.zeros(rows.shape[1]),
        args=(rows, weights, ridge),
        jac=gradient,
        hess=hessian,
        method="trust-exact",
        options={"gtol": 1e-10, "maxiter": 1000},
    )
    return np.asarray(found.x)
