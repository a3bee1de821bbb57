"""Routes of catalogs (items and users) and of the data stored under one user id."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import delete, get, patch, post, put
from litestar.datastructures import State
from litestar.params import Parameter

from rankloop.service.access import Key
from rankloop.service.api.routes.common import (
    AnyRequest,
    IdempotencyKey,
    id_in_path,
    operate,
    read,
    route,
    use_idempotency_key,
)
from rankloop.service.control import catalogs, rankers, users
from rankloop.service.serving.engine import Engine
from rankloop.service.storage.catalog import KINDS, Kind
from rankloop.wire.basics import NAME
from rankloop.wire.catalog import CatalogAnswer, CatalogInfo, Emptied, Entry
from rankloop.wire.service import Erased, UserExport

Name = Annotated[str, Parameter(pattern=NAME, description="the catalog", max_length=64)]
# 513: a path parameter comes with the slash before it
Id = Annotated[str, Parameter(min_length=1, max_length=513, description="of the item or user")]
Force = Annotated[bool, Parameter(description="delete it even if rankers name it")]
User = Annotated[str, Parameter(min_length=1, max_length=513, description="as sent with rank requests")]
After = Annotated[str, Parameter(max_length=64, description="`next` of the previous page")]
Most = Annotated[int, Parameter(ge=1, le=1000, description="impressions per page")]
TAG = "catalogs"


@route(get, "/v1/catalogs", "read", TAG, "All catalogs")
async def list_catalogs(request: AnyRequest) -> list[CatalogInfo]:
    """The number of items and users, fields and memory of each catalog that the key may use."""
    key: Key = request.state.key
    found = await read(catalogs.infos, request.app.state.engine)
    return [_visible(one, key) for one in found if key.may_use(one.name)]


@route(get, "/v1/catalogs/{catalog:str}", "read", TAG, "One catalog", 400, 404)
async def get_catalog(request: AnyRequest, catalog: Name) -> CatalogInfo:
    """Its number of items and users, fields and memory, and how many unknown ids requests named."""
    return _visible(await read(catalogs.info, request.app.state.engine, catalog), request.state.key)


def _visible(info: CatalogInfo, key: Key) -> CatalogInfo:
    """Without the rankers that the key is not for."""
    return msgspec.structs.replace(info, rankers=[name for name in info.rankers if key.is_for(name)])


@route(delete, "/v1/catalogs/{catalog:str}", "admin", TAG, "Delete a catalog", 400, 404, 409)
async def delete_catalog(
    state: State, catalog: Name, force: Force = False, idempotency_key: IdempotencyKey = None
) -> None:
    """With all its items and users. A catalog that a ranker names is not deleted (409 `in-use`) unless `force` is
    true; the ranker then treats every id as unknown."""
    use_idempotency_key(idempotency_key)
    await operate(catalogs.drop, state.engine, catalog, force)


def _routes_of(kind: Kind) -> list[Any]:
    """The routes of items, or those of users."""
    one, path = kind.removesuffix("s"), f"/v1/catalogs/{{catalog:str}}/{kind}"

    async def put_many(request: AnyRequest, catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.put, engine, catalog, kind, await request.body(), False)

    async def patch_many(request: AnyRequest, catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.put, engine, catalog, kind, await request.body(), True)

    async def delete_many(request: AnyRequest, catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.delete, engine, catalog, kind, await request.body())

    async def delete_all(state: State, catalog: Name, idempotency_key: IdempotencyKey = None) -> Emptied:
        use_idempotency_key(idempotency_key)
        return await operate(catalogs.empty, state.engine, catalog, kind)

    async def get_one(request: AnyRequest, catalog: Name, key: Id) -> Entry:
        item = id_in_path(request, f"/{kind}/", key)
        return await read(catalogs.entry, request.app.state.engine, catalog, kind, item)

    async def delete_one(request: AnyRequest, catalog: Name, key: Id, idempotency_key: IdempotencyKey = None) -> None:
        use_idempotency_key(idempotency_key)
        item = id_in_path(request, f"/{kind}/", key)
        await operate(catalogs.delete_one, request.app.state.engine, catalog, kind, item)

    many, single, key = (400, 413, 415, 422), (400, 404), f"{path}/{{key:path}}"
    made: list[tuple[Any, Any, str, str, str, tuple[int, ...], str]] = [
        (put, put_many, path, "admin", f"Upload {kind}", many,
         f'An array of objects, or a JSON object per line: `{{"id": …}}` and the {one}\'s fields beside it. Each '
         f"replaces all fields of that {one}. Idempotent; each line has a result, and accepted lines are durable."),
        (patch, patch_many, path, "admin", f"Change fields of {kind}", many,
         "The same, but only the fields that are sent change; null removes one."),
        (post, delete_many, f"{path}/delete", "admin", f"Delete {kind}", many, "An array of ids, or one per line."),
        (delete, delete_all, path, "admin", f"Delete all {kind}", single, "And the types of their fields."),
        (get, get_one, key, "read", f"One {one}", single, "Its fields, as they were sent."),
        (delete, delete_one, key, "admin", f"Delete one {one}", single, "Within a second it is unknown to requests."),
    ]  # fmt: skip
    routes = []
    for method, handler, at, scope, summary, codes, text in made:
        handler.__name__, handler.__doc__ = f"{handler.__name__}_{kind}", text
        returns = CatalogAnswer if codes == many else None
        more: dict[str, Any] = {} if at == key else {"status_code": 200}
        routes.append(route(method, at, scope, TAG, summary, *codes, returns=returns, **more)(handler))
    return routes


@route(get, "/v1/users/{user:path}", "admin", "users", "Export a user's data", 400, 422, everything=True)
async def export_user(request: AnyRequest, user: User, after: After = "", limit: Most = users.PAGE) -> UserExport:
    """Everything that is stored under a user id: impressions with answers, events and outcomes, catalog rows, and
    counters. `not_listed` names what cannot be listed. An unknown user has empty lists."""
    engine, sent = request.app.state.engine, id_in_path(request, "/v1/users/", user)
    found: UserExport = await engine.reads.run(users.export, engine.database, sent, after, limit)
    return found


@route(
    delete, "/v1/users/{user:path}", "admin", "users", "Erase a user's data", 400, 422, everything=True, status_code=200
)
async def erase_user(request: AnyRequest, user: User) -> Erased:
    """Delete everything that is stored under a user id. `remains` names what could not be deleted at once, and until
    when it stays. Learned weights stay: they are sums over all users."""
    return await operate(rankers.erase_user, request.app.state.engine, id_in_path(request, "/v1/users/", user))


ROUTES = [list_catalogs, get_catalog, delete_catalog, *(one for kind in KINDS for one in _routes_of(kind))]
ROUTES += [export_user, erase_user]
