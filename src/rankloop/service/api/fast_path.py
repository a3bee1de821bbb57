"""A lane of its own for the two calls that come with every user, past the framework.

Litestar takes 0.2 ms to find a handler, build its arguments and wrap its answer: as long as ranking takes. Both calls
are bytes in, bytes out, so here they are read, carried out and answered directly; everything else, and the document
that describes them, is the framework's. Keys, limits, errors and counts are the same code in both.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

import msgspec
import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.kernels.input_checks import entry_counts
from rankloop.service.access import EVERYTHING, Key
from rankloop.service.api import content_encoding
from rankloop.service.api.errors import Failure, describe, failure
from rankloop.service.errors import OverLimit, Rejected, UnknownRanker
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import NewEvent
from rankloop.wire.basics import NAME
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, readable_parts

RANK = "/v1/rankers/{name}/rank"
FEEDBACK = "/v1/feedback"
LARGE = 256 * 2**10  # bytes of feedback; more are read in a thread
_ranked = re.compile(NAME.replace("^", "^/v1/rankers/(").replace("$", ")/rank$")).match
_JSON = (b"content-type", b"application/json")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}

_decode_event = msgspec.json.Decoder(FeedbackEvent).decode
_decode_events = msgspec.json.Decoder(list[msgspec.Raw]).decode


class FastPath:
    """An ASGI application around another."""

    def __init__(self, app: Any, engine: Engine) -> None:
        self.app, self.engine = app, engine
        self._limit = engine.settings.max_body_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Take the calls that are ours, pass on the others."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == FEEDBACK:
            name, route = None, FEEDBACK
        elif found := _ranked(path):
            name, route = found[1], RANK
        else:
            await self.app(scope, receive, send)
            return
        status, body, headers = await self._answer(scope, receive, name)
        # uvicorn's `receive` belongs to an object that knows whether the connection is still open.
        if status == 200 and name is not None and getattr(getattr(receive, "__self__", None), "disconnected", False):
            self.engine.withdraw(body)
        self.engine.answers[route, status] += 1
        pairs = [_JSON, (b"content-length", b"%d" % len(body))]
        if headers:
            pairs += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any, name: str | None) -> tuple[int, bytes, dict[str, str]]:
        body = b""
        try:
            key = None
            for header, value in scope["headers"]:
                if header == b"authorization":
                    key = value.decode("latin-1")
                elif header == b"content-encoding":
                    receive = content_encoding.unpacking(receive, value, self.engine)
            keys = self.engine.keys
            caller = EVERYTHING if keys.off else keys.check(key, "feedback" if name is None else "rank", name)
            message = await receive()
            body = message.get("body", b"")
            if message.get("more_body") or len(body) > self._limit or message["type"] != "http.request":
                body = await content_encoding.whole(receive, self._limit, message)
            if name is None:
                return 200, await feedback(self.engine, body, caller), {}
            explain = _explain(scope["query_string"]) if scope["query_string"] else False
            if isinstance(explain, Failure):
                return _told(explain)
            return 200, await self.engine.rank(name, body, explain), {}
        except UnknownRanker as error:
            return _told(describe(error) if caller.sees_names else failure(error.status, error.code, error.plain))
        except Exception as error:
            live = self.engine.rankers.get(name or "")
            return _told(describe(error, body, () if live is None else live.schema.sent))


async def feedback(engine: Engine, body: bytes, caller: Key) -> bytes:
    """Take one event or an array of them. Events of an array are answered one by one; one that is alone and rejected
    is an error."""
    most = engine.settings.max_events
    if len(body) > LARGE:
        events, error = await engine.bodies.run(_events, body, most, caller)
    else:
        events, error = _events(body, most, caller)
    receipts = (await engine.feedback(events)).receipts
    if body.lstrip()[:1] != b"[" and receipts[0].status == "rejected":
        raise error or Rejected.of(receipts[0].event_id, receipts[0].reason, receipts[0].kept)
    return msgspec.json.encode(FeedbackAnswer(receipts, dict(Counter(one.status for one in receipts))))


def _events(body: bytes, most: int, caller: Key) -> tuple[list[NewEvent], msgspec.ValidationError | None]:
    """The events of a body, and what is wrong with the last that could not be read. That one is an event, too: it marks
    its impression."""
    many = body.lstrip()[:1] == b"["
    if many and entry_counts(np.frombuffer(body, np.uint8), most, len(body) + 1)[0] > most:
        raise OverLimit(f"more than {most} events; the limit max_events is {most}: send several calls")
    raw = _decode_events(body) if many else [msgspec.Raw(body)]
    if not raw:
        raise InvalidInput("the array of events is empty; send at least one")
    events: list[NewEvent] = []
    wrong: msgspec.ValidationError | None = None
    for one in raw:
        try:
            event = _decode_event(one)
            if "\0" in event.event_id or "\0" in event.impression_id:
                raise msgspec.ValidationError("ids are text; one has the character NUL in it")
            events.append(NewEvent(event, bytes(one), caller.rankers))
        except msgspec.ValidationError as error:
            wrong = error
            events.append(NewEvent(readable_parts(bytes(one)), bytes(one), caller.rankers, str(error)))
    return events, wrong


def _explain(query: bytes) -> bool | Failure:
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("explain", ["false"])[-1]
    if given.lower() not in _FLAGS:
        return failure(400, "malformed", f"explain is {given!r}; it is true or false")
    return _FLAGS[given.lower()]


def _told(found: Failure) -> tuple[int, bytes, dict[str, str]]:
    return found.status, msgspec.json.encode(found.problem), found.headers
