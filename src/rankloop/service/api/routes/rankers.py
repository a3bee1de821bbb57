"""Routes of rankers: create, change, show, delete; warm start."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, delete, get, patch, post, put
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, Parameter

from rankloop.service.access import Key
from rankloop.service.api.routes.common import (
    Access,
    AnyRequest,
    IdempotencyKey,
    IfMatch,
    RankerName,
    operate,
    problems,
    read,
    route,
    use_idempotency_key,
    with_etag,
)
from rankloop.service.control import rankers, warm_start
from rankloop.service.serving.engine import Engine
from rankloop.wire.rankers import RankerStatus, SpecChanges, WarmAnswer

Acknowledge = Annotated[bool, Parameter(description="raise the exposure although the guardrail set it to shadow")]
Strict = Annotated[bool, Parameter(description="refuse the whole call if one line is malformed")]
RANKER = "/v1/rankers/{name:str}"


@put(
    RANKER,
    guards=[Access("admin")],
    tags=["rankers"],
    summary="Create or change a ranker",
    responses={
        200: ResponseSpec(RankerStatus, description="it existed; changed", generate_examples=False),
        201: ResponseSpec(RankerStatus, description="new", generate_examples=False),
        **problems(400, 409, 412, 413, 422),
    },
)
async def put_ranker(
    request: AnyRequest,
    name: RankerName,
    data: Annotated[SpecChanges, Body()],
    if_match: IfMatch = None,
    acknowledge_demotion: Acknowledge = False,
    idempotency_key: IdempotencyKey = None,
) -> Response[RankerStatus]:
    """Creates a ranker, or changes an existing one. A field that is left out keeps its value, so a deployment script
    can send the same spec again without undoing what operators and the guardrail changed; in a new ranker it has its
    default. `changed` in the answer lists what the call changed.

    Features can be added, removed, renamed (`renamed`) and scaled differently at any time: what was learned about the
    others carries over, and the previous state is kept as a version. Learner, parameters and seed can only change while
    nothing has been learned (409). All other fields can change at any time.

    Answers at once: while kernels are compiled for a new ranker, `ready` is false and its rankings are your order.
    After the guardrail has set a ranker to shadow, the same PUT again does not raise its exposure (409 `demoted`).
    A key for some rankers may only name a catalog that it may use, or that the ranker has already (403).
    """
    use_idempotency_key(idempotency_key)
    engine, allowed = request.app.state.engine, request.state.key.require_catalog
    status, created = await operate(rankers.put, engine, name, data, if_match, acknowledge_demotion, allowed)
    return with_etag(status, 201 if created else 200)


@route(
    patch, RANKER, "admin", "rankers", "Change fields of a ranker", 400, 404, 409, 412, 413, 422, returns=RankerStatus
)
async def patch_ranker(
    request: AnyRequest,
    name: RankerName,
    data: Annotated[SpecChanges, Body()],
    if_match: IfMatch = None,
    acknowledge_demotion: Acknowledge = False,
    idempotency_key: IdempotencyKey = None,
) -> Response[RankerStatus]:
    """The same as PUT, for a ranker that must exist (404). `parameters` that are left out keep their values, unless the
    learner changes; `guardrail`, `defaults`, `interactions` and lists are replaced as a whole."""
    use_idempotency_key(idempotency_key)
    engine, allowed = request.app.state.engine, request.state.key.require_catalog
    return with_etag(await operate(rankers.patch, engine, name, data, if_match, acknowledge_demotion, allowed))


@route(get, "/v1/rankers", "read", "rankers", "All rankers")
async def list_rankers(request: AnyRequest) -> list[RankerStatus]:
    """Every ranker that the key is for, with its status."""
    key: Key = request.state.key
    found = await read(rankers.statuses, request.app.state.engine)
    return [one for one in found if key.is_for(one.name)]


@route(get, RANKER, "read", "rankers", "One ranker", 400, 404, returns=RankerStatus)
async def get_ranker(state: State, name: RankerName) -> Response[RankerStatus]:
    """Its spec, whether it is ready, how much it has learned and since when, how far learning is behind, who learns."""
    return with_etag(await read(rankers.status, state.engine, name))


@route(delete, RANKER, "admin", "rankers", "Delete a ranker", 400, 404, 409, 412)
async def delete_ranker(
    state: State, name: RankerName, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None
) -> None:
    """And all its impressions, feedback and versions."""
    use_idempotency_key(idempotency_key)
    await operate(rankers.delete, state.engine, name, if_match)


@route(
    post,
    f"{RANKER}/warm",
    "admin",
    "rankers",
    "Learn from logged lists",
    *(400, 404, 409, 413, 422),
    returns=WarmAnswer,
    status_code=200,
)
async def warm(request: AnyRequest, name: RankerName, strict: Strict = False) -> WarmAnswer:
    """Rankings that were shown before rankloop was installed, with their clicks: a JSON object per line, at most
    `max_events`.

    They are appended to the ranker's log, durably and once, and are learned like rankings shown in shadow. One that has
    an `id` counts once for the ranker; without ids, the same body sent again counts once.
    """
    engine: Engine = request.app.state.engine
    return await operate(warm_start.call, engine, name, await request.body(), strict)


ROUTES: list[Any] = [put_ranker, patch_ranker, list_rankers, get_ranker, delete_ranker, warm]
