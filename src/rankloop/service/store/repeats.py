"""What was here before: the same request, the same event. Where the log is one table its unique indexes know; where it
is many (`partitions`), each has its own, and this looks beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankloop.service.store.database import Connection, portions
from rankloop.service.wire.calls import FeedbackEvent

if TYPE_CHECKING:
    from rankloop.service.store.log import NewImpression

EDGE = 60.0  # seconds around a full hour in which lists asked for at the same time may go to different partitions
PORTION = 256  # lists a statement


def asked(connection: Connection, new: Sequence[NewImpression], start: str) -> dict[str, tuple[bytes, bool]]:
    """By id, what was answered to those of the requests that were sent before, to lists from `start` on, and whether it
    was the same request.

    A repeat may come to another partition than the request did; and if both are under way at the same time, neither
    sees the other. So close to a full hour, where partitions end, they take turns.
    """
    named = [one for one in new if one.request_id is not None]
    if not named:
        return {}
    if any((one.created + EDGE) % 3600 < 2 * EDGE for one in named):
        connection.take_turns(f"{one.ranker}/{one.request_id}" for one in named)
    pairs = sorted({(one.ranker, one.request_id or "") for one in named})
    rows = connection.by_request("ranker, request_id, id, answer, digest", pairs, start)
    found = {(ranker, name): (own, bytes(answer), bytes(digest)) for ranker, name, own, answer, digest in rows}
    before = {}
    for one in named:
        own, answer, digest = found.get((one.ranker, one.request_id or ""), (one.id, b"", b""))
        if own != one.id:  # else it is here already: a commit whose answer got lost
            before[one.id] = (answer, digest == one.digest)
    return before


def first(new: Sequence[NewImpression]) -> list[NewImpression]:
    """The first of each request: two of the same batch may belong to two partitions, and neither would be in the way of
    the other."""
    by_request = {(one.ranker, one.request_id or one.id, one.request_id is None): one for one in reversed(new)}
    return list(by_request.values())


def known(connection: Connection, events: Sequence[FeedbackEvent], start: str) -> dict[str, set[str]]:
    """The lists that events were reported on, of those that were here before: among all lists from `start` on, and of
    older ones among those that the events are about."""
    ids = sorted({event.event_id for event in events})
    select = "SELECT event_id, impression_id FROM events WHERE"
    rows = connection.by_event(ids, start)
    old = [event for event in events if event.impression_id < start]
    for some in portions(sorted({event.impression_id for event in old}), PORTION):
        late = sorted({event.event_id for event in old})
        inside, lists = connection.among(some)
        where = f"impression_id >= ? AND impression_id <= ? AND impression_id {inside}"  # so where they lie, only
        rows += connection.rows_in(f"{select} {where} AND event_id", late, "", some[0], some[-1], *lists)
    found: dict[str, set[str]] = {}
    for event_id, impression_id in rows:
        found.setdefault(event_id, set()).add(impression_id)
    return found
