"""Declared features: frozen values made from plain dictionaries, one class per kind.

Sources are written `item.FIELD`, `user.FIELD`, `request.FIELD` or `query`. docs/features.md lists all kinds.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal, get_args, overload
from zoneinfo import ZoneInfo

from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.core.specs import duration_seconds

Scope = Literal["item", "user", "request"]
SCOPES: tuple[str, ...] = get_args(Scope)
MOST_VALUES = 1000  # of a category that are given
MOST_DENSE = 4096  # columns of one hashed category in full rows; sparse rows take more
MOST_BUCKETS = 2**31 - 1
MOST_LAST = 100  # clicks of a user that are remembered
_OF = "written item.FIELD, user.FIELD or request.FIELD"


def span(text: str) -> float:
    """Return the seconds of a span of time in minutes, hours, days or weeks; `all` is infinite.

    >>> span("90m"), span("7d"), span("all")
    (5400.0, 604800.0, inf)
    """
    found = _span(text)
    if found is None:
        raise InvalidParameter(f"{text!r} is not a span of time; write 90m, 12h, 7d, 4w, or all")
    return found


def _span(text: Any) -> float | None:
    if text == "all":
        return float("inf")
    short = isinstance(text, str) and re.fullmatch(r"\d{1,6}[mhdw]", text) is not None
    return (duration_seconds(text) or None) if short else None


@dataclass(frozen=True)
class Declaration:
    """A feature by name. Subclasses are the kinds; their fields are what a spec may set."""

    name: str
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= 128:
            raise InvalidParameter(f"a feature is called {self.name!r:.140}; names have 1 to 128 characters")
        self.check()

    def check(self) -> None:
        """Raise an error if a field is invalid."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return (self.name,)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def column(self, j: int) -> str:
        """Return the name of one column."""
        return self.columns[j]

    @property
    def sources(self) -> tuple[str, ...]:
        """The fields of items, users and requests that it reads."""
        return ()

    def invalid(self, field: str, rule: str) -> InvalidParameter:
        """Return the error for a field of this declaration."""
        value = getattr(self, field)
        return InvalidParameter(f"feature {self.name!r}: {field} is {value!r}; it {rule}")

    def require_source(self, field: str, scopes: Sequence[str] = SCOPES) -> None:
        """Raise an error unless a field names a source of one of these scopes."""
        value = getattr(self, field)
        scope, dot, rest = value.partition(".") if isinstance(value, str) else ("", "", "")
        if value == "query" and "query" in scopes:
            return
        if scope not in scopes or not dot or not rest:
            allowed = " or ".join("query" if scope == "query" else f"{scope}.FIELD" for scope in scopes)
            raise self.invalid(field, f"must be {allowed}")

    def require_default(self, value: float | str) -> None:
        """Raise an error unless a default is a number or `mean`."""
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100
        if value != "mean" and not number:
            raise self.invalid("default", "must be a finite number, or mean: that of the list's other items")

    def require_choice(self, field: str, choices: Sequence[str]) -> None:
        """Raise an error unless a field is one of the choices."""
        if getattr(self, field) not in choices:
            raise self.invalid(field, f"must be one of {', '.join(choices)}")

    def require_flag(self, field: str) -> None:
        """Raise an error unless a field is true or false."""
        if not isinstance(getattr(self, field), bool):
            raise self.invalid(field, "must be true or false")

    def require_span(self, field: str, endless: bool = True) -> None:
        """Raise an error unless a field is a span of time."""
        found = _span(getattr(self, field))
        if found is None or (found == float("inf") and not endless):
            raise self.invalid(field, "must be a span of time: 90m, 12h, 7d, 4w" + endless * ", or all")


@dataclass(frozen=True)
class Sent(Declaration):
    """A number that the caller sends with each candidate; in a spec, a plain name."""

    kind: ClassVar[str] = "sent"


@dataclass(frozen=True)
class FieldValue(Declaration):
    """A number, a boolean (1 or 0) or a timestamp (seconds) as it is."""

    of: str
    default: float | Literal["mean"] = "mean"
    log: bool = False  # log(1 + x), and -log(1 - x) for negative numbers
    kind: ClassVar[str] = "field"

    def check(self) -> None:
        self.require_source("of")
        self.require_default(self.default)
        self.require_flag("log")

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Category(Declaration):
    """A string or a list of strings as columns of 0 and 1: one for each of `values`, or hashed into `buckets`.

    Several sources are crossed: a column for each combination of their values, hashed.
    """

    of: tuple[str, ...]
    values: tuple[str, ...] = ()
    buckets: int = 0
    kind: ClassVar[str] = "category"

    def check(self) -> None:
        object.__setattr__(self, "of", (self.of,) if isinstance(self.of, str) else _tuple(self.of))
        object.__setattr__(self, "values", _tuple(self.values))
        if not 1 <= len(self.of) <= 4 or not all(_is_source(one, ("query",)) for one in self.of):
            raise self.invalid("of", f"must be one source, {_OF}, or a list of up to four to be crossed")
        whole = isinstance(self.buckets, int) and not isinstance(self.buckets, bool)
        if bool(self.values) == bool(self.buckets) or not whole or not 0 <= self.buckets <= MOST_BUCKETS:
            raise self.invalid("buckets", f"must be from 1 to {MOST_BUCKETS:,} without values, else left out")
        if len(self.of) > 1 and self.values:
            raise self.invalid("values", "cannot be given for crossed sources: give buckets")
        strings = all(isinstance(value, str) for value in self.values)
        if not strings or len(set(self.values)) != len(self.values) or len(self.values) > MOST_VALUES:
            raise self.invalid("values", f"must be different strings, at most {MOST_VALUES}: hash more into buckets")

    @property
    def columns(self) -> tuple[str, ...]:
        if self.values:
            return tuple(f"{self.name}={value}" for value in self.values)
        return tuple(map(self.column, range(self.buckets)))

    @property
    def width(self) -> int:
        """Number of columns, computed without naming them."""
        return len(self.values) or self.buckets

    def column(self, j: int) -> str:
        """Return the name of one column."""
        return f"{self.name}={self.values[j]}" if self.values else f"{self.name}#{j}"

    @property
    def sources(self) -> tuple[str, ...]:
        return self.of


@dataclass(frozen=True)
class Match(Declaration):
    """The overlap of two strings or lists of strings: the share of `to` that the item has, or the Jaccard index."""

    of: str
    to: str
    measure: Literal["overlap", "jaccard"] = "overlap"
    kind: ClassVar[str] = "match"

    def check(self) -> None:
        self.require_source("of", ("item",))
        self.require_source("to", ("request", "user", "query"))
        self.require_choice("measure", ("overlap", "jaccard"))

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of, self.to)


@dataclass(frozen=True)
class Text(Declaration):
    """How well an item's text matches the query: BM25, or the share of its words that the text has."""

    of: str
    to: str = "query"
    measure: Literal["bm25", "share"] = "bm25"
    kind: ClassVar[str] = "text"

    def check(self) -> None:
        self.require_source("of", ("item",))
        self.require_source("to", ("query", "request", "user"))
        self.require_choice("measure", ("bm25", "share"))

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of, self.to)


@dataclass(frozen=True)
class Age(Declaration):
    """Time since a timestamp, in units of `unit`; 0 for the future."""

    of: str
    unit: str = "1d"
    log: bool = True
    default: float | Literal["mean"] = "mean"
    kind: ClassVar[str] = "age"

    def check(self) -> None:
        self.require_source("of")
        self.require_span("unit", endless=False)
        self.require_flag("log")
        self.require_default(self.default)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Time(Declaration):
    """The time of the request as sine and cosine. It is the same for all items, so only networks can use it."""

    of: Literal["hour", "weekday"] = "hour"
    zone: str = "UTC"
    kind: ClassVar[str] = "time"

    def check(self) -> None:
        self.require_choice("of", ("hour", "weekday"))
        try:
            ZoneInfo(self.zone)
        except Exception:
            raise self.invalid("zone", "must be a time zone such as Europe/Berlin, or UTC") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return (f"{self.name}.sin", f"{self.name}.cos")


@dataclass(frozen=True)
class Cosine(Declaration):
    """The cosine similarity of two vectors."""

    of: str
    to: str
    kind: ClassVar[str] = "cosine"

    def check(self) -> None:
        self.require_source("of", ("item",))
        self.require_source("to", ("request", "user"))

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of, self.to)


@dataclass(frozen=True)
class Counted(Declaration):
    """The common fields of counts and rates: what is counted, by which keys, over which window."""

    of: str = "clicks"
    by: tuple[str, ...] = ("item",)
    window: str = "all"

    def check(self) -> None:
        object.__setattr__(self, "by", (self.by,) if isinstance(self.by, str) else _tuple(self.by))
        if not 1 <= len(self.by) <= 3 or not all(_is_source(one, ("item", "user", "query")) for one in self.by):
            raise self.invalid("by", f"must be item, user, query or a source {_OF}, or a list of up to three of them")
        self.require_span("window")

    @property
    def sources(self) -> tuple[str, ...]:
        return self.by


@dataclass(frozen=True)
class Count(Counted):
    """The number of impressions, clicks or rewards."""

    log: bool = True
    kind: ClassVar[str] = "count"

    def check(self) -> None:
        super().check()
        self.require_choice("of", ("clicks", "impressions", "rewards"))
        self.require_flag("log")


@dataclass(frozen=True)
class Rate(Counted):
    """Clicks (or rewards) per examination, which removes position bias.

    (clicks + prior · mean) / (examinations + prior), where mean is the rate of everything in the window.
    """

    prior: float = 10.0
    kind: ClassVar[str] = "rate"

    def check(self) -> None:
        super().check()
        self.require_choice("of", ("clicks", "rewards"))
        number = isinstance(self.prior, int | float) and not isinstance(self.prior, bool)
        if not number or not 0 < self.prior <= 1e9:
            raise self.invalid("prior", "must be a number above 0: of that many looks at the mean rate")


@dataclass(frozen=True)
class Clicked(Declaration):
    """The share of this user's last clicks that were on items with the same value of a field."""

    of: str
    last: int = 20
    window: str = "30d"
    kind: ClassVar[str] = "clicked"

    def check(self) -> None:
        if self.of != "item":
            self.require_source("of", ("item",))
        self.require_span("window")
        if not isinstance(self.last, int) or isinstance(self.last, bool) or not 1 <= self.last <= MOST_LAST:
            raise self.invalid("last", f"must be a whole number of clicks from 1 to {MOST_LAST}")

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of, "user")


KINDS: dict[str, type[Declaration]] = {
    one.kind: one for one in (FieldValue, Category, Match, Text, Age, Time, Cosine, Count, Rate, Clicked)
}


def declaration(given: str | Mapping[str, Any]) -> Declaration:
    """Make a declaration from a spec: a plain name, or a dictionary with name and kind.

    >>> declaration({"name": "ctr", "kind": "rate", "by": "item", "window": "7d"})
    Rate(name='ctr', of='clicks', by=('item',), window='7d', prior=10.0)
    >>> declaration({"name": "ctr", "kind": "rate", "widow": "7d"})
    Traceback (most recent call last):
    ...
    rankloop.core.errors.UnknownName: no field of feature 'ctr' (rate) is called 'widow'; did you mean 'window'? \
there are \
name, of, by, window, prior
    """
    if isinstance(given, str):
        return Sent(given)
    if not isinstance(given, Mapping) or "kind" not in given or "name" not in given:
        raise InvalidParameter(
            f"a feature is {given!r:.140}; write a name, or a declaration with name and kind: "
            '{"name": "fresh", "kind": "age", "of": "item.published"}'
        )
    name, kind = given["name"], given["kind"]
    if kind not in KINDS:
        raise UnknownName.among(f"kind of feature (of {name!r})", str(kind), KINDS)
    made = KINDS[kind]
    fields = {one.name: one for one in dataclasses.fields(made)}
    values = {key: value for key, value in given.items() if key != "kind"}
    for key in values:
        if key not in fields:
            raise UnknownName.among(f"field of feature {name!r} ({kind})", str(key), fields)
    for key, one in fields.items():
        if one.default is dataclasses.MISSING and key not in values:
            raise InvalidParameter(f"feature {name!r} ({kind}) has no {key!r}; it takes {', '.join(fields)}")
    return made(**values)


def to_spec(given: Declaration) -> str | dict[str, Any]:
    """Return the declaration as a spec has it, with all defaults; the inverse of `declaration`.

    >>> to_spec(declaration({"name": "fresh", "kind": "age", "of": "item.published"}))
    {'name': 'fresh', 'kind': 'age', 'of': 'item.published', 'unit': '1d', 'log': True, 'default': 'mean'}
    """
    if isinstance(given, Sent):
        return given.name
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(given).items()}
    found = {"name": given.name, "kind": given.kind, **values}
    if isinstance(given, Category):  # one of them, as it was given
        del found["buckets" if given.values else "values"]
    return found


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _is_source(value: Any, bare: Sequence[str] = ()) -> bool:
    scope, dot, field = value.partition(".") if isinstance(value, str) else ("", "", "")
    return value in bare if not dot else scope in SCOPES and bool(field)


class ColumnNames(Sequence[str]):
    """The names of all columns, made on demand: a hashed category may have a hundred thousand.

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
