"""The query-document pairs that a log or a model knows, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Query-document pairs, each with a number from 0 on; names are text.

    Examples
    --------
    >>> pairs = Pairs.of(["shoes", "shoes", "hats"], ["b", "a", "a"])
    >>> len(pairs), pairs.find("shoes", ["a", "b", "c"])  # c is unknown: one more than the last number
    (3, array([1, 2, 3]))
    """

    queries: Array  # (Q,) str, sorted
    documents: Array  # (D,) str, sorted
    keys: Array  # (P,) int64, ascending: query · D + document

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, queries: Sequence[str], documents: Sequence[str]) -> Pairs:
        """The pairs of a query each and a document each; a pair may stand there several times."""
        query_names, query = np.unique(np.asarray(queries, dtype=np.str_), return_inverse=True)
        document_names, document = np.unique(np.asarray(documents, dtype=np.str_), return_inverse=True)
        return cls(query_names, document_names, np.unique(query * len(document_names) + document))

    def find(self, query: str, documents: ArrayLike) -> Array:
        """The number of each pair of this query; `len(self)` for pairs that are not known."""
        ids = np.asarray(documents)
        ids = ids if ids.dtype.kind == "U" else ids.astype(np.str_)
        q = _places(self.queries, np.asarray([query]))
        return self._numbers(np.broadcast_to(q, ids.shape), _places(self.documents, ids))

    def numbers_of(self, others: Pairs) -> Array:
        """(P',) the number here of each pair of `others`; `len(self)` for those that are not known."""
        if others is self:
            return np.arange(len(self))
        query, document = np.divmod(others.keys, max(1, len(others.documents)))
        return self._numbers(
            _places(self.queries, others.queries)[query], _places(self.documents, others.documents)[document]
        )

    def documents_of(self, query: str) -> Array:
        """The documents known for a query, sorted; none for a query that is not known."""
        q = _places(self.queries, np.asarray([query]))[0]
        width = len(self.documents)
        here = slice(*np.searchsorted(self.keys, [q * width, (q + 1) * width])) if q < len(self.queries) else slice(0)
        names: Array = self.documents[self.keys[here] % max(1, width)]
        return names

    def names(self) -> tuple[Array, Array]:
        """(P,) the query and (P,) the document of each pair."""
        query, document = np.divmod(self.keys, max(1, len(self.documents)))
        return self.queries[query], self.documents[document]

    def kept(self, numbers: Array) -> Pairs:
        """Only the pairs of these ascending numbers, with the names that they need."""
        query, document = np.divmod(self.keys[numbers], max(1, len(self.documents)))
        queries, query = np.unique(query, return_inverse=True)
        documents, document = np.unique(document, return_inverse=True)
        return Pairs(self.queries[queries], self.documents[documents], query * len(documents) + document)

    def arrays(self) -> dict[str, Array]:
        """What a file must hold to have them back."""
        return {"queries": self.queries, "documents": self.documents, "keys": self.keys}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Pairs:
        """The pairs that `arrays` said, checked."""
        queries, documents, keys = (arrays.get(name, np.zeros((0, 0))) for name in ("queries", "documents", "keys"))
        fine = all(part.ndim == 1 and part.dtype.kind == "U" for part in (queries, documents))
        fine = fine and keys.ndim == 1 and keys.dtype == np.int64
        fine = fine and all((part[1:] > part[:-1]).all() for part in (queries, documents, keys))
        if not fine or (keys.size and not 0 <= keys[0] <= keys[-1] < len(queries) * len(documents)):
            raise InvalidInput("the file's query-document pairs are not in order; it was not written by rankloop")
        return cls(queries, documents, keys)

    def _numbers(self, query: Array, document: Array) -> Array:
        keys = query * len(self.documents) + document
        at = np.searchsorted(self.keys, keys)
        known = (query < len(self.queries)) & (document < len(self.documents)) & (at < len(self.keys))
        known[known] = self.keys[at[known]] == keys[known]
        return np.where(known, at, len(self.keys))


def _places(names: Array, wanted: Array) -> Array:
    """Where each name stands among the sorted `names`; `len(names)` if it does not."""
    at = np.searchsorted(names, wanted)
    found = at < len(names)
    found[found] = names[at[found]] == wanted[found]
    return np.where(found, at, len(names))
