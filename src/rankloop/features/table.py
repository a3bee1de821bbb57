"""Tables of items or users with their fields, column by column, in memory: what features are computed from.

Every array has one extra row that is never written to, so that row -1 of an unknown id reads as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from sys import getsizeof
from typing import Any, TypeVar

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.features.field_types import FieldType, check
from rankloop.features.hashing import text_codes

FIRST = 16  # rows that there is room for at first; then half as many again whenever they are full
NUMBERS = ("number", "boolean", "timestamp")  # kinds that `block` holds
_Column = TypeVar("_Column")


class Table:
    """The fields of items or users in memory, column by column.

    Numbers, booleans (0 and 1) and times (Unix seconds) of one item are adjacent in `block`, so that fetching many
    fields of one item touches one place of memory. Missing values are NaN, code -1, start -1 or a row of NaN. Ids 7 and
    "7" are the same. Rows of deleted items are reused.

    A table has no lock: readers and writers must be one thread or hold the same lock, and readers must keep copies,
    because arrays are replaced when the table grows. Fill a large table beside the old one (`emptied`) and swap them.

    Parameters
    ----------
    fields
        Declared field types; the types of other fields are inferred from their first value.
    most_rows, most_bytes
        Limits; bytes are checked whenever the table has to grow.

    Examples
    --------
    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30, "brand": "acme", "colors": ["red", "blue"]})
    >>> shoes.upsert("b", {"price": 45.5, "sold_out": True})
    >>> rows = shoes.rows(["b", "nobody", "a"])
    >>> rows
    array([ 1, -1,  0])
    >>> shoes.numbers("price")[rows]
    array([45.5,  nan, 30. ])
    >>> shoes.strings("brand").codes[rows]
    array([-1, -1,  0], dtype=int32)
    >>> shoes.get("a")
    {'price': 30.0, 'brand': 'acme', 'colors': ['red', 'blue']}
    >>> shoes.upsert("c", {"price": "cheap"})
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: field 'price' holds numbers, but here it is 'cheap'; send a value of that
    kind, null,
    or another field's name
    """

    def __init__(
        self,
        fields: Mapping[str, FieldType] | None = None,
        most_rows: int = 10_000_000,
        most_bytes: int = 2**40,
    ) -> None:
        self.fields: dict[str, FieldType] = {}
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
        """Return (n,) int64 rows of ids; -1, whose values are missing in every column, for unknown ids."""
        texts: Iterable[Any] = ids if type(ids[0] if ids else "") is str else map(str, ids)
        return np.fromiter(map(self._rows.get, texts, repeat(-1)), np.int64, len(ids))

    def place(self, name: str) -> int:
        """Return the column of `block` of a field, which never changes; -1: no such field yet."""
        return self._numbers.get(name, -1)

    def numbers(self, name: str) -> Array:
        """Return (rows + 1,) float64: a column of numbers, booleans or times."""
        return self.block[:, _known(self._numbers, name, self.fields, "numbers, booleans or times")]

    def strings(self, name: str) -> StringColumn:
        """Return a column of strings."""
        return _known(self._strings, name, self.fields, "strings")

    def lists(self, name: str) -> ListColumn:
        """Return a column of lists of strings, stored or derived."""
        column = self._derived.get(name)
        return _known(self._lists, name, self.fields, "lists of strings") if column is None else column

    def vectors(self, name: str) -> Array:
        """Return (rows + 1, width) float32: a column of vectors."""
        return _known(self._vectors, name, self.fields, "vectors")

    def get(self, item: str | int) -> dict[str, Any] | None:
        """Return the values of one item (times as Unix seconds, booleans as 0 and 1); None if it is unknown."""
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
        """Approximate memory, including Python objects."""
        arrays = self.block.nbytes + sum(one.nbytes for one in self._vectors.values())
        columns: list[StringColumn | ListColumn] = [
            *self._strings.values(),
            *self._lists.values(),
            *self._derived.values(),
        ]
        names = getsizeof(self._rows) + getsizeof(self._ids) + 64 * len(self._rows)  # 64: an id of 15 letters
        return int(arrays) + sum(one.nbytes for one in columns) + names

    # -- changing --------------------------------------------------------------------------------------------------

    def upsert(self, item: str | int, values: Mapping[str, Any]) -> None:
        """Add an item or replace all of its values; nothing changes if one value is invalid."""
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
        """Delete an item; return whether it existed."""
        row = self._rows.pop(str(item), None)
        if row is None:
            return False
        self.changes += 1
        self._write(row, {})
        self._ids[row] = None
        self._free.append(row)
        return True

    def derive(self, name: str, source: str, function: Callable[[str], list[str]]) -> None:
        """Keep a column `name` of lists that `function` makes of each string of field `source`, such as its words.

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
        self, fields: Mapping[str, FieldType] | None = None, most_rows: int | None = None, most_bytes: int | None = None
    ) -> Table:
        """Return an empty table with the same derived columns."""
        made = Table(fields, most_rows or self._most_rows, most_bytes or self._most_bytes)
        for name, one in self._derived.items():
            made.derive(name, one.source, one.function)
        return made

    def reserve(self, rows: int) -> None:
        """Make room for so many rows at once, since growing copies the arrays."""
        if rows > self._room:
            self._grow(rows, len(self._numbers))

    def _write(self, row: int, found: Mapping[str, Any]) -> None:
        line = self.block[row]
        line[:] = np.nan
        places = self._numbers
        if numbers := {places[name]: value for name, value in found.items() if name in places}:
            line[list(numbers)] = list(numbers.values())
        for name, strings in self._strings.items():
            strings.set(row, found.get(name))
        for name, lists in self._lists.items():
            lists.set(row, found.get(name))
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

    def declare(self, fields: Mapping[str, FieldType]) -> None:
        """Add fields of known type; existing ones are not changed."""
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
        """Replace the arrays by larger copies."""
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


def _known(columns: Mapping[str, _Column], name: str, fields: Mapping[str, FieldType], what: str) -> _Column:
    """Return a column by name, or raise an error that lists the existing ones."""
    if name in columns:
        return columns[name]
    if name in fields:
        raise InvalidInput(f"field {name!r} is of kind {fields[name].kind}; here {what} are wanted")
    raise InvalidInput(f"no item has a field {name!r} yet; there are {', '.join(fields) or 'none'}")


# -- columns -------------------------------------------------------------------------------------------------------


class StringColumn:
    """A string per row: `codes` (rows + 1,) int32 of `vocabulary`, -1 where there is none."""

    def __init__(self, rows: int) -> None:
        self.codes = np.full(rows + 1, -1, np.int32)
        self.vocabulary = Vocabulary()

    def set(self, row: int, word: str | None) -> None:
        """Set the string of a row."""
        old = int(self.codes[row])
        self.codes[row] = -1 if word is None else self.vocabulary.acquire(word)  # before release: may be equal
        if old >= 0:
            self.vocabulary.release(old)

    def get(self, row: int) -> str | None:
        """Return the value of a row."""
        code = self.codes[row]
        return None if code < 0 else self.vocabulary.words[code]

    def grow(self, rows: int) -> None:
        """Make room for more rows."""
        self.codes = np.append(self.codes, np.full(rows + 1 - len(self.codes), -1, np.int32))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.codes.nbytes) + self.vocabulary.nbytes


class ListColumn:
    """A list of different strings per row: the codes `pool[starts[row] : starts[row] + lengths[row]]`.

    A row without a list starts at -1. `vocabulary.counts` is the document frequency of each string.
    """

    def __init__(self, rows: int) -> None:
        self.starts = np.full(rows + 1, -1, np.int64)
        self.lengths = np.zeros(rows + 1, np.int32)
        self.pool = np.zeros(64, np.int32)
        self.vocabulary = Vocabulary()
        self._end = 0  # of the used part of the pool
        self._used = 0  # codes of current lists

    def set(self, row: int, words: list[str] | None) -> None:
        """Set the list of a row; its strings must differ."""
        old = self.codes_of(row)
        codes = [] if words is None else [self.vocabulary.acquire(word) for word in words]
        for code in old.tolist():
            self.vocabulary.release(code)
        self._used += len(codes) - len(old)
        if words is None:
            self.starts[row], self.lengths[row] = -1, 0
            return
        if self._end + len(codes) > len(self.pool):
            self.lengths[row] = 0
            self._make_room(len(codes))
        self.pool[self._end : self._end + len(codes)] = codes
        self.starts[row], self.lengths[row] = self._end, len(codes)
        self._end += len(codes)

    def codes_of(self, row: int) -> Array:
        """Return the codes of a row."""
        start = self.starts[row]
        return self.pool[start : start + self.lengths[row]] if start >= 0 else self.pool[:0]

    def get(self, row: int) -> list[str] | None:
        """Return the value of a row."""
        words = self.vocabulary.words
        return None if self.starts[row] < 0 else [words[code] for code in self.codes_of(row).tolist()]

    def grow(self, rows: int) -> None:
        """Make room for more rows."""
        more = rows + 1 - len(self.starts)
        self.starts = np.append(self.starts, np.full(more, -1, np.int64))
        self.lengths = np.append(self.lengths, np.zeros(more, np.int32))

    def _make_room(self, more: int) -> None:
        """Copy the lists in use to a new pool of twice the size."""
        lengths = self.lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        kept = int(ends[-1])
        shift = np.repeat(self.starts - (ends - lengths), lengths)
        pool = np.zeros(max(64, 2 * (kept + more)), np.int32)
        pool[:kept] = self.pool[np.arange(kept) + shift]
        self.starts = np.where(self.starts >= 0, ends - lengths, -1)
        self.pool, self._end = pool, kept

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.starts.nbytes + self.lengths.nbytes + self.pool.nbytes) + self.vocabulary.nbytes


class DerivedColumn(ListColumn):
    """Lists derived from another field whenever it is written, such as the words of a title."""

    def __init__(self, rows: int, source: str, function: Callable[[str], list[str]]) -> None:
        super().__init__(rows)
        self.source, self.function = source, function

    def follow(self, row: int, value: object) -> None:
        """Update a row from the value of its source field; a value without strings counts as missing."""
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            self.set(row, list(dict.fromkeys(word for text in texts for word in self.function(text))))
        else:
            self.set(row, None)


class Vocabulary:
    """Integer codes of strings, with their hashes and use counts.

    A code that no row uses any more is given to the next new string, so codes mean nothing outside of the table.

    >>> colors = Vocabulary()
    >>> [colors.acquire(word) for word in ("red", "blue", "red")]
    [0, 1, 0]
    >>> colors.counts[:2].tolist(), colors.code("blue"), colors.code("pink")
    ([2, 1], 1, -1)
    >>> colors.release(1)
    >>> colors.acquire("green"), len(colors)
    (1, 2)
    """

    def __init__(self) -> None:
        self.words: list[str] = []  # by code; of a code that is free ""
        self.counts = np.zeros(0, np.int64)  # (>= codes,) use counts; of words, the document frequencies
        self._hashes = np.zeros(0, np.uint64)  # (>= codes,)
        self._unhashed: list[int] = []  # codes; hashed in one batch when first needed
        self._codes: dict[str, int] = {}
        self._free: list[int] = []
        self._text = 0

    @property
    def hashes(self) -> Array:
        """(>= codes,) uint64: `text_codes` of each string."""
        if self._unhashed:
            self._hashes[self._unhashed] = text_codes([self.words[code] for code in self._unhashed])
            self._unhashed = []
        return self._hashes

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, word: str) -> int:
        """Return the code of a string; -1 if no row has it."""
        return self._codes.get(word, -1)

    def codes(self, words: list[str]) -> Array:
        """Return (n,) int32 codes of strings; -1 of those that no row has."""
        return np.array([self._codes.get(word, -1) for word in words], np.int32)

    def uses(self, codes: Array) -> Array:
        """Return (n,) how many rows use these codes; 0 for -1."""
        found = np.zeros(codes.shape, np.int64)
        found[codes >= 0] = self.counts[codes[codes >= 0]]
        return found

    def acquire(self, word: str) -> int:
        """Count one more use of a string and return its code."""
        code = self._codes.get(word)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.words[code] = word
            else:
                code = len(self.words)
                self.words.append(word)
                if code >= len(self.counts):
                    room = max(16, 2 * code) - len(self.counts)
                    self.counts = np.append(self.counts, np.zeros(room, np.int64))
                    self._hashes = np.append(self._hashes, np.zeros(room, np.uint64))
            self._codes[word] = code
            self._unhashed.append(code)
            self._text += getsizeof(word)
        self.counts[code] += 1
        return code

    def release(self, code: int) -> None:
        """Count one use less."""
        self.counts[code] -= 1
        if self.counts[code] == 0:
            word = self.words[code]
            del self._codes[word]
            self.words[code] = ""
            self._free.append(code)
            self._text -= getsizeof(word)

    @property
    def nbytes(self) -> int:
        """Approximate memory, including Python objects."""
        return int(
            self.counts.nbytes + self._hashes.nbytes + self._text + getsizeof(self._codes) + getsizeof(self.words)
        )
