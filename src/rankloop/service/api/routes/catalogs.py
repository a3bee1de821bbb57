"""The routes of catalogs: upload, look at, delete; items and users alike."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from litestar import Request, delete, get, patch, post, put
from litestar.datastructures import State
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from rankloop.service.access.keys import Key
from rankloop.service.api.routes._shared import IdempotencyKey, needs, once, operate, problems, read
from rankloop.service.control import catalogs
from rankloop.service.serving.engine import Engine
from rankloop.service.storage.catalog import KINDS, Kind
from rankloop.wire.basics import NAME
from rankloop.wire.catalog import CatalogAnswer, CatalogInfo, Emptied, Entry

Name = Annotated[str, Parameter(pattern=NAME, description="the catalog", max_length=64)]
# 513: a path parameter comes with the slash before it
Id = Annotated[str, Parameter(min_length=1, max_length=513, description="of the item or user")]
Force = Annotated[bool, Parameter(description="delete it even if rankers name it")]
CHANGES, EXAMINATIONS = [needs("admin")], [needs("read")]
TAGS = ["catalogs"]


@get("/v1/catalogs", guards=EXAMINATIONS, tags=TAGS, summary="All catalogs", responses=problems())
async def list_catalogs(request: Request[Any, Any, Any]) -> list[CatalogInfo]:
    """How many items and users each has, their fields, the memory they take; of the catalogs that the key may use."""
    key: Key = request.state.key
    found = await read(catalogs.infos, request.app.state.engine)
    return [_visible(one, key) for one in found if key.may_use(one.name)]


@get("/v1/catalogs/{catalog:str}", guards=EXAMINATIONS, tags=TAGS, summary="One catalog", responses=problems(400, 404))
async def get_catalog(request: Request[Any, Any, Any], catalog: Name) -> CatalogInfo:
    """How many items and users it has, their fields, the memory they take, ids that requests named and it has not."""
    found = await read(catalogs.info, request.app.state.engine, catalog)
    return _visible(found, request.state.key)


def _visible(info: CatalogInfo, key: Key) -> CatalogInfo:
    """What a key may see of a catalog: of the rankers that use it, those that the key is for."""
    return msgspec.structs.replace(info, rankers=[name for name in info.rankers if key.is_for(name)])


@delete(
    "/v1/catalogs/{catalog:str}",
    guards=CHANGES,
    tags=TAGS,
    summary="Delete a catalog",
    responses=problems(400, 404, 409),
)
async def delete_catalog(
    state: State, catalog: Name, force: Force = False, idempotency_key: IdempotencyKey = None
) -> None:
    """With all its items and users. A catalog that a ranker names is not deleted (409 `in-use`) unless `force` is
    true; the ranker then treats every id as unknown."""
    once(idempotency_key)
    await operate(catalogs.drop, state.engine, catalog, force)


def _of(kind: Kind) -> list[Any]:
    """The routes of items, or those of users."""
    one, path = kind.removesuffix("s"), f"/v1/catalogs/{{catalog:str}}/{kind}"
    answers = {200: ResponseSpec(CatalogAnswer, generate_examples=False), **problems(400, 413, 415, 422)}

    async def put_many(request: Request[Any, Any, Any], catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.put, engine, catalog, kind, await request.body(), False)

    async def patch_many(request: Request[Any, Any, Any], catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.put, engine, catalog, kind, await request.body(), True)

    async def delete_many(request: Request[Any, Any, Any], catalog: Name) -> CatalogAnswer:
        engine: Engine = request.app.state.engine
        return await operate(catalogs.delete, engine, catalog, kind, await request.body())

    async def delete_all(state: State, catalog: Name, idempotency_key: IdempotencyKey = None) -> Emptied:
        once(idempotency_key)
        return await operate(catalogs.empty, state.engine, catalog, kind)

    async def get_one(request: Request[Any, Any, Any], catalog: Name, key: Id) -> Entry:
        return await read(catalogs.entry, request.app.state.engine, catalog, kind, _sent(request, kind, key))

    async def delete_one(
        request: Request[Any, Any, Any], catalog: Name, key: Id, idempotency_key: IdempotencyKey = None
    ) -> None:
        once(idempotency_key)
        await operate(catalogs.delete_one, request.app.state.engine, catalog, kind, _sent(request, kind, key))

    put_many.__doc__ = (
        f'An array of objects, or a JSON object a line: `{{"id": …}}` and the {one}\'s fields beside it. Each replaces '
        f"all that was known of that {one}. Idempotent; each line is answered for, and what is accepted is on the disk."
    )
    patch_many.__doc__ = "The same, but only the fields that are sent change; null takes one away."
    delete_many.__doc__ = "An array of ids, or one a line as JSON."
    delete_all.__doc__ = f"All {kind}, and which fields they had."
    get_one.__doc__ = "Its fields, as they were sent."
    delete_one.__doc__ = "It is unknown to requests within a second."
    made: list[tuple[Any, Any, str, str, Any, dict[str, Any]]] = [
        (put, put_many, path, f"Upload {kind}", CHANGES, {"status_code": 200, "responses": answers}),
        (patch, patch_many, path, f"Change fields of {kind}", CHANGES, {"status_code": 200, "responses": answers}),
        (post, delete_many, f"{path}/delete", f"Delete {kind}", CHANGES, {"status_code": 200, "responses": answers}),
        (
            delete,
            delete_all,
            path,
            f"Delete all {kind}",
            CHANGES,
            {"status_code": 200, "responses": problems(400, 404)},
        ),
        (get, get_one, f"{path}/{{key:path}}", f"One {one}", EXAMINATIONS, {"responses": problems(400, 404)}),
        (delete, delete_one, f"{path}/{{key:path}}", f"Delete one {one}", CHANGES, {"responses": problems(400, 404)}),
    ]
    routes = []
    for method, handler, at, summary, guards, more in made:
        handler.__name__ = f"{handler.__name__}_{kind}"
        routes.append(method(at, guards=guards, tags=TAGS, summary=summary, **more)(handler))
    return routes


def _sent(request: Request[Any, Any, Any], kind: Kind, given: str) -> str:
    """An id as it was sent: to the framework a//b and a/ are a/b and a, but they may be items of their own."""
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    return unquote(raw.partition(f"/{kind}/")[2]) or given.removeprefix("/")


ROUTES = [list_catalogs, get_catalog, delete_catalog, *(route for kind in KINDS for route in _of(kind))]
