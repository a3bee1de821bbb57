"""Features as they are declared: what each is made of, as frozen values made from plain dictionaries.

A declaration says its `name`, its `kind` and what that kind takes; nothing in here computes anything
(`rankloop.features.feature_pipeline` does). What it is made of is written `item.FIELD`, `user.FIELD` or
`request.FIELD`; the
text that was searched for is `query`. What stands where a value is missing is part of the declaration: see
docs/features.md for all of it in one table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.features._declaration import SCOPES, Declaration

MOST_VALUES = 1000  # of a category that are given
MOST_DENSE = 4096  # columns of one hashed category in full rows; sparse rows take more
MOST_BUCKETS = 2**31 - 1
MOST_LAST = 100  # clicks of a user that are remembered
_OF = "written item.FIELD, user.FIELD or request.FIELD"


@dataclass(frozen=True)
class Sent(Declaration):
    """A number that the caller sends with each candidate: what a plain name in a spec means."""

    kind: ClassVar[str] = "sent"


@dataclass(frozen=True)
class Field(Declaration):
    """A number, a boolean (1 or 0) or a timestamp (seconds) as it is; of users and requests, alike for all items."""

    of: str
    default: float | Literal["mean"] = "mean"
    log: bool = False  # log(1 + x) of a number that is not below 0; below, -log(1 - x)
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
            raise self.refuse("of", f"must be one source, {_OF}, or a list of up to four to be crossed")
        whole = isinstance(self.buckets, int) and not isinstance(self.buckets, bool)
        if bool(self.values) == bool(self.buckets) or not whole or not 0 <= self.buckets <= MOST_BUCKETS:
            raise self.refuse("buckets", f"must be from 1 to {MOST_BUCKETS:,} where no values are given, else left out")
        if len(self.of) > 1 and self.values:
            raise self.refuse("values", "cannot be given for crossed sources: give buckets")
        strings = all(isinstance(value, str) for value in self.values)
        if not strings or len(set(self.values)) != len(self.values) or len(self.values) > MOST_VALUES:
            raise self.refuse("values", f"must be different strings, at most {MOST_VALUES}: hash more into buckets")

    @property
    def columns(self) -> tuple[str, ...]:
        if self.values:
            return tuple(f"{self.name}={value}" for value in self.values)
        return tuple(map(self.column, range(self.buckets)))

    @property
    def width(self) -> int:
        """How many columns it has, without naming a hundred thousand of them."""
        return len(self.values) or self.buckets

    def column(self, j: int) -> str:
        """Likewise."""
        return f"{self.name}={self.values[j]}" if self.values else f"{self.name}#{j}"

    @property
    def sources(self) -> tuple[str, ...]:
        return self.of


@dataclass(frozen=True)
class Match(Declaration):
    """How much two strings or lists of strings have in common: 1 or 0 of two strings.

    `overlap` is the share of what `to` asks for that the item has, `jaccard` what both have over what either has.
    """

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
    """How well an item's text answers the query: `share` of its words that the text has, or `bm25`."""

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
    """How long ago a timestamp is, in units of `unit`; what lies ahead is 0 old."""

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
    """When the list is made, as a point on a circle: two columns, sine and cosine, so that 23:59 is near 0:00.

    It is the same for all items of a list. A linear ranker learns nothing from that; networks do.
    """

    of: Literal["hour", "weekday"] = "hour"
    zone: str = "UTC"
    kind: ClassVar[str] = "time"

    def check(self) -> None:
        self.require_choice("of", ("hour", "weekday"))
        try:
            ZoneInfo(self.zone)
        except Exception:
            raise self.refuse("zone", "must be a time zone such as Europe/Berlin, or UTC") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return (f"{self.name}.sin", f"{self.name}.cos")


@dataclass(frozen=True)
class Cosine(Declaration):
    """The cosine of the angle between two vectors."""

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
    """What counts and rates have in common: what is counted, of whom, and how long it counts."""

    of: str = "clicks"
    by: tuple[str, ...] = ("item",)
    window: str = "all"

    def check(self) -> None:
        object.__setattr__(self, "by", (self.by,) if isinstance(self.by, str) else _tuple(self.by))
        if not 1 <= len(self.by) <= 3 or not all(_is_source(one, ("item", "user", "query")) for one in self.by):
            raise self.refuse("by", f"must be item, user, query or a source {_OF}, or a list of up to three of them")
        self.require_span("window")

    @property
    def sources(self) -> tuple[str, ...]:
        return self.by


@dataclass(frozen=True)
class Count(Counted):
    """How many impressions, clicks or rewards there were."""

    log: bool = True
    kind: ClassVar[str] = "count"

    def check(self) -> None:
        super().check()
        self.require_choice("of", ("clicks", "impressions", "rewards"))
        self.require_flag("log")


@dataclass(frozen=True)
class Rate(Counted):
    """Clicks (or rewards) for each time that the item was looked at: position bias is taken out.

    (clicks + prior · mean) / (looks + prior), the mean being the rate of everything in the window: what was never shown
    has the mean rate, and `prior` says after how many looks its own counts half.
    """

    prior: float = 10.0
    kind: ClassVar[str] = "rate"

    def check(self) -> None:
        super().check()
        self.require_choice("of", ("clicks", "rewards"))
        number = isinstance(self.prior, int | float) and not isinstance(self.prior, bool)
        if not number or not 0 < self.prior <= 1e9:
            raise self.refuse("prior", "must be a number above 0: of that many looks at the mean rate")


@dataclass(frozen=True)
class Clicked(Declaration):
    """The share of this user's last clicks that went to items with the same value of a field."""

    of: str
    last: int = 20
    window: str = "30d"
    kind: ClassVar[str] = "clicked"

    def check(self) -> None:
        if self.of != "item":
            self.require_source("of", ("item",))
        self.require_span("window")
        if not isinstance(self.last, int) or isinstance(self.last, bool) or not 1 <= self.last <= MOST_LAST:
            raise self.refuse("last", f"must be a whole number of clicks from 1 to {MOST_LAST}")

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of, "user")


KINDS: dict[str, type[Declaration]] = {
    one.kind: one for one in (Field, Category, Match, Text, Age, Time, Cosine, Count, Rate, Clicked)
}


def declaration(given: str | Mapping[str, Any]) -> Declaration:
    """One declaration from what a spec has: a plain name, or a dictionary with name and kind.

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


def plain(given: Declaration) -> str | dict[str, Any]:
    """The declaration as a spec would have it, with all its defaults: what `declaration` makes it from.

    >>> plain(declaration({"name": "fresh", "kind": "age", "of": "item.published"}))
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
