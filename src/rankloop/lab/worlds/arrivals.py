"""Which query comes in which round: how many different ones, how often, and when they are replaced."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array

FREQUENCIES = "uniform, zipf or zipf:EXPONENT"


@dataclass
class Arrivals:
    """The queries of a run's rounds, as a function of the round's number and a random number of its own.

    Parameters
    ----------
    available
        Queries that the data has.
    queries
        How many different ones come (0: all), drawn by the seed: 500 of them come ten times each in 5,000 rounds.
    frequency
        "uniform", or "zipf:1.2": the r-th most frequent query comes in proportion to r^-1.2 ("zipf": 1). Which query
        is the r-th is drawn by the seed.
    fresh
        Every so many rounds `queries` others come, none of which has come before; 0: never.
    seed
        Of what is drawn.

    Examples
    --------
    >>> few = Arrivals(100, queries=3, frequency="zipf", seed=1)
    >>> np.unique(few.many(0, np.linspace(0, 0.999, 600)), return_counts=True)
    (array([12, 38, 87]), array([163, 109, 328]))
    """

    available: int
    queries: int = 0
    frequency: str = "uniform"
    fresh: int = 0
    seed: int = 0
    _order: Array | None = field(init=False, repr=False)  # (available,) as they get their turn; None: as they stand
    _shares: Array | None = field(init=False, repr=False)  # (m,) of the r most frequent together; None: all alike

    def __post_init__(self) -> None:
        exponent = exponent_of(self.frequency)
        if self.queries > self.available:
            raise InvalidParameter(
                f"queries is {self.queries}, but the data has {self.available} to learn from; ask for at most as many"
            )
        if self.fresh and not self.queries:
            raise InvalidParameter(f"fresh={self.fresh} needs queries=…: how many come between two changes")
        self._order = self._shares = None
        if self.queries or exponent:
            self._order = Rng(self.seed).for_event("arrivals", 0).permutation(self.available)
        if exponent:
            weights = np.arange(1, self.together + 1, dtype=np.float64) ** -exponent
            self._shares = np.cumsum(weights) / weights.sum()

    @property
    def together(self) -> int:
        """How many different queries come between two changes."""
        return self.queries or self.available

    def one(self, t: int, drawn: float) -> int:
        """The query of round t, given its random number in [0, 1)."""
        return int(self.many(t, np.array([drawn]))[0])

    def many(self, first: int, drawn: Array) -> Array:
        """(B,) the queries of as many rounds from `first` on, the same numbers as one by one."""
        if self._shares is None:
            rank = (drawn * self.together).astype(np.int64)
        else:  # the last share is 1 but for rounding
            rank = np.minimum(np.searchsorted(self._shares, drawn, side="right"), self.together - 1)
        if self._order is None:
            return rank
        if self.fresh:
            self.check(first + len(drawn))
            rank = rank + (first + np.arange(len(drawn))) // self.fresh * self.together
        found: Array = self._order[rank]
        return found

    def check(self, rounds: int) -> None:
        """Refuse a run that wants more fresh queries than there are."""
        wanted = -(-rounds // self.fresh) * self.together if self.fresh else 0
        if wanted > self.available:
            raise InvalidParameter(
                f"fresh={self.fresh} with queries={self.queries} needs {wanted} queries in {rounds} rounds, but the "
                f"data has {self.available}; take fewer queries or rounds, or more data"
            )


def exponent_of(frequency: str) -> float:
    """The exponent of Zipf's law that a text names, 0 for "uniform".

    >>> exponent_of("zipf"), exponent_of("zipf:0.8")
    (1.0, 0.8)
    """
    name, colon, text = frequency.partition(":")
    if name == "uniform" and not colon:
        return 0.0
    try:
        exponent = float(text) if colon else 1.0
    except ValueError:
        exponent = -1.0
    if name != "zipf" or not 0 < exponent < np.inf:
        raise InvalidParameter(f"frequency is {frequency!r}; it must be {FREQUENCIES}, the exponent above 0")
    return exponent
