"""The routes of versions, and of what goes back and forth between them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from litestar import get, post
from litestar.datastructures import State
from litestar.params import Body

from rankloop.errors import InvalidInput
from rankloop.service.engine import Engine
from rankloop.service.http.routes._shared import RankerName, needs, problems
from rankloop.service.operations import rankers
from rankloop.service.wire.rankers import RankerStatus, VersionInfo, VersionRequest

Wanted = Annotated[VersionRequest | None, Body()]


@get(
    "/v1/rankers/{name:str}/versions",
    guards=[needs("read")],
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
