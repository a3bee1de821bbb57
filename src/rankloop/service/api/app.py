"""The Litestar application with the middleware around it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from rankloop.service.api.content_encoding import Bodies
from rankloop.service.api.errors import HANDLERS
from rankloop.service.api.fast_path import FastPath
from rankloop.service.api.middleware import AccessMiddleware
from rankloop.service.api.openapi import document
from rankloop.service.api.routes import FOREIGN, ROUTES
from rankloop.service.api.routes.calls import Beacons
from rankloop.service.control.views import Recent
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings, from_environment, listed
from rankloop.service.ui import api_docs


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


@cache
def _documents() -> tuple[bytes, bytes]:
    """The OpenAPI document and the page that shows it, encoded once: a response holds a reference, however many clients
    ask and do not read."""
    made = document()
    return msgspec.json.encode(made), api_docs.page(made).encode()


def create_served(
    settings: Settings | None = None,
    engine: Engine | None = None,
    on_loop: Callable[[asyncio.AbstractEventLoop], None] = lambda _: None,
) -> AccessMiddleware:
    """The application as it is served: access middleware, fast path, body decoding, routes."""
    running = engine or Engine(settings or from_environment())
    inner = Bodies(create_app(engine=running, on_loop=on_loop), running)
    return AccessMiddleware(FastPath(inner, running), running)


def create_app(
    settings: Settings | None = None,
    engine: Engine | None = None,
    on_loop: Callable[[asyncio.AbstractEventLoop], None] = lambda _: None,
) -> Litestar:
    """The application; settings from the environment unless given. `on_loop` is called with the loop that serves."""
    settings = settings or (engine.settings if engine else from_environment())
    running = engine or Engine(settings)

    @asynccontextmanager
    async def life(app: Litestar) -> AsyncIterator[None]:
        on_loop(asyncio.get_running_loop())
        app.state.document, app.state.docs = _documents()
        await asyncio.to_thread(running.start)  # noqa: TID251 - nothing else uses the default executor
        running.listen(asyncio.get_running_loop())
        try:
            with graceful_stop(running):
                yield
        finally:
            await asyncio.to_thread(running.stop)  # noqa: TID251 - likewise

    return Litestar(
        [*ROUTES, *(route for name in sorted(listed(settings.adapters)) for route in FOREIGN[name])],
        lifespan=[life],
        state=State({"engine": running, "recent": Recent(), "beacons": Beacons(running)}),
        middleware=[CountRequests],
        exception_handlers=HANDLERS,
        request_max_body_size=settings.max_body_bytes,
        logging_config=None,
        openapi_config=None,
    )


@contextmanager
def graceful_stop(engine: Engine) -> Iterator[None]:
    """After the first SIGTERM, /readyz answers 503 for `notice_seconds` before the server stops listening.

    A second signal is passed on at once, and so is Ctrl-C.
    """
    handler: Any = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # signals are not delivered here
        return
    loop, seconds = asyncio.get_running_loop(), engine.settings.notice_seconds

    def on_signal(number: int, frame: Any) -> None:
        draining, engine.draining = engine.draining, True
        if draining or not seconds:
            handler(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, seconds, handler, number, None)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
