"""Request bodies: HEAD is answered without one, gzip is decompressed, size limits apply to both forms."""

from __future__ import annotations

import zlib
from typing import Any

from rankloop.service.errors import Malformed, OverLimit, UnknownEncoding
from rankloop.service.serving.engine import Engine

LARGE = 64 * 2**10  # compressed bytes; more are decompressed in a thread
LARGE_UNPACKED = 2**20  # bytes; so is what becomes larger than this
PACKED = "rankloop.packed"  # in the scope of a request whose body is
_OF_PACKED = (b"content-encoding", b"content-length")  # headers that are not true of what was unpacked
_GZIP = 16 + zlib.MAX_WBITS  # a gzip header, and nothing else


class Bodies:
    """An ASGI application in front of another."""

    def __init__(self, app: Any, engine: Engine) -> None:
        self.app, self._engine = app, engine

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer HEAD like GET, without the body; unpack what was packed once it is read, that is after the key."""
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                scope, send = {**scope, "method": "GET"}, _headless(send)
            for name, value in scope["headers"]:
                if name == b"content-encoding" and not _plain(value):
                    kept = [pair for pair in scope["headers"] if pair[0] not in _OF_PACKED]
                    scope = {**scope, "headers": kept, PACKED: True}
                    receive = unpacking(receive, value, self._engine)
                    break
        await self.app(scope, receive, send)


def _plain(encoding: bytes) -> bool:
    return encoding.strip().lower() in (b"", b"identity")


def unpacking(receive: Any, encoding: bytes, engine: Engine) -> Any:
    """Return a `receive` that gives the decompressed body of a request."""
    if _plain(encoding):
        return receive
    unpacked = False

    async def read() -> Any:
        nonlocal unpacked
        if unpacked:
            return await receive()
        unpacked = True
        name = encoding.decode("latin-1").strip().lower()
        if name not in ("gzip", "x-gzip"):
            raise UnknownEncoding(f"content-encoding is {name[:40]!r}; send the body as gzip, or as it is")
        limit = engine.settings.max_body_bytes
        packed = await whole(receive, limit)
        body = _small(packed, limit)
        if body is None:
            body = await engine.bodies.run(gunzip, packed, limit)
        return {"type": "http.request", "body": body, "more_body": False}

    return read


async def whole(receive: Any, limit: int, first: Any = None) -> bytes:
    """The body of a request, in one piece; its `first` part may have come already."""
    parts, size, more = [], 0, True
    while more:
        message, first = first or await receive(), None
        if message["type"] == "http.disconnect":
            raise Malformed("the request ended before its body did")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise OverLimit(too_large(limit))
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(limit: int) -> str:
    """What is said of a body over the limit."""
    return f"the body is larger than the limit max_body_bytes of {limit:,} bytes; send less at a time"


def gunzip(packed: bytes, limit: int) -> bytes:
    """Unpack, and stop where it gets too large: a thousand bytes may hold a million.

    >>> import gzip
    >>> gunzip(gzip.compress(b"{}"), 10)
    b'{}'
    >>> gunzip(gzip.compress(b" " * 11), 10)
    Traceback (most recent call last):
    ...
    rankloop.service.errors.OverLimit: the body is larger than the limit max_body_bytes of 10 bytes; send less at a time
    """
    member = zlib.decompressobj(_GZIP)
    try:
        found = member.decompress(packed, limit + 1)
    except zlib.error as error:
        raise Malformed(f"content-encoding is gzip, but the body is not: {error}") from None
    if len(found) > limit:
        raise OverLimit(too_large(limit))
    if not member.eof or member.unused_data:
        what = "something follows its end" if member.eof else "it ends too early"
        raise Malformed(f"content-encoding is gzip, but the body is not whole: {what}")
    return found


def _small(packed: bytes, limit: int) -> bytes | None:
    """The body, if it is small on both sides; else None, after at most a few milliseconds."""
    if len(packed) > LARGE:
        return None
    try:
        return gunzip(packed, min(limit, LARGE_UNPACKED))
    except OverLimit:
        if limit <= LARGE_UNPACKED:
            raise
        return None


def _headless(send: Any) -> Any:
    async def without_body(message: Any) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return without_body
