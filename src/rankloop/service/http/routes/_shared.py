"""What the routes share: the ranker in a path, the errors a route may answer with, the key it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from litestar import Response
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, Parameter

from rankloop.service.engine import Engine
from rankloop.service.errors import NotAllowed
from rankloop.service.wire.basics import NAME, Problem
from rankloop.service.wire.rankers import RankerStatus

P = ParamSpec("P")
T = TypeVar("T")
RankerName = Annotated[str, Parameter(pattern=NAME, description="the ranker", max_length=64)]
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="an ETag of the ranker: change it only if it is still as it was then"),
]


def problems(*codes: int) -> dict[int, ResponseSpec]:
    """The errors with these codes, and those that every route may answer with."""
    texts = {
        400: "not JSON, or not of the shape described here",
        401: "no key, or an unknown one",
        403: "a key without the scope this needs, or for other rankers",
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


def needs(scope: str | None, every_ranker: bool = False) -> Any:
    """A guard that asks for a key with `scope`, for the ranker in the path or for all of them, and leaves it in the
    request's `state.key`; async, or every request would pass through a thread."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        engine: Engine = connection.app.state.engine
        ranker = connection.path_params.get("name")
        key = engine.keys.check(connection.headers.get("authorization"), scope, ranker)
        if every_ranker and key.rankers is not None:
            raise NotAllowed("this is about all rankers, the key sent is for some; take one that is for all")
        connection.state.key = key

    return guard


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
