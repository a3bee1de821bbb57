"""The routes of experiments: comparing a ranker with something else on a share of its requests."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get, post
from litestar.datastructures import State
from litestar.params import Body, Parameter

from rankloop.core.errors import InvalidInput
from rankloop.service.api.routes._shared import IdempotencyKey, RankerName, needs, once, operate, problems, read
from rankloop.service.control import experiments
from rankloop.service.errors import NotAllowed
from rankloop.wire.experiments import Experiment, ExperimentRequest

Number = Annotated[int, Parameter(ge=1, le=2**31, description="the experiment")]
Terms = Annotated[ExperimentRequest | None, Body()]


@post(
    "/v1/rankers/{name:str}/experiments",
    guards=[needs("admin")],
    tags=["experiments"],
    summary="Start an experiment",
    responses=problems(400, 404, 409, 422),
)
async def start_experiment(
    request: Request[Any, Any, Any], name: RankerName, data: Terms = None, idempotency_key: IdempotencyKey = None
) -> Experiment:
    """A share of the requests is answered with a list mixed from the ranker's and the rival's, and clicks say which of
    the two users prefer. One at a time for each ranker; without a body it is compared with your order."""
    if data is not None and "\0" in data.note:
        raise InvalidInput("the note is text; it has the character NUL in it")
    terms, key = data or ExperimentRequest(), request.state.key
    if isinstance(terms.against, str) and terms.against not in ("base", "live") and not key.is_for(terms.against):
        raise NotAllowed("the key sent is not for the ranker to compare with")
    once(idempotency_key)
    return await operate(experiments.start, request.app.state.engine, name, terms)


@get(
    "/v1/rankers/{name:str}/experiments",
    guards=[needs("read")],
    tags=["experiments"],
    summary="Its experiments",
    responses=problems(400, 404),
)
async def list_experiments(state: State, name: RankerName) -> list[Experiment]:
    """And guardrails: the newest first, at most a hundred. Look as often as you like: the intervals allow for it."""
    return await read(experiments.listed, state.engine, name)


@get(
    "/v1/rankers/{name:str}/experiments/{number:int}",
    guards=[needs("read")],
    tags=["experiments"],
    summary="One experiment",
    responses=problems(400, 404),
)
async def get_experiment(state: State, name: RankerName, number: Number) -> Experiment:
    """The preference with its interval, the verdict, and how many lists it may still take."""
    return await read(experiments.one, state.engine, name, number)


@post(
    "/v1/rankers/{name:str}/experiments/{number:int}/stop",
    guards=[needs("admin")],
    status_code=200,
    tags=["experiments"],
    summary="Stop an experiment",
    responses=problems(400, 404, 409),
)
async def stop_experiment(
    state: State, name: RankerName, number: Number, idempotency_key: IdempotencyKey = None
) -> Experiment:
    """It keeps what it has found. A guardrail is part of the ranker's spec: change that."""
    once(idempotency_key)
    return await operate(experiments.stop, state.engine, name, number)


ROUTES: list[Any] = [start_experiment, list_experiments, get_experiment, stop_experiment]
