"""Routes for watching a ranker (curves, latest impressions, weights, movement) and for its experiments."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Response, get, post
from litestar.datastructures import State
from litestar.params import Body, Parameter

from rankloop.core.errors import InvalidInput
from rankloop.service.api.routes.common import (
    AnyRequest,
    IdempotencyKey,
    RankerName,
    operate,
    read,
    route,
    use_idempotency_key,
)
from rankloop.service.control import experiments, views
from rankloop.service.errors import NotAllowed
from rankloop.service.ranking.movement import LATEST
from rankloop.wire.experiments import Experiment, ExperimentRequest
from rankloop.wire.monitoring import Movement, Series, ShownList, Weights

Seconds = Annotated[int, Parameter(ge=10, le=90 * 86400, description="how far to look back")]
Step = Annotated[int | None, Parameter(ge=10, le=86400, description="seconds per point; chosen if not given")]
Lists = Annotated[int, Parameter(ge=1, le=100, description="how many")]
Features = Annotated[int, Parameter(ge=1, le=4096, description="how many, those with the largest weights")]
Number = Annotated[int, Parameter(ge=1, le=2**31, description="the experiment")]
Terms = Annotated[ExperimentRequest | None, Body()]
RANKER = "/v1/rankers/{name:str}"


async def _recent(state: State, view: Any, *arguments: Any) -> Response[bytes]:
    return Response(await state.recent.get(view, state.engine, *arguments), media_type=MediaType.JSON)


@route(get, f"{RANKER}/series", "read", "watch", "Curves over time", 400, 404, 422, returns=Series)
async def get_series(state: State, name: RankerName, seconds: Seconds = 900, step: Step = None) -> Response[bytes]:
    """Clicks, exploration, lag and the like over time, and clicks by position; of all processes, some seconds old.

    Steps of 10 seconds are kept for six hours, steps of ten minutes for ninety days.
    """
    return await _recent(state, views.series, name, seconds, step)


@route(get, f"{RANKER}/impressions", "read", "watch", "Latest impressions", 400, 404, returns=list[ShownList])
async def get_impressions(state: State, name: RankerName, limit: Lists = 20) -> Response[bytes]:
    """The newest first: what was shown, its position in your order, what was explored and why, what was clicked."""
    return await _recent(state, views.impressions, name, limit)


@route(get, f"{RANKER}/weights", "read", "watch", "Weights of features", 400, 404, returns=Weights)
async def get_weights(state: State, name: RankerName, limit: Features = 30) -> Response[bytes]:
    """The weights of a linear ranker, the largest first, with their confidence."""
    return await _recent(state, views.weights, name, limit)


@route(get, f"{RANKER}/movement", "read", "watch", "Distance from your order", 400, 404, returns=Movement)
async def get_movement(state: State, name: RankerName, limit: Lists = LATEST) -> Response[bytes]:
    """How the model would order its latest impressions, compared with your order of the same items; its memory of
    queries and the drift it detected."""
    return await _recent(state, views.movement, name, limit)


@route(post, f"{RANKER}/experiments", "admin", "experiments", "Start an experiment", 400, 404, 409, 422)
async def start_experiment(
    request: AnyRequest, name: RankerName, data: Terms = None, idempotency_key: IdempotencyKey = None
) -> Experiment:
    """A share of the requests gets an interleaved ranking of the ranker's and the rival's, and clicks show which of the
    two users prefer. One at a time for each ranker; without a body the rival is your order."""
    if data is not None and "\0" in data.note:
        raise InvalidInput("the note is text; it has the character NUL in it")
    terms, key = data or ExperimentRequest(), request.state.key
    if isinstance(terms.against, str) and terms.against not in ("base", "live") and not key.is_for(terms.against):
        raise NotAllowed("the key sent is not for the ranker to compare with")
    use_idempotency_key(idempotency_key)
    return await operate(experiments.start, request.app.state.engine, name, terms)


@route(get, f"{RANKER}/experiments", "read", "experiments", "Experiments of a ranker", 400, 404)
async def list_experiments(state: State, name: RankerName) -> list[Experiment]:
    """And guardrails: the newest first, at most a hundred. Look as often as you like: the intervals allow it."""
    return await read(experiments.listed, state.engine, name)


@route(get, f"{RANKER}/experiments/{{number:int}}", "read", "experiments", "One experiment", 400, 404)
async def get_experiment(state: State, name: RankerName, number: Number) -> Experiment:
    """The preference with its interval, the verdict, and how many impressions it may still take."""
    return await read(experiments.one, state.engine, name, number)


@route(
    post,
    f"{RANKER}/experiments/{{number:int}}/stop",
    "admin",
    "experiments",
    "Stop an experiment",
    *(400, 404, 409),
    status_code=200,
)
async def stop_experiment(
    state: State, name: RankerName, number: Number, idempotency_key: IdempotencyKey = None
) -> Experiment:
    """Its results are kept. A guardrail is part of the ranker's spec: change that instead."""
    use_idempotency_key(idempotency_key)
    return await operate(experiments.stop, state.engine, name, number)


ROUTES: list[Any] = [get_series, get_impressions, get_weights, get_movement]
ROUTES += [start_experiment, list_experiments, get_experiment, stop_experiment]
