"""Events of User Behavior Insights (UBI) 1.3."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

VIEWS = ("impression", "view")  # actions that report viewed items


class Object(Struct):
    """The object of an action."""

    object_id: str | int | None = None


class Position(Struct):
    """Its position."""

    ordinal: int | None = None


class Attributes(Struct):
    """Details of an action."""

    object: Object | None = None
    position: Position | None = None


class Event(Struct):
    """An action of a user; fields that are not needed are ignored."""

    action_name: Annotated[str, Meta(min_length=1, max_length=256)]
    query_id: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    client_id: str | None = None
    session_id: str | None = None
    timestamp: str | float | None = None
    event_attributes: Attributes | None = None
    message: Any = None

    @property
    def item(self) -> str | None:
        """The id of the item."""
        found = self.event_attributes and self.event_attributes.object and self.event_attributes.object.object_id
        return None if found is None else str(found)


_event = msgspec.json.Decoder(Event).decode


def event(raw: bytes) -> Event:
    """An event, from JSON.

    >>> line = b'{"action_name":"click","query_id":"q","event_attributes":{"object":{"object_id":"i3"}}}'
    >>> event(line).item
    'i3'
    """
    found: Event = _event(raw)
    return found
