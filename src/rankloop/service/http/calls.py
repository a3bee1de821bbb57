"""The two calls that come with every user: from the bytes of a body to the bytes of an answer."""

from __future__ import annotations

from collections import Counter

import msgspec

from rankloop.errors import InvalidInput
from rankloop.service.engine import Engine, OverLimit
from rankloop.service.store import NewEvent
from rankloop.service.wire.messages import FeedbackAnswer, FeedbackEvent, RankRequest, Receipt

_decode_request = msgspec.json.Decoder(RankRequest).decode
_decode_event = msgspec.json.Decoder(FeedbackEvent).decode
_decode_events = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def rank(engine: Engine, name: str, body: bytes, explain: bool) -> bytes:
    """Rank the candidates of a request."""
    return await engine.rank(name, _decode_request(body), explain)


async def feedback(engine: Engine, body: bytes) -> bytes:
    """Take one event or an array of them; one that cannot be read is rejected for itself, unless it is alone."""
    raw = _decode_events(body) if body.lstrip()[:1] == b"[" else [msgspec.Raw(body)]
    if not raw:
        raise InvalidInput("the array of events is empty; send at least one")
    if len(raw) > engine.settings.max_events:
        raise OverLimit(f"{len(raw)} events; the limit max_events is {engine.settings.max_events}: send several calls")
    results: list[Receipt | None] = []
    events: list[NewEvent] = []
    for one in raw:
        try:
            event = _decode_event(one)
            if "\0" in event.event_id or "\0" in event.impression_id:
                raise msgspec.ValidationError("ids are text; one has the character NUL in it")
            events.append(NewEvent(event, bytes(one)))
            results.append(None)
        except msgspec.ValidationError as error:
            if len(raw) == 1:
                raise
            results.append(Receipt(None, "rejected", str(error)))
    if events:
        receipts = iter((await engine.feedback(events)).receipts)
        results = [next(receipts) if one is None else one for one in results]
    final = [one for one in results if one is not None]
    return msgspec.json.encode(FeedbackAnswer(final, dict(Counter(one.status for one in final))))
