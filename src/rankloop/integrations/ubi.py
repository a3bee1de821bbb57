"""Events of User Behavior Insights 1.3, the standard of OpenSearch and others for what users do with search results."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

VIEWS = ("impression", "view")  # actions that say that an item came into view


class Object(Struct):
    """What was acted on."""

    object_id: str | int | None = None


class Position(Struct):
    """Where it stood."""

    ordinal: int | None = None


class Attributes(Struct):
    """What happened, in detail."""

    object: Object | None = None
    position: Position | None = None


class Event(Struct):
    """One action of a user. Fields that are not needed here are passed over."""

    action_name: Annotated[str, Meta(min_length=1, max_length=256)]
    query_id: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    client_id: str | None = None
    session_id: str | None = None
    timestamp: str | float | None = None
    event_attributes: Attributes | None = None
    message: Any = None

    @property
    def item(self) -> str | None:
        """The id of what was acted on."""
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
