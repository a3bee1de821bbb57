"""The routes of those who watch: how a ranker fares, what it shows, what it thinks."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Response, get
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop.service.api.routes._shared import RankerName, needs, problems
from rankloop.service.control import views
from rankloop.service.ranking.movement import LOOKED_AT
from rankloop.wire.watch import Movement, Series, ShownList, Weights

Seconds = Annotated[int, Parameter(ge=10, le=90 * 86400, description="how far to look back")]
Step = Annotated[int | None, Parameter(ge=10, le=86400, description="seconds a point; chosen if not given")]
Lists = Annotated[int, Parameter(ge=1, le=100, description="how many")]
Features = Annotated[int, Parameter(ge=1, le=4096, description="how many, those with the largest weights")]


@get(
    "/v1/rankers/{name:str}/series",
    guards=[needs("read")],
    tags=["watch"],
    summary="How it fares",
    responses={200: ResponseSpec(Series, generate_examples=False), **problems(400, 404, 422)},
)
async def get_series(state: State, name: RankerName, seconds: Seconds = 900, step: Step = None) -> Response[bytes]:
    """Clicks, exploration, lag and the like over time, and clicks by position; of all processes, some seconds old.

    Steps of 10 seconds are kept for six hours, steps of ten minutes for ninety days.
    """
    return await _recent(state, views.series, name, seconds, step)


@get(
    "/v1/rankers/{name:str}/impressions",
    guards=[needs("read")],
    tags=["watch"],
    summary="Its latest lists",
    responses={200: ResponseSpec(list[ShownList], generate_examples=False), **problems(400, 404)},
)
async def get_impressions(state: State, name: RankerName, limit: Lists = 20) -> Response[bytes]:
    """The newest first: what was shown, where it stood in your order, what was tried and why, what was clicked."""
    return await _recent(state, views.impressions, name, limit)


@get(
    "/v1/rankers/{name:str}/weights",
    guards=[needs("read")],
    tags=["watch"],
    summary="What it thinks of features",
    responses={200: ResponseSpec(Weights, generate_examples=False), **problems(400, 404)},
)
async def get_weights(state: State, name: RankerName, limit: Features = 30) -> Response[bytes]:
    """The weights of a linear ranker, the largest first, with how sure it is of them."""
    return await _recent(state, views.weights, name, limit)


@get(
    "/v1/rankers/{name:str}/movement",
    guards=[needs("read")],
    tags=["watch"],
    summary="How far it has moved from your order",
    responses={200: ResponseSpec(Movement, generate_examples=False), **problems(400, 404)},
)
async def get_movement(state: State, name: RankerName, limit: Lists = LOOKED_AT) -> Response[bytes]:
    """What it believes now of its latest lists, against your order of the same items; what it remembers and noticed."""
    return await _recent(state, views.movement, name, limit)


async def _recent(state: State, view: Any, *arguments: Any) -> Response[bytes]:
    return Response(await state.recent.get(view, state.engine, *arguments), media_type=MediaType.JSON)


ROUTES: list[Any] = [get_series, get_impressions, get_weights, get_movement]
