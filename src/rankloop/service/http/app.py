"""The application: routes, error handlers, documents, and the engine's life around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, Receive, Scope, Send

from rankloop import __version__
from rankloop.service.engine import Engine
from rankloop.service.http.bodies import Bodies
from rankloop.service.http.doors import Doors
from rankloop.service.http.errors import HANDLERS
from rankloop.service.http.fast_path import FastPath
from rankloop.service.http.routes import ROUTES
from rankloop.service.http.stopping import noticed
from rankloop.service.operations.views import Recent
from rankloop.service.pages import api_docs
from rankloop.service.settings import Settings, from_environment
from rankloop.service.wire.calls import FeedbackEvent, RankRequest
from rankloop.service.wire.experiments import ExperimentRequest
from rankloop.service.wire.rankers import Spec, SpecChanges, VersionRequest


class CountRequests:
    """Counts requests by route and status."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self.app(scope, receive, send)
            return

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("path_template") or "other"
                scope["app"].state.engine.metrics.count("http_requests_total", route=route, status=message["status"])
            await send(message)

        await self.app(scope, receive, counted)


OPENAPI = OpenAPIConfig(
    title="rankloop",
    version=__version__,
    summary="A ranking that learns from every click.",
    use_handler_docstrings=True,
    components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
    security=[{"key": []}],
)


def document() -> dict[str, Any]:
    """The OpenAPI document, with the bodies that two routes read by themselves.

    What can be sent is described by msgspec, which reads it: the framework leaves out that no other fields are allowed
    and the bounds of a number that may also be something else.
    """
    # An application for this alone: the one that is served would answer with a second document of its own.
    made: dict[str, Any] = Litestar(ROUTES, openapi_config=OPENAPI, logging_config=None).openapi_schema.to_schema()
    sent = [ExperimentRequest, FeedbackEvent, RankRequest, Spec, SpecChanges, VersionRequest]
    _, components = msgspec.json.schema_components(sent, ref_template="#/components/schemas/{name}")
    made["components"]["schemas"].update(components)
    event = {"$ref": "#/components/schemas/FeedbackEvent"}
    bodies = {
        "/v1/feedback": {"anyOf": [event, {"type": "array", "items": event, "minItems": 1}]},
        "/v1/rankers/{name}/rank": {"$ref": "#/components/schemas/RankRequest"},
    }
    for path, schema in bodies.items():
        content = {"application/json": {"schema": schema}}
        made["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    text = {"type": "string", "description": "a JSON object a line: query, items, features, clicks", "minLength": 1}
    warm = {"required": True, "content": {"application/x-ndjson": {"schema": text}}}
    made["paths"]["/v1/rankers/{name}/warm"]["post"]["requestBody"] = warm
    return made


def create_served(settings: Settings | None = None, engine: Engine | None = None) -> Doors:
    """The application as it is served: behind its doors, with a lane of its own for what every user calls."""
    running = engine or Engine(settings or from_environment())
    inner = FastPath(create_app(engine=running), running)
    return Doors(Bodies(inner, running.settings.max_body_bytes), running)


def create_app(settings: Settings | None = None, engine: Engine | None = None) -> Litestar:
    """The application; settings from the environment unless given."""
    settings = settings or (engine.settings if engine else from_environment())
    running = engine or Engine(settings)

    @asynccontextmanager
    async def life(app: Litestar) -> AsyncIterator[None]:
        app.state.document = document()
        app.state.docs = api_docs.page(app.state.document)
        await asyncio.to_thread(running.start)
        try:
            with noticed(running):
                yield
        finally:
            await asyncio.to_thread(running.stop)

    return Litestar(
        ROUTES,
        lifespan=[life],
        state=State({"engine": running, "recent": Recent()}),
        middleware=[CountRequests],
        exception_handlers=HANDLERS,
        request_max_body_size=settings.max_body_bytes,
        logging_config=None,
        openapi_config=None,
    )
