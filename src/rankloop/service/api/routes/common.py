"""What routes share: parameters, access checks, the errors that they document, and calls in threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, Parameter

from rankloop.service.observability import tracing
from rankloop.service.serving.engine import Engine
from rankloop.wire.basics import NAME, Problem
from rankloop.wire.rankers import RankerStatus

P = ParamSpec("P")
T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]
RankerName = Annotated[str, Parameter(pattern=NAME, description="the ranker", max_length=64)]
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="an ETag of the ranker: change it only if it is still in that state"),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        pattern="^[ -~]{1,255}$",
        description="of your choice, one for each action: repeating a request with the same key changes nothing and "
        "returns the result of the first",
    ),
]
_PROBLEMS = {
    400: "not JSON, or not of the shape described here",
    401: "no key, or an unknown one",
    403: "a key without the scope this needs, or for other rankers or catalogs",
    404: "no such ranker or version",
    412: "the ranker is not in the state that `If-Match` names",
    409: "contradicts the present state; the message gives the remedy",
    413: "larger than a limit; the message names it",
    415: "an unknown content encoding; gzip is known",
    422: "well formed, but a value breaks a rule",
    429: "more requests than the key may send; see `Retry-After`",
    503: "the store is unavailable, the learner busy or the service stopping; try again with the same ids",
}


def problems(*codes: int) -> dict[int, ResponseSpec]:
    """The errors with these codes, and those that every route may answer with."""
    return {
        code: ResponseSpec(Problem, description=_PROBLEMS[code], generate_examples=False)
        for code in (*codes, 401, 403, 429, 503)
    }


@dataclass(frozen=True)
class Access:
    """The guard of a route: which key it needs.

    The ranker (`{name}`) and the catalog (`{catalog}`) in the path are checked here. A route with neither must either
    need a key without limits (`everything`), or check what it touches against `request.state.key`;
    tests/service/test_access.py lists the latter.

    Parameters
    ----------
    scope
        The scope that the key must have; None: any key.
    everything
        Whether the key must be for all rankers and catalogs.
    header
        Another header that may carry the key.
    """

    scope: str | None
    everything: bool = False
    header: str | None = None

    # Async: a synchronous guard would send every request through a thread.
    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        engine: Engine = connection.app.state.engine
        own = None if self.header is None else connection.headers.get(self.header)
        header = connection.headers.get("authorization") if own is None else f"Bearer {own}"
        key = engine.keys.check(header, self.scope, connection.path_params.get("name"))
        if (catalog := connection.path_params.get("catalog")) is not None:
            key.require_catalog(catalog)
        if self.everything:
            key.require_everything()
        connection.state.key = key


def route(
    method: Any,
    path: str,
    scope: str | None,
    tag: str,
    summary: str,
    *codes: int,
    returns: Any = None,
    everything: bool = False,
    **more: Any,
) -> Callable[[Any], Any]:
    """A documented route that needs a key; `codes` are its errors, `returns` the type of its body where the annotation
    does not show it."""
    responses = problems(*codes)
    if returns is not None:
        responses = {200: ResponseSpec(returns, generate_examples=False), **responses}
    decorated: Callable[[Any], Any] = method(
        path, guards=[Access(scope, everything)], tags=[tag], summary=summary, responses=responses, **more
    )
    return decorated


def use_idempotency_key(key: str | None) -> None:
    """Carry out the operator action of this request at most once for this idempotency key."""
    trace = tracing.current.get()
    if trace is not None and key is not None:
        trace.idempotency_key = key


def with_etag(status: RankerStatus, code: int = 200) -> Response[RankerStatus]:
    """A ranker's status with its ETag."""
    return Response(status, status_code=code, headers={"ETag": status.etag})


def id_in_path(request: AnyRequest, before: str, given: str) -> str:
    """An id at the end of a path as it was sent: the framework turns a//b and a/ into a/b and a."""
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    return unquote(raw.partition(before)[2]) or given.removeprefix("/")


async def read(function: Callable[Concatenate[Engine, P], T], engine: Engine, *given: P.args, **named: P.kwargs) -> T:
    """Call a function that only reads, in a thread."""
    return await engine.reads.run(function, engine, *given, **named)


async def operate(
    function: Callable[Concatenate[Engine, P], T], engine: Engine, *given: P.args, **named: P.kwargs
) -> T:
    """Call a function that changes something and may wait for others, in a thread."""
    return await engine.operations.run(function, engine, *given, **named)
