"""Requests to rankers with so many columns (`width` in the spec) that a row is told by what is not 0 in it.

Two forms, in the types of other requests. Candidates name what they have, anything at all, and the service hashes it:

    {"candidates": [{"id": "a", "features": {"brand=acme": 1, "user=u7 & brand=acme": 1, "price": 0.3}}]}

Or, quicker, the caller hashes and sends rows as scipy and others hold them (CSR): row i has the columns
indices[indptr[i]] up to indices[indptr[i + 1] - 1]:

    {"ids": ["a", "b"], "features": {"indptr": [0, 2, 3], "indices": [7, 99017, 7], "values": [1, 0.3, 1]}}

A name with "=" is the category before it with the value behind it (`features.hashing.category_codes`), any other a
number (`number_code`): who hashes for himself with the library finds the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array, SparseRows
from rankloop.features import hashing
from rankloop.wire.calls import Candidate, RankColumns, RankRequest

MOST_KEPT = 100_000  # names whose columns are remembered: most come again and again
PARTS = ("indptr", "indices", "values")


class SparseReader:
    """Reads the rows of one ranker's requests.

    >>> reader = SparseReader(1000)
    >>> request = RankRequest(candidates=[Candidate("a", {"brand=acme": 1.0, "price": 0.5})])
    >>> reader.rows(request).indices, reader.rows(request).values
    (array([238, 431], dtype=int32), array([0.5, 1. ]))
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._known: dict[str, int] = {}

    def rows(self, request: RankRequest | RankColumns) -> SparseRows:
        """(n, width) what the candidates have."""
        if isinstance(request, RankRequest):
            return self._named(request.candidates)
        given: Any = request.features
        if not isinstance(given, dict) or sorted(given) != sorted(PARTS):
            raise InvalidInput(
                f"this ranker has {self.width:,} columns: send features as an object of indptr, indices and values, or "
                "candidates with what each has by name"
            )
        numbers = {name: np.array(given[name], dtype=np.float64) for name in PARTS}  # null becomes nan
        for name in ("indptr", "indices"):
            odd = np.flatnonzero(~(np.floor(numbers[name]) == numbers[name]))
            if odd.size or np.abs(numbers[name]).max(initial=0.0) > 2**53:
                raise InvalidInput(
                    f"{name} has {given[name][odd[0]] if odd.size else 'a huge number'}; give whole numbers"
                )
        indptr, indices = (numbers[name].astype(np.int64) for name in ("indptr", "indices"))
        return SparseRows(indptr, indices, numbers["values"], self.width)

    def _named(self, candidates: Sequence[Candidate]) -> SparseRows:
        starts = [0]
        names: list[str] = []
        values: list[float | None] = []
        for one in candidates:
            given = one.features
            if not isinstance(given, dict):
                raise InvalidInput(
                    f'candidate {one.id!r} has no features by name; send what it has, {{"brand=acme": 1}}, or {{}} for '
                    "nothing"
                )
            names += given
            values += given.values()
            starts.append(len(names))
        if None in values:
            at = values.index(None)
            who = candidates[int(np.searchsorted(starts, at, "right")) - 1].id
            raise InvalidInput(f"candidate {who!r}, feature {names[at]!r} has no value; leave out what it has not")
        return SparseRows(np.array(starts), self._columns(names), np.array(values, dtype=np.float64), self.width)

    def _columns(self, names: list[str]) -> Array:
        known = self._known
        new = [name for name in dict.fromkeys(names) if name not in known]
        if new:
            if len(known) + len(new) > MOST_KEPT:
                known = self._known = {}
                new = list(dict.fromkeys(names))
            parts = [name.partition("=") for name in new]
            told: list[str | float] = [value if sign else 1.0 for _, sign, value in parts]
            codes, _ = hashing.codes_of([name for name, _, _ in parts], told)
            known.update(zip(new, hashing.columns(codes, self.width)[0].tolist(), strict=True))
        return np.fromiter(map(known.__getitem__, names), np.int64, len(names))
