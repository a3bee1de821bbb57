"""A program of declared features: from a request to the rows that a learner ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rankloop.errors import InvalidParameter
from rankloop.features._declaration import Declaration
from rankloop.features.declarations import Field
from rankloop.features.table import Table
from rankloop.features.view import Request, View
from rankloop.types import Array


class Program:
    """Computes the columns of declarations, all in one go.

    >>> from rankloop.features.declarations import declaration
    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30})
    >>> price = Program([declaration({"name": "price", "kind": "field", "of": "item.price", "default": 10})])
    >>> price.rows(price.view(Request(["a", "nobody"]), shoes))
    array([[30.],
           [10.]])
    >>> price.unknown
    1
    """

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self.columns = tuple(column for one in declarations for column in one.columns)
        self.missing: Counter[str] = Counter()
        self.unknown = 0
        self._fields: list[Field] = []
        for one in declarations:
            if not isinstance(one, Field) or not one.of.startswith("item.") or one.log:
                raise InvalidParameter(f"feature {one.name!r} cannot be computed yet; declare a field of items")
            self._fields.append(one)
        self._means = np.array([one.default == "mean" for one in self._fields], dtype=bool)
        self._defaults = np.array([0.0 if one.default == "mean" else one.default for one in self._fields])

    def prepare(self, items: Table) -> None:
        """Nothing has to be kept for fields."""

    def view(self, request: Request, items: Table, users: Table | None = None) -> View:  # noqa: ARG002
        """What is known for a request."""
        return View(request, items)

    def rows(self, view: View) -> Array:
        """(n, d) for the ids of a request."""
        self.unknown += view.unknown
        places = np.array([view.items.place(one.of.removeprefix("item.")) for one in self._fields], dtype=np.int64)
        made = np.where(places < 0, np.nan, view.items.block[view.rows[:, None], places])
        gaps = np.isnan(made)
        if not gaps.any():
            return made
        for j in np.flatnonzero(gaps.any(axis=0)).tolist():
            self.missing[self._fields[j].name] += int(np.count_nonzero(gaps[view.rows >= 0, j]))
        means = np.where(gaps, 0.0, made).sum(axis=0) / np.maximum(1, len(made) - gaps.sum(axis=0))
        return np.where(gaps, np.where(self._means, means, self._defaults), made)
