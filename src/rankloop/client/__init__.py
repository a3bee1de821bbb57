"""Clients of the service, blocking (`Client`) and async (`AsyncClient`), with the same methods."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

import httpx

from rankloop.client.exchange import Call, RejectedEvent, Reply, ServiceError, ServiceUnavailable, Steps
from rankloop.client.feedback_queue import FeedbackQueue, OnRejected, log_rejected
from rankloop.client.requests import CatalogRequests, Requests
from rankloop.client.transport import send, send_async
from rankloop.core.errors import InvalidParameter

__all__ = [
    "AsyncCatalog",
    "AsyncClient",
    "Catalog",
    "Client",
    "FeedbackQueue",
    "RejectedEvent",
    "ServiceError",
    "ServiceUnavailable",
]

LOCAL = "http://127.0.0.1:8080"
RANK_TIMEOUT = 0.25  # seconds
QUEUE = 10_000  # events
CLOSE_SECONDS = 5.0  # for which `flush` and `close` wait unless told otherwise

P = ParamSpec("P")
T = TypeVar("T")


class _Blocking(ABC):
    """An object whose methods wait for their results."""

    _requests: Any

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T: ...


class _Awaited(ABC):
    """An object whose methods are awaited."""

    _requests: Any

    @abstractmethod
    async def _run(self, steps: Steps[T]) -> T: ...


if TYPE_CHECKING:

    class _method(Generic[P, T]):  # noqa: N801
        """A method of a client from steps: blocking in `Client`, a coroutine in `AsyncClient`."""

        def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None: ...

        @overload
        def __get__(self, client: _Blocking, owner: Any = None) -> Callable[P, T]: ...
        @overload
        def __get__(self, client: _Awaited, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, client: Any, owner: Any = None) -> Any: ...

else:

    def _method(steps):
        @wraps(steps)
        def call(self, /, *args, **kwargs):
            return self._run(steps(self._requests, *args, **kwargs))

        signature = inspect.signature(steps)  # for `help` and editors: RankAnswer, not Steps[RankAnswer]
        result = signature.return_annotation.removeprefix("Steps[").removesuffix("]")
        call.__signature__ = signature.replace(return_annotation=result)
        return call


class _CatalogMethods:
    put = _method(CatalogRequests.put)
    patch = _method(CatalogRequests.patch)
    delete = _method(CatalogRequests.delete)
    clear = _method(CatalogRequests.clear)
    get = _method(CatalogRequests.get)
    info = _method(CatalogRequests.info)
    drop = _method(CatalogRequests.drop)


class Catalog(_CatalogMethods, _Blocking):
    """The items of a catalog (`client.catalog("shop")`); `users` are its users."""

    def __init__(self, client: Client, name: str, kind: Literal["items", "users"] = "items") -> None:
        self._client, self._requests = client, CatalogRequests(client._requests, name, kind)

    @property
    def users(self) -> Catalog:
        """The same for users."""
        return Catalog(self._client, self._requests.name, "users")

    def _run(self, steps: Steps[T]) -> T:
        return self._client._run(steps)


class AsyncCatalog(_CatalogMethods, _Awaited):
    """`Catalog` for asyncio."""

    def __init__(self, client: AsyncClient, name: str, kind: Literal["items", "users"] = "items") -> None:
        self._client, self._requests = client, CatalogRequests(client._requests, name, kind)

    @property
    def users(self) -> AsyncCatalog:
        """The same for users."""
        return AsyncCatalog(self._client, self._requests.name, "users")

    async def _run(self, steps: Steps[T]) -> T:
        return await self._client._run(steps)


class _Connected(ABC):
    """What the two clients have in common."""

    put_ranker = _method(Requests.put_ranker)
    patch_ranker = _method(Requests.patch_ranker)
    wait_compiled = _method(Requests.wait_compiled)
    ranker = _method(Requests.ranker)
    rankers = _method(Requests.rankers)
    delete_ranker = _method(Requests.delete_ranker)
    rank = _method(Requests.rank)
    feedback = _method(Requests.feedback)
    click = _method(Requests.click)
    series = _method(Requests.series)
    impressions = _method(Requests.impressions)
    weights = _method(Requests.weights)
    movement = _method(Requests.movement)
    versions = _method(Requests.versions)
    lineage = _method(Requests.lineage)
    keep_version = _method(Requests.keep_version)
    promote = _method(Requests.promote)
    rollback = _method(Requests.rollback)
    reset = _method(Requests.reset)
    pause = _method(Requests.pause)
    resume = _method(Requests.resume)
    start_experiment = _method(Requests.start_experiment)
    experiments = _method(Requests.experiments)
    experiment = _method(Requests.experiment)
    stop_experiment = _method(Requests.stop_experiment)
    erase_user = _method(Requests.erase_user)
    export_user = _method(Requests.export_user)
    audit = _method(Requests.audit)
    ready = _method(Requests.ready)
    wait_ready = _method(Requests.wait_ready)
    metrics = _method(Requests.metrics)
    catalogs = _method(Requests.catalogs)

    def __init__(
        self,
        url: str = LOCAL,
        key: str | None = None,
        timeout: float = 5.0,
        retries: int = 3,
        *,
        rank_timeout: float = RANK_TIMEOUT,
        queue: int = QUEUE,
        queue_file: str | os.PathLike[str] | None = None,
        on_rejected: OnRejected | None = None,
    ) -> None:
        self._requests = Requests(url, retries, rank_timeout, None, on_rejected or log_rejected)
        for name, seconds in (("timeout", timeout), ("rank_timeout", rank_timeout)):
            if not seconds > 0:
                raise InvalidParameter(f"{name} is {seconds!r}; it must be a number of seconds above 0")
        if not isinstance(queue, int) or queue < 0 or queue is True:
            raise InvalidParameter(f"queue is {queue!r}; it must be a number of events, or 0 to send each at once")
        if queue_file is not None and not queue:
            raise InvalidParameter("queue_file needs a queue; leave out queue=0")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            raise InvalidParameter("the key has letters that a header cannot carry, or none; give plain ASCII")
        self._settings: dict[str, Any] = {"timeout": timeout, "headers": {"Content-Type": "application/json"}}
        if key is not None:
            self._settings["headers"]["Authorization"] = f"Bearer {key}"
        if self.url.startswith("http:"):  # do not spend 50 ms on reading certificates that nobody will show
            self._settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if queue:
            made = FeedbackQueue(self.url, self._settings, queue, queue_file, self._requests.on_rejected)
            self._requests.queue = made
        self._connect()
        _clients.add(self)

    @abstractmethod
    def _connect(self) -> None:
        """Make new connections when they are needed."""

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._requests.url

    @property
    def queue(self) -> FeedbackQueue | None:
        """Events that wait to be sent, with counters for health checks; None with `queue=0`."""
        return self._requests.queue

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


_clients: weakref.WeakSet[_Connected] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """A child must not use the connections of its parent."""
    for client in list(_clients):
        client._connect()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Client(_Connected, _Blocking):
    """Talks to a service and waits for its answers; threads may share one.

        with Client("http://127.0.0.1:8080", key="secret") as client:
            client.put_ranker("shop", features=["bm25", "price"], exposure="full")
            shoe, hat = {"id": "shoe", "features": [0.7, 49.0]}, {"id": "hat", "features": [0.1, 9.0]}
            answer = client.rank("shop", [shoe, hat], query="red", user="u17")
            client.click(answer, ["hat"])  # all that was clicked; final=False if more may follow

    `rank` returns the baseline ranking if the service does not answer in time, and `click` and `feedback` only add to
    a queue, so neither fails because of the service. The other methods raise `ServiceUnavailable` when no try got
    through. All raise `ServiceError` for what the service refuses and `InvalidInput` for what is not worth sending.

    A client that was made before a fork works in the child: it opens connections of its own, and its queue is empty.

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
    rank_timeout
        Seconds that `rank` may take, all tries and pauses together, before it returns the baseline ranking. After 5
        calls in a row that got no usable answer, one call per second is sent until one succeeds; the others return
        the baseline ranking at once.
    queue
        Number of events that may wait to be sent. When more come, the oldest are dropped. 0: there is no queue;
        `click` and `feedback` send at once and return receipts.
    queue_file
        Path of a file in which events wait, so that they survive the end of the program and are sent at its next
        start. Processes on one machine may share it. Without it they wait in memory.
    on_rejected
        Called with the receipt and the event for each event that the service rejects; by default a warning is logged.
        It is called in the thread that sends.
    """

    def _connect(self) -> None:
        self._http = httpx.Client(**self._settings)

    def catalog(self, name: str) -> Catalog:
        """A catalog: send items once, then rank by their ids."""
        return Catalog(self, name)

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until all queued events are delivered; False if that takes longer than `timeout` seconds."""
        return self.queue is None or self.queue.flush(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Deliver queued events, for at most `timeout` seconds, and close the connections."""
        if self.queue is not None:
            self.queue.close(timeout)
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Call):
                reply = send(self._http, self.url, step)
            elif callable(step):
                step()
            else:
                time.sleep(step)


class AsyncClient(_Connected, _Awaited):
    """`Client` for asyncio: the same methods, to be awaited; tasks may share one.

    async with AsyncClient("http://127.0.0.1:8080", key="secret") as client:
        answer = await client.rank("shop", [{"id": "shoe", "features": [0.7, 49.0]}])
        await client.click(answer, ["shoe"])

    A thread sends queued events, as for `Client`, so they are delivered also after the event loop has ended.
    """

    def _connect(self) -> None:
        self._http = httpx.AsyncClient(**self._settings)

    def catalog(self, name: str) -> AsyncCatalog:
        """A catalog: send items once, then rank by their ids."""
        return AsyncCatalog(self, name)

    async def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until all queued events are delivered; False if that takes longer than `timeout` seconds."""
        return self.queue is None or await _in_thread(partial(self.queue.flush, timeout))

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Deliver queued events, for at most `timeout` seconds, and close the connections."""
        if self.queue is not None:
            await _in_thread(partial(self.queue.close, timeout))
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Call):
                reply = await send_async(self._http, self.url, step)
            elif callable(step):
                await _in_thread(step)
            else:
                await asyncio.sleep(step)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
