"""The routes of the process itself: health, metrics, documents, pages."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec

from rankloop import __version__
from rankloop.service.engine import Engine
from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.http.errors import failure, problem
from rankloop.service.http.routes._shared import needs, problems
from rankloop.service.operations import views
from rankloop.service.pages import beacon, status
from rankloop.service.pages.api_docs import CONTENT_SECURITY_POLICY
from rankloop.service.telemetry.metrics import exposition
from rankloop.service.wire.process import Readiness, ServiceStatus


@get("/healthz", tags=["operations"], summary="Is the process alive?", sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Always yes, if it answers."""
    return {"status": "ok", "version": __version__}


@get(
    "/readyz",
    tags=["operations"],
    summary="May requests come?",
    sync_to_thread=False,
    responses={200: ResponseSpec(Readiness, generate_examples=False), **problems()},
)
def readyz(request: Request[Any, Any, Any]) -> Response[Any]:
    """Yes once the kernels of the rankers that were there at the start are compiled, until the service stops.

    A ranker made later does not make the service unready: it is counted in `warming` until its own are, and named to
    whoever may look at it.
    """
    engine: Engine = request.app.state.engine
    if engine.ready is not None:
        return problem(failure(503, "not-ready", engine.ready))
    waiting = sorted(name for name, live in list(engine.rankers.items()) if not live.warm)
    named = [name for name in waiting if _may_look(engine, request.headers.get("authorization"), name)]
    return Response(Readiness("ready", len(waiting), named))


def _may_look(engine: Engine, authorization: str | None, name: str) -> bool:
    if authorization is None and not engine.keys.off:  # load balancers come without a key
        return False
    try:
        engine.keys.check(authorization, "read", name)
    except (NotAuthenticated, NotAllowed):
        return False
    return True


@get(
    "/metrics",
    guards=[needs(None, everything=True)],
    tags=["operations"],
    summary="Metrics for Prometheus",
    media_type=MediaType.TEXT,
    responses=problems(),
)
async def metrics(state: State) -> Response[str]:
    """Of all processes on this machine, told apart by the label `worker`. Any key for all rankers will do.

    The process that answers reports its values of this moment, the others those of the last few seconds.
    """
    engine: Engine = state.engine

    def collect() -> str:
        own = engine.report()
        reports = {**engine.reports.read(), engine.worker: own}
        return exposition({name.rpartition(":")[0].rpartition(":")[2]: report for name, report in reports.items()})

    text = await asyncio.to_thread(collect)
    return Response(text, media_type="text/plain; version=0.0.4")  # the framework adds the charset


@get(
    "/v1/service",
    guards=[needs("read", everything=True)],
    tags=["operations"],
    summary="The service itself",
    responses={200: ResponseSpec(ServiceStatus, generate_examples=False), **problems()},
)
async def get_service(state: State) -> Response[bytes]:
    """Its release, how much room the store takes and has, how many processes share it."""
    return Response(await state.recent.get(views.service, state.engine), media_type=MediaType.JSON)


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


@get(beacon.PATH, include_in_schema=False, sync_to_thread=False)
def beacon_script(request: Request[Any, Any, Any]) -> Response[str]:
    """The script with which pages report clicks and views: for everyone's pages, and to be kept for an hour."""
    headers = {
        "ETag": beacon.ETAG,
        "Cache-Control": "public, max-age=3600",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if request.headers.get("if-none-match") == beacon.ETAG:
        return Response("", headers=headers, status_code=304)
    return Response(beacon.SCRIPT, headers=headers, media_type="text/javascript")


@get("/docs", include_in_schema=False, sync_to_thread=False, media_type=MediaType.HTML)
def docs(state: State) -> Response[str]:
    """The API as a page to browse."""
    return Response(state.docs, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}, media_type=MediaType.HTML)
