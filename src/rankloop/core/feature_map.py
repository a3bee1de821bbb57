"""Changes of feature columns, applied to learned weights, covariances and rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array, SparseRows


class FeatureMap(NamedTuple):
    """The source of each feature column. Additional columns of a learner, such as the baseline ranking's, stay last.

    Examples
    --------
    The columns (a, b, c) become (c, a, new):

    >>> columns = FeatureMap.of([2, 0, -1], before=3)
    >>> columns.weights(np.array([1.0, 2.0, 3.0]))
    array([3., 1., 0.])
    >>> columns.covariance(np.diag([1.0, 2.0, 3.0]), new=9.0)
    array([[3., 0., 0.],
           [0., 1., 0.],
           [0., 0., 9.]])
    """

    source: Array  # (d,) int64: the column before the change; -1 for a new one
    before: int  # how many columns there were
    scale: Array  # (d,) values are divided by it, so weights are multiplied by it

    @classmethod
    def of(cls, source: object, before: int, scale: float | Array = 1.0) -> FeatureMap:
        """Make a map from source columns; `scale` is one number or one per column."""
        columns = np.asarray(source, np.int64)
        return cls(columns, before, np.broadcast_to(np.asarray(scale, np.float64), columns.shape).copy())

    @property
    def identity(self) -> bool:
        """Whether nothing changes."""
        same = self.source.size == self.before and np.array_equal(self.source, np.arange(self.before))
        return bool(same and (self.scale == 1.0).all())

    @property
    def nothing(self) -> bool:
        """Whether no column has a source: whatever was learned about features is lost."""
        return bool((self.source < 0).all())

    def weights(self, values: Array, new: float = 0.0, power: int = 1) -> Array:
        """Return (…, d) values per column, multiplied by `scale**power`, and `new` for new columns."""
        if values.shape[-1] == 0 or self.identity:
            return values
        columns, kept, scale = self._pairs(values.shape[-1])
        made = np.full((*values.shape[:-1], self.source.size + values.shape[-1] - self.before), new, values.dtype)
        made[..., columns] = values[..., kept] * scale**power
        return made

    def rows(self, rows: Array) -> Array:
        """Return (…, d) feature values; 0 for new columns."""
        return self.weights(rows, power=-1)

    def covariance(self, values: Array, new: float) -> Array:
        """Return (…, d, d) covariances of weights; new columns have variance `new` and are independent."""
        if values.shape[-1] == 0 or self.identity:
            return values
        columns, kept, scale = self._pairs(values.shape[-1])
        width = self.source.size + values.shape[-1] - self.before
        made = np.zeros((*values.shape[:-2], width, width))
        made[..., columns[:, None], columns] = values[..., kept[:, None], kept] * (scale[:, None] * scale)
        fresh = np.flatnonzero(self.source < 0)
        made[..., fresh, fresh] = new
        return made

    def sparse(self, rows: SparseRows) -> SparseRows:
        """Return sparse rows after the change."""
        if self.identity:
            return rows
        target = np.full(self.before, -1, np.int64)
        known = np.flatnonzero(self.source >= 0)
        target[self.source[known]] = known
        there = target[rows.indices]
        stays = there >= 0
        columns = there[stays]
        values = rows.values[stays] / self.scale[columns]
        counts = np.concatenate([[0], np.cumsum(stays)])[rows.indptr]
        # Columns of a row are in ascending order.
        row_of = np.repeat(np.arange(len(counts) - 1), np.diff(counts))
        order = np.lexsort((columns, row_of))
        return SparseRows(counts, columns[order], values[order], self.source.size)

    def _pairs(self, width: int) -> tuple[Array, Array, Array]:
        """Return the columns with a source, their sources and scales, including the learner's own columns."""
        known = np.flatnonzero(self.source >= 0)
        own = np.arange(width - self.before)
        columns = np.concatenate([known, self.source.size + own])
        kept = np.concatenate([self.source[known], self.before + own])
        return columns, kept, np.concatenate([self.scale[known], np.ones(own.size)])
