"""HTTP/1.1 as uvicorn implements it, with bounds on what a connection may send, hold and leave unread.

Input. The parser joins the pieces of a header in a string that grows: one that never ends takes quadratic time and
unbounded memory. A request that is never finished holds its connection forever. Both are refused here, before the
application has seen them. So is a client that sends many requests ahead without waiting for answers.

Output. A client that does not read its answers leaves them in the memory of this process. While an answer is pending,
nothing more is read from the connection and no further request of it is started. A client that takes less than
`LEAST_READ` bytes in `request_seconds` is disconnected.

This class overrides methods of a uvicorn class that is not a public extension point. pyproject.toml bounds the version
of uvicorn, and tests/service/test_protocol.py checks what is used of it.
"""

from __future__ import annotations

import http
import socket
import struct
from asyncio import TimerHandle
from contextlib import suppress
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rankloop.service.api.errors import Failure, failure
from rankloop.service.api.middleware import request_headers
from rankloop.service.observability.tracing import begun
from rankloop.service.settings import Settings
from rankloop.service.worker.process import max_connections

MOST_HEADERS = 100  # per request; browsers send some twenty
MOST_AHEAD = 32  # requests that wait on a connection while one is answered
SEND_BUFFER = 128 * 2**10  # bytes that the system holds for a connection; Linux would let it grow to 4 MB
LEAST_READ = 64 * 2**10  # bytes of a pending answer that a client has to take in `request_seconds`


class _Refused(Exception):
    """Raised through the parser, which then stops."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection."""

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        settings: Settings = self.app.engine.settings
        self._most, self._seconds = settings.max_header_bytes, settings.request_seconds
        self._room = settings.max_connections or max_connections()
        self._unread = 0  # bytes since a head ended or a piece of a body came
        self._whole = True  # no request is on its way in
        self._head = False  # of the request on its way in, the head is here: the application has begun with it
        self._late: TimerHandle | None = None
        self._why: Failure | None = None
        self._running: Any = None  # uvicorn's object for the request that is being answered; `cycle` is the newest
        self._answered = False  # a response was written whole and is not read yet: its successor has to wait
        self._reader_check: TimerHandle | None = None
        self._pending = 0  # bytes that the client had not taken at the last check

    def connection_made(self, transport: Any) -> None:
        """Close a connection on which nothing comes, like one on which nothing more comes."""
        super().connection_made(transport)
        self._set_option(socket.SO_SNDBUF, SEND_BUFFER)
        if len(self.connections) > self._room:
            self._refuse(_crowded(self._room))
            return
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and let the request that is being answered end quietly."""
        self._in_time()
        self._drained()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn marks the newest request only; this one would write, and fail
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it is too much. What does not come in one piece has `request_seconds` for the rest."""
        self._unread += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread > self._most:
            self._refuse(_too_long(self._most))
        elif not self._whole and self._late is None:
            self._late = self.loop.call_later(self._seconds, self._too_late)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._whole = self._head = False
        if len(self.pipeline) >= MOST_AHEAD:
            self._why = failure(429, "too-many", f"more than {MOST_AHEAD} requests were sent ahead; wait for answers")
            raise _Refused
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is whole; those behind a body, too."""
        if len(self.headers) >= MOST_HEADERS:
            self._why = failure(431, "over-limit", f"more than {MOST_HEADERS} headers; leave some out")
            raise _Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._most:
            self._why = _too_long(self._most)
            raise _Refused
        self._unread, self._head = 0, True
        waiting = len(self.pipeline)
        super().on_headers_complete()
        if len(self.pipeline) == waiting:  # else it waits for those before it
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unread, self._whole = 0, True
        self._in_time()
        super().on_message_complete()

    # -- output ----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The transport holds more than it should: read nothing more, and give the client its time."""
        super().pause_writing()
        self.flow.pause_reading()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The client has read: go on with the next request."""
        super().resume_writing()
        self._drained()
        if self._answered:
            self._answered = False
            self._next()

    def on_response_complete(self) -> None:
        """A response has been handed to the transport; the next request waits until the client has read it."""
        if self.transport.is_closing():
            self._watch_reader()
        if self.flow.write_paused:
            self._answered = True
        else:
            self._next()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; what is pending has a deadline."""
        super().timeout_keep_alive_handler()
        self._watch_reader()

    def _next(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def _watch_reader(self) -> None:
        """See to it that what is pending is read, or the connection closed."""
        if self._reader_check is None and (pending := self.transport.get_write_buffer_size()):
            self._pending = pending
            self._reader_check = self.loop.call_later(self._seconds, self._check_reader)

    def _check_reader(self) -> None:
        self._reader_check = None
        pending = self.transport.get_write_buffer_size()
        if pending > max(0, self._pending - LEAST_READ):
            trace = begun()
            trace.status, trace.error = 408, "not-read"
            self.app.log.log("?", "an answer that its client did not read", trace)
            # Without this the system goes on offering what it holds to the client.
            self._set_option(socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self._watch_reader()

    def _set_option(self, option: int, value: int | bytes) -> None:
        with suppress(OSError, AttributeError):  # a transport without a socket, or one that has gone already
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, value)

    def _drained(self) -> None:
        if self._reader_check is not None:
            self._reader_check.cancel()
            self._reader_check = None

    # -- refusals --------------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """What could not be read, in the shape of all other errors."""
        self._refuse(self._why or failure(400, "malformed", f"{msg} Send HTTP/1.1."))

    def _too_late(self) -> None:
        text = f"the request was not here in whole within {self._seconds:g} seconds (setting request_seconds)"
        self._refuse(failure(408, "too-slow", text))

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, why: Failure) -> None:
        """Say why, if nothing was said yet, and hang up."""
        self._in_time()
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        if (answering and not self.cycle.response_started) if self._head else not answering:
            trace = begun()
            trace.status, trace.error, why.problem.request_id = why.status, why.problem.error, trace.id
            body = msgspec.json.encode(why.problem)
            lines = (
                f"HTTP/1.1 {why.status} {http.HTTPStatus(why.status).phrase}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                *(f"{name.decode()}: {value.decode()}" for name, value in request_headers(trace, None)),
                *(f"{name.lower()}: {value}" for name, value in why.headers.items()),
                "connection: close",
            )
            self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            self.app.engine.metrics.count("http_requests_total", route="other", status=why.status)
            self.app.log.log("?", "a request that could not be read", trace)
        self.transport.close()
        self._watch_reader()


def _crowded(limit: int) -> Failure:
    text = f"{limit:,} connections are open, as many as this process takes (setting max_connections); try again"
    return failure(503, "crowded", text)


def _too_long(limit: int) -> Failure:
    text = f"the headers are larger than the limit max_header_bytes of {limit:,} bytes; send less in them"
    return failure(431, "over-limit", text)
