"""What every answer tells a browser: take it for what it says it is, keep no copy, show it to no other site.

And which request it answers (X-Request-Id, traceparent), and whose pages may read it (CORS).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankloop.service.observability.tracing import Trace

Headers = list[tuple[bytes, bytes]]
_ALWAYS = (b"x-content-type-options", b"nosniff")
_OUR_SITE = (b"cross-origin-resource-policy", b"same-origin")
_ANY_SITE = (b"cross-origin-resource-policy", b"cross-origin")
_NO_COPY = (b"cache-control", b"no-store")
_PAGE: Headers = [  # what the pages' own content-security-policy does not say
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def of(trace: Trace, origin: bytes | None) -> Headers:
    """Those that hang on the request; `origin` is that of a page which may read the answer."""
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


def added(given: Iterable[Any], headers: Headers, shared: bool) -> Headers:
    """An answer's own headers with these, and with what it is to be kept from; `shared`: another site may read it.

    For what a page can embed or a cache can keep, that is not for answers to POST: the two calls that come with every
    user would pay a microsecond for each header.
    """
    found = [*given, *headers, _ALWAYS]
    page = kept = said = False
    for name, value in found:
        if name == b"content-type":
            page = value.startswith(b"text/html")
        elif name == b"cache-control":
            kept = True
        elif name == b"cross-origin-resource-policy":
            said = True
    if not said:
        found.append(_ANY_SITE if shared else _OUR_SITE)
    if page:
        found += _PAGE
    if not kept:
        found.append((b"cache-control", b"no-cache") if page else _NO_COPY)
    return found
