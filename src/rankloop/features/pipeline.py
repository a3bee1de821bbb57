"""The feature pipeline: from a request to the rows that a learner ranks, and to what counters need later.

Compute functions return (n, c) numbers and how many known candidates had no value. docs/features.md says what replaces
missing values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array, SparseRows
from rankloop.features.context import FeatureContext, Lists, Request, maintain_words, words
from rankloop.features.counters import CAPACITY, CLICKS, EXAMINATIONS, IMPRESSIONS, REWARDS, Counters, family
from rankloop.features.declarations import (
    MOST_DENSE,
    Age,
    Category,
    Clicked,
    Cosine,
    Count,
    Counted,
    Declaration,
    FieldValue,
    Match,
    Rate,
    Sent,
    Text,
    Time,
    declaration,
    span,
)
from rankloop.features.hashing import columns, text_codes
from rankloop.features.table import Table
from rankloop.kernels import hashing, matching
from rankloop.kernels.matching import fetch


class Needs(NamedTuple):
    """What a pipeline reads."""

    items: frozenset[str]  # fields of items
    users: frozenset[str]  # fields of users
    request: frozenset[str]  # fields of the request
    user: bool  # whether it depends on the user
    query: bool  # whether it depends on the query
    counters: bool  # whether it counts
    sent: tuple[str, ...]  # numbers that the caller sends with each candidate


class FeaturePipeline:
    """Declared features, ready to compute for all candidates of a request at once.

    `missing` and `unknown` count what was missing since the pipeline was made: known candidates without a value, per
    feature, and unknown ids.

    Examples
    --------
    >>> from rankloop.features.context import Request
    >>> shoes = Table()
    >>> shoes.upsert("a", {"price": 30, "brand": "acme", "title": "red running shoe"})
    >>> shoes.upsert("b", {"price": 45, "brand": "apex", "title": "blue shoe"})
    >>> pipeline = FeaturePipeline.from_spec([
    ...     {"name": "price", "kind": "field", "of": "item.price"},
    ...     {"name": "brand", "kind": "category", "of": "item.brand", "values": ["acme", "apex"]},
    ...     {"name": "words", "kind": "text", "of": "item.title", "measure": "share"},
    ... ])
    >>> pipeline.columns
    ('price', 'brand=acme', 'brand=apex', 'words')
    >>> pipeline.rows(pipeline.context(Request(["b", "a", "c"], query="red shoe"), shoes))
    array([[45. ,  0. ,  1. ,  0.5],
           [30. ,  1. ,  0. ,  1. ],
           [37.5,  0. ,  0. ,  0. ]])
    >>> pipeline.unknown
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
        fields = [(at, one) for at, one in places if isinstance(one, FieldValue) and one.of.startswith("item.")]
        self._fields, self._columns = [one for _, one in fields], np.array([at for at, _ in fields], np.int64)
        self._logged = [at for at, one in fields if one.log]
        self._places: Array = np.zeros(0, np.int64)  # of those fields in the table that was asked last
        self._asked: tuple[Table | None, int] = (None, 0)  # which one, and how many fields it had
        self._others = [(at, one.width, one) for at, one in places if one not in self._fields]
        self._dense = all(one.width <= MOST_DENSE for one in declarations)
        self._families = sorted({_family(one): _by(one) for one in self._counted}.items())

    @classmethod
    def from_spec(cls, features: Iterable[str | Mapping[str, Any]]) -> FeaturePipeline:
        """Make a pipeline from the features of a spec: plain names, which are sent, and declarations."""
        return cls([declaration(one) for one in features])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
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
        """Return new counters for its counting features; None if there are none."""
        return Counters(self._counted, capacity) if self._counted else None

    def prepare(self, items: Table) -> None:
        """Have a table maintain the words of text features."""
        maintain_words(items, self._texts)

    def context(
        self, request: Request, items: Table, users: Table | None = None, counters: Counters | None = None
    ) -> FeatureContext:
        """Return the context of a request."""
        if self._counted and counters is None:
            names = ", ".join(repr(one.name) for one in self._counted)
            raise InvalidParameter(f"features {names} count, and there are no counters; pass pipeline.counters()")
        self.prepare(items)
        return FeatureContext(request, items, users, counters)

    def rows(self, context: FeatureContext) -> Array:
        """Return (n, d) float64 features of each candidate; NaN only where the caller did not send a number."""
        if not self._dense:
            raise InvalidParameter(
                f"the features have {self.width:,} columns, too many for full rows (a hashed category may have "
                f"{MOST_DENSE:,}); rank with sparse rows, or hash into fewer buckets"
            )
        found = np.empty((context.n, self.width))
        if self._fields:
            missing = _item_fields(self._fields, self._columns, self._places_in(context.items), context, found)
            for j in np.flatnonzero(missing).tolist():
                self.missing[self._fields[j].name] += int(missing[j])
            for j in self._logged:
                found[:, j] = _logged(found[:, j])
        for at, width, one in self._others:
            values, gaps = _COMPUTE[type(one)](one, context)
            if gaps:
                self.missing[one.name] += gaps
            found[:, at : at + width] = values.reshape(context.n, width)
        self.unknown += context.unknown
        self.lists += 1
        return found

    def _places_in(self, items: Table) -> Array:
        """Return (m,) the columns of the table's `block` that hold the item fields; -1: no item has it yet."""
        if self._asked[0] is not items or self._asked[1] != len(items.fields):
            self._places = np.array([items.place(one.of.removeprefix("item.")) for one in self._fields], np.int64)
            self._asked = items, len(items.fields)
        return self._places

    def sparse(self, context: FeatureContext) -> SparseRows:
        """Return the same rows without their zeros, for hashed categories with very many columns."""
        owners, places, values = [], [], []
        for at, one in zip(self._starts, self.declarations, strict=True):
            if isinstance(one, Category) and one.buckets:
                lists = context.crossed(one.of).of(context.n)
                owners.append(np.repeat(np.arange(context.n), lists.lengths))
                places.append(at + _buckets(one, lists))
                values.append(np.ones(lists.codes.size))
                gaps = _absent(lists, context)
            else:
                columns, gaps = _COMPUTE[type(one)](one, context)
                columns = columns.reshape(context.n, one.width)
                rows, own = np.nonzero(columns)
                owners.append(rows)
                places.append(at + own)
                values.append(columns[rows, own])
            if gaps:
                self.missing[one.name] += gaps
        self.unknown += context.unknown
        self.lists += 1
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(owner, minlength=context.n)))
        return SparseRows(starts, np.concatenate(places)[order], np.concatenate(values)[order], self.width)

    def notes(self, context: FeatureContext, order: Array, memo: Mapping[str, Array]) -> dict[str, Array]:
        """Return what counters need of an impression once it is closed: codes by position, and its swap shares.

        `order` (k,) are the positions shown, -1 for an item that was not a candidate; `memo` is the learner's.
        """
        if not self._counted:
            return {}
        found: dict[str, Array] = {}
        for name, sources in self._families:
            lists = context.crossed(sources)
            if lists.offsets.size != context.n + 1 or not any(one.startswith("item") for one in sources):
                found[f"by/{name}"] = lists.codes
                continue
            lengths = np.where(order < 0, 0, lists.lengths[order])
            offsets = np.append(0, np.cumsum(lengths))
            places = np.arange(offsets[-1]) + np.repeat(lists.offsets[order] - offsets[:-1], lengths)
            found[f"by/{name}"], found[f"at/{name}"] = lists.codes[places], offsets.astype(np.int32)
        if not any(name.startswith("at/") for name in found):  # the number of positions must be known
            found["at/slots"] = np.zeros(len(order) + 1, np.int32)
        user = context.lists("user").codes
        if user.size:
            found["user"] = user
        if "shares" in memo and memo.get("doubt", np.zeros(1))[0] > 0.0:  # drawn by the learner, not adopted
            found["shares"] = np.asarray(memo["shares"], np.float32)
        return found


def _by(one: Declaration) -> tuple[str, ...]:
    return one.by if isinstance(one, Counted) else (one.sources[0],)


def _family(one: Declaration) -> str:
    return family(_by(one))


# -- one function per kind -----------------------------------------------------------------------------------------

Computed = tuple[Array, int]
_AMOUNTS = {"impressions": IMPRESSIONS, "clicks": CLICKS, "rewards": REWARDS}


def _sent(one: Sent, context: FeatureContext) -> Computed:
    """The sent number; NaN where none was sent, which the ranker's defaults fill."""
    found = context.request.sent.get(one.name)
    return np.full(context.n, np.nan) if found is None else np.asarray(found, np.float64), 0


def _field(one: FieldValue, context: FeatureContext) -> Computed:
    """A number as it is."""
    found, missing = _filled(context.numbers(one.of), one.default, context)
    return _logged(found) if one.log else found, missing


def _item_fields(
    ones: Sequence[FieldValue], columns: Array, places: Array, context: FeatureContext, found: Array
) -> Array:
    """Write many item fields into their columns at once; return (m,) how many values were missing.

    Values of one item are adjacent in the table, so a hundred fields cost little more than one.
    """
    missing = np.zeros(len(ones), np.int64)
    if fetch(context.items.block, context.rows, places, columns, found):
        for m, (j, one) in enumerate(zip(columns.tolist(), ones, strict=True)):
            found[:, j], missing[m] = _filled(found[:, j], one.default, context)
    return missing


def _age(one: Age, context: FeatureContext) -> Computed:
    """Time since."""
    ages = np.maximum(context.request.time - context.numbers(one.of), 0.0) / span(one.unit)
    return _filled(_logged(ages) if one.log else ages, one.default, context)


def _time(one: Time, context: FeatureContext) -> Computed:
    """A point on a circle."""
    now = datetime.fromtimestamp(context.request.time, ZoneInfo(one.zone))
    turn = (now.hour + now.minute / 60.0) / 24.0 if one.of == "hour" else now.weekday() / 7.0
    return np.tile([np.sin(2.0 * np.pi * turn), np.cos(2.0 * np.pi * turn)], (context.n, 1)), 0


def _category(one: Category, context: FeatureContext) -> Computed:
    """Columns of 0 and 1; all 0 where the value is missing or not listed."""
    lists = context.crossed(one.of).of(context.n)
    found = np.zeros((context.n, one.width))
    if one.values:
        matching.one_hot(lists.offsets, lists.codes, text_codes(one.values), found)
    else:
        matching.scatter(lists.offsets, _buckets(one, lists), found)
    return found, _absent(lists, context)


def _buckets(one: Category, lists: Lists) -> Array:
    """Return (m,) the hashed column of each code, which depends on the category's name too."""
    named = hashing.joined(np.full(lists.codes.size, text_codes([one.name])[0]), lists.codes)
    return columns(named, one.buckets)[0]


def _match(one: Match, context: FeatureContext) -> Computed:
    """The overlap; 0 where either is empty."""
    lists, wanted = context.lists(one.of), context.lists("query words" if one.to == "query" else one.to)
    found = matching.overlap(lists.offsets, lists.codes, wanted.codes, one.measure == "jaccard")
    return found, context.n - context.unknown if wanted.codes.size == 0 else _absent(lists, context)


def _text(one: Text, context: FeatureContext) -> Computed:
    """Match of the query's words with the item's text; 0 where either has none."""
    name = one.of.removeprefix("item.")
    items = context.items
    if name not in items.fields:
        return np.zeros(context.n), context.n - context.unknown
    column = items.lists(f"{name}:words")
    asked = list(dict.fromkeys(words(context.text(one.to))))
    codes = column.vocabulary.codes(asked)
    had = column.vocabulary.uses(codes)
    idf = np.log1p((max(len(items), 1) - had + 0.5) / (had + 0.5))
    lengths = column.lengths[context.rows]
    there = column.starts[context.rows] >= 0
    usual = max(1.0, float(lengths.sum()) / max(1, int(np.count_nonzero(there))))  # the mean of this list
    parts = (column.starts, column.lengths, column.pool, codes, idf, usual, one.measure == "bm25")
    missing = context.n - context.unknown if not asked else int(np.count_nonzero(context.known & ~there))
    return matching.word_match(context.rows, *parts), missing


def _cosine(one: Cosine, context: FeatureContext) -> Computed:
    """Cosine similarity; 0 where a vector is missing, zero or of another width."""
    left, right = context.vectors(one.of), context.vectors(one.to)
    if left.shape[1] != right.shape[1] or left.shape[1] == 0 or len(left) != context.n:
        return np.zeros(context.n), context.n - context.unknown
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (left * right).sum(axis=1) / np.sqrt((left * left).sum(axis=1) * (right * right).sum(axis=1))
    there = np.isfinite(found)
    return np.where(there, found, 0.0), int(np.count_nonzero(context.known & ~there))


def _count(one: Count, context: FeatureContext) -> Computed:
    """Counts; the mean over several values such as tags."""
    sums, lists = _summed(one, context)
    found = _per_candidate(sums[:, _AMOUNTS[one.of]], lists)
    return _logged(found) if one.log else found, _absent(lists, context)


def _rate(one: Rate, context: FeatureContext) -> Computed:
    """Clicks per examination, shrunk to the overall rate; the mean over several values."""
    sums, lists = _summed(one, context)
    whole, what = _counters(context).total(one.window, context.request.time), _AMOUNTS[one.of]
    mean = whole[what] / whole[EXAMINATIONS] if whole[EXAMINATIONS] > 0.0 else 0.0
    rates = (sums[:, what] + one.prior * mean) / (sums[:, EXAMINATIONS] + one.prior)
    found = _per_candidate(rates, lists)
    return np.where(lists.lengths > 0, found, mean), _absent(lists, context)


def _clicked(one: Clicked, context: FeatureContext) -> Computed:
    """The share of this user's last clicks."""
    lists = context.lists(one.of).of(context.n)
    user = context.lists("user").codes
    owner = int(user[0]) if user.size else 0
    found, known = _counters(context).last_clicks(one, owner, lists.offsets, lists.codes, context.request.time)
    return found, _absent(lists, context) if known else context.n - context.unknown


_COMPUTE: dict[type[Declaration], Callable[[Any, FeatureContext], Computed]] = {
    Sent: _sent,
    FieldValue: _field,
    Category: _category,
    Match: _match,
    Text: _text,
    Age: _age,
    Time: _time,
    Cosine: _cosine,
    Count: _count,
    Rate: _rate,
    Clicked: _clicked,
}


def _counters(context: FeatureContext) -> Counters:
    assert context.counters is not None, "features that count need counters"
    return context.counters


def _summed(one: Counted, context: FeatureContext) -> tuple[Array, Lists]:
    """Return (m, 4) sums of the codes of each candidate's lists."""
    lists = context.crossed(one.by)
    sums = _counters(context).sums(one.window, family(one.by), lists.codes, context.request.time)
    if lists.offsets.size == context.n + 1:
        return sums, lists
    return np.tile(sums, (context.n, 1)), lists.of(context.n)


def _per_candidate(values: Array, lists: Lists) -> Array:
    """Return (n,) the mean over each list; 0 for an empty one."""
    lengths = lists.lengths
    if lengths.size == values.size and (lengths == 1).all():
        return values
    owners = np.repeat(np.arange(lengths.size), lengths)
    return np.bincount(owners, values, lengths.size) / np.maximum(lengths, 1)


def _absent(lists: Lists, context: FeatureContext) -> int:
    """Return how many known candidates have no value."""
    return int(np.count_nonzero(context.known & (lists.of(context.n).lengths == 0)))


def _filled(values: Array, default: float | str, context: FeatureContext) -> Computed:
    gaps = np.isnan(values)
    if not gaps.any():
        return values, 0
    if default == "mean":
        default = float(values[~gaps].mean()) if not gaps.all() else 0.0
    return np.where(gaps, default, values), int(np.count_nonzero(gaps & context.known))


def _logged(values: Array) -> Array:
    """Return log(1 + x), and its mirror image for negative numbers."""
    found: Array = np.sign(values) * np.log1p(np.abs(values))
    return found
