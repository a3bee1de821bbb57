"""Routes of versions: keep, list, export, promote, roll back, reset; pause and resume learning."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from litestar import Response, get, post
from litestar.datastructures import State
from litestar.params import Body, Parameter

from rankloop.core.errors import InvalidInput
from rankloop.integrations.export import Engine as Format
from rankloop.service.api.routes.common import (
    IdempotencyKey,
    IfMatch,
    RankerName,
    operate,
    read,
    route,
    use_idempotency_key,
    with_etag,
)
from rankloop.service.control import rankers, versions
from rankloop.service.serving.engine import Engine
from rankloop.wire.rankers import Generation, RankerStatus, VersionInfo, VersionRequest

LONGEST_NOTE = 500  # characters of a note in a header: proxies take a few kilobytes
Wanted = Annotated[VersionRequest | None, Body()]
Target = Annotated[Format, Parameter(description="the format")]
VersionNumber = Annotated[str | None, Parameter(pattern=r"^([0-9]{1,9}|live)$", description="a number, or live")]
RANKER = "/v1/rankers/{name:str}"


@route(get, f"{RANKER}/versions", "read", "versions", "Kept versions", 400, 404)
async def list_versions(state: State, name: RankerName) -> list[VersionInfo]:
    """The newest first. While the ranker learns, one per hour is kept automatically."""
    return await read(versions.versions, state.engine, name)


@route(get, f"{RANKER}/lineage", "read", "versions", "Generations of the model", 400, 404)
async def get_lineage(state: State, name: RankerName) -> list[Generation]:
    """The newest first. Each began with a fresh learner, or with the version that a rollback went back to."""
    return await read(versions.lineage_of, state.engine, name)


@route(post, f"{RANKER}/versions", "admin", "versions", "Keep a version", 400, 404, 409, 422)
async def keep_version(
    state: State, name: RankerName, data: Wanted = None, idempotency_key: IdempotencyKey = None
) -> VersionInfo:
    """An immutable copy of the learned state, with a note. Refused (409 `not-learned`) if it would lack acknowledged
    outcomes, because no process learns or learning is behind; with `force` it is kept without them."""
    use_idempotency_key(idempotency_key)
    wanted = _checked(data)
    return await operate(versions.keep, state.engine, name, wanted.note, wanted.force)


@route(get, f"{RANKER}/export", "read", "versions", "Export the model", 400, 404, 422, returns=dict[str, Any])
async def get_export(state: State, name: RankerName, to: Target, version: VersionNumber = None) -> Response[bytes]:
    """The weights as JSON for Elasticsearch, OpenSearch or Solr, as rankloop's own JSON, or as an ONNX file.

    A model that the format cannot express is refused, with the remedy: docs/export.md. `version` is a number, or `live`
    for the learned state; without it, the version that is served. The header `X-Rankloop-Notes` is a JSON list of the
    differences between the exported model and the ranker.
    """
    wanted: Any = int(version) if version is not None and version.isdigit() else version
    made = await read(versions.exported, state.engine, name, to, wanted)
    headers = {
        "Content-Disposition": f'attachment; filename="{made.name}.{"onnx" if to == "onnx" else "json"}"',
        "X-Rankloop-Notes": json.dumps([note[:LONGEST_NOTE] for note in made.notes]),  # ASCII in any case
    }
    return Response(made.body, media_type=made.media, headers=headers)


def _checked(data: VersionRequest | None) -> VersionRequest:
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
        use_idempotency_key(idempotency_key)
        wanted = _checked(data)
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
        return with_etag(await engine.operations.run(call))

    handler.__doc__, handler.__name__ = text, action
    tag, codes = "rankers" if action in ("pause", "resume") else "versions", (400, 404, 409, 412, 422)
    return route(post, f"{RANKER}/{action}", "admin", tag, summary, *codes, returns=RankerStatus, status_code=200)(
        handler
    )


ROUTES: list[Any] = [
    *(list_versions, keep_version, get_lineage, get_export),
    _action(
        "promote",
        "Serve a version",
        'A number, "live" for what is being learned, or nothing: then the learned state is kept and served. '
        "Learning continues behind a promoted version.",
    ),
    _action(
        "rollback",
        "Go back to a version",
        "Serving and learning go back to it; the present state is kept as a version first. Without a number: the "
        "newest, so a second rollback undoes the first. Refused (409 `not-learned`) if the kept version would lack "
        "acknowledged outcomes; with `force` they are learned on top of the version gone back to.",
    ),
    _action(
        "reset",
        "Start from nothing",
        "The learned state is kept as a version. Feedback to earlier rankings is late from then on. Refused (409 "
        "`not-learned`) if the kept version would lack acknowledged outcomes; with `force` they are learned later.",
    ),
    _action("pause", "Pause learning", "Feedback is still joined and kept, but outcomes are not learned."),
    _action("resume", "Resume learning", "Outcomes from then on are learned."),
]
