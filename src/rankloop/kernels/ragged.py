"""Work on the rows of queries that lie one after the other."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def minmax_queries(features: Array, offsets: Array) -> None:
    """Scale each feature of each query to [0, 1] in place; one that is constant in the query becomes 0."""
    width = features.shape[1]
    low, high, unit = np.empty(width), np.empty(width), np.empty(width)
    for q in range(offsets.size - 1):
        low[:] = features[offsets[q]]
        high[:] = low
        for i in range(offsets[q] + 1, offsets[q + 1]):
            for j in range(width):
                low[j] = min(low[j], features[i, j])
                high[j] = max(high[j], features[i, j])
        for j in range(width):  # some sets write 1.8e308 for "missing": count in halves where high - low overflows
            unit[j] = 0.5 if high[j] / 2 - low[j] / 2 > 8e307 else 1.0
        for i in range(offsets[q], offsets[q + 1]):
            for j in range(width):
                if high[j] == low[j]:
                    features[i, j] = 0.0
                else:
                    span = high[j] * unit[j] - low[j] * unit[j]
                    features[i, j] = (features[i, j] * unit[j] - low[j] * unit[j]) / span
