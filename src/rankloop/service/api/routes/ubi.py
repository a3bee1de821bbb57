"""Where UBI's events go."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Request, Response, post

from rankloop.service.api.routes._shared import needs
from rankloop.service.control import ubi


@post("/ubi/events", guards=[needs("feedback")], status_code=200, include_in_schema=False)
async def events(request: Request[Any, Any, Any]) -> Response[bytes]:
    """An event, an array of them, or one a line; as any content type."""
    answer = await ubi.take(request.app.state.engine, await request.body(), request.state.key)
    return Response(answer, media_type=MediaType.JSON)


ROUTES: list[Any] = [events]
