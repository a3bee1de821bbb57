"""Rank, feedback, and feedback that browsers send with a token instead of a key.

`fast_path` answers rank and feedback before Litestar does; the handlers here document them.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop.core.errors import InvalidInput
from rankloop.service.access import UseCounts
from rankloop.service.api import fast_path
from rankloop.service.api.content_encoding import PACKED
from rankloop.service.api.routes.common import AnyRequest, RankerName, problems, route
from rankloop.service.errors import BadToken, ForeignOrigin, OverLimit, Rejected, TooMany, UnknownEncoding
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import listed
from rankloop.service.storage import NewEvent
from rankloop.wire.calls import (
    NO_ID,
    Beacon,
    FeedbackAnswer,
    FeedbackEvent,
    RankAnswer,
    Receipt,
    readable_parts,
)

Explain = Annotated[bool, Parameter(description="add each feature's share of the score (linear learners)")]


@route(
    post,
    "/v1/rankers/{name:str}/rank",
    "rank",
    "rank",
    "Rank candidates",
    *(400, 404, 409, 413, 422),
    returns=RankAnswer,
    status_code=200,
)
async def rank(request: AnyRequest, name: RankerName, explain: Explain = False) -> Response[bytes]:
    """Send candidates in the order you would show them; show the items of the answer, and report what was clicked.

    The impression is stored before the answer is sent. If the learner fails or takes too long, the answer is your own
    order with `fallback: true`: this call does not fail because of a model.
    """
    engine: Engine = request.app.state.engine
    return Response(await engine.rank(name, await request.body(), explain), media_type=MediaType.JSON)


@route(
    post,
    "/v1/feedback",
    "feedback",
    "feedback",
    "Report clicks or grades",
    *(400, 413, 422),
    returns=FeedbackAnswer,
    status_code=200,
)
async def feedback(request: AnyRequest) -> Response[bytes]:
    """One event or an array of them. Each event has its own result, and is durable when the answer is sent.

    accepted: joined to its impression. duplicate: an event with this event_id has been accepted; nothing changed.
    late: the impression is closed; the event is kept, not learned. orphan: there is no such impression. rejected: it
    breaks a rule, see the reason.
    """
    engine: Engine = request.app.state.engine
    answer = await fast_path.feedback(engine, await request.body(), request.state.key)
    return Response(answer, media_type=MediaType.JSON)


@post(
    "/v1/beacon",
    status_code=200,
    tags=["feedback"],
    summary="Report clicks from a browser",
    security=[{}],
    responses={200: ResponseSpec(FeedbackAnswer, generate_examples=False), **problems(400, 413, 415, 422)},
)
async def beacon(request: AnyRequest) -> Response[bytes]:
    """Without a key: with the `token` of a ranking, about that ranking, clicks only, until its attribution window ends.

    For `navigator.sendBeacon` and pages of the setting `origins`, with any content type. Otherwise as `/v1/feedback`.
    """
    beacons: Beacons = request.app.state.beacons
    beacons.check_origin(request.headers.get("origin"))
    return Response(await beacons.take(await read_beacon(request)), media_type=MediaType.JSON)


# -- beacons -------------------------------------------------------------------------------------------------------

BETWEEN = "~"  # joins impression_id and event_id in the stored id, so that no page can use up another's ids
MOST_BYTES = 64 * 2**10  # of a body; browsers have the same limit for beacons

_decode = msgspec.json.Decoder(Beacon).decode
_decode_many = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read_beacon(request: AnyRequest) -> bytes:
    """The body. Compressed ones are refused: without a key, nobody may make the service decompress a megabyte."""
    if request.scope.get(PACKED):
        raise UnknownEncoding("a beacon is sent as it is; leave content-encoding out")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise OverLimit(f"a beacon has at most {MOST_BYTES:,} bytes; send fewer events at a time")
    return bytes(body)


class Beacons:
    """Takes events that carry tokens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._origins = listed(engine.settings.origins)
        self._counts = UseCounts(engine.settings.beacon_events)

    def check_origin(self, origin: str | None) -> None:
        """Refuse a page of an unknown origin; without keys, the middleware has done so. Programs have no origin."""
        if origin is not None and not self.engine.keys.off and origin.strip().lower() not in self._origins:
            raise ForeignOrigin(
                f"the beacon comes from a page of {origin[:100]!r}, which is not in the setting origins "
                "(RANKLOOP_ORIGINS); add it"
            )

    async def take(self, body: bytes) -> bytes:
        """Take one event or an array of them. A single event that is rejected is an error."""
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
        """A beacon as an event; a malformed one marks the impression of its token, if that can be read."""
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


ROUTES: list[Any] = [rank, feedback, beacon]
