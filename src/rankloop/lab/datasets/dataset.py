"""A ranking data set in memory or memory-mapped: the rows of all queries one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import DataError
from rankloop.core.types import Array, Candidates


@dataclass(frozen=True, eq=False)
class Dataset:
    """Queries with their candidate documents and graded labels.

    Rows of query q are `offsets[q]` up to `offsets[q + 1]`. Candidates are views, made when first asked for.

    Examples
    --------
    >>> tiny = Dataset("tiny", np.eye(3), np.array([2, 0, 1]), np.array([0, 2, 3]), np.array(["a", "b"]))
    >>> len(tiny), tiny.width, tiny.highest_grade, tiny.candidates(0).n, tiny.grades_of(1)
    (2, 3, 2, 2, array([1]))
    """

    name: str
    features: Array  # (N, d) float64
    grades: Array  # (N,) int64, 0 = not relevant
    offsets: Array  # (Q + 1,) int64
    queries: Array  # (Q,) str, the ids of the source
    normalization: str = "none"  # or "query-minmax", or "stream": raw, and learners are to learn the sizes
    scale: int = 0  # the highest grade of the whole source, which may be higher than this part's; 0: this part's
    items: Array | None = None  # (N,) ids of the documents, where they do not stand as in the file
    _candidates: dict[int, Candidates] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if len(self.queries) == 0:
            raise DataError(f"{self.name}: no queries; a data set needs at least one")

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def width(self) -> int:
        """Features per document."""
        return int(self.features.shape[1])

    @property
    def highest_grade(self) -> int:
        """The top of the grade scale, by which users choose their click table."""
        return self.scale or int(self.grades.max())

    def candidates(self, q: int) -> Candidates:
        """Query q's documents as they stand; ids are their numbers within the query, in file order."""
        try:
            return self._candidates[q]
        except KeyError:
            rows = self.features[self.offsets[q] : self.offsets[q + 1]]
            own = None if self.items is None else self.items[self.offsets[q] : self.offsets[q + 1]]
            made = Candidates.without_copy(str(self.queries[q]), own, np.asarray(rows))
            self._candidates[q] = made
            return made

    def item_ids(self) -> Array:
        """(N,) the ids of all documents, each within its query."""
        first = np.repeat(self.offsets[:-1], np.diff(self.offsets))
        return np.arange(len(self.grades)) - first if self.items is None else self.items

    def grades_of(self, q: int) -> Array:
        """(n,) the grades of query q's documents."""
        return self.grades[self.offsets[q] : self.offsets[q + 1]]


class Split(NamedTuple):
    """A data set in parts: learn on train, tune on vali (if there is one), report on test."""

    train: Dataset
    vali: Dataset | None
    test: Dataset

    @property
    def parts(self) -> dict[str, Dataset]:
        """The parts there are, by name."""
        return {name: part for name, part in self._asdict().items() if part is not None}
