"""One request over httpx, sent once: the network below both clients and the feedback queue."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx

from rankloop.client.exchange import Call, Reply


class TimeLeft(dict[str, float]):
    """httpcore's time-outs, computed when each phase begins: pool, connect, write and read share one deadline."""

    def __init__(self, end: float) -> None:
        self.end = end
        super().__init__(dict.fromkeys(("pool", "connect", "write", "read"), self.get("")))

    def get(self, phase: str, default: Any = None) -> Any:  # noqa: ARG002
        """Seconds that are left, for any phase."""
        return max(self.end - time.monotonic(), 0.001)


def send(http: httpx.Client, url: str, call: Call) -> Reply:
    """Send a call and read the answer, before `call.end` if the call has one."""
    try:
        if call.end is None:
            return _reply(http.request(call.method, url + call.path, content=call.body, headers=_headers(call)))
        options: dict[str, Any] = {"content": call.body, "headers": _headers(call)}
        extensions = {"timeout": TimeLeft(call.end)}
        with http.stream(call.method, url + call.path, extensions=extensions, **options) as response:
            pieces = []
            for piece in response.iter_bytes():
                pieces.append(piece)
                if time.monotonic() > call.end:
                    raise httpx.ReadTimeout("the answer is not here in whole")
            return _reply(response, b"".join(pieces))
    except httpx.RequestError as error:
        return _lost(error)


async def send_async(http: httpx.AsyncClient, url: str, call: Call) -> Reply:
    """`send` for asyncio."""
    try:
        left = None if call.end is None else call.end - time.monotonic()
        async with asyncio.timeout(left):
            path, headers = url + call.path, _headers(call)
            return _reply(await http.request(call.method, path, content=call.body, headers=headers))
    except TimeoutError:
        return _lost(httpx.ReadTimeout("the deadline has passed"))
    except httpx.RequestError as error:
        return _lost(error)


def _headers(call: Call) -> dict[str, str]:
    """The headers of one call; those of all calls belong to the connection."""
    own = {"If-Match": call.if_match, "Idempotency-Key": call.key}
    return {name: value for name, value in own.items() if value is not None}


def _reply(response: httpx.Response, body: bytes | None = None) -> Reply:
    body = response.content if body is None else body
    return Reply(response.status_code, body, response.headers.get("Retry-After", ""))


def _lost(error: httpx.RequestError) -> Reply:
    """What is known of a request that got no answer."""
    late = isinstance(error, httpx.TimeoutException)
    why = "no answer in time" if late else str(error) or type(error).__name__
    arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Reply(0, lost=why, arrived=arrived, late=late)
