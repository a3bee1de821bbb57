"""Features of like size, list by list: what the lab does to its data sets and the service to its requests by default.

Raw features (a BM25 of 17, a price of 4,000, a flag) teach badly: weights start alike and move in like steps, so the
largest feature outweighs the rest for thousands of clicks.
"""

from __future__ import annotations

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels.ragged import minmax_queries
from rankloop.types import Candidates


def scaled(candidates: Candidates) -> Candidates:
    """The same candidates with each feature scaled to [0, 1] among them; one that is the same in all becomes 0.

    It depends on the list and on nothing else, so there is nothing to fit, to store or to keep in step: what is learned
    is about the best and the worst of a list. Where sizes mean something across lists (a price that is high for every
    query), standardise the features yourself, once and for all lists alike.

    >>> scaled(Candidates("shoes", ["a", "b", "c"], [[17.0, 4000.0], [7.0, 1000.0], [12.0, 1000.0]])).features
    array([[1. , 1. ],
           [0. , 0. ],
           [0.5, 0. ]])
    """
    if candidates.features is None:
        raise InvalidInput("the candidates have no features to scale; give (n, d) numbers")
    rows = candidates.features.copy()
    minmax_queries(rows, np.array([0, len(rows)]))
    return Candidates.without_copy(candidates.query, candidates.items, rows)
