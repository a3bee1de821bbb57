"""The routes. Handlers are thin: they read the request, ask the engine, and say what comes back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from litestar import MediaType, Request, Response, delete, get, post, put
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, Parameter

from rankloop import __version__
from rankloop.errors import InvalidInput
from rankloop.service.engine import Engine
from rankloop.service.http import calls
from rankloop.service.http.errors import failure, problem
from rankloop.service.http.routes import experiments, watch
from rankloop.service.http.routes._shared import RankerName, needs, problems
from rankloop.service.operations import rankers, warm_start
from rankloop.service.pages import status
from rankloop.service.pages.api_docs import CONTENT_SECURITY_POLICY
from rankloop.service.store import admin
from rankloop.service.telemetry.metrics import exposition
from rankloop.service.wire.messages import (
    Erased,
    FeedbackAnswer,
    RankAnswer,
    RankerStatus,
    Spec,
    VersionInfo,
    VersionRequest,
    WarmAnswer,
)

# 513: a path parameter comes with the slash before it
User = Annotated[str, Parameter(min_length=1, max_length=513, description="as sent with rank requests")]
Wanted = Annotated[VersionRequest | None, Body()]
Strict = Annotated[bool, Parameter(description="refuse the whole call if one line is malformed")]
Explain = Annotated[bool, Parameter(description="add each feature's share of the score (linear learners)")]


# -- rank and feedback ---------------------------------------------------------------------------------------------


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
    return Response(await calls.rank(engine, name, await request.body(), explain), media_type=MediaType.JSON)


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
    return Response(await calls.feedback(request.app.state.engine, await request.body()), media_type=MediaType.JSON)


# -- rankers -------------------------------------------------------------------------------------------------------


@put(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="Make or change a ranker",
    responses={
        200: ResponseSpec(RankerStatus, description="it was there; changed", generate_examples=False),
        201: ResponseSpec(RankerStatus, description="new", generate_examples=False),
        **problems(400, 409, 413, 422),
    },
)
async def put_ranker(state: State, name: RankerName, data: Annotated[Spec, Body()]) -> Response[RankerStatus]:
    """What hangs on what was learned (learner, parameters, features, normalisation, seed) can only change while nothing
    has been learned; k, exposure, displacement, window, silence and time-out can change at any time."""
    status, created = await asyncio.to_thread(rankers.put, state.engine, name, data)
    return Response(status, status_code=201 if created else 200)


@get("/v1/rankers", guards=[needs("admin")], tags=["rankers"], summary="All rankers", responses=problems())
async def list_rankers(state: State) -> list[RankerStatus]:
    """Every ranker with its status."""
    return await asyncio.to_thread(rankers.statuses, state.engine)


@get(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="One ranker",
    responses=problems(400, 404),
)
async def get_ranker(state: State, name: RankerName) -> RankerStatus:
    """Its spec, how much it has learned, how far learning is behind, who learns."""
    return await asyncio.to_thread(rankers.status, state.engine, name)


@delete(
    "/v1/rankers/{name:str}",
    guards=[needs("admin")],
    tags=["rankers"],
    summary="Delete a ranker",
    responses=problems(400, 404),
)
async def delete_ranker(state: State, name: RankerName) -> None:
    """And all its impressions, feedback and versions."""
    await asyncio.to_thread(rankers.delete, state.engine, name)


# -- versions ------------------------------------------------------------------------------------------------------


@get(
    "/v1/rankers/{name:str}/versions",
    guards=[needs("admin")],
    tags=["versions"],
    summary="Kept versions",
    responses=problems(400, 404),
)
async def list_versions(state: State, name: RankerName) -> list[VersionInfo]:
    """The newest first. One an hour is kept by itself while the ranker learns."""
    return await asyncio.to_thread(rankers.versions, state.engine, name)


@post(
    "/v1/rankers/{name:str}/versions",
    guards=[needs("admin")],
    tags=["versions"],
    summary="Keep a version",
    responses=problems(400, 404, 422),
)
async def keep_version(state: State, name: RankerName, data: Wanted = None) -> VersionInfo:
    """An immutable copy of what is learned now, with a note."""
    return await asyncio.to_thread(rankers.keep, state.engine, name, _wanted(data).note)


def _wanted(data: VersionRequest | None) -> VersionRequest:
    if data is not None and "\0" in data.note:
        raise InvalidInput("the note is text; it has the character NUL in it")
    return data or VersionRequest()


Action = Literal["promote", "rollback", "reset", "pause", "resume"]


def _action(action: Action, summary: str, text: str) -> Any:
    async def handler(state: State, name: RankerName, data: Wanted = None) -> RankerStatus:
        wanted = _wanted(data)
        engine: Engine = state.engine
        if action == "promote":
            return await asyncio.to_thread(rankers.promote, engine, name, wanted.version, wanted.note)
        if action == "rollback":
            return await asyncio.to_thread(rankers.rollback, engine, name, wanted.version, wanted.note)
        if action == "reset":
            return await asyncio.to_thread(rankers.reset, engine, name, wanted.note)
        return await asyncio.to_thread(rankers.set_learning, engine, name, action == "resume")

    handler.__doc__, handler.__name__ = text, action
    tag = "rankers" if action in ("pause", "resume") else "versions"
    return post(
        f"/v1/rankers/{{name:str}}/{action}",
        guards=[needs("admin")],
        status_code=200,
        tags=[tag],
        summary=summary,
        responses=problems(400, 404, 409, 422),
    )(handler)


ACTIONS = [
    _action(
        "promote",
        "Serve a version",
        'A number, "live" for what is being learned, or nothing: then what is learned now is kept and served. '
        "Learning goes on behind a promoted version.",
    ),
    _action(
        "rollback",
        "Go back to a version",
        "Serving and learning go back to it; the state until now is kept as a version first. Without a number: the "
        "newest, so a second rollback undoes the first.",
    ),
    _action(
        "reset",
        "Forget what was learned",
        "It is kept as a version. Feedback to lists shown before is late from now on.",
    ),
    _action(
        "pause", "Pause learning", "Feedback is still joined and kept, but what comes while paused is not learned."
    ),
    _action("resume", "Resume learning", "What comes from now on is learned."),
]


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
    return await asyncio.to_thread(warm_start.call, engine, name, await request.body(), strict)


@delete(
    "/v1/users/{user:path}",
    guards=[needs("admin")],
    status_code=200,
    tags=["users"],
    summary="Forget a user",
    responses=problems(400, 422),
)
async def erase_user(request: Request[Any, Any, Any], user: User) -> Erased:
    """Delete all impressions and events of a user. Weights that were learned stay: they hold no one's data."""
    # As it was sent: to the framework a//b and a/ are a/b and a, but they may be users of their own.
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    sent = unquote(raw.partition("/v1/users/")[2]) or user.removeprefix("/")
    return await asyncio.to_thread(rankers.erase_user, request.app.state.engine, sent)


# -- operations ----------------------------------------------------------------------------------------------------


@get("/healthz", tags=["operations"], summary="Is the process alive?", sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Always yes, if it answers."""
    return {"status": "ok", "version": __version__}


@get("/readyz", tags=["operations"], summary="May requests come?", sync_to_thread=False, responses=problems())
def readyz(state: State) -> Response[Any]:
    """Yes once the kernels are warm, until the service stops."""
    engine: Engine = state.engine
    if engine.ready is not None:
        return problem(failure(503, "not-ready", engine.ready))
    return Response({"status": "ready"})


@get(
    "/metrics",
    guards=[needs(None)],
    tags=["operations"],
    summary="Metrics for Prometheus",
    media_type=MediaType.TEXT,
    responses=problems(),
)
async def metrics(state: State) -> Response[str]:
    """Of all processes on this machine, told apart by the label `worker`. Any key will do."""
    engine: Engine = state.engine

    def collect() -> str:
        reports = engine.database.read(lambda c: admin.reports(c, engine.machine))
        reports[engine.worker] = engine.report()
        return exposition({name.rpartition(":")[0].rpartition(":")[2]: report for name, report in reports.items()})

    text = await asyncio.to_thread(collect)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(state: State) -> dict[str, Any]:
    """The OpenAPI document."""
    document: dict[str, Any] = state.document
    return document


@get("/", include_in_schema=False, sync_to_thread=False, media_type=MediaType.HTML)
def status_page() -> Response[str]:
    """The status page."""
    headers = {"Content-Security-Policy": status.CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}
    return Response(status.PAGE, headers=headers, media_type=MediaType.HTML)


@get("/docs", include_in_schema=False, sync_to_thread=False, media_type=MediaType.HTML)
def docs(state: State) -> Response[str]:
    """The API as a page to browse."""
    return Response(state.docs, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}, media_type=MediaType.HTML)


ROUTES: list[Any] = [rank, feedback, put_ranker, list_rankers, get_ranker, delete_ranker, list_versions, keep_version]
ROUTES += [*watch.ROUTES, *experiments.ROUTES]
ROUTES += [*ACTIONS, warm, erase_user, healthz, readyz, metrics, openapi, docs, status_page]
