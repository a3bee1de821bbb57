"""A client of the service, blocking or async: `Client` and `AsyncClient` have the same methods and one logic.

Answers are the structs of `rankloop.service.wire`. What fails on the way is tried again, and counts once however often
it arrives; `rankloop._requests` has that logic and what the methods do, this module has the network.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import httpx

from rankloop._catalogue import CatalogueRequests
from rankloop._exchange import Call, Reply, ServiceError, ServiceUnavailable, Steps
from rankloop._requests import Requests
from rankloop.errors import InvalidParameter

__all__ = ["AsyncCatalogue", "AsyncClient", "Catalogue", "Client", "ServiceError", "ServiceUnavailable"]

LOCAL = "http://127.0.0.1:8080"

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _blocking(method: Callable[Concatenate[Requests, P], Steps[T]]) -> Callable[Concatenate[Client, P], T]:
    """A method of `Client` from steps."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._carry_out(method(self._requests, *args, **kwargs))

    return _told(call)


def _awaited(
    method: Callable[Concatenate[Requests, P], Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method of `AsyncClient` from steps."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._carry_out(method(self._requests, *args, **kwargs))

    return _told(call)


def _told(call: F) -> F:
    """The same with a signature that names the answer, for `help` and editors: RankAnswer, not Steps[RankAnswer]."""
    signature = inspect.signature(call)
    answer = signature.return_annotation.removeprefix("Steps[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return call


def _blocking_of(
    method: Callable[Concatenate[CatalogueRequests, P], Steps[T]],
) -> Callable[Concatenate[Catalogue, P], T]:
    """A method of `Catalogue` from steps."""

    @wraps(method)
    def call(self: Catalogue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._client._carry_out(method(self._requests, *args, **kwargs))

    return _told(call)


def _awaited_of(
    method: Callable[Concatenate[CatalogueRequests, P], Steps[T]],
) -> Callable[Concatenate[AsyncCatalogue, P], Coroutine[Any, Any, T]]:
    """A method of `AsyncCatalogue` from steps."""

    @wraps(method)
    async def call(self: AsyncCatalogue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client._carry_out(method(self._requests, *args, **kwargs))

    return _told(call)


class Catalogue:
    """The items of a catalogue (`client.catalogue("shop")`); `users` are its users."""

    def __init__(self, client: Client, name: str, kind: Literal["items", "users"] = "items") -> None:
        self._client, self._requests = client, CatalogueRequests(client._requests, name, kind)

    @property
    def users(self) -> Catalogue:
        """The same for users."""
        return Catalogue(self._client, self._requests.name, "users")

    put = _blocking_of(CatalogueRequests.put)
    patch = _blocking_of(CatalogueRequests.patch)
    delete = _blocking_of(CatalogueRequests.delete)
    clear = _blocking_of(CatalogueRequests.clear)
    get = _blocking_of(CatalogueRequests.get)
    info = _blocking_of(CatalogueRequests.info)
    drop = _blocking_of(CatalogueRequests.drop)


class AsyncCatalogue:
    """`Catalogue` for asyncio."""

    def __init__(self, client: AsyncClient, name: str, kind: Literal["items", "users"] = "items") -> None:
        self._client, self._requests = client, CatalogueRequests(client._requests, name, kind)

    @property
    def users(self) -> AsyncCatalogue:
        """The same for users."""
        return AsyncCatalogue(self._client, self._requests.name, "users")

    put = _awaited_of(CatalogueRequests.put)
    patch = _awaited_of(CatalogueRequests.patch)
    delete = _awaited_of(CatalogueRequests.delete)
    clear = _awaited_of(CatalogueRequests.clear)
    get = _awaited_of(CatalogueRequests.get)
    info = _awaited_of(CatalogueRequests.info)
    drop = _awaited_of(CatalogueRequests.drop)


class _Connected:
    """What the two clients hold alike."""

    def __init__(self, url: str, key: str | None, timeout: float, retries: int) -> None:
        self._requests = Requests(url, retries)
        if not timeout > 0:
            raise InvalidParameter(f"timeout is {timeout!r}; it must be a number of seconds above 0")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            raise InvalidParameter("the key has letters that a header cannot carry, or none; give plain ASCII")
        self._settings: dict[str, Any] = {"timeout": timeout, "headers": {"Content-Type": "application/json"}}
        if key is not None:
            self._settings["headers"]["Authorization"] = f"Bearer {key}"
        if self.url.startswith("http:"):  # do not spend 50 ms on reading certificates that nobody will show
            self._settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._requests.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class Client(_Connected):
    """Talks to a service and waits for its answers; threads may share one.

        with Client("http://127.0.0.1:8080", key="secret") as client:
            client.put_ranker("shop", features=["bm25", "price"], exposure="full")
            shoe, hat = {"id": "shoe", "features": [0.7, 49.0]}, {"id": "hat", "features": [0.1, 9.0]}
            answer = client.rank("shop", [shoe, hat], query="red", user="u17")
            client.click(answer, ["hat"])  # all that was clicked; final=False if more may follow

    Raises `ServiceError` for what the service refuses, `ServiceUnavailable` when no try got through, and `InvalidInput`
    for what is not worth sending.

    Parameters
    ----------
    url
        Where the service is.
    key
        Sent as `Authorization: Bearer KEY`.
    timeout
        Seconds that one try may take.
    retries
        How often to try again after the first, when the connection fails, the service is away (502, 503, 504) or the
        key may not ask so often (429).
        An operator action (`rollback`, `delete_ranker`, …) is carried out once, however often it is sent: every try
        carries the same idempotency key.
    """

    def __init__(self, url: str = LOCAL, key: str | None = None, timeout: float = 5.0, retries: int = 3) -> None:
        super().__init__(url, key, timeout, retries)
        self._http = httpx.Client(**self._settings)

    put_ranker = _blocking(Requests.put_ranker)
    patch_ranker = _blocking(Requests.patch_ranker)
    wait_warm = _blocking(Requests.wait_warm)
    ranker = _blocking(Requests.ranker)
    rankers = _blocking(Requests.rankers)
    delete_ranker = _blocking(Requests.delete_ranker)
    rank = _blocking(Requests.rank)
    feedback = _blocking(Requests.feedback)
    click = _blocking(Requests.click)
    series = _blocking(Requests.series)
    impressions = _blocking(Requests.impressions)
    weights = _blocking(Requests.weights)
    movement = _blocking(Requests.movement)
    versions = _blocking(Requests.versions)
    lineage = _blocking(Requests.lineage)
    keep_version = _blocking(Requests.keep_version)
    promote = _blocking(Requests.promote)
    rollback = _blocking(Requests.rollback)
    reset = _blocking(Requests.reset)
    pause = _blocking(Requests.pause)
    resume = _blocking(Requests.resume)
    start_experiment = _blocking(Requests.start_experiment)
    experiments = _blocking(Requests.experiments)
    experiment = _blocking(Requests.experiment)
    stop_experiment = _blocking(Requests.stop_experiment)
    erase_user = _blocking(Requests.erase_user)
    export_user = _blocking(Requests.export_user)
    audit = _blocking(Requests.audit)
    ready = _blocking(Requests.ready)
    wait_ready = _blocking(Requests.wait_ready)
    metrics = _blocking(Requests.metrics)
    catalogues = _blocking(Requests.catalogues)

    def catalogue(self, name: str) -> Catalogue:
        """A catalogue: send items once, then rank by their ids."""
        return Catalogue(self, name)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _carry_out(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Call):
                reply = self._sent(step)
            else:
                time.sleep(step)

    def _sent(self, call: Call) -> Reply:
        try:
            return _reply(self._http.request(call.method, self.url + call.path, content=call.body, headers=_own(call)))
        except httpx.RequestError as error:
            return _lost(error)


class AsyncClient(_Connected):
    """`Client` for asyncio: the same methods, to be awaited; tasks may share one.

    async with AsyncClient("http://127.0.0.1:8080", key="secret") as client:
        answer = await client.rank("shop", [{"id": "shoe", "features": [0.7, 49.0]}])
        await client.click(answer, ["shoe"])
    """

    def __init__(self, url: str = LOCAL, key: str | None = None, timeout: float = 5.0, retries: int = 3) -> None:
        super().__init__(url, key, timeout, retries)
        self._http = httpx.AsyncClient(**self._settings)

    put_ranker = _awaited(Requests.put_ranker)
    patch_ranker = _awaited(Requests.patch_ranker)
    wait_warm = _awaited(Requests.wait_warm)
    ranker = _awaited(Requests.ranker)
    rankers = _awaited(Requests.rankers)
    delete_ranker = _awaited(Requests.delete_ranker)
    rank = _awaited(Requests.rank)
    feedback = _awaited(Requests.feedback)
    click = _awaited(Requests.click)
    series = _awaited(Requests.series)
    impressions = _awaited(Requests.impressions)
    weights = _awaited(Requests.weights)
    movement = _awaited(Requests.movement)
    versions = _awaited(Requests.versions)
    lineage = _awaited(Requests.lineage)
    keep_version = _awaited(Requests.keep_version)
    promote = _awaited(Requests.promote)
    rollback = _awaited(Requests.rollback)
    reset = _awaited(Requests.reset)
    pause = _awaited(Requests.pause)
    resume = _awaited(Requests.resume)
    start_experiment = _awaited(Requests.start_experiment)
    experiments = _awaited(Requests.experiments)
    experiment = _awaited(Requests.experiment)
    stop_experiment = _awaited(Requests.stop_experiment)
    erase_user = _awaited(Requests.erase_user)
    export_user = _awaited(Requests.export_user)
    audit = _awaited(Requests.audit)
    ready = _awaited(Requests.ready)
    wait_ready = _awaited(Requests.wait_ready)
    metrics = _awaited(Requests.metrics)
    catalogues = _awaited(Requests.catalogues)

    def catalogue(self, name: str) -> AsyncCatalogue:
        """A catalogue: send items once, then rank by their ids."""
        return AsyncCatalogue(self, name)

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _carry_out(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Call):
                reply = await self._sent(step)
            else:
                await asyncio.sleep(step)

    async def _sent(self, call: Call) -> Reply:
        try:
            path, headers = self.url + call.path, _own(call)
            return _reply(await self._http.request(call.method, path, content=call.body, headers=headers))
        except httpx.RequestError as error:
            return _lost(error)


def _own(call: Call) -> dict[str, str]:
    """The headers of one call; those of all calls are the connection's."""
    own = {"If-Match": call.if_match, "Idempotency-Key": call.key}
    return {name: value for name, value in own.items() if value is not None}


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.content, response.headers.get("Retry-After", ""))


def _lost(error: httpx.RequestError) -> Reply:
    """What is known of a request that got no answer."""
    why = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
    arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Reply(0, lost=why, arrived=arrived)
