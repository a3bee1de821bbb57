"""The routes of the process itself: health, metrics, documents, pages."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import MediaType, Response, get
from litestar.datastructures import State

from rankloop import __version__
from rankloop.service.engine import Engine
from rankloop.service.http.errors import failure, problem
from rankloop.service.http.routes._shared import needs, problems
from rankloop.service.pages import status
from rankloop.service.pages.api_docs import CONTENT_SECURITY_POLICY
from rankloop.service.store import admin
from rankloop.service.telemetry.metrics import exposition


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
    guards=[needs(None, every_ranker=True)],
    tags=["operations"],
    summary="Metrics for Prometheus",
    media_type=MediaType.TEXT,
    responses=problems(),
)
async def metrics(state: State) -> Response[str]:
    """Of all processes on this machine, told apart by the label `worker`. Any key for all rankers will do."""
    engine: Engine = state.engine

    def collect() -> str:
        reports = engine.database.read(lambda c: admin.reports(c, engine.machine))
        reports[engine.worker] = engine.report()
        return exposition({name.rpartition(":")[0].rpartition(":")[2]: report for name, report in reports.items()})

    text = await asyncio.to_thread(collect)
    return Response(text, media_type="text/plain; version=0.0.4")  # the framework adds the charset


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
