"""From what the JSON reader says of a body to what helps: the choices there are, the feature that is no number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect

_PLACE = re.compile(r" - at `\$(.*)`$")
_FEATURE = re.compile(r"\.candidates\[(\d+)\]\.features\[(\d+|\.\.\.)\]$")
_IN_ROW = re.compile(r"\.features\[(\d+)\]\[(\d+)\]$")
_IN_COLUMN = re.compile(r"\.features\[\.\.\.\](?:\[(\d+)\])?$")


class _Sent(msgspec.Struct):
    """As much of a candidate as is needed to name what is wrong with it; nothing of it is looked at before."""

    id: msgspec.Raw = msgspec.Raw(b"null")
    features: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    candidates: list[_Sent] = []
    ids: list[msgspec.Raw] = []
    features: msgspec.Raw = msgspec.Raw(b"null")


def helped(text: str, body: bytes, kind: Any = None, names: Sequence[str] = ()) -> str:
    """The reader's message with what it leaves out; `kind` is what the body should have been, `names` the features'.

    >>> helped("Expected `float`, got `bool` - at `$.candidates[0].features[1]`",
    ...        b'{"candidates": [{"id": "a", "features": [1, true]}]}', names=["bm25", "price"])
    "Expected `float`, got `bool` - at `$.candidates[0].features[1]`: feature 'price' of candidate 'a'"
    """
    found = _PLACE.search(text)
    if found is None:
        return text
    at = found[1]
    try:
        if (place := _FEATURE.match(at)) is not None:
            return text + _feature(_sent(body).candidates[int(place[1])], place[2], names)
        if (place := _IN_ROW.match(at)) is not None:
            return text + _told(names[int(place[2])], _sent(body).ids[int(place[1])])
        if (place := _IN_COLUMN.match(at)) is not None:
            return text + _column(_sent(body), place[1])
    except (msgspec.MsgspecError, StopIteration, IndexError):  # what else is wrong with it is told by the reader
        return text
    choices = [] if kind is None else _choices(inspect.type_info(kind), at.strip(".").split("."))
    return f"{text}; it is one of {', '.join(map(repr, choices))}" if choices else text


_sent = msgspec.json.Decoder(_Body).decode


def _feature(candidate: _Sent, slot: str, names: Sequence[str]) -> str:
    if slot != "...":
        return _told(names[int(slot)], candidate.id)
    features = msgspec.json.decode(candidate.features, type=dict[str, msgspec.Raw])
    return _told(next(name for name, value in features.items() if not _is(value, float | None)), candidate.id)


def _column(body: _Body, slot: str | None) -> str:
    """Of columns by name the reader does not say which; it is the first that is none."""
    columns = msgspec.json.decode(body.features, type=dict[str, msgspec.Raw])
    name = next(name for name, column in columns.items() if not _is(column, list[float | None]))
    return f": feature {name!r}" if slot is None else _told(name, body.ids[int(slot)])


def _told(name: str, item: msgspec.Raw) -> str:
    return f": feature {name!r} of candidate {msgspec.json.decode(item)!r}"


def _is(value: msgspec.Raw, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError:
        return False
    return True


def _choices(kind: Any, path: list[str]) -> list[Any]:
    """What may stand at a place, if only some words may."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return [value for one in kind.types for value in _choices(one, path)]
    if isinstance(kind, inspect.StructType):
        fields = {field.encode_name: field.type for field in kind.fields}
        return _choices(fields[path[0]], path[1:]) if path and path[0] in fields else []
    return list(kind.values) if isinstance(kind, inspect.LiteralType) and not path else []
