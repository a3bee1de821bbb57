"""The routes of rankers: make, change, look at, delete; logged lists."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, delete, get, patch, post, put
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, Parameter

from rankloop.service.access.keys import Key
from rankloop.service.api.routes._shared import (
    IdempotencyKey,
    IfMatch,
    RankerName,
    needs,
    once,
    operate,
    problems,
    read,
    told,
)
from rankloop.service.control import rankers, warm_start
from rankloop.service.serving.engine import Engine
from rankloop.wire.rankers import RankerStatus, SpecChanges, WarmAnswer

Acknowledge = Annotated[bool, Parameter(description="put exposure up though the guardrail has put it into shadow")]
Strict = Annotated[bool, Parameter(description="refuse the whole call if one line is malformed")]


@put(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="Make or change a ranker",
    responses={
        200: ResponseSpec(RankerStatus, description="it was there; changed", generate_examples=False),
        201: ResponseSpec(RankerStatus, description="new", generate_examples=False),
        **problems(400, 409, 412, 413, 422),
    },
)
async def put_ranker(
    request: Request[Any, Any, Any],
    name: RankerName,
    data: Annotated[SpecChanges, Body()],
    if_match: IfMatch = None,
    acknowledge_demotion: Acknowledge = False,
    idempotency_key: IdempotencyKey = None,
) -> Response[RankerStatus]:
    """Makes a ranker, or changes the one there is. A field that is left out keeps its value, so a deployment script can
    send the same spec again and again without undoing what operators and the guardrail changed; in a new ranker it has
    its default. `changed` in the answer lists what the call changed.

    Features can be added, removed, renamed (`renamed`) and scaled otherwise at any time: what was learned about the
    others carries over, and a version keeps what was. Learner, parameters and seed can only change while nothing has
    been learned (409). All other fields can change at any time.

    Answers at once: while kernels are compiled for a new ranker it says `ready: false`, and its lists are your order.
    After the guardrail has put a ranker into shadow, the same PUT again does not put it up (409 `demoted`).
    A key for some rankers may only name a catalog that it may use, or that the ranker has already (403).
    """
    once(idempotency_key)
    engine, allowed = request.app.state.engine, request.state.key.require_catalog
    status, created = await operate(rankers.put, engine, name, data, if_match, acknowledge_demotion, allowed)
    return told(status, 201 if created else 200)


@patch(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="Change some of a ranker",
    responses={200: ResponseSpec(RankerStatus, generate_examples=False), **problems(400, 404, 409, 412, 413, 422)},
)
async def patch_ranker(
    request: Request[Any, Any, Any],
    name: RankerName,
    data: Annotated[SpecChanges, Body()],
    if_match: IfMatch = None,
    acknowledge_demotion: Acknowledge = False,
    idempotency_key: IdempotencyKey = None,
) -> Response[RankerStatus]:
    """The same as PUT, for a ranker that must be there (404). `parameters` that are left out stay, unless the learner
    is another one; `guardrail`, `defaults`, `interactions` and lists are replaced as a whole."""
    once(idempotency_key)
    engine, allowed = request.app.state.engine, request.state.key.require_catalog
    return told(await operate(rankers.patch, engine, name, data, if_match, acknowledge_demotion, allowed))


@get("/v1/rankers", guards=[needs("read")], tags=["rankers"], summary="All rankers", responses=problems())
async def list_rankers(request: Request[Any, Any, Any]) -> list[RankerStatus]:
    """Every ranker with its status; of those that the key is for."""
    key: Key = request.state.key
    found = await read(rankers.statuses, request.app.state.engine)
    return [one for one in found if key.is_for(one.name)]


@get(
    "/v1/rankers/{name:str}",
    guards=[needs("read")],
    tags=["rankers"],
    summary="One ranker",
    responses={200: ResponseSpec(RankerStatus, generate_examples=False), **problems(400, 404)},
)
async def get_ranker(state: State, name: RankerName) -> Response[RankerStatus]:
    """Its spec, whether it is ready, how much it has learned and since when, how far learning is behind, who learns."""
    return told(await read(rankers.status, state.engine, name))


@delete(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="Delete a ranker",
    responses=problems(400, 404, 409, 412),
)
async def delete_ranker(
    state: State, name: RankerName, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None
) -> None:
    """And all its impressions, feedback and versions."""
    once(idempotency_key)
    await operate(rankers.delete, state.engine, name, if_match)


@post(
    "/v1/rankers/{name:str}/warm",
    guards=[needs("admin")],
    status_code=200,
    tags=["rankers"],
    summary="Learn from logged lists",
    responses={200: ResponseSpec(WarmAnswer, generate_examples=False), **problems(400, 404, 409, 413, 422)},
)
async def warm(request: Request[Any, Any, Any], name: RankerName, strict: Strict = False) -> WarmAnswer:
    """Lists that were shown before rankloop was there, with their clicks: a JSON object a line, at most `max_events`.

    They join the ranker's log, durably and once, and are learned like lists shown in shadow. One that carries an `id`
    counts once for the ranker; without ids, the same body sent again counts once.
    """
    engine: Engine = request.app.state.engine
    return await operate(warm_start.call, engine, name, await request.body(), strict)
