"""Names of the columns that declared features become, made when they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from rankloop.features._declaration import Declaration


class ColumnNames(Sequence[str]):
    """The names in order, as a list would have them.

    A hashed category may have a hundred thousand columns, of which an explanation names thirty: a list of them all
    would take ten megabytes in every process, and be made anew with every change of a ranker.

    >>> from rankloop.features.declarations import declaration
    >>> brand = {"name": "brand", "kind": "category", "of": "item.brand", "buckets": 100_000}
    >>> names = ColumnNames([declaration("bm25"), declaration(brand)])
    >>> len(names), names[0], names[4711], names[-1]
    (100001, 'bm25', 'brand#4710', 'brand#99999')
    """

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self._declarations = tuple(declarations)
        self._starts = list(accumulate((one.width for one in declarations), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]  # raises as a list would
        if isinstance(places, range):
            return [self[j] for j in places]
        which = bisect_right(self._starts, places) - 1
        return self._declarations[which].column(places - self._starts[which])

    def __iter__(self) -> Iterator[str]:
        for one in self._declarations:
            yield from one.columns
