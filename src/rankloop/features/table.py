"""Items or users with their fields, column by column, in memory: what features are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from sys import getsizeof
from typing import Any, TypeVar

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.features.columns import DerivedColumn, ListColumn, StringColumn
from rankloop.features.fields import Field, check

FIRST = 16  # rows that there is room for at first; then half as many again whenever they are full
NUMBERS = ("number", "boolean", "timestamp")  # kinds that `block` holds
_Column = TypeVar("_Column")


class Table:
    """What is known of items (or users): ids, and for each a value of each field, or none.

    Choose it where features come from fields that change rarely and are needed in every request. Numbers, booleans (0
    and 1) and times (Unix seconds) of one item lie side by side in `block`, so that fetching many fields of a hundred
    items touches a hundred places of the memory and not thousands; each field is a column of it. NaN is a missing
    number, code -1 a missing string, a start of -1 a missing list, a row of NaN a missing vector.

    An id may be a string or an integer; 7 and "7" are the same. Rows of deleted items are given to the next that come.

    **Who may read when.** A table has no lock of its own. Whoever changes it and whoever reads it are one thread, or
    hold the same lock (the service's catalogs have one): then each `upsert` and `delete` is whole for every reader.
    What a reader keeps beyond that must be copies (`array[rows]` is one), never the arrays: they are replaced when the
    table grows, and rows change hands. A table that has much to take in is built beside the old one (`emptied`) and put
    into its place once it is whole.

    Parameters
    ----------
    fields
        Fields whose kind is declared; those of the others are told by the first value that comes.
    most_rows, most_bytes
        What would make it larger is refused; bytes are looked at whenever it has to grow.

    Examples
    --------
    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30, "brand": "acme", "colours": ["red", "blue"]})
    >>> shoes.upsert("b", {"price": 45.5, "sold_out": True})
    >>> rows = shoes.rows(["b", "nobody", "a"])
    >>> rows
    array([ 1, -1,  0])
    >>> shoes.numbers("price")[rows]
    array([45.5,  nan, 30. ])
    >>> shoes.strings("brand").codes[rows]
    array([-1, -1,  0], dtype=int32)
    >>> shoes.get("a")
    {'price': 30.0, 'brand': 'acme', 'colours': ['red', 'blue']}
    >>> shoes.upsert("c", {"price": "cheap"})
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: field 'price' holds numbers, but here it is 'cheap'; send a value of that
    kind, null,
    or another field's name
    """

    def __init__(
        self,
        fields: Mapping[str, Field] | None = None,
        most_rows: int = 10_000_000,
        most_bytes: int = 2**40,
    ) -> None:
        self.fields: dict[str, Field] = {}
        self.block: Array = np.full((FIRST + 1, 0), np.nan)  # (rows + 1, m) float64
        self.changes = 0  # upserts and deletes so far: whoever keeps something of the whole table knows when it is old
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._numbers: dict[str, int] = {}  # field: column of the block
        self._strings: dict[str, StringColumn] = {}
        self._lists: dict[str, ListColumn] = {}
        self._vectors: dict[str, Array] = {}  # (rows + 1, width) float32
        self._derived: dict[str, DerivedColumn] = {}
        self._rows: dict[str, int] = {}
        self._ids: list[str | None] = []  # by row
        self._free: list[int] = []
        self._room = FIRST
        self.declare(fields or {})

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, item: object) -> bool:
        return str(item) in self._rows

    # -- reading ---------------------------------------------------------------------------------------------------

    def rows(self, ids: Sequence[str | int]) -> Array:
        """(n,) int64 rows of ids; -1 of one that is not there, with which every column gives what is missing."""
        texts: Iterable[Any] = ids if type(ids[0] if ids else "") is str else map(str, ids)
        return np.fromiter(map(self._rows.get, texts, repeat(-1)), np.int64, len(ids))

    def place(self, name: str) -> int:
        """The column of `block` that holds a number, boolean or time; it never changes. -1: no such field yet."""
        return self._numbers.get(name, -1)

    def numbers(self, name: str) -> Array:
        """(rows + 1,) float64: a column of numbers, booleans or times."""
        return self.block[:, _known(self._numbers, name, self.fields, "numbers, booleans or times")]

    def strings(self, name: str) -> StringColumn:
        """A column of strings."""
        return _known(self._strings, name, self.fields, "strings")

    def lists(self, name: str) -> ListColumn:
        """A column of lists of strings, or one that was derived."""
        column = self._derived.get(name)
        return _known(self._lists, name, self.fields, "lists of strings") if column is None else column

    def vectors(self, name: str) -> Array:
        """(rows + 1, width) float32: a column of vectors."""
        return _known(self._vectors, name, self.fields, "vectors")

    def get(self, item: str | int) -> dict[str, Any] | None:
        """The values of one item (times as Unix seconds, booleans as 0 and 1); None if it is not there."""
        row = self._rows.get(str(item))
        if row is None:
            return None
        line = self.block[row]
        found: dict[str, Any] = {
            name: float(line[j])
            for name, j in self._numbers.items()
            if line[j] == line[j]  # not NaN
        }
        for group in (self._strings, self._lists):
            found.update((name, value) for name, one in group.items() if (value := one.get(row)) is not None)
        for name, vectors in self._vectors.items():
            if not np.isnan(vectors[row, 0]):
                found[name] = vectors[row].tolist()
        return {name: found[name] for name in self.fields if name in found}

    @property
    def ids(self) -> list[str]:
        """All ids, in no order."""
        return list(self._rows)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, with Python's objects."""
        arrays = self.block.nbytes + sum(one.nbytes for one in self._vectors.values())
        columns: list[StringColumn | ListColumn] = [
            *self._strings.values(),
            *self._lists.values(),
            *self._derived.values(),
        ]
        names = getsizeof(self._rows) + getsizeof(self._ids) + 64 * len(self._rows)  # 64: of an id of 15 letters
        return int(arrays) + sum(one.nbytes for one in columns) + names

    # -- changing --------------------------------------------------------------------------------------------------

    def upsert(self, item: str | int, values: Mapping[str, Any]) -> None:
        """Add an item, or replace all that is known of it; nothing happens if one of the values is refused."""
        found, new = check(values, self.fields)
        row = self._rows.get(name := str(item))
        if row is None and len(self._rows) >= self._most_rows:
            raise InvalidInput(
                f"{name!r} would be one more than {self._most_rows} items; delete some, or raise the limit"
            )
        if new:
            self.declare(new)
        if row is None:
            row = self._row_for(name)
        self.changes += 1
        self._write(row, found)

    def delete(self, item: str | int) -> bool:
        """Take an item away; whether it was there."""
        row = self._rows.pop(str(item), None)
        if row is None:
            return False
        self.changes += 1
        self._write(row, {})
        self._ids[row] = None
        self._free.append(row)
        return True

    def derive(self, name: str, source: str, function: Callable[[str], list[str]]) -> None:
        """Keep a column of lists `name` with what `function` makes of each string (or of each string of the lists) of
        field `source`, now and whenever that changes: the words of a title. It costs time at each write and none at
        reading; asked for a second time by the same name, it is there already.

        >>> books = Table()
        >>> books.upsert(1, {"title": "the art of the fugue"})
        >>> books.derive("title:words", "title", str.split)
        >>> books.lists("title:words").get(0)
        ['the', 'art', 'of', 'fugue']
        """
        if name in self._derived:
            return
        made = DerivedColumn(self._room, source, function)
        column = self._strings.get(source) or self._lists.get(source)
        if column is not None:
            for row in self._rows.values():
                made.follow(row, column.get(row))
        self._derived[name] = made

    def emptied(
        self, fields: Mapping[str, Field] | None = None, most_rows: int | None = None, most_bytes: int | None = None
    ) -> Table:
        """A new table with nothing in it that keeps the same derived columns, to be filled and put in its place."""
        made = Table(fields, most_rows or self._most_rows, most_bytes or self._most_bytes)
        for name, one in self._derived.items():
            made.derive(name, one.source, one.function)
        return made

    def reserve(self, rows: int) -> None:
        """Room for so many rows, if they are known to come: growing copies what is there."""
        if rows > self._room:
            self._grow(rows, len(self._numbers))

    def _write(self, row: int, found: Mapping[str, Any]) -> None:
        line = self.block[row]
        line[:] = np.nan
        places = self._numbers
        if numbers := {places[name]: value for name, value in found.items() if name in places}:
            line[list(numbers)] = list(numbers.values())
        for name, strings in self._strings.items():
            strings.put(row, found.get(name))
        for name, lists in self._lists.items():
            lists.put(row, found.get(name))
        for name, vectors in self._vectors.items():
            vectors[row] = found.get(name, np.nan)
        for derived in self._derived.values():
            derived.follow(row, found.get(derived.source))

    def _row_for(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self._ids[row] = name
        else:
            row = len(self._ids)
            if row >= self._room:
                self._grow(max(FIRST, row + row // 2), len(self._numbers))
            self._ids.append(name)
        self._rows[name] = row
        return row

    def declare(self, fields: Mapping[str, Field]) -> None:
        """Fields whose kind is known before their first value; those that are there stay as they are."""
        fields = {
            name: field
            for name, field in fields.items()
            if name not in self.fields or (field.width and not self.fields[name].width)
        }
        numbers = [name for name, field in fields.items() if field.kind in NUMBERS and name not in self._numbers]
        if numbers:
            self._grow(self._room, len(self._numbers) + len(numbers))
        for name, field in fields.items():
            if field.kind in NUMBERS:
                self._numbers.setdefault(name, len(self._numbers))
            elif field.kind == "string":
                self._strings.setdefault(name, StringColumn(self._room))
            elif field.kind == "strings":
                self._lists.setdefault(name, ListColumn(self._room))
            elif field.width:
                self._vectors[name] = np.full((self._room + 1, field.width), np.nan, np.float32)
            self.fields[name] = field

    def _grow(self, rows: int, numbers: int) -> None:
        """Larger copies of the arrays; those who read have the old ones or the new ones, which say the same."""
        rows = min(rows, max(self._most_rows, self._room))
        more = max(0, rows - self._room)
        old, width = self.block.shape
        wider = width if numbers <= width else max(numbers, width + width // 8)
        cells = (rows + 1) * (8 * wider + 4 * sum(field.width for field in self.fields.values()))
        if (bytes_ := self.nbytes - self.block.nbytes + cells) > self._most_bytes:
            raise InvalidInput(
                f"the table would take {bytes_:,} bytes, the limit is {self._most_bytes:,}; "
                "delete items, send fewer fields, or raise the limit"
            )
        if more or wider != width:
            block = np.full((rows + 1, wider), np.nan)
            block[: old - 1, :width] = self.block[:-1]
            self.block = block
        if more:
            columns: list[StringColumn | ListColumn] = [*self._strings.values(), *self._lists.values()]
            for column in [*columns, *self._derived.values()]:
                column.grow(rows)
            for name, vectors in self._vectors.items():
                empty = np.full((more, vectors.shape[1]), np.nan, np.float32)
                self._vectors[name] = np.concatenate([vectors, empty])
            self._room = rows


def _known(columns: Mapping[str, _Column], name: str, fields: Mapping[str, Field], what: str) -> _Column:
    """The column of a name, or an error that says what there is."""
    if name in columns:
        return columns[name]
    if name in fields:
        raise InvalidInput(f"field {name!r} is of kind {fields[name].kind}; here {what} are wanted")
    raise InvalidInput(f"no item has a field {name!r} yet; there are {', '.join(fields) or 'none'}")
