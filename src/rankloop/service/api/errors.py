"""From what went wrong to what a caller reads: one JSON shape, the right status, a message with the remedy."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from rankloop.core.errors import CodecError, RankloopError, UnknownName
from rankloop.service.api import content_encoding
from rankloop.service.api.error_hints import helped
from rankloop.service.errors import CatalogInUse, NoSuchCatalog, Told, UnknownCatalog, UnknownRanker
from rankloop.service.observability import tracing
from rankloop.wire.basics import Problem

logger = logging.getLogger("rankloop")

# What the library raises, which knows nothing of HTTP: the first that fits. The service's own errors say it themselves.
KINDS: list[tuple[type[Exception], str, int]] = [
    (UnknownName, "unknown-name", 422),
    (CodecError, "damaged", 500),
    (RankloopError, "invalid", 422),
]


_NO_JSON = re.compile(rb"[\[:,\s]-?(?:NaN|Infinity)\b")  # as a value: in packed features the letters may be anywhere
HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    415: {"Accept-Encoding": "gzip"},
    503: {"Retry-After": "1"},
}


MOST_EXPLAINED = 512 * 2**10  # bytes of a body that is searched for what is wrong with it


class Failure(NamedTuple):
    """A failure, before it has become an answer."""

    status: int
    problem: Problem
    headers: dict[str, str]


def describe(error: Exception, body: bytes = b"", names: Sequence[str] = ()) -> Failure:
    """What to tell a caller whose request ended in `error`; `names` are the features of the ranker it was for."""
    if isinstance(error, Told):
        return failure(error.status, error.word, str(error), getattr(error, "headers", None))
    for kind, word, status in KINDS:
        if isinstance(error, kind):
            return failure(status, word, str(error))
    if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError | RecursionError):
        return failure(400, "malformed", _malformed(error, body, names=names))
    logger.error("a request failed", exc_info=error)
    return failure(500, "internal", "this is a bug of rankloop; the log of the service has the details")


def failure(status: int, error: str, message: str, headers: dict[str, str] | None = None) -> Failure:
    """A failure with the headers that belong to it, or else to its status; it knows its request, and that it failed."""
    trace = tracing.current.get()
    if trace is not None:
        trace.error = error
    told = Problem(error, message, "" if trace is None else trace.id)
    return Failure(status, told, HEADERS.get(status, {}) if headers is None else headers)


def _malformed(error: Exception, body: bytes, kind: Any = None, names: Sequence[str] = ()) -> str:
    """Bodies that are not JSON, or not of the declared shape."""
    text = " ".join(str(error).split()).replace("`$.data", "`$")  # a path into the body, as the caller sees it
    if text == "Input data was truncated":
        return "the body ends too early, or is empty; send a whole JSON document"
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not JSON, which is UTF-8: {text}"
    if isinstance(error, RecursionError):
        return "the body is nested too deeply; nothing here is more than a few levels deep"
    if len(body) > MOST_EXPLAINED:
        return text
    if _NO_JSON.search(body):
        text += "; JSON has no NaN and no Infinity: leave the candidate out, or send a number"
    return helped(text, body, kind, names)


def too_large(limit: int) -> Failure:
    """A body over the limit."""
    return failure(413, "over-limit", content_encoding.too_large(limit))


def problem(found: Failure) -> Response[Problem]:
    """A failure as the framework answers it."""
    return Response(found.problem, status_code=found.status, headers=dict(found.headers), media_type="application/json")


def any_error(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """All but what the framework raises itself."""
    if type(error) in (UnknownRanker, UnknownCatalog, NoSuchCatalog, CatalogInUse):  # messages that list names
        key = getattr(request.state, "key", None)
        if key is not None and not key.sees_names:
            return problem(failure(error.status, error.word, error.plain))  # type: ignore[attr-defined]
    return problem(describe(error, _body(request)))


def _body(request: Request[Any, Any, Any]) -> bytes:
    body = getattr(request, "_body", None)
    return body if isinstance(body, bytes) else b""


def http(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What the framework raises: unknown paths, wrong methods, large bodies, wrong shapes."""
    status, text, cause = error.status_code, error.detail, error.__cause__ or error.__context__
    if status == 400:
        found: Any = error.extra if isinstance(error.extra, list) else []
        parts = [f"{e.get('key', '')}: {e.get('message', '')}".lstrip(": ") for e in found if isinstance(e, dict)]
        reason = cause if isinstance(cause, msgspec.MsgspecError) else ValueError("; ".join(parts) or text)
        field = getattr(request.route_handler, "parsed_data_field", None)
        kind = None if field is None else field.annotation
        return problem(failure(400, "malformed", _malformed(reason, _body(request), kind)))
    if status == 413:
        return problem(too_large(request.app.state.engine.settings.max_body_bytes))
    if status == 404:
        return problem(failure(404, "unknown", f"nothing is at {request.url.path}; /docs shows what there is"))
    if status >= 500:
        logger.error("the framework failed: %s", text)  # the line about the request says where
    answer = problem(failure(status, "http", text))
    answer.headers.update(error.headers or {})  # a 405 says which methods there are
    return answer


HANDLERS: dict[Any, Any] = {HTTPException: http, Exception: any_error}
