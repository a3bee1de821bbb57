"""UBI's events as feedback: `query_id` is the request_id, or the impression_id, of a list."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from rankloop.core.errors import InvalidInput
from rankloop.integrations import ubi
from rankloop.integrations.bodies import raw_events
from rankloop.service.access.keys import Key
from rankloop.service.control._foreign_events import event_id, report, shown, told
from rankloop.service.errors import OverLimit
from rankloop.service.serving.engine import Engine
from rankloop.service.storage.requests import Shown
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, Receipt


async def take(engine: Engine, body: bytes, caller: Key) -> bytes:
    """Take events; each is answered for itself, in the order sent."""
    raw = raw_events(body)
    if not raw:
        raise InvalidInput("the body has no events; send a UBI event, an array of them, or one a line")
    if len(raw) > engine.settings.max_events:
        raise OverLimit(f"{len(raw)} events; the limit max_events is {engine.settings.max_events}: send several calls")
    read: list[ubi.Event | Receipt] = []
    for one in raw:
        try:
            read.append(ubi.event(one))
        except msgspec.MsgspecError as error:
            read.append(Receipt(None, "rejected", str(error)))
    asked = [one.query_id for one in read if isinstance(one, ubi.Event) and one.query_id and "\0" not in one.query_id]
    lists = await shown(engine, caller, asked)
    events: list[FeedbackEvent] = []
    places: list[int] = []
    results: list[Receipt | None] = []
    for place, each in enumerate(read):
        made = each if isinstance(each, Receipt) else _made(engine, each, lists)
        if isinstance(made, Receipt):
            results.append(made)
        else:
            results.append(None)
            events += made
            places += [place] * len(made)
    lost = [one.reason for one in read if isinstance(one, Receipt)]
    lost += [None for one in results if one is not None and one.status == "orphan"]
    for place, receipt in zip(places, await report(engine, events, caller, lost), strict=True):
        if results[place] is None or receipt.status == "accepted":
            results[place] = receipt
    final = [given or Receipt(None, "rejected", "nothing came of it") for given in results]
    return msgspec.json.encode(FeedbackAnswer(final, dict(Counter(given.status for given in final))))


def _made(engine: Engine, one: ubi.Event, lists: dict[str, list[Shown]]) -> list[FeedbackEvent] | Receipt:
    """What an event says of each list that was made for its query; or why it says nothing."""
    if not one.query_id:
        return Receipt(None, "rejected", "it has no query_id; send the request_id, or the impression_id, of a list")
    if one.item is None:
        reason = "it has no event_attributes.object.object_id; only what is done with an item is feedback"
        return Receipt(None, "rejected", reason)
    of = lists.get(one.query_id, [])
    if not of:
        reason = f"no list for query_id {one.query_id!r}; it was never ranked here, or is past retention"
        return Receipt(None, "orphan", reason)
    made: list[FeedbackEvent | None] = []
    stamp: Any = one.timestamp
    for each in of:
        own = event_id(each.id, one.action_name, one.client_id, one.session_id, str(stamp), one.item)
        live = engine.rankers.get(each.ranker)
        if live is None:
            continue
        found = told(live.row.spec, own, each, one.action_name, one.item)
        if found is None and one.action_name in ubi.VIEWS:
            found = FeedbackEvent(own, each.id, viewed=[one.item])
        made.append(found)
    if not any(made):
        reason = f"action {one.action_name!r} is worth nothing; name it in the ranker's `interactions`"
        return Receipt(None, "rejected", reason)
    return [event for event in made if event is not None]
