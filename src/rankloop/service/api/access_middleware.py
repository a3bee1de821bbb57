"""The first thing that a request meets: it gets a name, it is let in or not, and its answer is told how to be treated.

While no key is asked for, programs of this machine may come in, and the service's own page in a browser. A service on
loopback without keys trusts whoever can reach it; a browser reaches it for any page that it shows, and a proxy for
anybody at all. So requests that name another host (a page whose name was made to point here: DNS rebinding), come from
a page of another origin, or were passed on, are refused. With keys none of this is needed: no browser and no proxy has
a key unless it was given one. Pages of the origins in the setting `origins` may call, with keys or without, and their
browsers are told so (CORS).
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import msgspec

from rankloop.service.api import safe_headers
from rankloop.service.api.errors import Failure, failure
from rankloop.service.api.request_log import RequestLog, private_part
from rankloop.service.api.safe_headers import Headers
from rankloop.service.observability import tracing
from rankloop.service.observability.tracing import Trace
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import is_loopback, listed
from rankloop.service.ui import beacon

_BEFOREHAND: Headers = [  # what a browser asks for before it sends anything
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, content-encoding, if-match, idempotency-key, x-request-id, traceparent",
    ),
    (b"access-control-max-age", b"600"),
]
_OURS = frozenset((b"origin", b"x-request-id", b"traceparent"))
_KEY = "make a key with `rankloop keys create NAME --scopes rank+feedback+admin` and send it"


class Doors:
    """An ASGI application in front of another; it lets in whom `refused` has nothing against."""

    def __init__(self, app: Any, engine: Engine) -> None:
        self.app, self.engine = app, engine
        self.log = RequestLog(engine.settings.slow_seconds)
        self._slow = engine.settings.slow_seconds or float("inf")
        self._hosts, self._origins = listed(engine.settings.hosts), listed(engine.settings.origins)
        self._ours = lru_cache(64)(self._is_ours)  # callers name the same host every time; reading it takes 8 µs

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or pass on; tell of it if it fails."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        origin = sent = parent = None
        for name, value in scope["headers"]:
            if name in _OURS:
                if name == b"origin":
                    origin = value
                elif name == b"traceparent":
                    parent = value
                else:
                    sent = value
        if sent is None and parent is None:
            trace = Trace(time.perf_counter(), f"{tracing.numbers.own}-{tracing.numbers.next()}")
        else:
            trace = tracing.begun(sent, parent)
        tracing.current.set(trace)  # of this request's task only
        if "/users/" in scope["path"] or "/items/" in scope["path"]:
            trace.private = private_part(scope["path"])
        let_in = origin is not None and _text(origin) in self._origins
        headers = [(b"x-request-id", trace.id.encode())]
        if let_in or parent is not None:
            headers = safe_headers.of(trace, origin if let_in else None)
        posted = scope["method"] == "POST"

        async def answered(message: Any) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                own = message.get("headers", ())
                told = [*own, *headers] if posted else safe_headers.added(own, headers, let_in)
                message = {**message, "headers": told}
            await send(message)

        try:
            # The script tells nothing and does nothing here: any page may have it.
            asked = self.engine.keys.off and scope["path"] != beacon.PATH
            found = self.refused(scope["method"], scope["headers"]) if asked else None
            if found is not None:
                body = msgspec.json.encode(found.problem)
                await self._answer(answered, found.status, [(b"content-type", b"application/json")], body)
            elif let_in and scope["method"] == "OPTIONS":
                await self._answer(answered, 204, _BEFOREHAND, b"")
            else:
                await self.app(scope, receive, answered)
        except Exception:
            trace.status = trace.status or 500
            raise
        finally:
            for held in trace.held:
                held.leave()
            if trace.status >= 400 or not trace.status or time.perf_counter() - trace.began > self._slow:
                self.log.tell(scope["method"], scope["path"], trace)

    async def _answer(self, send: Any, status: int, headers: Headers, body: bytes) -> None:
        self.engine.metrics.count("http_requests_total", route="other", status=status)
        if status != 204:
            headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def refused(self, method: str, headers: Headers) -> Failure | None:
        """Why a request without a key may not come in; None if it may."""
        host, origin, site, mode = None, None, b"", b""
        for name, value in headers:
            if name == b"host":
                if not self._ours(value):
                    return _foreign_host(value)
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
            elif name in (b"forwarded", b"via", b"x-real-ip") or name.startswith(b"x-forwarded-"):
                return _passed_on(name)
        if origin is not None:
            # Pages are served over plain HTTP here, under the host that the browser asked for.
            if origin.lower() != b"http://" + (host or b"").lower() and _text(origin) not in self._origins:
                return _foreign_origin(origin)
        elif site in (b"cross-site", b"same-site") and not (method == "GET" and mode == b"navigate"):
            # Browsers leave Origin out where the page will not see the answer; a link that is followed may come.
            return _foreign_origin(b"another site")
        return None

    def _is_ours(self, host: bytes) -> bool:
        name = _text(host)
        if name in self._hosts:
            return True
        bare = name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]
        return is_loopback(bare) or bare in self._hosts


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip().lower()


def _foreign_host(host: bytes) -> Failure:
    text = (
        f"the request is for host {_text(host)[:100]!r}, and without keys this service answers to names of this "
        f"machine only (127.0.0.1, localhost); add the name to the setting hosts (RANKLOOP_HOSTS), or {_KEY}"
    )
    return failure(403, "foreign-host", text)


def _foreign_origin(origin: bytes) -> Failure:
    text = (
        f"the request comes from a page of {_text(origin)[:100]!r}, and without keys only the service's own pages may "
        f"call it; add the origin to the setting origins (RANKLOOP_ORIGINS), or {_KEY}"
    )
    return failure(403, "foreign-origin", text)


def _passed_on(name: bytes) -> Failure:
    text = (
        f"the request was passed on by a proxy (header {name.decode('latin-1')!r}), and without keys that would open "
        f"the service to everyone who reaches the proxy; {_KEY} (docs/operations.md, Keys)"
    )
    return failure(403, "passed-on", text)
