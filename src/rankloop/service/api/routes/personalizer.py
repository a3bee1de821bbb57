"""Azure Personalizer's paths: `/personalizer/v1.0/…`, or `/{ranker}/personalizer/v1.0/…` where there are several."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Request, Response, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers.base import BaseRouteHandler
from litestar.params import Parameter

from rankloop.integrations.personalizer import ErrorResponse, PersonalizerError
from rankloop.service.access.keys import Key
from rankloop.service.api import errors
from rankloop.service.api.routes._shared import Access
from rankloop.service.control import personalizer
from rankloop.wire.basics import Problem

VERSIONS = ("v1.0", "v1.1-preview.3")  # the same calls; what is new in the second, slots, is refused by name
NOT_THERE = "multi-slot calls are not there: rank each slot by a call of its own, and exclude what is taken already"
CODES = {400: "BadRequest", 404: "ResourceNotFound", 409: "BadRequest", 413: "BadRequest", 422: "BadRequest"}
KEY = "ocp-apim-subscription-key"  # the header in which Azure's clients send their key

EventId = Annotated[str, Parameter(min_length=1, max_length=256)]
Asked = Request[Any, Any, Any]


class _Access(Access):
    """As for other routes; where the path names no ranker, it follows from the key, which must be for it."""

    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        await super().__call__(connection, handler)
        key: Key = connection.state.key
        connection.state.ranker = personalizer.ranker_of(connection.path_params.get("name"), key)
        key.require_ranker(connection.state.ranker)


def _needs(scope: str) -> Any:
    """The guard of a route, with the key in Azure's header, or as everyone else sends it."""
    return _Access(scope, header=KEY)


def _told(answer: Response[Problem]) -> Response[ErrorResponse]:
    """An error in Personalizer's words."""
    status, found = answer.status_code or 500, answer.content
    # 422 is a value that breaks a rule, which Personalizer calls a bad request
    code = CODES.get(status, "InternalServerError" if status >= 500 else found.error)
    told = ErrorResponse(PersonalizerError(code, found.message))
    status = 400 if status == 422 else status
    return Response(told, status_code=status, headers=dict(answer.headers), media_type=MediaType.JSON)


def _any(request: Asked, error: Exception) -> Response[ErrorResponse]:
    return _told(errors.any_error(request, error))


def _http(request: Asked, error: HTTPException) -> Response[ErrorResponse]:
    return _told(errors.http(request, error))


HANDLERS: dict[Any, Any] = {HTTPException: _http, Exception: _any}
_COMMON: dict[str, Any] = {"exception_handlers": HANDLERS, "include_in_schema": False}


def _paths(*ends: str) -> list[str]:
    return [
        f"{front}/personalizer/{version}/{end}" for front in ("", "/{name:str}") for version in VERSIONS for end in ends
    ]


@post(_paths("rank"), guards=[_needs("rank")], status_code=201, **_COMMON)
async def rank(request: Asked) -> Response[bytes]:
    """Choose an action."""
    answer = await personalizer.rank(request.app.state.engine, request.state.ranker, await request.body())
    return Response(answer, media_type=MediaType.JSON)


@post(_paths("events/{event_id:str}/reward"), guards=[_needs("feedback")], status_code=204, **_COMMON)
async def reward(request: Asked, event_id: EventId) -> None:
    """Say what it was worth."""
    state = request.state
    await personalizer.reward(request.app.state.engine, state.ranker, event_id, await request.body(), state.key)


@post(_paths("events/{event_id:str}/activate"), guards=[_needs("feedback")], status_code=204, **_COMMON)
async def activate(request: Asked, event_id: EventId) -> None:
    """Say that it was shown."""
    await personalizer.activate(request.app.state.engine, request.state.ranker, event_id, request.state.key)


@post(
    _paths("multislot/rank", "multislot/events/{event_id:str}/reward", "multislot/events/{event_id:str}/activate"),
    guards=[_needs("rank")],
    status_code=501,
    **_COMMON,
)
async def multislot(request: Asked) -> Response[ErrorResponse]:  # noqa: ARG001
    """Not there, and why."""
    return Response(ErrorResponse(PersonalizerError("NotImplemented", NOT_THERE)), status_code=501)


ROUTES: list[Any] = [rank, reward, activate, multislot]
