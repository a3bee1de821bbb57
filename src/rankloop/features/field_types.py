"""Types of the fields of items and users: one of six kinds, declared or inferred from the first value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from rankloop.core.errors import InvalidInput
from rankloop.core.specs import timestamp_seconds
from rankloop.core.types import LARGEST

Kind = Literal["number", "boolean", "string", "strings", "vector", "timestamp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_FIELDS = 1000  # of a table: each takes 8 bytes per row, with or without a value
LONGEST_NAME = 128
WIDEST = 4096  # numbers of a vector
_WHAT = {
    "number": "numbers",
    "boolean": "true or false",
    "string": "strings",
    "strings": "lists of strings",
    "vector": "lists of finite numbers",
    "timestamp": "times as RFC 3339 (2026-03-01T12:00:00Z)",
}


class FieldType(NamedTuple):
    """The kind of values of a field."""

    kind: Kind
    width: int = 0  # of vectors; 0: not known before the first value


def infer_type(value: Any) -> FieldType | None:
    """Infer the type of a field from its first value; None for null and for an empty list.

    >>> infer_type(["red", "blue"]), infer_type([0.5, 1]), infer_type([])
    (FieldType(kind='strings', width=0), FieldType(kind='vector', width=2), None)
    """
    if isinstance(value, bool):
        return FieldType("boolean")
    if isinstance(value, int | float):
        return FieldType("number")
    if isinstance(value, str):
        return FieldType("string" if timestamp_seconds(value) is None else "timestamp")
    if isinstance(value, list) and value:
        return FieldType("strings") if isinstance(value[0], str) else FieldType("vector", len(value))
    return None


def clean(name: str, field: FieldType, value: Any) -> Any:
    """Return a value as columns store it: a float, a string or a list without duplicates.

    >>> clean("colors", FieldType("strings"), ["red", "red", "blue"])
    ['red', 'blue']
    >>> clean("price", FieldType("number"), "12 EUR")
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
        if good is str and (time := timestamp_seconds(value)) is not None:
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


def check(values: Mapping[str, Any], fields: Mapping[str, FieldType]) -> tuple[dict[str, Any], dict[str, FieldType]]:
    """Return the cleaned values of one item without nulls, and the types of new fields.

    An empty list in a new field is left out: it may become either kind of list.

    >>> check({"price": 3, "brand": "acme", "size": None}, {"price": FieldType("number")})
    ({'price': 3.0, 'brand': 'acme'}, {'brand': FieldType(kind='string', width=0)})
    """
    found: dict[str, Any] = {}
    new: dict[str, FieldType] = {}
    for name, value in values.items():
        if value is None:
            continue
        field = fields.get(name)
        if field is None or (field.kind == "vector" and not field.width):
            inferred = infer_type(value)
            if field is None and inferred is None:
                if value == []:
                    continue
                raise InvalidInput(
                    f"field {name!r} is {value!r}; fields are numbers, true or false, strings, lists of strings or of "
                    "numbers, and times: flatten objects into fields of their own"
                )
            if field is None and not 0 < len(name) <= LONGEST_NAME:
                raise InvalidInput(f"a field is called {name[:140]!r}; names have 1 to {LONGEST_NAME} characters")
            field = inferred if field is None else FieldType("vector", len(value) if isinstance(value, list) else 0)
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
