"""Features of like size: list by list, as the lab does it to its data sets and the service to its requests by default,
or by sizes that are learned over the stream, which a search engine can apply, too.

Raw features (a BM25 of 17, a price of 4,000, a flag) teach badly: weights start alike and move in like steps, so the
largest feature outweighs the rest for thousands of clicks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.types import LARGEST, Array, Candidates
from rankloop.kernels.ragged import minmax_queries
from rankloop.kernels.scaling import list_moments, standardise

# Standard deviations that are scaled to 1: as many as values that are spread evenly from 0 to 1 have between them. So a
# feature has about the same size as under min-max scaling, and learners need no other settings.
WIDTH = 12.0**0.5
YOUNG, BOUND = 64, 3.0 / WIDTH  # until the sizes of so many lists are known, values are cut at 3 standard deviations
NOISE = 1e-9  # of a feature's mean: a spread below it is what rounding leaves of a constant, not a size


def scaled(candidates: Candidates) -> Candidates:
    """The same candidates with each feature scaled to [0, 1] among them; one that is the same in all becomes 0.

    It depends on the list and on nothing else, so there is nothing to fit, to store or to keep in step: what is learned
    is about the best and the worst of a list. Where sizes mean something across lists (a price that is high for every
    query), or where a search engine is to rank with what was learned, see `rankloop.standardised`.

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


class StreamScaler:
    """What sizes features have, learned list by list and used in steps.

    A feature's middle is the mean of its means in the lists so far. Its spread is √12 times the mean of its standard
    deviations in those lists in which it is not the same for all: the range of values that are spread evenly. What
    differs within a list is what ranking is about. A feature that never differed is 0 until it does.

    The scale that rows are brought to changes after the first list, the second, the fourth, the eighth …: some thirty
    times in a lifetime, ever less each time. Between two of these steps it is fixed, so that a version of a model has
    one scale, and whoever applies it needs two numbers a feature.

    Of the first few short lists a size may come out a hundred times too small, and one value that looks huge would
    teach for good what is not so. So values are cut at 3 standard deviations until 64 lists are known.

    It is a value: `after` gives another one, so that whoever learns can take a list in as a whole or not at all.

    Examples
    --------
    >>> first = StreamScaler().after(*list_moments(np.array([[17.0, 4000.0], [7.0, 1000.0]])))
    >>> first.middle, first.spread.round(1)
    (array([  12., 2500.]), array([  17.3, 5196.2]))
    >>> first.scaled(np.array([[12.0, 4000.0]])).round(2)
    array([[0.  , 0.29]])
    """

    def __init__(self) -> None:
        self.lists = 0
        self.middles: Array = np.zeros(0)  # (d,) sums over lists
        self.spreads: Array = np.zeros(0)  # over those in which the feature differs
        self.differed: Array = np.zeros(0)  # how many those are
        self.middle: Array = np.zeros(0)  # (d,) the scale in use
        self.spread: Array = np.zeros(0)
        self.since: Array = np.zeros(0)  # (d,) lists that do not count for a column; empty: all count for all

    def after(self, middle: Array, spread: Array) -> StreamScaler:
        """What is known with one list more, of which `list_moments` says this.

        NaN stands for a column that the list did not have, since it was added later: it does not count there.
        """
        self._require_width(spread.size)
        made = StreamScaler()
        made.lists = self.lists + 1
        before = self if self.lists else _nothing(spread.size)
        unknown = np.isnan(spread)
        if before.since.size or unknown.any():
            return _after_by_column(made, before, middle, spread, unknown)
        made.middles, made.spreads = before.middles + middle, before.spreads + spread
        made.differed = before.differed + (spread > 0.0)
        made.middle, made.spread = before.middle, before.spread
        if made.lists & self.lists == 0:  # 1, 2, 4, 8 …
            made.middle = made.middles / made.lists
            size = WIDTH * made.spreads / np.maximum(made.differed, 1.0)
            made.spread = np.where(size > NOISE * np.abs(made.middle), size, 0.0)
        return made

    def scaled(self, rows: Array) -> Array:
        """(n, d) rows on the scale in use; before the first list, on their own."""
        self._require_width(rows.shape[1])
        if not self.lists:
            return standardise(rows, *_own_sizes(rows), BOUND)
        middle, spread = self.middle, self.spread
        if self.since.size == 0:
            return standardise(rows, middle, spread, BOUND if self.young else LARGEST)
        counted = self.lists - self.since
        own = _own_sizes(rows)
        middle, spread = (np.where(counted > 0, known, here) for known, here in zip((middle, spread), own, strict=True))
        made: Array = standardise(rows, middle, spread, LARGEST)
        bound = np.where(counted < YOUNG, BOUND, LARGEST)
        return np.clip(made, -bound, bound)

    def remapped(self, columns: FeatureMap) -> StreamScaler:
        """The same for features in other columns; new ones have been in no list so far."""
        if self.lists == 0 or columns.identity:
            return self
        made = StreamScaler()
        made.lists = self.lists
        for name in ("middles", "spreads", "differed", "middle", "spread"):
            setattr(made, name, columns.weights(getattr(self, name), power=0))
        since = self.since if self.since.size else np.zeros(columns.before)
        since = columns.weights(since, self.lists, power=0)
        made.since = since if since.any() else np.zeros(0)
        return made

    @property
    def young(self) -> bool:
        """Whether it has seen so few lists that a size may be far from what it will be."""
        return self.lists < YOUNG

    def growth(self, before: StreamScaler) -> Array | None:
        """(d,) by what weights must be multiplied to order rows on this scale as they did on that of `before`.

        None if the scale is the same. A feature that had no size yet has taught nothing: 1.
        """
        if before.lists == 0 or before.spread is self.spread:
            return None
        known = (before.spread > 0.0) & (self.spread > 0.0)
        return np.where(known, self.spread / np.where(known, before.spread, 1.0), 1.0)

    def state(self) -> dict[str, Array]:
        """Copies of all that it knows."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        if not self.since.any():  # as in states from before features could change
            del arrays["since"]
        return {"lists": np.array([self.lists], np.int64), **arrays}

    @classmethod
    def of_state(cls, state: Mapping[str, Array]) -> StreamScaler:
        """The one that `state` was taken of."""
        made = cls()
        wanted = sorted(vars(made)) if "since" in state else sorted(set(vars(made)) - {"since"})
        if sorted(state) != wanted:
            raise InvalidInput(f"the state of a scaler has {sorted(state)}; it must have {wanted}")
        width = np.shape(state["middle"])
        for name, value in state.items():
            fits = value.shape == ((1,) if name == "lists" else width) and value.ndim == 1
            if not fits or value.dtype != (np.int64 if name == "lists" else np.float64) or not np.isfinite(value).all():
                raise InvalidInput(f"state {name!r} of a scaler is {value.dtype} of shape {value.shape}, or not finite")
            setattr(made, name, int(value[0]) if name == "lists" else value.copy())
        return made

    def _require_width(self, width: int) -> None:
        if self.lists and width != self.middle.size:
            raise InvalidInput(
                f"there are {width} features, but sizes were learned with {self.middle.size}; send the same features "
                "in the same order, or start a new learner"
            )


def _own_sizes(rows: Array) -> tuple[Array, Array]:
    """Middle and spread of one list."""
    middle, spread = list_moments(rows)
    return middle, WIDTH * spread


def _nothing(width: int) -> StreamScaler:
    """A scaler that knows nothing but how many features there are."""
    made = StreamScaler()
    made.middles, made.spreads, made.differed, made.middle, made.spread = (np.zeros(width) for _ in range(5))
    return made


def _after_by_column(
    made: StreamScaler, before: StreamScaler, middle: Array, spread: Array, unknown: Array
) -> StreamScaler:
    """`StreamScaler.after` where columns have counted different numbers of lists: each has steps of its own."""
    made.since = (before.since if before.since.size else np.zeros(spread.size)) + unknown
    made.middles = before.middles + np.where(unknown, 0.0, middle)
    made.spreads = before.spreads + np.where(unknown, 0.0, spread)
    made.differed = before.differed + (np.where(unknown, 0.0, spread) > 0.0)
    made.middle, made.spread = before.middle, before.spread
    counted = (made.lists - made.since).astype(np.int64)
    steps = ~unknown & (counted & (counted - 1) == 0)
    if steps.any():
        centers = made.middles / np.maximum(counted, 1)
        sizes = WIDTH * made.spreads / np.maximum(made.differed, 1.0)
        made.middle = np.where(steps, centers, before.middle)
        made.spread = np.where(steps, np.where(sizes > NOISE * np.abs(centers), sizes, 0.0), before.spread)
    return made
