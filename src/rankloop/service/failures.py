"""From what went wrong to what a caller reads: one JSON shape, the right status, a message with the remedy."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from rankloop.errors import CodecError, RankloopError, UnknownName
from rankloop.service.auth import NotAllowed, NotAuthenticated
from rankloop.service.engine import Conflict, OverLimit, UnknownRanker
from rankloop.service.features import UnknownFeature
from rankloop.service.store import StoreUnavailable
from rankloop.service.wire import Problem

logger = logging.getLogger("rankloop")

# The first that fits; a word for programs and a status.
KINDS: list[tuple[type[Exception], str, int]] = [
    (NotAuthenticated, "not-authenticated", 401),
    (NotAllowed, "not-allowed", 403),
    (UnknownRanker, "unknown", 404),
    (Conflict, "conflict", 409),
    (OverLimit, "over-limit", 413),
    (UnknownFeature, "unknown-feature", 422),
    (UnknownName, "unknown-name", 422),
    (StoreUnavailable, "store-unavailable", 503),
    (CodecError, "damaged", 500),
    (RankloopError, "invalid", 422),
]


def problem(status: int, error: str, message: str, retry_after: int | None = None) -> Response[Problem]:
    """A failure as an answer."""
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(Problem(error, message), status_code=status, headers=headers, media_type="application/json")


def own(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """What rankloop raises on purpose."""
    for kind, word, status in KINDS:
        if isinstance(error, kind):
            return problem(status, word, str(error), retry_after=1 if status == 503 else None)
    raise error


def malformed(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Bodies that are not JSON, or not of the declared shape."""
    text = " ".join(str(error).split()).replace("`$.data", "`$")  # a path into the body, as the caller sees it
    body = getattr(request, "_body", None)
    if isinstance(body, bytes) and (b"NaN" in body or b"Infinity" in body):
        text += "; JSON has no NaN and no Infinity: leave the candidate out, or send a number"
    return problem(400, "malformed", text)


def http(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What the framework raises: unknown paths, wrong methods, large bodies, wrong shapes."""
    status, text = error.status_code, error.detail
    cause = error.__cause__ or error.__context__
    if status == 400 and isinstance(cause, msgspec.MsgspecError):
        return malformed(request, cause)
    if isinstance(error, ValidationException):
        found: Any = error.extra or []
        if isinstance(found, list):
            parts = [f"{e.get('key', '')}: {e.get('message', '')}".lstrip(": ") for e in found if isinstance(e, dict)]
            text = "; ".join(parts) or text
        return malformed(request, ValueError(text))
    if status == 413:
        limit = request.app.request_max_body_size if hasattr(request.app, "request_max_body_size") else None
        size = f" of {limit:,} bytes" if isinstance(limit, int) else ""
        return problem(
            413, "over-limit", f"the body is larger than the limit max_body_bytes{size}; send less at a time"
        )
    if status == 404:
        return problem(404, "unknown", f"nothing is at {request.url.path}; /docs shows what there is")
    if status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, text)
    return problem(status, "http", text)


def unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """A bug of ours: logged with its trace, never shown."""
    logger.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal", "this is a bug of rankloop; the log of the service has the details")


HANDLERS: dict[Any, Any] = {
    RankloopError: own,
    msgspec.MsgspecError: malformed,
    HTTPException: http,
    Exception: unexpected,
}
