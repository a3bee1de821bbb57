"""ASGI middleware: access without keys, response headers, and a log line per failed or slow request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

import msgspec

from rankloop.service.api.errors import Failure, failure
from rankloop.service.api.routes import FOREIGN, ROUTES
from rankloop.service.observability import tracing
from rankloop.service.observability.tracing import Trace
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import is_loopback, listed
from rankloop.service.ui import beacon
from rankloop.wire.basics import NAME

Headers = list[tuple[bytes, bytes]]
logger = logging.getLogger("rankloop")

# -- access --------------------------------------------------------------------------------------------------------

_PREFLIGHT: Headers = [
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, content-encoding, if-match, idempotency-key, x-request-id, traceparent",
    ),
    (b"access-control-max-age", b"600"),
]
_READ_HERE = frozenset((b"origin", b"x-request-id", b"traceparent"))
_CREATE_KEY = "create a key with `rankloop keys create NAME --scopes rank+feedback+admin` and send it"


class AccessMiddleware:
    """The outermost ASGI application: names each request, refuses unsafe ones, adds headers and logs failures.

    Without keys, the service trusts every program on this machine. It then refuses requests that a browser or a proxy
    may have sent for somebody else: another host name (DNS rebinding), a page of another origin, a forwarded request.
    Pages of the setting `origins` may call with and without keys (CORS).
    """

    def __init__(self, app: Any, engine: Engine) -> None:
        self.app, self.engine = app, engine
        self.log = RequestLog(engine.settings.slow_seconds)
        self._slow = engine.settings.slow_seconds or float("inf")
        self._hosts, self._origins = listed(engine.settings.hosts), listed(engine.settings.origins)
        self._is_own_host = lru_cache(64)(self._check_host)  # parsing it takes 8 µs, and it is always the same

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        origin = sent = parent = None
        for name, value in scope["headers"]:
            if name in _READ_HERE:
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
        trusted = origin is not None and _text(origin) in self._origins
        headers = [(b"x-request-id", trace.id.encode())]
        if trusted or parent is not None:
            headers = request_headers(trace, origin if trusted else None)
        is_post = scope["method"] == "POST"

        async def answered(message: Any) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                own = message.get("headers", ())
                message = {**message, "headers": [*own, *headers] if is_post else with_headers(own, headers, trusted)}
            await send(message)

        try:
            # Any page may load the beacon script: it contains no data.
            check = self.engine.keys.off and scope["path"] != beacon.PATH
            found = self.refused(scope["method"], scope["headers"]) if check else None
            if found is not None:
                body = msgspec.json.encode(found.problem)
                await self._answer(answered, found.status, [(b"content-type", b"application/json")], body)
            elif trusted and scope["method"] == "OPTIONS":
                await self._answer(answered, 204, _PREFLIGHT, b"")
            else:
                await self.app(scope, receive, answered)
        except Exception:
            trace.status = trace.status or 500
            raise
        finally:
            for held in trace.held:
                held.leave()
            if trace.status >= 400 or not trace.status or time.perf_counter() - trace.began > self._slow:
                self.log.log(scope["method"], scope["path"], trace)

    async def _answer(self, send: Any, status: int, headers: Headers, body: bytes) -> None:
        self.engine.metrics.count("http_requests_total", route="other", status=status)
        if status != 204:
            headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def refused(self, method: str, headers: Headers) -> Failure | None:
        """Why a request without a key is refused; None if it is not."""
        host, origin, site, mode = None, None, b"", b""
        for name, value in headers:
            if name == b"host":
                if not self._is_own_host(value):
                    return _foreign_host(value)
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
            elif name in (b"forwarded", b"via", b"x-real-ip") or name.startswith(b"x-forwarded-"):
                return _forwarded(name)
        if origin is not None:
            # Pages are served over plain HTTP here, under the host that the browser asked for.
            if origin.lower() != b"http://" + (host or b"").lower() and _text(origin) not in self._origins:
                return _foreign_origin(origin)
        elif site in (b"cross-site", b"same-site") and not (method == "GET" and mode == b"navigate"):
            # Browsers omit Origin where the page cannot read the answer; following a link is allowed.
            return _foreign_origin(b"another site")
        return None

    def _check_host(self, host: bytes) -> bool:
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
        f"machine only (127.0.0.1, localhost); add the name to the setting hosts (RANKLOOP_HOSTS), or {_CREATE_KEY}"
    )
    return failure(403, "foreign-host", text)


def _foreign_origin(origin: bytes) -> Failure:
    text = (
        f"the request comes from a page of {_text(origin)[:100]!r}, and without keys only the service's own pages may "
        f"call it; add the origin to the setting origins (RANKLOOP_ORIGINS), or {_CREATE_KEY}"
    )
    return failure(403, "foreign-origin", text)


def _forwarded(name: bytes) -> Failure:
    text = (
        f"the request was forwarded by a proxy (header {name.decode('latin-1')!r}), and without keys that would open "
        f"the service to everyone who reaches the proxy; {_CREATE_KEY} (docs/operations.md, Keys)"
    )
    return failure(403, "passed-on", text)


# -- response headers ----------------------------------------------------------------------------------------------

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_SAME_ORIGIN = (b"cross-origin-resource-policy", b"same-origin")
_CROSS_ORIGIN = (b"cross-origin-resource-policy", b"cross-origin")
_PAGE: Headers = [  # in addition to the pages' own content-security-policy
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def request_headers(trace: Trace, origin: bytes | None) -> Headers:
    """Headers that depend on the request; `origin` is that of a page that may read the answer."""
    headers = [(b"x-request-id", trace.id.encode("ascii"))]
    if trace.parent is not None:
        headers.append((b"traceparent", trace.parent))
    if origin is not None:
        headers += [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"x-request-id, retry-after"),
            (b"vary", b"origin"),
        ]
    return headers


def with_headers(given: Iterable[Any], headers: Headers, shared: bool) -> Headers:
    """A response's own headers, `headers`, and safe defaults; `shared`: another site may read the response.

    Not for responses to POST, which no page can embed and no cache keeps: each header would cost a microsecond.
    """
    found = [*given, *headers, _NO_SNIFFING]
    page = has_cache_control = has_policy = False
    for name, value in found:
        if name == b"content-type":
            page = value.startswith(b"text/html")
        elif name == b"cache-control":
            has_cache_control = True
        elif name == b"cross-origin-resource-policy":
            has_policy = True
    if not has_policy:
        found.append(_CROSS_ORIGIN if shared else _SAME_ORIGIN)
    if page:
        found += _PAGE
    if not has_cache_control:
        found.append((b"cache-control", b"no-cache" if page else b"no-store"))
    return found


# -- request log ---------------------------------------------------------------------------------------------------

MOST = 50  # lines per second and process, so that bad requests cannot fill the disk
_TEMPLATES = [path for route in (*ROUTES, *(one for some in FOREIGN.values() for one in some)) for path in route.paths]
_LITERALS = frozenset(part for path in _TEMPLATES for part in path.split("/") if not part.startswith("{"))
_BARE_NAME = NAME[1:].partition("$")[0]
_LOGGED = {"{name:str}": _BARE_NAME, "{catalog:str}": _BARE_NAME, "{number:int}": "[0-9]{1,10}"}
_PRIVATE = re.compile(r"/(?:users|items)/(.+)", re.DOTALL).search
_keys = re.compile(r"rl_[A-Za-z0-9_-]{16,}").sub  # a key in a path, by mistake


class RequestLog:
    """Logs requests that failed or were slow. Others are only counted: a line would cost more than ranking.

    Parameters
    ----------
    slow_seconds
        A successful request that took longer is logged; 0: none is.
    clock
        In seconds; tests move it.
    """

    def __init__(self, slow_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._slow = slow_seconds or float("inf")
        self._clock = clock
        self._second, self._lines, self._left_out = 0, 0, 0

    def log(self, method: str, path: str, trace: Trace) -> None:
        """Log a request that has been answered, if it failed or was slow."""
        seconds = time.perf_counter() - trace.began
        if trace.status < 400 and seconds <= self._slow:
            return
        if path == "/readyz" or not self._allowed():  # load balancers ask every second while a process starts
            return
        where = _loggable(path)
        fields = {"method": method, "path": where, "status": trace.status, "milliseconds": round(seconds * 1e3, 1)}
        if trace.error:
            fields["error"] = trace.error
        what = trace.error or "failed" if trace.status >= 400 else "slow" if trace.status else "never answered"
        text = f"{method} {where}: {trace.status} {what}, {fields['milliseconds']} ms"
        logger.log(level(trace.status), "%s", text, extra={"fields": fields})

    def _allowed(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            left_out, self._second, self._lines, self._left_out = self._left_out, second, 0, 0
            if left_out:
                logger.warning("%d further requests failed or were slow in a second, and have no line", left_out)
        self._lines += 1
        self._left_out += self._lines > MOST
        return self._lines <= MOST


def level(status: int) -> int:
    """The log level: a bug is an error, what an operator may have to act on a warning, a caller's mistake info.

    >>> [logging.getLevelName(level(status)) for status in (500, 503, 401, 422)]
    ['ERROR', 'WARNING', 'WARNING', 'INFO']
    """
    if status == 500:
        return logging.ERROR
    return logging.INFO if 400 <= status < 500 and status not in (401, 403, 429) else logging.WARNING


def private_part(path: str) -> str:
    """The id of a user or an item in a path, which log lines about its request must not contain.

    >>> private_part("/v1/catalogs/shop/users/ann"), private_part("/v1/rankers/shop")
    ('ann', '')
    """
    found = _PRIVATE(path)
    return unquote(found[1]) if found else ""


def _loggable(path: str) -> str:
    """A path without ids of users, items and events, and without anything that belongs to no route.

    >>> _loggable("/v1/rankers/shop/rank"), _loggable("/v1/users/ann/b"), _loggable("/v1/catalogs/c/users/ann")
    ('/v1/rankers/shop/rank', '/v1/users/…', '/v1/catalogs/c/users/…')
    >>> _loggable("/v1/user/ann"), _loggable("/v1/rankers/rl_0123456789abcdefghij/rank")
    ('/v1/…', '/v1/rankers/rl_…/rank')
    """
    for matched in _ROUTES:
        if found := matched(path):
            for i in range(found.re.groups, 0, -1):
                path = f"{path[: found.start(i)]}…{path[found.end(i) :]}"
            return _keys("rl_…", path)
    parts = path.split("/")
    known = list(takewhile(_LITERALS.__contains__, parts))
    return "/".join(known if len(known) == len(parts) else [*known, "…"])


def _matcher(template: str) -> Callable[[str], re.Match[str] | None]:
    """Matches the paths of a route; what must not be logged is a group."""
    parts = (
        _LOGGED.get(part, "(.+)" if part.endswith(":path}") else "([^/]+)") if part.startswith("{") else re.escape(part)
        for part in template.split("/")
    )
    return re.compile("/".join(parts), re.DOTALL).fullmatch


_ROUTES = [_matcher(one) for one in sorted(_TEMPLATES, key=lambda one: one.count("{"))]  # the most literal first
