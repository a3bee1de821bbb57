"""The routes of versions, and of what goes back and forth between them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from litestar import Response, get, post
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, Parameter

from rankloop.core.errors import InvalidInput
from rankloop.integrations.export import Engine as Format
from rankloop.service.api.routes._shared import (
    IdempotencyKey,
    IfMatch,
    RankerName,
    needs,
    once,
    operate,
    problems,
    read,
    told,
)
from rankloop.service.control import rankers, versions
from rankloop.service.serving.engine import Engine
from rankloop.wire.rankers import Generation, RankerStatus, VersionInfo, VersionRequest

MOST_SAID = 500  # characters of a note in a header: proxies take a few kilobytes
Wanted = Annotated[VersionRequest | None, Body()]
Target = Annotated[Format, Parameter(description="who is to score with it")]
VersionNumber = Annotated[str | None, Parameter(pattern=r"^([0-9]{1,9}|live)$", description="a number, or live")]


@get(
    "/v1/rankers/{name:str}/versions",
    guards=[needs("read")],
    tags=["versions"],
    summary="Kept versions",
    responses=problems(400, 404),
)
async def list_versions(state: State, name: RankerName) -> list[VersionInfo]:
    """The newest first. One an hour is kept by itself while the ranker learns."""
    return await read(versions.versions, state.engine, name)


@get(
    "/v1/rankers/{name:str}/lineage",
    guards=[needs("read")],
    tags=["versions"],
    summary="Where what it knows comes from",
    responses=problems(400, 404),
)
async def get_lineage(state: State, name: RankerName) -> list[Generation]:
    """Its generations, the newest first: each began with a fresh learner, or with a version that was gone back to."""
    return await read(versions.lineage_of, state.engine, name)


@post(
    "/v1/rankers/{name:str}/versions",
    guards=[needs("admin")],
    tags=["versions"],
    summary="Keep a version",
    responses=problems(400, 404, 409, 422),
)
async def keep_version(
    state: State, name: RankerName, data: Wanted = None, idempotency_key: IdempotencyKey = None
) -> VersionInfo:
    """An immutable copy of what is learned now, with a note. Refused (409 `not-learned`) if it would lack acknowledged
    outcomes, because no process learns or learning is behind; with `force` it is kept without them."""
    once(idempotency_key)
    wanted = _wanted(data)
    return await operate(versions.keep, state.engine, name, wanted.note, wanted.force)


@get(
    "/v1/rankers/{name:str}/export",
    guards=[needs("read")],
    tags=["versions"],
    summary="Take it to a search engine",
    responses={200: ResponseSpec(dict[str, Any], generate_examples=False), **problems(400, 404, 422)},
)
async def get_export(state: State, name: RankerName, to: Target, version: VersionNumber = None) -> Response[bytes]:
    """The weights as JSON that Elasticsearch, OpenSearch or Solr take as it is, our own JSON, or an ONNX file.

    A model that the target cannot express is refused, with the remedy: docs/export.md. `version` is a number, or `live`
    for what is learned; without it, what is served. The header `X-Rankloop-Notes` is a JSON list of the differences
    between the exported model and the ranker.
    """
    wanted: Any = int(version) if version is not None and version.isdigit() else version
    made = await read(versions.exported, state.engine, name, to, wanted)
    ending = "onnx" if to == "onnx" else "json"
    headers = {
        "Content-Disposition": f'attachment; filename="{made.name}.{ending}"',
        "X-Rankloop-Notes": json.dumps(
            [note[:MOST_SAID] for note in made.notes]
        ),  # ASCII, whatever features are called
    }
    return Response(made.body, media_type=made.media, headers=headers)


def _wanted(data: VersionRequest | None) -> VersionRequest:
    if data is not None and "\0" in data.note:
        raise InvalidInput("the note is text; it has the character NUL in it")
    return data or VersionRequest()


Action = Literal["promote", "rollback", "reset", "pause", "resume"]


def _action(action: Action, summary: str, text: str) -> Any:
    async def handler(
        state: State,
        name: RankerName,
        data: Wanted = None,
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response[RankerStatus]:
        once(idempotency_key)
        wanted = _wanted(data)
        engine: Engine = state.engine
        call: Callable[[], RankerStatus]
        if action == "promote":
            call = partial(versions.promote, engine, name, wanted.version, wanted.note, if_match, wanted.force)
        elif action == "rollback":
            call = partial(versions.rollback, engine, name, wanted.version, wanted.note, if_match, wanted.force)
        elif action == "reset":
            call = partial(versions.reset, engine, name, wanted.note, if_match, wanted.force)
        else:
            call = partial(rankers.set_learning, engine, name, action == "resume", if_match)
        return told(await engine.operations.run(call))

    handler.__doc__, handler.__name__ = text, action
    tag = "rankers" if action in ("pause", "resume") else "versions"
    return post(
        f"/v1/rankers/{{name:str}}/{action}",
        guards=[needs("admin")],
        status_code=200,
        tags=[tag],
        summary=summary,
        responses={200: ResponseSpec(RankerStatus, generate_examples=False), **problems(400, 404, 409, 412, 422)},
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
        "newest, so a second rollback undoes the first. Refused (409 `not-learned`) if the kept version would lack "
        "acknowledged outcomes; with `force` they are learned on top of the version gone back to.",
    ),
    _action(
        "reset",
        "Forget what was learned",
        "It is kept as a version. Feedback to lists shown before is late from now on. Refused (409 `not-learned`) if "
        "the kept version would lack acknowledged outcomes; with `force` they are learned afterwards.",
    ),
    _action(
        "pause", "Pause learning", "Feedback is still joined and kept, but what comes while paused is not learned."
    ),
    _action("resume", "Resume learning", "What comes from now on is learned."),
]
