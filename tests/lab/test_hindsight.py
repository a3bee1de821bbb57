"""The best fixed ranker in hindsight: closed forms, and nothing in the ball is better."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.core.types import Array
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.hindsight import best_ranker
from tests.reference import topk as naive


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_split("synthetic:mq2007?queries=12&docs=6&features=5&vali=1&test=1").train


def loss_of(data: Dataset, counts: Array, surrogate: str, theta: Array) -> float:
    total = 0.0
    for q in range(len(data)):
        scores = (data.candidates(q).features @ theta).tolist()
        total += counts[q] * naive.loss(surrogate, scores, data.grades_of(q).tolist(), 1.0)
    return total


def test_squared_is_least_squares(data: Dataset) -> None:
    counts = np.arange(12.0)
    weights = np.sqrt(np.repeat(counts, np.diff(data.offsets)))
    wanted, *_ = np.linalg.lstsq(weights[:, None] * data.features, weights * data.grades, rcond=None)
    found = best_ranker(data, counts, "squared")
    assert found.theta == pytest.approx(wanted, abs=1e-4)
    assert found.loss == pytest.approx(loss_of(data, counts, "squared", wanted), rel=1e-8)


@pytest.mark.parametrize("radius", [0.3, np.inf])
@pytest.mark.parametrize("surrogate", ["squared", "kl", "ranksvm"])
def test_nothing_in_the_ball_is_better(data: Dataset, surrogate: str, radius: float) -> None:
    rng, counts = np.random.default_rng(0), np.ones(12)
    found = best_ranker(data, counts, surrogate, radius)
    assert found.loss == pytest.approx(loss_of(data, counts, surrogate, found.theta), rel=1e-6)
    if radius < 1:
        assert np.linalg.norm(found.theta) == pytest.approx(radius, rel=1e-3)
    pairs = sum(int((g[:, None] > g).sum()) for g in (data.grades_of(q) for q in range(12)))
    slack = 5e-4 * pairs if surrogate == "ranksvm" else 1e-5 * found.loss
    for size in (1e-3, 0.03, 0.3, 1.0):
        for _ in range(40):
            other = found.theta + size * rng.normal(size=5)
            other *= min(1.0, radius / float(np.linalg.norm(other)))
            assert loss_of(data, counts, surrogate, other) >= found.loss - slack
