"""The refit against SciPy, on easy and hard problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import pairwise
from tests.kernels.inputs import SEEDS, frozen
from tests.reference import pairwise as naive

TOLERANCE = 1e-8


def check(theta: Array, inverse: Array, rows: Array, weights: Array, ridge: float) -> None:
    """Run the refit in place; the gradient must vanish, and a strictly convex loss has one such place."""
    steps = pairwise.refit(theta, inverse, frozen(rows), frozen(weights), ridge, TOLERANCE)
    gradient = naive.gradient(theta, rows, weights, ridge)
    assert np.abs(gradient).max() <= 1.01 * TOLERANCE, f"after {steps} steps"
    # ‖θ - θ*‖ ≤ ‖gradient‖ / ridge for a loss with curvature at least ridge; SciPy's own stop adds the rest.
    reach = 100 * TOLERANCE / min(ridge, 1.0)
    assert theta == pytest.approx(naive.fit(rows, weights, ridge), rel=1e-6, abs=reach)
    assert np.isfinite(inverse).all()


@given(m=st.integers(0, 30), d=st.integers(1, 6), ridge=st.sampled_from([0.1, 1.0, 10.0]), seed=SEEDS)
def test_refit(m: int, d: int, ridge: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(m, d)), rng.choice([0.0, 0.3, 1.0], size=m)
    check(rng.normal(size=d), np.eye(d) / ridge, rows, weights, ridge)


def separable(d: int = 4, m: int = 50, scale: float = 1.0) -> Array:
    """(m, d) rows that one θ puts all on the right side, so only the ridge keeps it finite."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(m, d))
    truth = rng.normal(size=d)
    flipped: Array = scale * rows * np.sign(rows @ truth)[:, None]
    return flipped


NOISY = np.random.default_rng(4).normal(size=(60, 4)) + 0.3
HARD = {
    "separable, ridge 1e-3": (separable(), np.zeros(4), 1e-3),
    "separable, ridge 1e-6": (separable(), np.zeros(4), 1e-6),
    "all rows the same": (np.repeat(NOISY[:1], 40, axis=0), np.zeros(4), 0.1),
    "each row and its opposite": (np.concatenate([NOISY, -NOISY]), np.ones(4), 0.1),
    "far-off start": (NOISY, np.array([1e3, -1e3, 1e3, 5e2]), 0.1),
    "far-off start, separable": (separable(), np.full(4, -1e3), 1e-3),
    "large norms": (100 * NOISY, np.zeros(4), 0.1),
    "large norms, separable": (separable(scale=1e3), np.zeros(4), 0.1),
    "tiny norms": (1e-4 * NOISY, np.zeros(4), 0.1),
    "columns of unlike scale": (NOISY * np.array([1e-3, 1.0, 30.0, 1e3]), np.zeros(4), 0.1),
    "a constant column": (NOISY * np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4), 0.1),
}


@pytest.mark.parametrize("stale", [False, True], ids=["prior", "stale"])
@pytest.mark.parametrize("case", HARD)
def test_refit_on_hard_problems(case: str, stale: bool) -> None:
    """From the prior's inverse Hessian and from one that belongs to quite another place."""
    rows, start, ridge = HARD[case]
    inverse = (
        np.linalg.inv(naive.hessian(np.full(4, 2.0), 3 * NOISY, np.ones(60), ridge)) if stale else np.eye(4) / ridge
    )
    check(start.copy(), inverse, rows, np.ones(len(rows)), ridge)


def test_refit_that_is_done_takes_no_step() -> None:
    theta = naive.fit(NOISY, np.ones(60), 1.0)
    before = theta.copy()
    assert pairwise.refit(theta, np.eye(4), frozen(NOISY), frozen(np.ones(60)), 1.0, 1e-6) == 0
    assert (theta == before).all()
