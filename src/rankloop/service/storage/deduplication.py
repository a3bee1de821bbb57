"""What was here before: the same request, the same event. Where the log is one table its unique indexes know; where it
is many (`partitions`), each has its own, and this looks beyond them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rankloop.service.storage import schema
from rankloop.service.storage.database import Connection, portions
from rankloop.service.storage.times import where_id
from rankloop.wire.calls import FeedbackEvent

if TYPE_CHECKING:
    from rankloop.service.storage.log import NewImpression

EDGE = 60.0  # seconds around a full hour in which lists asked for at the same time may go to different partitions
PORTION = 256  # lists a statement
SEPARATOR = "\x1f"  # between ranker and event_id in the column event_id


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


def scoped(ranker: str, event_id: str) -> str:
    """How an event is stored: its id is unique within its ranker. No ranker's name contains the separator."""
    return f"{ranker}{SEPARATOR}{event_id}"


class Known(NamedTuple):
    """What is stored of the ids of some events."""

    lists: dict[tuple[str, str], set[str]]  # (ranker, event_id): the lists that it was used for
    taken: set[str]  # ids that cannot be stored as they are, since another ranker has used or uses them

    def stored_as(self, connection: Connection, ranker: str, event_id: str) -> str:
        """The id to store an event with. As long as processes of an earlier release run, which look for ids as they
        were sent, so are ids stored, unless another ranker has used that one."""
        if not connection.settled:
            connection.settled = schema.alone(connection)
        plain = not connection.settled and event_id not in self.taken and SEPARATOR not in event_id
        return event_id if plain else scoped(ranker, event_id)


def known(connection: Connection, events: Sequence[tuple[str, FeedbackEvent]], start: str) -> Known:
    """What is stored of the ids of these (ranker, event): among all lists from `start` on, and of older ones among
    those that the events are about. Ids are scoped by ranker; those that an earlier release stored are not, and are
    told apart by the ranker of their list."""
    own = {scoped(ranker, event.event_id): (ranker, event.event_id) for ranker, event in events}
    plain: dict[str, set[str]] = {}
    for ranker, event in events:
        plain.setdefault(event.event_id, set()).add(ranker)
    rankers = {event.impression_id: ranker for ranker, event in events}
    rows = connection.by_event(sorted({*own, *plain}), start) if events else []
    old = [(ranker, event) for ranker, event in events if event.impression_id < start]
    select = "SELECT event_id, impression_id FROM events WHERE"
    for some in portions(sorted({event.impression_id for _, event in old}), PORTION):
        late = {scoped(ranker, event.event_id) for ranker, event in old} | {event.event_id for _, event in old}
        inside, lists = connection.among(some)
        where = f"impression_id >= ? AND impression_id <= ? AND impression_id {inside}"  # so where they lie, only
        rows += connection.rows_in(f"{select} {where} AND event_id", sorted(late), "", some[0], some[-1], *lists)
    # Lists that are not among those of the events: their rankers are looked up.
    others = sorted({at for name, at in rows if name in plain and name not in own and at not in rankers})
    for some in portions(others, PORTION):
        which, bounds = where_id(connection, some, time.time())
        rankers |= dict(connection.rows_in(f"SELECT id, ranker FROM impressions WHERE {which}", some, "", *bounds))
    found = Known({}, {name for name, several in plain.items() if len(several) > 1})
    for name, at in rows:
        if name in own:
            found.lists.setdefault(own[name], set()).add(at)
            continue
        ranker = rankers.get(at, "")
        if ranker in plain[name]:
            found.lists.setdefault((ranker, name), set()).add(at)
        if plain[name] != {ranker}:
            found.taken.add(name)
    return found
