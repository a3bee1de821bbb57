"""The best fixed linear ranker in hindsight: what the regret of `rtopk` is measured against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.philox import uniforms
from rankloop.kernels.surrogates import weighed_loss
from rankloop.lab.datasets.dataset import Dataset
from rankloop.learners.grades.rtopk import SURROGATES

SLACK = 1e-3  # of ranksvm's rounded hinge
_TRIES = 60  # of the ridge that puts the ranker on the surface of the ball


class Best(NamedTuple):
    """The best ranker in the ball, and what it loses in all."""

    theta: Array
    loss: float


def queries_drawn(dataset: Dataset, rounds: int, seed: int) -> Array:
    """(Q,) how often each query came in so many rounds of a run in the world `stationary`."""
    drawn = np.empty((rounds, 1))
    with np.errstate(over="ignore"):
        uniforms(Rng(seed).key("world"), 0, drawn)
    return np.bincount((drawn[:, 0] * len(dataset)).astype(np.int64), minlength=len(dataset)).astype(np.float64)


def best_ranker(dataset: Dataset, counts: Array, surrogate: str, radius: float = np.inf, grades_to: int = 4) -> Best:
    """The w with ‖w‖ ≤ radius that loses least when query q comes counts[q] times; convex surrogates only.

    `grades_to` is the learner's highest grade, from which on kl is a straight line.

    By L-BFGS; where the ball is too small for the best ranker, with the ridge that puts it on the surface (the
    Lagrangian of the constraint, found by bisection). ranksvm's hinge is rounded off over 1e-3, which makes what is
    found at most 5e-4 a pair worse than the best.

    >>> tiny = Dataset("tiny", np.eye(2), np.array([2, 1]), np.array([0, 2]), np.array(["a"]))
    >>> found = best_ranker(tiny, np.ones(1), "squared")
    >>> np.round(found.theta, 6), round(found.loss, 6)
    (array([2., 1.]), 0.0)
    """
    if surrogate == "smoothdcg":
        raise InvalidParameter("smoothdcg is not convex; its best ranker cannot be found for sure")
    features, grades = np.asarray(dataset.features), dataset.grades.astype(np.float64)
    offsets, kind, highest = dataset.offsets, SURROGATES[surrogate], float(grades_to)
    scale = max(counts.sum(), 1.0)  # per round, so that the tolerance means the same for any number of them

    def objective(theta: Array, ridge: float) -> tuple[float, Array]:
        loss, slopes = weighed_loss(features @ theta, grades, offsets, counts / scale, kind, highest, SLACK)
        return loss + ridge * float(theta @ theta), slopes @ features + 2 * ridge * theta

    theta = _minimised(objective, np.zeros(dataset.width), 0.0)
    if np.linalg.norm(theta) > radius:
        low, high = 0.0, 1.0
        while np.linalg.norm(_minimised(objective, theta, high)) > radius:
            high *= 10
        for _ in range(_TRIES):
            middle = (low + high) / 2
            theta = _minimised(objective, theta, middle)
            inside = np.linalg.norm(theta) <= radius
            low, high = (low, middle) if inside else (middle, high)
            if high - low <= 1e-6 * high:
                break
        theta = theta * min(1.0, radius / float(np.linalg.norm(theta)))
    exact = weighed_loss(features @ theta, grades, offsets, counts, kind, highest, 1e-12)[0]
    return Best(theta, float(exact))


def _minimised(objective: object, start: Array, ridge: float) -> Array:
    from scipy.optimize import minimize  # half a second to import, needed only here

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-13, "gtol": 1e-9}
    found = minimize(objective, start, args=(ridge,), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)
