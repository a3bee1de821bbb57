"""Features of like size: list by list, as the lab does it to its data sets and the service to its requests by default,
or by sizes that are learned over the stream, which a search engine can apply, too.

Raw features (a BM25 of 17, a price of 4,000, a flag) teach badly: weights start alike and move in like steps, so the
largest feature outweighs the rest for thousands of clicks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels.ragged import minmax_queries
from rankloop.kernels.scaling import list_moments, standardise
from rankloop.types import LARGEST, Array, Candidates

YOUNG, BOUND = 64, 3.0  # until sizes of so many lists are known, no value counts for more than so many spreads
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

    A feature's middle is the mean of its means in the lists so far, its spread the mean of its standard deviations in
    those lists in which it is not the same for all: what tells documents of one list apart, since that is what ranking
    is about. A feature that never differed is 0 until it does.

    The scale that rows are brought to changes after the first list, the second, the fourth, the eighth …: some thirty
    times in a lifetime, ever less each time. Between two of these steps it is fixed, so that a version of a model has
    one scale, and whoever applies it needs two numbers a feature.

    Of the first few short lists a size may come out a hundred times too small, and one value that looks huge would
    teach for good what is not so. So values are cut to ±3 spreads until 64 lists are known.

    It is a value: `after` gives another one, so that whoever learns can take a list in as a whole or not at all.

    Examples
    --------
    >>> first = StreamScaler().after(*list_moments(np.array([[17.0, 4000.0], [7.0, 1000.0]])))
    >>> first.middle, first.spread
    (array([  12., 2500.]), array([   5., 1500.]))
    >>> first.scaled(np.array([[12.0, 4000.0]]))
    array([[0., 1.]])
    """

    def __init__(self) -> None:
        self.lists = 0
        self.middles: Array = np.zeros(0)  # (d,) sums over lists
        self.spreads: Array = np.zeros(0)  # over those in which the feature differs
        self.differed: Array = np.zeros(0)  # how many those are
        self.middle: Array = np.zeros(0)  # (d,) the scale in use
        self.spread: Array = np.zeros(0)

    def after(self, middle: Array, spread: Array) -> StreamScaler:
        """What is known with one list more, of which `list_moments` says this."""
        self._require_width(spread.size)
        made = StreamScaler()
        made.lists = self.lists + 1
        before = self if self.lists else _nothing(spread.size)
        made.middles, made.spreads = before.middles + middle, before.spreads + spread
        made.differed = before.differed + (spread > 0.0)
        made.middle, made.spread = before.middle, before.spread
        if made.lists & self.lists == 0:  # 1, 2, 4, 8 …
            made.middle = made.middles / made.lists
            size = made.spreads / np.maximum(made.differed, 1.0)
            made.spread = np.where(size > NOISE * np.abs(made.middle), size, 0.0)
        return made

    def scaled(self, rows: Array) -> Array:
        """(n, d) rows on the scale in use; before the first list, on their own."""
        self._require_width(rows.shape[1])
        middle, spread = (self.middle, self.spread) if self.lists else list_moments(rows)
        return standardise(rows, middle, spread, BOUND if self.young else LARGEST)

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
        return {"lists": np.array([self.lists], np.int64), **arrays}

    @classmethod
    def of_state(cls, state: Mapping[str, Array]) -> StreamScaler:
        """The one that `state` was taken of."""
        made = cls()
        if sorted(state) != sorted(vars(made)):
            raise InvalidInput(f"the state of a scaler has {sorted(state)}; it must have {sorted(vars(made))}")
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


def _nothing(width: int) -> StreamScaler:
    """A scaler that knows nothing but how many features there are."""
    made = StreamScaler()
    made.middles, made.spreads, made.differed, made.middle, made.spread = (np.zeros(width) for _ in range(5))
    return made
