"""The context of a ranking: the request, and what tables know of its candidates and its user."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.specs import timestamp_seconds
from rankloop.core.types import LARGEST, Array
from rankloop.features.counters import Counters, user_code
from rankloop.features.hashing import text_codes
from rankloop.features.table import Table
from rankloop.kernels import hashing
from rankloop.kernels.matching import crossed_lists

_FLAGS = text_codes(["false", "true"])
_NOBODY = Table()
_Found = TypeVar("_Found")
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of a text, case-folded and Unicode-normalized, without stemming.

    >>> words("Läufer-Schuhe, Größe 42")
    ['läufer', 'schuhe', 'grösse', '42']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def normalized_query(query: str) -> str:
    """Return a query without case, punctuation and extra spaces, as counts use it.

    >>> normalized_query("  Red  SHOES!")
    'red shoes'
    """
    return " ".join(words(query))


class Request(NamedTuple):
    """A request to rank, as features see it."""

    ids: Sequence[str | int]
    query: str = ""
    user: str | None = None
    time: float = 0.0  # Unix seconds
    fields: Mapping[str, Any] = {}  # of the request
    sent: Mapping[str, Array] = {}  # (n,) numbers that the caller sent for each candidate


class Lists(NamedTuple):
    """Codes in lists: list i is codes[offsets[i] : offsets[i + 1]]."""

    offsets: Array  # (n + 1,), or (2,) if all candidates have the same list
    codes: Array  # uint64

    @property
    def lengths(self) -> Array:
        """(n,) of each list."""
        return np.diff(self.offsets)

    def of(self, n: int) -> Lists:
        """Return one list per candidate."""
        if self.offsets.size == n + 1:
            return self
        m = int(self.offsets[1])
        return Lists(np.arange(n + 1) * m, np.tile(self.codes, n))


class FeatureContext:
    """A request with the known fields of its candidates and user; each source is read once.

    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30, "colors": ["red", "blue"]})
    >>> context = FeatureContext(Request(["a", "nobody"], fields={"color": "red"}), shoes)
    >>> context.numbers("item.price"), context.lists("item.colors").offsets, context.unknown
    (array([30., nan]), array([0, 2, 2]), 1)
    >>> (context.lists("request.color").codes == context.lists("item.colors").codes).tolist()
    [True, False]
    """

    def __init__(
        self, request: Request, items: Table, users: Table | None = None, counters: Counters | None = None
    ) -> None:
        self.request, self.items, self.users = request, items, users or _NOBODY
        self.counters = counters
        self.n = len(request.ids)
        self.rows = items.rows(request.ids)
        self.known = self.rows >= 0  # (n,)
        self.unknown = int(self.n - np.count_nonzero(self.known))
        self.user_rows = self.users.rows([] if request.user is None else [request.user])
        self._found: dict[tuple[str, str], Any] = {}

    def numbers(self, source: str) -> Array:
        """Return (n,) numbers, booleans or times of a source; NaN where missing."""
        return self._once("numbers", source, self._numbers)

    def lists(self, source: str) -> Lists:
        """Return the strings of a source; a single string is a list of one, a missing one an empty list."""
        return self._once("lists", source, self._lists)

    def vectors(self, source: str) -> Array:
        """Return (n, w) or (1, w) vectors of a source; NaN where missing, (1, 0) if there is none."""
        return self._once("vectors", source, self._vectors)

    def crossed(self, sources: Sequence[str]) -> Lists:
        """Return the combinations of the values of several sources, per candidate."""
        found = self.lists(sources[0])
        for source in sources[1:]:
            other = self.lists(source)
            offsets = np.append(0, np.cumsum(found.lengths * other.lengths))
            pairs = crossed_lists(found.offsets, found.codes, other.offsets, other.codes, offsets)
            found = Lists(offsets, hashing.joined(*pairs))
        return found

    def text(self, source: str) -> str:
        """Return the text of a source of the request or user; empty if missing."""
        if source == "query":
            return self.request.query
        scope, _, field = source.partition(".")
        if scope == "request":
            value = self.request.fields.get(field)
        else:
            value = None if self.request.user is None else (self.users.get(self.request.user) or {}).get(field)
        return " ".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""

    def _once(self, what: str, source: str, read: Callable[[str], _Found]) -> _Found:
        key = (what, source)
        if key not in self._found:
            self._found[key] = read(source)
        found: _Found = self._found[key]
        return found

    def _table(self, scope: str) -> tuple[Table, Array]:
        return (self.items, self.rows) if scope == "item" else (self.users, self.user_rows)

    def _numbers(self, source: str) -> Array:
        scope, _, field = source.partition(".")
        if scope == "request":
            return np.full(self.n, _number(field, self.request.fields.get(field)))
        table, rows = self._table(scope)
        place = table.place(field)
        if place < 0 or rows.size == 0:
            return np.full(self.n, np.nan)
        found: Array = table.block[rows, place]
        return found if scope == "item" else np.full(self.n, found[0])

    def _lists(self, source: str) -> Lists:
        scope, _, field = source.partition(".")
        if source == "item":
            return Lists(np.arange(self.n + 1), text_codes([str(one) for one in self.request.ids]))
        if source == "user":
            return _single([] if self.request.user is None else [self.request.user], user_code)
        if source == "query":
            return _single([normalized_query(self.request.query)] if self.request.query else [])
        if source == "query words":
            return _single(list(dict.fromkeys(words(self.request.query))))
        if scope == "request":
            return _single(_strings(self.request.fields.get(field)))
        table, rows = self._table(scope)
        kind = table.fields[field].kind if field in table.fields else None
        if rows.size == 0:
            return _single([])
        if kind == "string":
            column = table.strings(field)
            codes = column.codes[rows]
            return Lists(np.append(0, np.cumsum(codes >= 0)), column.vocabulary.hashes[codes[codes >= 0]])
        if kind == "strings":
            lists = table.lists(field)
            lengths = lists.lengths[rows].astype(np.int64)
            offsets = np.append(0, np.cumsum(lengths))
            places = np.arange(offsets[-1]) + np.repeat(lists.starts[rows] - offsets[:-1], lengths)
            return Lists(offsets, lists.vocabulary.hashes[lists.pool[places]])
        if kind == "boolean":
            flags = table.numbers(field)[rows]
            there = ~np.isnan(flags)
            return Lists(np.append(0, np.cumsum(there)), _FLAGS[flags[there].astype(np.int64)])
        return Lists(np.zeros(rows.size + 1, np.int64), np.zeros(0, np.uint64))  # a field of another kind, or none

    def _vectors(self, source: str) -> Array:
        scope, _, field = source.partition(".")
        if scope == "request":
            value = self.request.fields.get(field)
            given = value if isinstance(value, list) else []
            fits = all(isinstance(one, int | float) for one in given)
            return np.array([[_number(field, one) for one in given] if fits else []], np.float64)
        table, rows = self._table(scope)
        kept = field in table.fields and table.fields[field].kind == "vector" and table.fields[field].width > 0
        return table.vectors(field)[rows].astype(np.float64) if kept and rows.size else np.zeros((1, 0))


def maintain_words(items: Table, fields: Sequence[str]) -> None:
    """Have a table maintain the words of these fields; a large table takes time at the first call."""
    for field in fields:
        items.derive(f"{field}:words", field, words)


def _single(texts: list[str], code: Callable[..., Array] = text_codes) -> Lists:
    codes = (code(texts[0]) if code is user_code else code(texts)) if texts else np.zeros(0, np.uint64)
    return Lists(np.array([0, codes.size]), codes)


def _strings(value: Any) -> list[str]:
    """Return a value of the request as strings."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return list(dict.fromkeys(one for one in value if isinstance(one, str)))
    return []


def _number(field: str, value: Any) -> float:
    """Return a value of the request as a number, NaN if it is not one; numbers out of range are invalid."""
    if isinstance(value, bool | int | float):
        if not -LARGEST <= value <= LARGEST:
            raise InvalidInput(
                f"field {field!r} of the request is {_shown(value)}; numbers must be finite and within ±{LARGEST:g}: "
                "leave it out"
            )
        return float(value)
    time = timestamp_seconds(value) if isinstance(value, str) else None
    return float("nan") if time is None else time


def _shown(value: float) -> str:
    """Return a number for a message; a very long integer by its length."""
    return f"an integer of {value.bit_length():,} bits" if isinstance(value, int) else f"{value:g}"
