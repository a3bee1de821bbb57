"""Generated sets have the shapes they promise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from rankloop.core.types import Array
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import describe, open_split
from rankloop.lab.datasets.synthetic import SHAPES

SMALL = {"mslr": "queries=150&vali=5&test=80", "yahoo": "queries=300&vali=5&test=150", "np2003": "vali=5"}


def ndcg(scores: Array, data: Dataset, k: int = 10) -> float:
    """Mean NDCG@k of the queries that have a relevant document."""
    found = []
    for q in range(len(data)):
        gains = 2.0 ** data.grades_of(q) - 1
        order = np.argsort(-scores[data.offsets[q] : data.offsets[q + 1]], kind="stable")[:k]
        discounts = 1 / np.log2(np.arange(2, 2 + len(order)))
        if gains.any():
            found.append(gains[order] @ discounts / (np.sort(gains)[::-1][: len(order)] @ discounts))
    return float(np.mean(found))


def ridge(data: Dataset) -> Array:
    """Linear weights fitted to the grades, centred by query."""
    lengths = np.diff(data.offsets)

    def centred(values: Array) -> Array:
        means = np.add.reduceat(values, data.offsets[:-1], axis=0) / lengths[:, None]
        return values - np.repeat(means, lengths, axis=0)

    x, y = centred(data.features), centred(np.sqrt(2.0**data.grades - 1)[:, None])
    weights: Array = np.linalg.solve(x.T @ x + 10 * np.eye(data.width), x.T @ y)[:, 0]
    return weights


@pytest.mark.parametrize(
    ("name", "at_random", "linear"),
    [
        ("mslr", (0.15, 0.28), (0.36, 0.50)),
        ("yahoo", (0.45, 0.60), (0.66, 0.80)),
        ("mq2007", (0.24, 0.36), (0.42, 0.56)),
        ("mq2008", (0.38, 0.52), (0.56, 0.74)),
        ("np2003", (0.0, 0.1), (0.55, 0.9)),
    ],
)
def test_a_linear_ranker_learns_but_not_everything(
    name: str, at_random: tuple[float, float], linear: tuple[float, float]
) -> None:
    """Bands around what a linear ranker reaches on the real sets."""
    split = open_split(f"synthetic:{name}?{SMALL.get(name, '')}")
    guess = ndcg(np.random.default_rng(0).random(len(split.test.grades)), split.test)
    fitted = ndcg(split.test.features @ ridge(split.train), split.test)
    assert at_random[0] <= guess <= at_random[1]
    assert linear[0] <= fitted <= linear[1]


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str) -> None:
    shape = SHAPES[name]
    split = open_split(f"synthetic:{name}?{SMALL.get(name, '')}")
    found = describe(split)
    train = found["parts"]["train"]
    frequencies = np.array(train["grades"]) / train["documents"]
    assert frequencies == pytest.approx(shape.grades, abs=0.04)
    assert train["documents per query"]["mean"] == pytest.approx(shape.docs, rel=0.15)
    assert (found["features"], found["constant features"]) == (shape.features, shape.constant + shape.per_query)
    x = split.train.features[:20000]
    used = x[:, x.std(axis=0) > 0]
    assert ((used == 0).mean(axis=0) >= 0.58).mean() == pytest.approx(0.5, abs=0.1)  # the rule says 60 %
    spectrum = np.sort(np.linalg.eigvalsh(np.cov(used.T)))[::-1]
    assert 0.8 < spectrum[:10].sum() / spectrum.sum() < 0.95
    assert x.min() == 0.0
    assert x.max() == 1.0


def test_same_seed_same_bits() -> None:
    first, again = (open_split("synthetic:mslr?queries=30&vali=2&test=2&docs=20&seed=4") for _ in range(2))
    other = open_split("synthetic:mslr?queries=30&vali=2&test=2&docs=20&seed=5")
    for a, b in zip(first.parts.values(), again.parts.values(), strict=True):
        assert a.features.tobytes() == b.features.tobytes()
        assert a.grades.tobytes() == b.grades.tobytes()
    assert first.train.features.tobytes() != other.train.features.tobytes()


def test_more_queries_keep_the_first_ones() -> None:
    few, many = (open_split(f"synthetic:mq2007?queries={n}&vali=1&test=1") for n in (13, 41))
    rows = len(few.train.grades)
    assert few.train.features.tolist() == many.train.features[:rows].tolist()
    assert few.train.grades.tolist() == many.train.grades[:rows].tolist()
    assert few.train.offsets.tolist() == many.train.offsets[:14].tolist()


@pytest.mark.slow
def test_nonlinear_relevance_holds_more_than_a_linear_ranker_finds() -> None:
    """Boosted trees find it on held-out queries; where relevance is linear they find no more than the line does."""
    gain = {}
    for relevance in ("linear", "nonlinear", "strong"):
        train, _, test = open_split(f"synthetic:mq2007?relevance={relevance}")
        trees = HistGradientBoostingRegressor(random_state=0).fit(train.features, np.sqrt(2.0**train.grades - 1))
        gain[relevance] = ndcg(trees.predict(test.features), test) - ndcg(test.features @ ridge(train), test)
    assert gain["nonlinear"] > 0.04
    assert gain["linear"] < 0.01
    assert gain["strong"] > gain["nonlinear"] + 0.05
