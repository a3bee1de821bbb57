"""A lane of its own for the two calls that come with every user, past the framework.

Litestar takes 0.2 ms to find a handler, build its arguments and wrap its answer: as long as ranking takes. Both calls
are bytes in, bytes out (`calls.py`), so here they are read, carried out and answered directly; everything else, and the
document that describes them, is the framework's. Keys, limits, errors and counts are the same code in both.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs

import msgspec

from rankloop.service.engine import Engine
from rankloop.service.http import calls
from rankloop.service.http.errors import Failure, describe, failure, too_large
from rankloop.service.wire.messages import NAME

RANK = "/v1/rankers/{name}/rank"
FEEDBACK = "/v1/feedback"
_ranked = re.compile(NAME.replace("^", "^/v1/rankers/(").replace("$", ")/rank$")).match
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Lane:
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
        self.engine.metrics.count("http_requests_total", route=route, status=status)
        pairs = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        pairs += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any, name: str | None) -> tuple[int, bytes, dict[str, str]]:
        body = b""
        try:
            key = next(
                (value.decode("latin-1") for header, value in scope["headers"] if header == b"authorization"), None
            )
            self.engine.keys.check(key, "feedback" if name is None else "rank")
            read = await self._read(receive)
            if isinstance(read, Failure):
                return _told(read)
            body = read
            if name is None:
                return 200, await calls.feedback(self.engine, body), {}
            explain = _explain(scope["query_string"])
            if isinstance(explain, Failure):
                return _told(explain)
            return 200, await calls.rank(self.engine, name, body, explain), {}
        except Exception as error:
            return _told(describe(error, body))

    async def _read(self, receive: Any) -> bytes | Failure:
        """The body, or why not."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return failure(400, "malformed", "the request ended before its body did")
            part = message.get("body", b"")
            size += len(part)
            if size > self._limit:
                return too_large(self._limit)
            parts.append(part)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _explain(query: bytes) -> bool | Failure:
    if not query:
        return False
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("explain", ["false"])[-1]
    if given.lower() not in _FLAGS:
        return failure(400, "malformed", f"explain is {given!r}; it is true or false")
    return _FLAGS[given.lower()]


def _told(found: Failure) -> tuple[int, bytes, dict[str, str]]:
    return found.status, msgspec.json.encode(found.problem), found.headers
