"""From the candidates of a request to the array a learner ranks: by name, checked, normalised as declared."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct
from typing import Any

import numpy as np

from rankloop.errors import InvalidInput
from rankloop.kernels.ragged import minmax_queries
from rankloop.service.errors import UnknownFeature
from rankloop.service.wire.calls import Candidate
from rankloop.service.wire.rankers import Spec
from rankloop.types import LARGEST, Array, Candidates


class Schema:
    """The features of a ranker: their names, their order, how they are normalised.

    >>> schema = Schema(Spec(features=["bm25", "price"], normalisation="none"))
    >>> schema.read("", [Candidate("a", {"price": 2.0, "bm25": 7.5})]).features
    array([[7.5, 2. ]])
    >>> schema.read("", [Candidate("a", {"bm25": 7.5, "prize": 2.0})])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    rankloop.service.errors.UnknownFeature: candidate 'a' lacks feature 'price' and has unknown feature 'prize'; ...
    """

    def __init__(self, spec: Spec) -> None:
        self.names = list(spec.features)
        self.normalisation = spec.normalisation
        self._pack = Struct(f"{len(self.names)}d").pack
        # itemgetter of one name gives a bare value, of several a tuple
        self._pick = itemgetter(*self.names) if len(self.names) > 1 else lambda f: (f[self.names[0]],)

    def read(self, query: str, candidates: Sequence[Candidate]) -> Candidates:
        """The candidates as learners take them."""
        rows = self._rows(candidates) if self.names else None
        if rows is not None and self.normalisation == "query-minmax":
            minmax_queries(rows, np.array([0, len(rows)]))
        ids = [candidate.id for candidate in candidates]
        if any("\0" in item for item in ids if isinstance(item, str)):
            raise InvalidInput("an id has the character NUL in it; ids are text")
        return Candidates.without_copy(query, ids, rows)

    def read_for(self, other: Schema, query: str, candidates: Sequence[Candidate]) -> Candidates:
        """The same candidates as another ranker takes them; all its features must be among these."""
        missing = [name for name in other.names if name not in self.names]
        if missing:
            raise UnknownFeature(f"requests carry {_listed(self.names, 12)}, but not {_listed(missing)}")
        rows = self._rows(candidates)[:, [self.names.index(name) for name in other.names]] if other.names else None
        if rows is not None:
            rows = np.ascontiguousarray(rows)
            if other.normalisation == "query-minmax":
                minmax_queries(rows, np.array([0, len(rows)]))
        return Candidates.without_copy(query, [candidate.id for candidate in candidates], rows)

    def _rows(self, candidates: Sequence[Candidate]) -> Array:
        width, pack, pick = len(self.names), self._pack, self._pick
        packed = []  # a third of the time of filling an array row by row
        for candidate in candidates:
            given = candidate.features
            if type(given) is list and len(given) == width:
                packed.append(pack(*given))
            elif type(given) is dict and len(given) == width:
                try:
                    packed.append(pack(*pick(given)))
                except KeyError:
                    raise self._named(candidate) from None
            else:
                raise self._named(candidate)
        rows: Array = np.frombuffer(bytearray().join(packed)).reshape(len(packed), width)
        fine = np.abs(rows) <= LARGEST  # false for NaN too
        if not fine.all():
            i, j = (int(v) for v in np.argwhere(~fine)[0])
            raise InvalidInput(
                f"candidate {candidates[i].id!r}, feature {self.names[j]!r} is {rows[i, j]}; "
                f"features must be finite numbers within ±{LARGEST:g}"
            )
        return rows

    def _named(self, candidate: Candidate) -> InvalidInput:
        """Say what is wrong with a candidate's features."""
        given: Any = candidate.features
        who = f"candidate {candidate.id!r}"
        if given is None:
            return InvalidInput(f"{who} has no features; this ranker needs {_listed(self.names)}")
        if isinstance(given, list):
            text = f"{who} has {len(given)} features, the ranker has {len(self.names)}"
            return InvalidInput(f"{text}; send all in the order of its spec, or by name")
        missing = [name for name in self.names if name not in given]
        unknown = [name for name in given if name not in set(self.names)]
        parts = [f"lacks feature {_listed(missing)}"] if missing else []
        parts += [f"has unknown feature {_listed(unknown)}"] if unknown else []
        return UnknownFeature(f"{who} {' and '.join(parts)}; the ranker's features are {_listed(self.names, 12)}")


def _listed(names: Sequence[str], most: int = 5) -> str:
    text = ", ".join(repr(name) for name in names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text
