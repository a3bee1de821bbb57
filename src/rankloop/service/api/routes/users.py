"""The routes of one user's data: export and erasure."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from litestar import Request, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop.service.api.routes._shared import needs, operate, problems
from rankloop.service.control import rankers, users
from rankloop.service.serving.engine import Engine
from rankloop.wire.users import Erased, UserExport

# 513: a path parameter comes with the slash before it
User = Annotated[str, Parameter(min_length=1, max_length=513, description="as sent with rank requests")]
After = Annotated[str, Parameter(max_length=64, description="`next` of the page before")]
Most = Annotated[int, Parameter(ge=1, le=1000, description="impressions per page")]


def _sent(request: Request[Any, Any, Any], user: str) -> str:
    """The user id as it was sent: to the framework a//b and a/ are a/b and a, but they may be users of their own."""
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    return unquote(raw.partition("/v1/users/")[2]) or user.removeprefix("/")


@get(
    "/v1/users/{user:path}",
    guards=[needs("admin", everything=True)],
    tags=["users"],
    summary="Export a user's data",
    responses={200: ResponseSpec(UserExport, generate_examples=False), **problems(400, 422)},
)
async def export_user(
    request: Request[Any, Any, Any], user: User, after: After = "", limit: Most = users.PAGE
) -> UserExport:
    """Everything that is stored under a user id: impressions with answers, events and outcomes, catalog rows, and
    counters. `not_listed` names what cannot be listed. An unknown user has empty lists."""
    engine: Engine = request.app.state.engine
    return await engine.reads.run(users.export, engine.database, _sent(request, user), after, limit)


@delete(
    "/v1/users/{user:path}",
    guards=[needs("admin", everything=True)],
    status_code=200,
    tags=["users"],
    summary="Erase a user's data",
    responses=problems(400, 422),
)
async def erase_user(request: Request[Any, Any, Any], user: User) -> Erased:
    """Delete everything that is stored under a user id. `remains` names what could not be deleted at once, and until
    when it stays. Learned weights stay: they are sums over all users."""
    return await operate(rankers.erase_user, request.app.state.engine, _sent(request, user))
