"""The routes that come with every user, as the framework has them; `fast_path` takes them before it does."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Request, Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop.service.api import beacons, fast_path
from rankloop.service.api.routes._shared import RankerName, needs, problems
from rankloop.service.serving.engine import Engine
from rankloop.wire.calls import FeedbackAnswer, RankAnswer

Explain = Annotated[bool, Parameter(description="add each feature's share of the score (linear learners)")]


@post(
    "/v1/rankers/{name:str}/rank",
    guards=[needs("rank")],
    status_code=200,
    tags=["rank"],
    summary="Rank candidates",
    responses={200: ResponseSpec(RankAnswer, generate_examples=False), **problems(400, 404, 409, 413, 422)},
)
async def rank(request: Request[Any, Any, Any], name: RankerName, explain: Explain = False) -> Response[bytes]:
    """Send candidates in the order you would show them; show the items of the answer, and report what was clicked.

    The impression is stored before the answer is sent. A learner that fails or takes too long gives your own order with
    `fallback: true`: this call does not fail because of a model.
    """
    engine: Engine = request.app.state.engine
    return Response(await engine.rank(name, await request.body(), explain), media_type=MediaType.JSON)


@post(
    "/v1/feedback",
    guards=[needs("feedback")],
    status_code=200,
    tags=["feedback"],
    summary="Report clicks or grades",
    responses={200: ResponseSpec(FeedbackAnswer, generate_examples=False), **problems(400, 413, 422)},
)
async def feedback(request: Request[Any, Any, Any]) -> Response[bytes]:
    """One event or an array of them. Every event is answered for itself, and is durable when it is.

    accepted: joined to its impression. duplicate: this event_id was here before, nothing happened. late: the impression
    is closed; kept, not learned. orphan: there is no such impression. rejected: it breaks a rule, see the reason.
    """
    engine: Engine = request.app.state.engine
    answer = await fast_path.feedback(engine, await request.body(), request.state.key)
    return Response(answer, media_type=MediaType.JSON)


@post(
    "/v1/beacon",
    status_code=200,
    tags=["feedback"],
    summary="Report clicks from a browser",
    security=[{}],
    responses={200: ResponseSpec(FeedbackAnswer, generate_examples=False), **problems(400, 413, 415, 422)},
)
async def beacon(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Without a key: with the `token` that came with a list, on that list, clicks only, until its window ends.

    For `navigator.sendBeacon` and pages of the setting `origins`; as any content type. Otherwise as `/v1/feedback`.
    """
    taker: beacons.Beacons = request.app.state.beacons
    taker.check(request.headers.get("origin"))
    return Response(await taker.take(await beacons.read(request)), media_type=MediaType.JSON)
