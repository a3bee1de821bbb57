"""Routes of the process: health, metrics, audit list, documents, pages."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Response, get
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop import __version__
from rankloop.service.access import Key
from rankloop.service.api.errors import failure
from rankloop.service.api.routes.common import AnyRequest, problems, route
from rankloop.service.control import views
from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.observability.metrics import exposition
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import SCOPES
from rankloop.service.storage import audit
from rankloop.service.ui import beacon, status
from rankloop.service.ui.api_docs import CONTENT_SECURITY_POLICY
from rankloop.wire.basics import NAME
from rankloop.wire.service import Change, KeyInfo, NotReady, Readiness, Reason, ServiceStatus

_STATUS_PAGE, _BEACON_SCRIPT = status.PAGE.encode(), beacon.SCRIPT.encode()


@get("/healthz", tags=["operations"], summary="Is the process alive?", sync_to_thread=False)
def healthz() -> dict[str, str]:
    """200 whenever the process answers."""
    return {"status": "ok", "version": __version__}


@get(
    "/readyz",
    tags=["operations"],
    summary="Is the process ready?",
    sync_to_thread=False,
    responses={
        200: ResponseSpec(Readiness, generate_examples=False),
        **problems(),
        503: ResponseSpec(NotReady, description="requests should go elsewhere", generate_examples=False),
    },
)
def readyz(request: AnyRequest) -> Response[Any]:
    """200 if requests may come, 503 if they should go to another process; `reasons` tell why.

    503 until kernels are compiled, while the service stops, if the store is unreachable, if a thread that the process
    needs has ended, or if every ranker is unusable. If only some rankers are unusable: 200 with the status `degraded`.
    Names of rankers are shown to keys that may read them.
    """
    engine: Engine = request.app.state.engine
    found = views.obstacles(engine)
    reasons = [_shown(engine, request.headers.get("authorization"), one) for one in found or views.degradations(engine)]
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


@route(get, "/metrics", None, "operations", "Metrics for Prometheus", everything=True, media_type=MediaType.TEXT)
async def metrics(state: State) -> Response[str]:
    """Of all processes on this machine, by the label `worker`; needs any key for all rankers.

    The process that answers reports its present values, the others those of the last few seconds.
    """
    engine: Engine = state.engine

    def collect() -> str:
        own = engine.report()
        reports = {**engine.reports.read(), engine.worker: own}
        return exposition({name.rpartition(":")[0].rpartition(":")[2]: report for name, report in reports.items()})

    text = await engine.reads.run(collect)
    return Response(text, media_type="text/plain; version=0.0.4")  # the framework adds the charset


@route(get, "/v1/service", "read", "operations", "The service", everything=True, returns=ServiceStatus)
async def get_service(state: State) -> Response[bytes]:
    """Its release, the size of the store and the free disk space, and how many processes share the store."""
    return Response(await state.recent.get(views.service, state.engine), media_type=MediaType.JSON)


@route(get, "/v1/keys/self", None, "operations", "What this key may do", returns=KeyInfo, sync_to_thread=False)
def get_own_key(request: AnyRequest) -> Response[KeyInfo]:
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


Most = Annotated[int, Parameter(ge=1, le=1000, description="how many")]
OnlyRanker = Annotated[str | None, Parameter(pattern=NAME, max_length=64, description="only those of this ranker")]


@route(get, "/v1/audit", "admin", "operations", "Who changed what", 400)
async def list_changes(request: AnyRequest, limit: Most = 100, ranker: OnlyRanker = None) -> list[Change]:
    """The newest first: rankers created, changed and deleted, versions promoted and rolled back, experiments, keys,
    users erased. With the name of the key; of the rankers that your key is for."""
    engine: Engine = request.app.state.engine
    key: Key = request.state.key
    if ranker is not None:
        key.require_ranker(ranker)
    wanted = key.rankers if ranker is None else {ranker}
    found = await engine.reads.run(engine.database.read, lambda c: audit.entries(c, limit, wanted))
    return [Change(*one) for one in found]


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
def beacon_script(request: AnyRequest) -> Response[bytes]:
    """The script with which pages report clicks and views; any page may load it, and cache it for an hour."""
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


ROUTES: list[Any] = [get_service, get_own_key, list_changes, healthz, readyz, metrics, openapi, docs, status_page]
ROUTES += [beacon_script]
