"""The routes of the process itself: health, metrics, documents, pages."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec

from rankloop import __version__
from rankloop.service.access.keys import Key
from rankloop.service.api.errors import failure
from rankloop.service.api.routes._shared import needs, problems
from rankloop.service.control import readiness, views
from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.observability.metrics import exposition
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import SCOPES
from rankloop.service.ui import beacon, status
from rankloop.service.ui.api_docs import CONTENT_SECURITY_POLICY
from rankloop.wire.process import KeyInfo, NotReady, Readiness, Reason, ServiceStatus

_STATUS_PAGE, _BEACON_SCRIPT = status.PAGE.encode(), beacon.SCRIPT.encode()


@get("/healthz", tags=["operations"], summary="Is the process alive?", sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Always yes, if it answers."""
    return {"status": "ok", "version": __version__}


@get(
    "/readyz",
    tags=["operations"],
    summary="May requests come?",
    sync_to_thread=False,
    responses={
        200: ResponseSpec(Readiness, generate_examples=False),
        **problems(),
        503: ResponseSpec(NotReady, description="requests should go elsewhere", generate_examples=False),
    },
)
def readyz(request: Request[Any, Any, Any]) -> Response[Any]:
    """200 if requests may come, 503 if they should go to another process; `reasons` say why.

    503 until the kernels of the rankers that were there at the start are compiled, while the service stops, if the
    store is unreachable, if a thread that the process needs has ended, or if every ranker is unusable. What is wrong
    with some of the rankers gives 200 with the status `degraded`. Names of rankers are for keys that may look at them.
    """
    engine: Engine = request.app.state.engine
    found = readiness.obstacles(engine)
    reasons = [
        _shown(engine, request.headers.get("authorization"), one) for one in found or readiness.degradations(engine)
    ]
    if not found:
        return Response(Readiness("degraded" if reasons else "ready", reasons))
    failed = failure(503, "not-ready", "; ".join(one.message for one in found))
    body = NotReady("not-ready", failed.problem.message, failed.problem.request_id, reasons)
    return Response(body, status_code=503, headers=dict(failed.headers))


def _shown(engine: Engine, authorization: str | None, reason: Reason) -> Reason:
    """A reason with the names that may be shown."""
    names = [name for name in reason.rankers if _may_look(engine, authorization, name)]
    return Reason(reason.code, reason.message, reason.count, names)


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

    text = await engine.reads.run(collect)
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


@get(
    "/v1/keys/self",
    guards=[needs(None)],
    tags=["operations"],
    summary="What this key may do",
    sync_to_thread=False,
    responses={200: ResponseSpec(KeyInfo, generate_examples=False), **problems()},
)
def get_own_key(request: Request[Any, Any, Any]) -> Response[KeyInfo]:
    """Scopes, rankers and catalogs of the key that the request carries. Pages use it to disable what is not allowed."""
    key: Key = request.state.key
    limited = key.rankers is not None
    return Response(
        KeyInfo(
            name=key.name or None,
            scopes=[scope for scope in SCOPES if key.has(scope)],
            rankers=sorted(key.rankers) if key.rankers is not None else None,
            catalogs=sorted(key.catalogs) if limited else None,
        )
    )


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(state: State) -> Response[bytes]:
    """The OpenAPI document."""
    return Response(state.document, media_type=MediaType.JSON)


@get("/", include_in_schema=False, sync_to_thread=False, media_type=MediaType.HTML)
def status_page() -> Response[bytes]:
    """The status page."""
    headers = {"Content-Security-Policy": status.CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}
    return Response(_STATUS_PAGE, headers=headers, media_type=MediaType.HTML)


@get(beacon.PATH, include_in_schema=False, sync_to_thread=False)
def beacon_script(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The script with which pages report clicks and views: for everyone's pages, and to be kept for an hour."""
    headers = {
        "ETag": beacon.ETAG,
        "Cache-Control": "public, max-age=3600",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if request.headers.get("if-none-match") == beacon.ETAG:
        return Response(b"", headers=headers, status_code=304)
    return Response(_BEACON_SCRIPT, headers=headers, media_type="text/javascript")


@get("/docs", include_in_schema=False, sync_to_thread=False, media_type=MediaType.HTML)
def docs(state: State) -> Response[bytes]:
    """The API as a page to browse."""
    return Response(state.docs, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}, media_type=MediaType.HTML)
