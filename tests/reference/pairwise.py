"""Pairs by the three rules, and pairwise logistic regression with whole d x d matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from rankloop.types import Array

Pair = tuple[int, int]


def examined_count(clicks: Sequence[float], plus_one: bool) -> int:
    """Positions down to the last click, and the next one if there is one; nothing is known without a click."""
    clicked = [position for position, click in enumerate(clicks) if click]
    if not clicked:
        return 0
    return min(len(clicks), clicked[-1] + 1 + plus_one)


def split(clicks: Sequence[float], plus_one: bool) -> tuple[list[int], list[int]]:
    """Clicked and unclicked among the examined positions."""
    examined = range(examined_count(clicks, plus_one))
    return [i for i in examined if clicks[i]], [i for i in examined if not clicks[i]]


def all_pairs(clicks: Sequence[float], plus_one: bool) -> list[Pair]:
    """Every clicked against every unclicked one."""
    clicked, unclicked = split(clicks, plus_one)
    return [(a, b) for a in clicked for b in unclicked]


def adjacent_pairs(clicks: Sequence[float], plus_one: bool) -> list[Pair]:
    """Of (0, 1), (2, 3), … those with both examined and one clicked, the clicked one first."""
    clicked, unclicked = split(clicks, plus_one)
    found = []
    for upper in range(0, len(clicks) - 1, 2):
        for a, b in ((upper, upper + 1), (upper + 1, upper)):
            if a in clicked and b in unclicked:
                found.append((a, b))
    return found


def matched_pairs(clicks: Sequence[float], plus_one: bool, keys: Sequence[float]) -> list[Pair]:
    """Both sides in the order of their keys, side by side as long as both last."""
    clicked, unclicked = split(clicks, plus_one)
    return list(zip(sorted(clicked, key=lambda i: keys[i]), sorted(unclicked, key=lambda i: keys[i]), strict=False))


def matchings(clicks: Sequence[float], plus_one: bool) -> set[frozenset[Pair]]:
    """Every way to pair clicked with unclicked positions until one side is used up."""
    clicked, unclicked = split(clicks, plus_one)
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
