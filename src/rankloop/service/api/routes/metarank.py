"""Metarank's paths, which have no prefix of their own: `/rank/{model}`, `/feedback`, `/train/{model}`, `/health`."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Request, Response, get, post

from rankloop.service.api.routes._shared import RankerName, needs
from rankloop.service.api.routes.calls import Explain
from rankloop.service.control import metarank

TRAINED = (
    "nothing needs training: ranker {name} learns from each interaction as it comes, and saves what it has learned by "
    "itself; GET /v1/rankers/{name} says how far it is"
)
Asked = Request[Any, Any, Any]


@post("/rank/{name:str}", guards=[needs("rank")], status_code=200, include_in_schema=False)
async def rank(request: Asked, name: RankerName, explain: Explain = False) -> Response[bytes]:
    """Rank items."""
    answer = await metarank.rank(request.app.state.engine, name, await request.body(), explain)
    return Response(answer, media_type=MediaType.JSON)


@post("/feedback", guards=[needs("feedback")], status_code=200, include_in_schema=False)
async def feedback(request: Asked) -> Response[bytes]:
    """Take events, as any content type."""
    answer = await metarank.feedback(request.app.state.engine, await request.body(), request.state.key)
    return Response(answer, media_type=MediaType.JSON)


@post("/train/{name:str}", guards=[needs("feedback")], status_code=200, include_in_schema=False)
async def train(request: Asked, name: RankerName) -> dict[str, str]:
    """Say that this is not needed."""
    live = await request.app.state.engine.find(name)
    return {"status": "ok", "message": TRAINED.format(name=live.row.name)}


@get("/health", include_in_schema=False, sync_to_thread=False)
def health() -> dict[str, str]:
    """Yes, if it answers."""
    return {"status": "ok"}


ROUTES: list[Any] = [rank, feedback, train, health]
