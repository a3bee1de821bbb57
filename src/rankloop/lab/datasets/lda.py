"""Linear discriminant analysis: the plane in which the grades of a data set are best separated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array
from rankloop.lab.datasets.dataset import Dataset

_MOST = 20_000  # documents looked at: enough for any picture
_RIDGE = 1e-6  # of the mean variance, so that features that never change do no harm


class Projection(NamedTuple):
    """Documents in the plane that separates their grades best."""

    points: Array  # (N, 2) in units of the spread within a grade
    grades: Array  # (N,)
    centers: Array  # (grades, 2) the mean of each grade
    right: float  # share of documents that are nearest to the center of their own grade, each grade counting the same
    chance: float  # what that share would be by guessing: 1 / number of grades


def project(dataset: Dataset) -> Projection:
    """The two leading discriminants of the grades; a second of zeros where there are but two grades.

    >>> rows = np.random.default_rng(0).normal(size=(600, 3))
    >>> grades = np.arange(600) % 3
    >>> rows[:, 0] += 9 * grades
    >>> near = Dataset("near", rows, grades, np.array([0, 600]), np.array(["q"]))
    >>> project(near).right > 0.99
    True
    """
    pick = np.unique(np.linspace(0, len(dataset.grades) - 1, _MOST).astype(np.int64))
    rows, grades = np.asarray(dataset.features[pick], dtype=np.float64), np.asarray(dataset.grades[pick])
    from scipy.linalg import eigh  # half a second to import, needed only here

    kinds = np.unique(grades)
    means = np.array([rows[grades == kind].mean(0) for kind in kinds])
    shares = np.array([(grades == kind).mean() for kind in kinds])
    inside = rows - means[np.searchsorted(kinds, grades)]
    within = inside.T @ inside / len(rows)
    within += np.eye(len(within)) * max(_RIDGE * float(np.trace(within)) / len(within), 1e-300)
    away = means - shares @ means
    between = (away * shares[:, None]).T @ away
    directions = eigh(between, within)[1][:, ::-1][:, : min(2, len(kinds) - 1, rows.shape[1])]
    plane = np.zeros((rows.shape[1], 2))
    plane[:, : directions.shape[1]] = directions * np.sign(
        directions[np.abs(directions).argmax(0), range(directions.shape[1])]
    )
    points, centers = rows @ plane, means @ plane
    nearest = kinds[((points[:, None, :] - centers) ** 2).sum(2).argmin(1)]
    right = float(np.mean([(nearest == grades)[grades == kind].mean() for kind in kinds]))
    return Projection(points, grades, centers, right, 1.0 / len(kinds))
