"""The fields of items and users: six kinds of values, each field of one kind, told by its first value or declared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from rankloop.core.errors import InvalidInput
from rankloop.core.types import LARGEST

Kind = Literal["number", "boolean", "string", "strings", "vector", "timestamp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_FIELDS = 1000  # of a table: each costs 8 bytes for each of its rows, whether they have a value or not
LONGEST_NAME = 128
WIDEST = 4096  # numbers of a vector
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_WHAT = {
    "number": "numbers",
    "boolean": "true or false",
    "string": "strings",
    "strings": "lists of strings",
    "vector": "lists of finite numbers",
    "timestamp": "times as RFC 3339 (2026-03-01T12:00:00Z)",
}


class Field(NamedTuple):
    """What a field holds."""

    kind: Kind
    width: int = 0  # of vectors: how many numbers; 0: not known before the first


def seconds(text: str) -> float | None:
    """Unix time of a date and time with its zone (RFC 3339); None of anything else.

    >>> seconds("1970-01-01T01:00:00+01:00"), seconds("yesterday")
    (0.0, None)
    """
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except ValueError:  # the 31st of February
        return None


def field_of(value: Any) -> Field | None:
    """The field that a first value makes; None of null and of an empty list, which say nothing about it.

    >>> field_of(["red", "blue"]), field_of([0.5, 1]), field_of([])
    (Field(kind='strings', width=0), Field(kind='vector', width=2), None)
    """
    if isinstance(value, bool):
        return Field("boolean")
    if isinstance(value, int | float):
        return Field("number")
    if isinstance(value, str):
        return Field("string" if seconds(value) is None else "timestamp")
    if isinstance(value, list) and value:
        return Field("strings") if isinstance(value[0], str) else Field("vector", len(value))
    return None


def clean(name: str, field: Field, value: Any) -> Any:
    """A value as columns hold it: a float of numbers, booleans and times, a string, a list without doubles.

    >>> clean("colours", Field("strings"), ["red", "red", "blue"])
    ['red', 'blue']
    >>> clean("price", Field("number"), "12 EUR")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: field 'price' holds numbers, but here it is '12 EUR'; send a value of that \
kind, \
null, or another field's name
    """
    kind, good = field.kind, type(value)
    if kind == "number":
        if (good is float or good is int) and -LARGEST <= value <= LARGEST:  # never true of NaN
            return float(value)
    elif kind == "boolean":
        if good is bool:
            return float(value)
    elif kind == "string":
        if good is str:
            return value
    elif kind == "timestamp":
        if good is str and (time := seconds(value)) is not None:
            return time
        if (good is float or good is int) and abs(value) <= 1e12:
            return float(value)
    elif kind == "strings":
        if good is list and all(type(one) is str for one in value):
            return list(dict.fromkeys(value))
    elif good is list and all(type(one) in (int, float) and -LARGEST <= one <= LARGEST for one in value):
        if not 0 < len(value) <= WIDEST or (field.width and len(value) != field.width):
            rule = f"{field.width} numbers" if field.width else f"1 to {WIDEST} numbers"
            raise InvalidInput(f"field {name!r} holds vectors of {rule}, but here are {len(value)}; send {rule}")
        return value
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    if kind == "number" and good in (int, float):
        raise InvalidInput(f"field {name!r} is {shown}; numbers must be finite and within ±{LARGEST:g}: send null")
    raise InvalidInput(
        f"field {name!r} holds {_WHAT[kind]}, but here it is {shown}; "
        "send a value of that kind, null, or another field's name"
    )


def check(values: Mapping[str, Any], fields: Mapping[str, Field]) -> tuple[dict[str, Any], dict[str, Field]]:
    """The values of one item, clean and without those that are null, and the fields that are new with it.

    An empty list in a field that nobody has seen yet is left out as if it were null: it may become either kind.

    >>> check({"price": 3, "brand": "acme", "size": None}, {"price": Field("number")})
    ({'price': 3.0, 'brand': 'acme'}, {'brand': Field(kind='string', width=0)})
    """
    found: dict[str, Any] = {}
    new: dict[str, Field] = {}
    for name, value in values.items():
        if value is None:
            continue
        field = fields.get(name)
        if field is None or (field.kind == "vector" and not field.width):
            told = field_of(value)
            if field is None and told is None:
                if value == []:
                    continue
                raise InvalidInput(
                    f"field {name!r} is {value!r}; fields are numbers, true or false, strings, lists of strings or of "
                    "numbers, and times: flatten objects into fields of their own"
                )
            if field is None and not 0 < len(name) <= LONGEST_NAME:
                raise InvalidInput(f"a field is called {name[:140]!r}; names have 1 to {LONGEST_NAME} characters")
            field = told if field is None else Field("vector", len(value) if isinstance(value, list) else 0)
            assert field is not None
            found[name] = clean(name, field, value)
            new[name] = field
        else:
            found[name] = clean(name, field, value)
    if new and len(fields) + len(new.keys() - fields.keys()) > MOST_FIELDS:
        raise InvalidInput(
            f"field {next(iter(new))!r} would be one of more than {MOST_FIELDS}; put values that few items have into "
            "one field, a list of strings"
        )
    return found, new
