"""What the routes share: the ranker in a path, the errors a route may answer with, the key it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from litestar import Response
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
RankerName = Annotated[str, Parameter(pattern=NAME, description="the ranker", max_length=64)]
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="an ETag of the ranker: change it only if it is still as it was then"),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        pattern="^[ -~]{1,255}$",
        description="of your choice, one for each action: the same request with the same key again changes nothing and "
        "gets the result of the first",
    ),
]


def once(key: str | None) -> None:
    """Carry out the operator action of this request at most once for this idempotency key."""
    trace = tracing.current.get()
    if trace is not None and key is not None:
        trace.idempotency_key = key


def problems(*codes: int) -> dict[int, ResponseSpec]:
    """The errors with these codes, and those that every route may answer with."""
    texts = {
        400: "not JSON, or not of the shape described here",
        401: "no key, or an unknown one",
        403: "a key without the scope this needs, or for other rankers or catalogs",
        404: "no such ranker or version",
        412: "the ranker is not as `If-Match` says; the message says what has changed",
        409: "contradicts what is there; the message says the remedy",
        413: "larger than a limit; the message says which",
        415: "packed in a way that is not known; gzip is",
        422: "well formed, but a value breaks a rule",
        429: "more requests than the key may send; `Retry-After` says when to come again",
        503: "the store is down, the learner busy or the service stopping; try again with the same ids",
    }
    return {
        code: ResponseSpec(Problem, description=texts[code], generate_examples=False)
        for code in (*codes, 401, 403, 429, 503)
    }


@dataclass(frozen=True)
class Access:
    """What a route asks of the key: the guard of every route that is not open to everyone.

    The ranker (`{name}`) and the catalog (`{catalog}`) in the path are checked by themselves. A route with neither
    must either ask for a key without limits (`everything`), or check what it touches against `request.state.key`;
    tests/service/test_access.py lists the latter.

    Parameters
    ----------
    scope
        The scope that the key must have; None: any key will do.
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


def needs(scope: str | None, everything: bool = False) -> Any:
    """The guard of a route: see `Access`."""
    return Access(scope, everything)


def told(status: RankerStatus, code: int = 200) -> Response[RankerStatus]:
    """A ranker with its ETag."""
    return Response(status, status_code=code, headers={"ETag": status.etag})


async def read(function: Callable[Concatenate[Engine, P], T], engine: Engine, *given: P.args, **named: P.kwargs) -> T:
    """Call a function that only reads, in a thread."""
    return await engine.reads.run(function, engine, *given, **named)


async def operate(
    function: Callable[Concatenate[Engine, P], T], engine: Engine, *given: P.args, **named: P.kwargs
) -> T:
    """Call a function that changes something and may wait for others, in a thread."""
    return await engine.operations.run(function, engine, *given, **named)
