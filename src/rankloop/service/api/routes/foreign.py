"""The paths of other systems: Metarank, Azure Personalizer and UBI."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Response, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers.base import BaseRouteHandler
from litestar.params import Parameter

from rankloop.integrations.personalizer import ErrorResponse, PersonalizerError
from rankloop.service.access import Key
from rankloop.service.api import errors
from rankloop.service.api.routes.calls import Explain
from rankloop.service.api.routes.common import Access, AnyRequest, RankerName
from rankloop.service.control import foreign
from rankloop.wire.basics import Problem


def _json(answer: bytes) -> Response[bytes]:
    return Response(answer, media_type=MediaType.JSON)


# -- Metarank: paths without a prefix ------------------------------------------------------------------------------

TRAINED = (
    "nothing needs training: ranker {name} learns from each interaction as it comes, and saves its state by itself; "
    "see GET /v1/rankers/{name}"
)


@post("/rank/{name:str}", guards=[Access("rank")], status_code=200, include_in_schema=False)
async def metarank_rank(request: AnyRequest, name: RankerName, explain: Explain = False) -> Response[bytes]:
    """Rank items."""
    return _json(await foreign.metarank_rank(request.app.state.engine, name, await request.body(), explain))


@post("/feedback", guards=[Access("feedback")], status_code=200, include_in_schema=False)
async def metarank_feedback(request: AnyRequest) -> Response[bytes]:
    """Take events, as any content type."""
    return _json(await foreign.metarank_feedback(request.app.state.engine, await request.body(), request.state.key))


@post("/train/{name:str}", guards=[Access("feedback")], status_code=200, include_in_schema=False)
async def metarank_train(request: AnyRequest, name: RankerName) -> dict[str, str]:
    """Report that training is not needed."""
    live = await request.app.state.engine.find(name)
    return {"status": "ok", "message": TRAINED.format(name=live.row.name)}


@get("/health", include_in_schema=False, sync_to_thread=False)
def metarank_health() -> dict[str, str]:
    """Metarank's liveness check."""
    return {"status": "ok"}


# -- Azure Personalizer: /personalizer/v1.0/…, or /{ranker}/personalizer/v1.0/… where there are several --------------

VERSIONS = ("v1.0", "v1.1-preview.3")  # the same calls; the second adds slots, which are not supported
NO_SLOTS = "multi-slot calls are not supported: rank each slot by a call of its own, and exclude what is taken already"
CODES = {400: "BadRequest", 404: "ResourceNotFound", 409: "BadRequest", 413: "BadRequest", 422: "BadRequest"}
KEY = "ocp-apim-subscription-key"  # the header in which Azure's clients send their key
EventId = Annotated[str, Parameter(min_length=1, max_length=256)]


class _Access(Access):
    """Where the path names no ranker, the key does, and must be for it."""

    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        await super().__call__(connection, handler)
        key: Key = connection.state.key
        connection.state.ranker = foreign.ranker_of(connection.path_params.get("name"), key)
        key.require_ranker(connection.state.ranker)


def _as_personalizer(answer: Response[Problem]) -> Response[ErrorResponse]:
    """An error in Personalizer's format. It has no 422: a value that breaks a rule is a bad request."""
    status, found = answer.status_code or 500, answer.content
    code = CODES.get(status, "InternalServerError" if status >= 500 else found.error)
    body = ErrorResponse(PersonalizerError(code, found.message))
    status = 400 if status == 422 else status
    return Response(body, status_code=status, headers=dict(answer.headers), media_type=MediaType.JSON)


def _any(request: AnyRequest, error: Exception) -> Response[ErrorResponse]:
    return _as_personalizer(errors.any_error(request, error))


def _http(request: AnyRequest, error: HTTPException) -> Response[ErrorResponse]:
    return _as_personalizer(errors.http(request, error))


def _personalizer(scope: str, status: int, *ends: str) -> Any:
    paths = [
        f"{front}/personalizer/{version}/{end}" for front in ("", "/{name:str}") for version in VERSIONS for end in ends
    ]
    guards, handlers = [_Access(scope, header=KEY)], {HTTPException: _http, Exception: _any}
    return post(paths, guards=guards, status_code=status, exception_handlers=handlers, include_in_schema=False)  # type: ignore[arg-type]


async def _rank(request: AnyRequest) -> Response[bytes]:
    return _json(await foreign.personalizer_rank(request.app.state.engine, request.state.ranker, await request.body()))


async def _reward(request: AnyRequest, event_id: EventId) -> None:
    state = request.state
    await foreign.personalizer_reward(request.app.state.engine, state.ranker, event_id, await request.body(), state.key)


async def _activate(request: AnyRequest, event_id: EventId) -> None:
    await foreign.personalizer_activate(request.app.state.engine, request.state.ranker, event_id, request.state.key)


async def _multislot(request: AnyRequest) -> Response[ErrorResponse]:  # noqa: ARG001
    return Response(ErrorResponse(PersonalizerError("NotImplemented", NO_SLOTS)), status_code=501)


PERSONALIZER: list[Any] = [
    _personalizer("rank", 201, "rank")(_rank),
    _personalizer("feedback", 204, "events/{event_id:str}/reward")(_reward),
    _personalizer("feedback", 204, "events/{event_id:str}/activate")(_activate),
    _personalizer(
        "rank",
        501,
        *("multislot/rank", "multislot/events/{event_id:str}/reward", "multislot/events/{event_id:str}/activate"),
    )(_multislot),
]


# -- UBI -----------------------------------------------------------------------------------------------------------


@post("/ubi/events", guards=[Access("feedback")], status_code=200, include_in_schema=False)
async def ubi_events(request: AnyRequest) -> Response[bytes]:
    """An event, an array of them, or one per line; as any content type."""
    return _json(await foreign.ubi_events(request.app.state.engine, await request.body(), request.state.key))


# By the names that the setting `adapters` uses.
FOREIGN: dict[str, list[Any]] = {
    "metarank": [metarank_rank, metarank_feedback, metarank_train, metarank_health],
    "personalizer": PERSONALIZER,
    "ubi": [ubi_events],
}
