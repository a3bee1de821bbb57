"""Turn exceptions into JSON errors with a code, an HTTP status and a remedy."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import inspect

from rankloop.core.errors import CodecError, RankloopError, UnknownName
from rankloop.service.api import content_encoding
from rankloop.service.errors import CatalogInUse, NoSuchCatalog, ServiceError, UnknownCatalog, UnknownRanker
from rankloop.service.observability import tracing
from rankloop.wire.basics import Problem

logger = logging.getLogger("rankloop")

LIBRARY_ERRORS: list[tuple[type[Exception], str, int]] = [  # the first that fits
    (UnknownName, "unknown-name", 422),
    (CodecError, "damaged", 500),
    (RankloopError, "invalid", 422),
]


_NOT_JSON = re.compile(rb"[\[:,\s]-?(?:NaN|Infinity)\b")  # as a value: packed features contain any letters
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
    """The failure that an error becomes; `names` are the features of the ranker it was for."""
    if isinstance(error, ServiceError):
        return failure(error.status, error.code, str(error), getattr(error, "headers", None))
    for kind, code, status in LIBRARY_ERRORS:
        if isinstance(error, kind):
            return failure(status, code, str(error))
    if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError | RecursionError):
        return failure(400, "malformed", _malformed(error, body, names=names))
    logger.error("a request failed", exc_info=error)
    return failure(500, "internal", "this is a bug of rankloop; the log of the service has the details")


def failure(status: int, error: str, message: str, headers: dict[str, str] | None = None) -> Failure:
    """A failure of the current request, with `headers` or those of its status."""
    trace = tracing.current.get()
    if trace is not None:
        trace.error = error
    problem = Problem(error, message, "" if trace is None else trace.id)
    return Failure(status, problem, HEADERS.get(status, {}) if headers is None else headers)


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
    if _NOT_JSON.search(body):
        text += "; JSON has no NaN and no Infinity: leave the candidate out, or send a number"
    return with_hint(text, body, kind, names)


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
            return problem(failure(error.status, error.code, error.plain))  # type: ignore[attr-defined]
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


_PLACE = re.compile(r" - at `\$(.*)`$")
_FEATURE = re.compile(r"\.candidates\[(\d+)\]\.features\[(\d+|\.\.\.)\]$")
_IN_ROW = re.compile(r"\.features\[(\d+)\]\[(\d+)\]$")
_IN_COLUMN = re.compile(r"\.features\[\.\.\.\](?:\[(\d+)\])?$")


class _Sent(msgspec.Struct):
    """As much of a candidate as is needed to name what is wrong with it."""

    id: msgspec.Raw = msgspec.Raw(b"null")
    features: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    candidates: list[_Sent] = []
    ids: list[msgspec.Raw] = []
    features: msgspec.Raw = msgspec.Raw(b"null")


def with_hint(text: str, body: bytes, kind: Any = None, names: Sequence[str] = ()) -> str:
    """msgspec's message with the choices there are, or the feature that is not a number.

    `kind` is the expected type of the body, `names` are the features of the ranker.

    >>> with_hint("Expected `float`, got `bool` - at `$.candidates[0].features[1]`",
    ...        b'{"candidates": [{"id": "a", "features": [1, true]}]}', names=["bm25", "price"])
    "Expected `float`, got `bool` - at `$.candidates[0].features[1]`: feature 'price' of candidate 'a'"
    """
    found = _PLACE.search(text)
    if found is None:
        return text
    at = found[1]
    try:
        if (place := _FEATURE.match(at)) is not None:
            return text + _feature(_sent(body).candidates[int(place[1])], place[2], names)
        if (place := _IN_ROW.match(at)) is not None:
            return text + _named(names[int(place[2])], _sent(body).ids[int(place[1])])
        if (place := _IN_COLUMN.match(at)) is not None:
            return text + _column(_sent(body), place[1])
    except (msgspec.MsgspecError, StopIteration, IndexError):  # something else is wrong
        return text
    choices = [] if kind is None else _choices(inspect.type_info(kind), at.strip(".").split("."))
    return f"{text}; it is one of {', '.join(map(repr, choices))}" if choices else text


_sent = msgspec.json.Decoder(_Body).decode


def _feature(candidate: _Sent, slot: str, names: Sequence[str]) -> str:
    if slot != "...":
        return _named(names[int(slot)], candidate.id)
    features = msgspec.json.decode(candidate.features, type=dict[str, msgspec.Raw])
    return _named(next(name for name, value in features.items() if not _is(value, float | None)), candidate.id)


def _column(body: _Body, slot: str | None) -> str:
    """The first column by name that is not a column."""
    columns = msgspec.json.decode(body.features, type=dict[str, msgspec.Raw])
    name = next(name for name, column in columns.items() if not _is(column, list[float | None]))
    return f": feature {name!r}" if slot is None else _named(name, body.ids[int(slot)])


def _named(name: str, item: msgspec.Raw) -> str:
    return f": feature {name!r} of candidate {msgspec.json.decode(item)!r}"


def _is(value: msgspec.Raw, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError:
        return False
    return True


def _choices(kind: Any, path: list[str]) -> list[Any]:
    """The values that are allowed at a path, if they are listed."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return [value for one in kind.types for value in _choices(one, path)]
    if isinstance(kind, inspect.StructType):
        fields = {field.encode_name: field.type for field in kind.fields}
        return _choices(fields[path[0]], path[1:]) if path and path[0] in fields else []
    return list(kind.values) if isinstance(kind, inspect.LiteralType) and not path else []
