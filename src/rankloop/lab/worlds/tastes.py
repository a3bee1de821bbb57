"""Tastes: random linear utilities over the features of a data set, of which changing worlds are made."""

from __future__ import annotations

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.pairwise import dot
from rankloop.kernels.simulated_users import utilities
from rankloop.lab.datasets.dataset import Dataset

_SAMPLE = 5000  # documents by which tastes are measured
_NOTHING = 1e-6  # a feature's spread, relative to its size, or a taste's share that is new: below it there is none


class Tastes:
    """The tastes 0, 1, 2 … of a seed: x·tastes[m] is how much users like a document.

    A taste weighs every standardized feature at random and is made uncorrelated with the `apart` tastes before it:
    independent random weights over correlated features agree by chance, with correlations up to 0.85 on the generated
    sets. Both refer to documents within queries, measured on a sample of the data set, where utilities have variance 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> data = Dataset("random", rng.random((60, 4)), np.zeros(60, int), np.arange(0, 61, 6), np.arange(10).astype(str))
    >>> rows = data.features - np.repeat(data.features.reshape(10, 6, 4).mean(1), 6, axis=0)
    >>> a, b = rows @ Tastes(data, seed=1)[0], rows @ Tastes(data, seed=1)[1]
    >>> f"{abs(a @ b):.6f} {a @ a / 60:.6f}"
    '0.000000 1.000000'
    """

    def __init__(self, dataset: Dataset, seed: int, apart: int = 1) -> None:
        self.dataset, self.apart = dataset, apart
        self._streams = Rng(seed)
        self._rows, self._scale = _standardized(dataset)
        self._found: list[Array] = []
        self._before: list[
            tuple[Array, Array]
        ] = []  # the last `apart`: weights of standardized features, and utilities

    def __getitem__(self, m: int) -> Array:
        while len(self._found) <= m:
            self._found.append(self._next())
        return self._found[m]

    def _next(self) -> Array:
        weights = self._streams.for_event("taste", len(self._found)).normal(size=self._scale.size)
        utility = utilities(self._rows, weights)
        length = at_first = float(np.sqrt(dot(utility, utility)))
        for _ in range(2):  # the second time takes what rounding left
            for other, liked in self._before:
                weights = weights - dot(utility, liked) / dot(liked, liked) * other
                utility = utilities(self._rows, weights)
            length = float(np.sqrt(dot(utility, utility)))
        if not length > _NOTHING * at_first:
            raise InvalidParameter(
                f"{self.dataset.name} has no room for {len(self._before) + 1} different tastes: within queries its "
                f"documents differ in {len(self._before)} independent features; ask for fewer tastes or take other data"
            )
        unit = np.sqrt(utility.size) / length  # variance 1: utilities within a query have mean 0
        self._before = [*self._before, (weights * unit, utility * unit)][-self.apart :]
        taste: Array = weights * unit * self._scale
        return taste


def _standardized(dataset: Dataset) -> tuple[Array, Array]:
    """(m, d) sampled documents, each feature with mean 0 in every query and variance 1, and (d,) what did the latter.

    A feature that is constant within queries does not order documents: its scale is 0.
    """
    wanted = max(1, _SAMPLE * len(dataset) // len(dataset.grades))
    queries = np.unique(np.linspace(0, len(dataset) - 1, wanted).astype(np.int64))  # from all parts of the set
    lists = [np.asarray(dataset.features[dataset.offsets[q] : dataset.offsets[q + 1]]) for q in queries]
    size = np.maximum.reduce([np.abs(rows).max(0) for rows in lists])
    centered = np.concatenate([rows / np.where(size > 0, size, 1) for rows in lists])  # huge features would overflow
    lengths = np.array([len(rows) for rows in lists])
    starts = np.cumsum(lengths) - lengths
    centered -= np.repeat(np.add.reduceat(centered, starts) / lengths[:, None], lengths, axis=0)
    spread = np.sqrt((centered**2).mean(0))
    varies = spread > _NOTHING
    scale = np.where(varies, 1 / np.where(varies, spread, 1), 0.0)
    return centered * scale, scale / np.where(size > 0, size, 1)
