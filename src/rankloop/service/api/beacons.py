"""Clicks, rewards and views that a browser reports itself, with the token of its list instead of a key.

A page may send them with `navigator.sendBeacon`, which can set no header and asks nobody first: a POST of plain text.
What a token is not good for is refused: another list, grades, anything after the window. Ids of events are the list's
own: nobody can use up those of somebody else.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from litestar import Request

from rankloop.core.errors import InvalidInput
from rankloop.service.access.limits import Counts
from rankloop.service.api.content_encoding import PACKED
from rankloop.service.errors import BadToken, ForeignOrigin, OverLimit, Rejected, TooMany, UnknownEncoding
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import listed
from rankloop.service.storage import NewEvent
from rankloop.wire.calls import NO_ID, Beacon, FeedbackAnswer, FeedbackEvent, Receipt, readable_parts

BETWEEN = "~"  # impression_id and event_id, in the id that an event of a page is stored with
MOST_BYTES = 64 * 2**10  # of a body, as browsers have it for beacons: nobody has shown a key yet

_decode = msgspec.json.Decoder(Beacon).decode
_decode_many = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read(request: Request[Any, Any, Any]) -> bytes:
    """The body, as it comes in. Not a packed one: a thousand bytes would be a million to read, for whoever asks."""
    if request.scope.get(PACKED):
        raise UnknownEncoding("a beacon is sent as it is; leave content-encoding out")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise OverLimit(f"a beacon has at most {MOST_BYTES:,} bytes; send fewer events at a time")
    return bytes(body)


class Beacons:
    """Takes events with tokens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._origins = listed(engine.settings.origins)
        self._counts = Counts(engine.settings.beacon_events)

    def check(self, origin: str | None) -> None:
        """Refuse a page that was not let in; without keys the doors have done so. Programs have no origin."""
        if origin is not None and not self.engine.keys.off and origin.strip().lower() not in self._origins:
            raise ForeignOrigin(
                f"the beacon comes from a page of {origin[:100]!r}, which is not in the setting origins "
                "(RANKLOOP_ORIGINS); add it"
            )

    async def take(self, body: bytes) -> bytes:
        """One event or an array of them. Events of an array are answered one by one; one that is alone and rejected is
        an error."""
        alone = body.lstrip()[:1] != b"["
        raw = [msgspec.Raw(body)] if alone else _decode_many(body)
        if not raw:
            raise InvalidInput("the array of events is empty; send at least one")
        results: list[Receipt | None] = []
        events: list[NewEvent] = []
        wrong: Exception | None = None
        for one in raw:
            try:
                events.append(self._event(one))
                results.append(None)
            except (msgspec.ValidationError, BadToken, TooMany) as error:
                wrong = error
                results.append(Receipt(None, "rejected", str(error)))
        if events:
            receipts = iter((await self.engine.feedback(events)).receipts)
            results = [_as_sent(next(receipts)) if one is None else one for one in results]
        final = [one for one in results if one is not None]
        if alone and final[0].status == "rejected":
            if events and events[0].malformed is not None:
                wrong = msgspec.ValidationError(events[0].malformed)
            raise wrong or Rejected.of(final[0].event_id, final[0].reason, final[0].kept)
        return msgspec.json.encode(FeedbackAnswer(final, dict(Counter(one.status for one in final))))

    def _event(self, raw: msgspec.Raw) -> NewEvent:
        """A beacon as an event; one that cannot be read marks the impression of its token, if that can be."""
        malformed: str | None = None
        try:
            sent = _decode(raw)
            token, said = sent.token, (sent.clicks, None, sent.final, sent.rewards, sent.seen, sent.viewed)
            kept = FeedbackEvent(sent.event_id, "", *said)
            if "\0" in sent.event_id:
                raise msgspec.ValidationError("event_id is text; it has the character NUL in it")
        except msgspec.ValidationError as error:
            token = msgspec.json.decode(raw, type=_Signed).token
            malformed, kept = str(error), readable_parts(bytes(raw))
            kept.grades = None
        claim = self.engine.keys.tokens.read(token)
        if not self._counts.take(claim.impression_id):
            limit = self.engine.settings.beacon_events
            raise TooMany(f"{limit} events about this list have come; the setting beacon_events allows no more")
        kept.impression_id = claim.impression_id
        event = msgspec.structs.replace(kept, event_id=f"{claim.impression_id}{BETWEEN}{kept.event_id}")
        return NewEvent(event, msgspec.json.encode(kept), frozenset((claim.ranker,)), malformed)


class _Signed(msgspec.Struct):
    """As much of a malformed beacon as names its impression."""

    token: str


def _as_sent(one: Receipt) -> Receipt:
    """A receipt with the event_id that the page sent."""
    own = (one.event_id or "").partition(BETWEEN)[2]
    return Receipt(None if own in ("", NO_ID) else own, one.status, one.reason, one.kept)
