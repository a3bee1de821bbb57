"""Metarank's messages: requests to rank, and events of rankings, interactions, items and users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rankloop.core.errors import InvalidInput

Id = Annotated[str, Meta(min_length=1, max_length=256)]
Value = str | bool | float | list[Any] | None


class Field(Struct):
    """A field of an item, a user or a request."""

    name: str
    value: Value


class Item(Struct):
    """An item of a ranking, with what is only known now."""

    id: Id
    fields: list[Field] | None = None
    relevancy: float | None = None  # as older releases send it; a field of that name since
    label: float | None = None


class RankRequest(Struct):
    """Items to rank; a ranking event has the same fields."""

    id: Id
    items: Annotated[list[Item], Meta(min_length=1)]
    timestamp: str | float | None = None
    user: str | None = None
    session: str | None = None
    fields: list[Field] | None = None


class RankingEvent(RankRequest, tag_field="event", tag="ranking"):
    """What was shown, in this order."""


class InteractionEvent(Struct, tag_field="event", tag="interaction"):
    """What a user did with an item."""

    id: Id
    item: Id
    type: str
    timestamp: str | float | None = None
    ranking: str | None = None
    user: str | None = None
    session: str | None = None
    fields: list[Field] | None = None


class ItemEvent(Struct, tag_field="event", tag="item"):
    """What is known of an item from now on."""

    id: Id
    item: Id
    timestamp: str | float | None = None
    fields: list[Field] | None = None


class UserEvent(Struct, tag_field="event", tag="user"):
    """The same of a user."""

    id: Id
    user: Id
    timestamp: str | float | None = None
    fields: list[Field] | None = None


Event = RankingEvent | InteractionEvent | ItemEvent | UserEvent


class NamedValue(Struct):
    """A feature as answers explain it."""

    name: str
    value: float


class RankedItem(Struct, omit_defaults=True):
    """An item at its place."""

    item: str
    score: float
    features: list[NamedValue] | None = None


class RankAnswer(Struct):
    """The items, best first; `took` in milliseconds."""

    took: int
    items: list[RankedItem]


class FeedbackAnswer(Struct, rename="camel", omit_defaults=True):
    """What became of events. Metarank has the first four fields; what was not taken is told beside them."""

    status: str
    accepted: int
    updated: int
    took_millis: int
    problems: list[str] = []


_request = msgspec.json.Decoder(RankRequest).decode
_event = msgspec.json.Decoder(Event).decode


def rank_request(body: bytes) -> RankRequest:
    """A request to rank.

    >>> rank_request(b'{"id":"r1","timestamp":"1599391467000","user":"u","items":[{"id":"i3"}]}').items[0].id
    'i3'
    """
    return _request(body)


def event(raw: bytes) -> Event:
    """An event; what is wrong with it is an error of msgspec's."""
    found: Event = _event(raw)
    return found


def seconds(timestamp: str | float | None, now: float) -> float:
    """A time in seconds since 1970: from milliseconds, as number or text, or from a date; now if there is none.

    >>> seconds("1599391467000", 0.0), seconds(1599391467000, 0.0), seconds("2020-09-06T11:24:27Z", 0.0)
    (1599391467.0, 1599391467.0, 1599391467.0)
    """
    if timestamp is None:
        return now
    try:
        found = float(timestamp) / 1000.0
    except ValueError:
        try:
            found = datetime.fromisoformat(str(timestamp)).timestamp()
        except ValueError:
            found = math.nan
    if not abs(found) < 1e12:
        raise InvalidInput(f"timestamp is {timestamp!r}; give milliseconds since 1970, as a number or in quotes")
    return found


def values(fields: list[Field] | None) -> dict[str, Any]:
    """Fields by name; the last of a name counts."""
    return {field.name: field.value for field in fields or () if field.value is not None}


def item_values(item: Item) -> dict[str, Any]:
    """What a request says of an item."""
    found = values(item.fields)
    if item.relevancy is not None:
        found.setdefault("relevancy", item.relevancy)
    return found


def explained(features: Mapping[str, float]) -> list[NamedValue]:
    """Features as answers have them."""
    return [NamedValue(name, value) for name, value in features.items()]
