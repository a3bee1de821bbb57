"""What probes see of a learner, and the plane in which a linear view tells grades apart best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from rankloop.core.registry import make
from rankloop.core.types import Array
from rankloop.lab.datasets.lda import project
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.probes import BLOCK_PERCENTILES, blocks, certain
from rankloop.lab.runs.trial import Trial, run
from rankloop.learners.neural.olranknet import OLRankNet

DATA = "synthetic:mq2008?queries=20&vali=6&test=6&features=6"


def test_the_plane_is_that_of_linear_discriminant_analysis() -> None:
    """Up to the direction of its axes, and each axis in units of the spread within a grade."""
    split = open_split("synthetic:mq2008?queries=60&vali=1&test=1&features=12")
    plane = project(split.train)
    features, grades = split.train.features, split.train.grades
    features = features[:, features.std(0) > 0]  # scikit-learn's needs features that vary
    other = LinearDiscriminantAnalysis(solver="eigen", n_components=2).fit(features, grades).transform(features)
    assert len(plane.points) == len(grades)
    for axis in range(2):
        assert abs(np.corrcoef(plane.points[:, axis], other[:, axis])[0, 1]) > 0.9999
    inside = plane.points - plane.centers[plane.grades]
    assert inside.T @ inside / len(inside) == pytest.approx(np.eye(2), abs=1e-4)
    assert plane.chance == pytest.approx(1 / 3)


class Sure(OLRankNet):
    """Certain that what has the higher first feature is better, but for the best."""

    def best(self, candidates: Any, k: int) -> Array:
        order: Array = np.argsort(-candidates.features[:, 0])[:k]
        return order

    def certain(self, candidates: Any, positions: Array) -> Array:  # noqa: ARG002
        relation = np.triu(np.ones((len(positions),) * 2, np.bool_), k=1)
        relation[0] = False
        return relation


def test_the_share_of_certain_pairs_is_of_all_pairs_of_the_first_ten() -> None:
    train = open_split("synthetic:mq2007?queries=5&vali=1&test=1&docs=30&sizes=fixed").train
    assert certain(train)(Sure()) == {"certain@10": 36 / 45}
    assert certain(train, k=3)(Sure()) == {"certain@3": 1 / 3}
    assert certain(train)(OLRankNet()) == {"certain@10": 0.0}
    assert certain(train)(make("pairrank")) == {}
    record = run(Trial("olranknet", DATA, rounds=10, probes=("certain",)))
    assert 0.0 <= record.last("certain@10") <= 1.0


class Halves:
    """One block of the first fifth of a list, one of the rest."""

    def blocks(self, candidates: Any) -> Array:
        return np.array([candidates.n // 5, candidates.n])


def test_block_sizes_by_rank_and_by_place() -> None:
    train = open_split("synthetic:mq2007?queries=5&vali=1&test=1&docs=40&sizes=fixed").train
    found = blocks(train)(Halves())  # type: ignore[arg-type]
    assert found["blocks"] == 2
    assert (found["block_size@1"], found["block_size@10"]) == (8, 32)
    assert [found[f"block_size@{place}%"] for place in BLOCK_PERCENTILES] == [8] * 5 + [32] * 16  # place 20 % is rank 8
