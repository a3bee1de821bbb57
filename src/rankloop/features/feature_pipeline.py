"""A program of declared features: from a request to the rows that a learner ranks, and to what counters will need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array, SparseRows
from rankloop.features._declaration import Declaration
from rankloop.features.computing import COMPUTED, absent, buckets, item_fields, logged
from rankloop.features.counters import CAPACITY, Counters, family
from rankloop.features.declarations import MOST_DENSE, Category, Clicked, Counted, Field, Sent, Text, declaration
from rankloop.features.feature_context import View, prepare
from rankloop.features.table import Table


class Needs(NamedTuple):
    """What a program has to be given."""

    items: frozenset[str]  # fields of items
    users: frozenset[str]  # fields of users
    request: frozenset[str]  # fields of the request
    user: bool  # whether it matters who asks
    query: bool  # whether it matters what is asked for
    counters: bool  # whether it counts
    sent: tuple[str, ...]  # numbers that the caller sends with each candidate


class Program:
    """Declared features, ready to compute.

    Choose declarations over features in every request where items change rarely and requests come often: the request
    names ids, and everything else is looked up, counted or computed here, for all candidates at once.

    `missing` and `unknown` count what was not there since the program was made: known candidates that had no value, by
    feature, and ids of which no table knows.

    Examples
    --------
    >>> from rankloop.features.feature_context import Request
    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30, "brand": "acme", "title": "red running shoe"})
    >>> shoes.upsert("b", {"price": 45, "brand": "apex", "title": "blue shoe"})
    >>> program = declared([
    ...     {"name": "price", "kind": "field", "of": "item.price"},
    ...     {"name": "brand", "kind": "category", "of": "item.brand", "values": ["acme", "apex"]},
    ...     {"name": "words", "kind": "text", "of": "item.title", "measure": "share"},
    ... ])
    >>> program.columns
    ('price', 'brand=acme', 'brand=apex', 'words')
    >>> program.rows(program.view(Request(["b", "a", "c"], query="red shoe"), shoes))
    array([[45. ,  0. ,  1. ,  0.5],
           [30. ,  1. ,  0. ,  1. ],
           [37.5,  0. ,  0. ,  0. ]])
    >>> program.unknown
    1
    """

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        names = Counter(one.name for one in declarations)
        double = [name for name, times in names.items() if times > 1]
        if double:
            raise InvalidParameter(f"feature {double[0]!r} is declared twice; give every feature a name of its own")
        self.declarations = tuple(declarations)
        self.missing: Counter[str] = Counter()
        self.unknown = 0
        self.lists = 0
        self._texts = [one.of.removeprefix("item.") for one in declarations if isinstance(one, Text)]
        self._counted = [one for one in declarations if isinstance(one, Counted | Clicked)]
        starts = np.cumsum([0, *(one.width for one in declarations)]).tolist()
        self.width = int(starts[-1])  # how many columns there are
        self._starts = starts[:-1]
        places = list(zip(starts, declarations, strict=False))
        fields = [(at, one) for at, one in places if isinstance(one, Field) and one.of.startswith("item.")]
        self._fields, self._columns = [one for _, one in fields], np.array([at for at, _ in fields], np.int64)
        self._logged = [at for at, one in fields if one.log]
        self._places: Array = np.zeros(0, np.int64)  # of those fields in the table that was asked last
        self._asked: tuple[Table | None, int] = (None, 0)  # which one, and how many fields it had
        self._others = [(at, one.width, one) for at, one in places if one not in self._fields]
        self._dense = all(one.width <= MOST_DENSE for one in declarations)
        self._families = sorted({_family(one): _by(one) for one in self._counted}.items())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(name for one in self.declarations for name in one.columns)

    @property
    def needs(self) -> Needs:
        """What it reads."""
        sources = {source for one in self.declarations for source in one.sources}

        def fields(scope: str) -> frozenset[str]:
            return frozenset(one.removeprefix(f"{scope}.") for one in sources if one.startswith(f"{scope}."))

        users = fields("user")
        return Needs(
            fields("item"),
            users,
            fields("request"),
            bool(users) or "user" in sources,
            "query" in sources,
            bool(self._counted),
            tuple(one.name for one in self.declarations if isinstance(one, Sent)),
        )

    def counters(self, capacity: int = CAPACITY) -> Counters | None:
        """Fresh counters of what it counts; None if that is nothing."""
        return Counters(self._counted, capacity) if self._counted else None

    def prepare(self, items: Table) -> None:
        """Have a table keep what texts need: once, before the first request, since a large table takes its time."""
        prepare(items, self._texts)

    def view(self, request: Any, items: Table, users: Table | None = None, counters: Counters | None = None) -> View:
        """What is known for a request (`rankloop.features.feature_context.Request`)."""
        if self._counted and counters is None:
            names = ", ".join(repr(one.name) for one in self._counted)
            raise InvalidParameter(f"features {names} count, and there are no counters; pass program.counters()")
        self.prepare(items)
        return View(request, items, users, counters)

    def rows(self, view: View) -> Array:
        """(n, d) float64 the features of each candidate. NaN only where a number that is sent was not."""
        if not self._dense:
            raise InvalidParameter(
                f"the features have {self.width:,} columns, too many for full rows (a hashed category may have "
                f"{MOST_DENSE:,}); rank with sparse rows, or hash into fewer buckets"
            )
        found = np.empty((view.n, self.width))
        if self._fields:
            missing = item_fields(self._fields, self._columns, self._places_in(view.items), view, found)
            for j in np.flatnonzero(missing).tolist():
                self.missing[self._fields[j].name] += int(missing[j])
            for j in self._logged:
                found[:, j] = logged(found[:, j])
        for at, width, one in self._others:
            values, gaps = COMPUTED[type(one)](one, view)
            if gaps:
                self.missing[one.name] += gaps
            found[:, at : at + width] = values.reshape(view.n, width)
        self.unknown += view.unknown
        self.lists += 1
        return found

    def _places_in(self, items: Table) -> Array:
        """(m,) where a table has the fields of items that are taken as they are; -1: no item has it yet."""
        if self._asked[0] is not items or self._asked[1] != len(items.fields):
            self._places = np.array([items.place(one.of.removeprefix("item.")) for one in self._fields], np.int64)
            self._asked = items, len(items.fields)
        return self._places

    def sparse(self, view: View) -> SparseRows:
        """The same rows without their zeros: for hashed categories with more columns than a table could hold."""
        owners, places, values = [], [], []
        for at, one in zip(self._starts, self.declarations, strict=True):
            if isinstance(one, Category) and one.buckets:
                lists = view.crossed(one.of).of(view.n)
                owners.append(np.repeat(np.arange(view.n), lists.lengths))
                places.append(at + buckets(one, lists))
                values.append(np.ones(lists.codes.size))
                gaps = absent(lists, view)
            else:
                columns, gaps = COMPUTED[type(one)](one, view)
                columns = columns.reshape(view.n, one.width)
                rows, own = np.nonzero(columns)
                owners.append(rows)
                places.append(at + own)
                values.append(columns[rows, own])
            if gaps:
                self.missing[one.name] += gaps
        self.unknown += view.unknown
        self.lists += 1
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(owner, minlength=view.n)))
        return SparseRows(starts, np.concatenate(places)[order], np.concatenate(values)[order], self.width)

    def notes(self, view: View, order: Array, memo: Mapping[str, Array]) -> dict[str, Array]:
        """What counters will need of a list once it is closed: codes by slot, and how likely its swaps were.

        `order` (k,) are the positions shown, -1 of one that was no candidate; `memo` the learner's notes on the list.
        """
        if not self._counted:
            return {}
        found: dict[str, Array] = {}
        for name, sources in self._families:
            lists = view.crossed(sources)
            if lists.offsets.size != view.n + 1 or not any(one.startswith("item") for one in sources):
                found[f"by/{name}"] = lists.codes
                continue
            lengths = np.where(order < 0, 0, lists.lengths[order])
            offsets = np.append(0, np.cumsum(lengths))
            places = np.arange(offsets[-1]) + np.repeat(lists.offsets[order] - offsets[:-1], lengths)
            found[f"by/{name}"], found[f"at/{name}"] = lists.codes[places], offsets.astype(np.int32)
        if not any(name.startswith("at/") for name in found):  # slots must be told by something
            found["at/slots"] = np.zeros(len(order) + 1, np.int32)
        user = view.lists("user").codes
        if user.size:
            found["user"] = user
        if "shares" in memo and memo.get("doubt", np.zeros(1))[0] > 0.0:  # drawn, not told by someone else
            found["shares"] = np.asarray(memo["shares"], np.float32)
        return found


def declared(features: Iterable[str | Mapping[str, Any]]) -> Program:
    """The program of a spec's features: plain names, which are sent, and declarations."""
    return Program([declaration(one) for one in features])


def _by(one: Declaration) -> tuple[str, ...]:
    return one.by if isinstance(one, Counted) else (one.sources[0],)


def _family(one: Declaration) -> str:
    return family(_by(one))
