"""Load generator: sends rankings to a running service, simulates users who click, and reports latency and learning."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httptools
import msgspec
import numpy as np

from rankloop.clicks.users import TABLES, DependentClickUser
from rankloop.core.errors import InvalidParameter, RankloopError, UnknownName
from rankloop.core.registry import parse_learner
from rankloop.core.rng import Rng
from rankloop.wire.basics import Problem
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, RankAnswer
from rankloop.wire.rankers import RankerStatus, Spec

THINK_SECONDS = (0.05, 0.2)  # between a ranking and its feedback
SUSTAINED = 0.97  # share of the requested rate that must be achieved
EARLY = 0.0005  # timers tick in milliseconds, so a request may be sent this many seconds before it is due
SAMPLE_SECONDS = 2.0
RELEVANT_FEATURES = 10  # few, so that a short run shows learning
GRADE_QUANTILES = (0.5, 0.75, 0.9, 0.97)  # shares of candidates below grades 1, 2, 3 and 4
MAX_QUERIES = 200
MAX_BYTES = 64_000_000  # of all prepared requests

T = TypeVar("T")
OnProgress = Callable[[float, int, int], None]  # rate, requests sent, requests in total


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to send, how fast and for how long.

    Parameters
    ----------
    url, key
        The service (plain http), and its key if it needs one.
    ranker
        Created by the run. An existing ranker that no run created is not touched.
    candidates, features, k
        Size of a request.
    rate, seconds
        Rankings per second, sent when they are due whether or not the service keeps up, and for how long. Rate 0
        sends the next request on each connection as soon as the last one is answered.
    connections
        Requests in flight at once. Further requests wait, and their wait counts.
    feedback
        Share of impressions that get feedback, 50 to 200 ms after the response (at rate 0 immediately).
    user, learner, exposure
        Simulated user, ranker spec (`pairrank?alpha=0.1`) and exposure mode.
    timeout
        Seconds after which a request counts as failed.
    warm_up
        Requests sent one after the other before measuring.
    clean_up
        Delete the ranker at the end.
    """

    url: str = "http://127.0.0.1:8080"
    key: str | None = field(default=None, repr=False)
    ranker: str = "load"
    candidates: int = 100
    features: int = 136
    k: int = 10
    rate: float = 100.0
    seconds: float = 30.0
    connections: int = 32
    feedback: float = 1.0
    user: str = "navigational"
    learner: str = "pairrank"
    exposure: str = "full"
    timeout: float = 10.0
    warm_up: int = 20
    clean_up: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        bounds = {
            "candidates": (1, 10_000),
            "features": (1, 10_000),
            "k": (1, 1000),
            "rate": (0, 100_000),
            "seconds": (0.1, 3600.0),
            "connections": (1, 10_000),
            "feedback": (0, 1),
            "timeout": (0.01, 60),
            "warm_up": (0, 10_000),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidParameter(f"{name} is {value!r}; it must be between {low:g} and {high:g}")
        if self.user not in TABLES:
            raise UnknownName.among("user", self.user, TABLES)


class Latency(NamedTuple):
    """Quantiles in milliseconds; all 0 if nothing was measured.

    >>> Latency.of([0.004, 0.001, 0.002, 0.003])
    Latency(n=4, mean=2.5, p50=2.0, p90=4.0, p99=4.0, p999=4.0, max=4.0)
    """

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """From measured seconds, in any order. Quantiles are nearest-rank."""
        if not seconds:
            return cls(0, *[0.0] * 6)
        ms = np.sort(np.asarray(seconds)) * 1000
        quantiles = (
            float(ms[max(math.ceil(round(share * len(ms), 9)) - 1, 0)]) for share in (0.5, 0.9, 0.99, 0.999, 1)
        )
        return cls(len(ms), float(ms.mean()), *quantiles)


class ClickQuality(NamedTuple):
    """Share of impressions with a click, and mean 1 / position of the first click (0 without a click)."""

    click_rate: float
    reciprocal_rank: float

    @classmethod
    def of(cls, first_clicks: Sequence[int]) -> ClickQuality:
        """From the position of the first click of each impression, 0 if there is none.

        >>> ClickQuality.of([1, 0, 2, 0])
        ClickQuality(click_rate=0.5, reciprocal_rank=0.375)
        """
        n = max(len(first_clicks), 1)
        return cls(sum(p > 0 for p in first_clicks) / n, sum(1 / p for p in first_clicks if p) / n)


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What was measured. If `generator_late` or `generator_cpu` is high, the generator was the bottleneck."""

    plan: LoadPlan
    seconds: float
    sent: int
    answered: int
    achieved_rate: float
    errors: dict[str, int]
    fallbacks: int
    rank: Latency
    feedback: Latency
    feedback_status: dict[str, int]
    first_fifth: ClickQuality
    last_fifth: ClickQuality
    lag: int | None  # outcomes not learned yet, the highest of all samples
    generator_late: Latency
    generator_cpu: float

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, without the key."""
        plain = asdict(replace(self, plan=replace(self.plan, key=None)))
        return {name: value._asdict() if hasattr(value, "_asdict") else value for name, value in plain.items()}

    def not_sustained(self, limit_ms: float) -> str:
        """Why the rate was not sustained; empty if it was."""
        if self.achieved_rate < SUSTAINED * self.plan.rate:
            return f"achieved {self.achieved_rate:.4g} of {self.plan.rate:.4g}/s"
        if self.rank.p99 > limit_ms:
            return f"p99 {self.rank.p99:.1f} ms > {limit_ms:g} ms"
        return ""


class Maximum(NamedTuple):
    """The highest sustained rate (None: not even the lowest tried), and every step."""

    rate: float | None
    limit_ms: float
    steps: list[LoadReport]


class Traffic:
    """Prepared request bodies, and a simulated user who knows the true grades.

    A candidate's grade depends linearly on a few of its features, and candidates come in random order.

    >>> traffic = Traffic(candidates=5, features=3, k=2, user="perfect")
    >>> traffic.request(0, "r-1")[:44]
    b'{"request_id":"r-1","query":"q0","k":2,"user'
    >>> traffic.clicks(0, ["c0", "c1", "c2", "c3", "c4"])
    ['c3']
    """

    def __init__(self, *, candidates: int, features: int, k: int, user: str = "navigational", seed: int = 0) -> None:
        self.queries = max(min(MAX_QUERIES, MAX_BYTES // (candidates * features * 8)), 4)
        self.names = [f"f{j}" for j in range(features)]
        self._rng = Rng(seed)
        self._user = DependentClickUser.named(user, 4)
        self._places = {f"c{i}": i for i in range(candidates)}
        rng = self._rng.for_event("load/truth", 0)
        weights = np.zeros(features)
        relevant = rng.permutation(features)[:RELEVANT_FEATURES]
        weights[relevant] = rng.choice([-1.0, 1.0], len(relevant)) * 0.8 ** np.arange(len(relevant))
        scores = np.empty((self.queries, candidates))
        self._bodies = []
        for q in range(self.queries):
            rows = self._rng.for_event("load/features", q).random((candidates, features)).round(4)
            scores[q] = rows @ weights
            listed = [{"id": item, "features": row} for item, row in zip(self._places, rows.tolist(), strict=True)]
            body = {"query": f"q{q}", "k": k, "user": f"load-{q}", "candidates": listed}
            self._bodies.append(msgspec.json.encode(body)[1:])
        self._grades = np.searchsorted(np.quantile(scores, GRADE_QUANTILES), scores, side="right")
        self.clicks(0, ["c0"])  # compiles the kernel before anything is measured

    def request(self, n: int, request_id: str) -> bytes:
        """The body of request `n`."""
        return f'{{"request_id":"{request_id}",'.encode() + self._bodies[n % self.queries]

    def clicks(self, n: int, shown: Sequence[str]) -> list[str]:
        """The items clicked in the response to request `n`."""
        grades = self._grades[n % self.queries, [self._places[item] for item in shown]]
        clicked = self._user.react(grades, self._rng.for_event("load/clicks", n)).values
        return [item for item, click in zip(shown, clicked, strict=True) if click]

    def pause(self, n: int, share: float) -> float | None:
        """Seconds until the feedback to request `n`; None for impressions without feedback."""
        silent, think = self._rng.for_event("load/pauses", n).random(2)
        return None if silent >= share else THINK_SECONDS[0] + think * (THINK_SECONDS[1] - THINK_SECONDS[0])


class RequestFailed(Exception):
    """A request without a response. `kind` is connect, closed, timeout or protocol."""

    def __init__(self, kind: str, reason: str = "") -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.kind = kind


class _Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time: 44 µs of processor time per request; httpx takes 440 µs."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answered = 0
        self.silent = True  # no byte of the response has arrived
        self._waiter: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.silent = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, AttributeError) as error:
            self._fail("protocol", str(error))
            self.abort()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 1xx: the response follows
            return
        self.answered += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result((status, bytes(self._body)))
        if not self._parser.should_keep_alive():
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._fail("closed", str(exc or "the service closed the connection"))

    def _fail(self, kind: str, reason: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(RequestFailed(kind, reason))

    async def exchange(self, data: bytes) -> tuple[int, bytes]:
        """Send a request and wait for its response."""
        if self.transport is None:
            raise RequestFailed("closed", "the connection was closed before it was used")
        self._parser, self._body, self.silent = httptools.HttpResponseParser(self), bytearray(), True
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await self._waiter

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class ConnectionPool:
    """Up to `connections` requests at a time; further ones wait."""

    def __init__(self, url: str, connections: int, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidParameter(f"url is {url!r}; give a plain http URL such as http://127.0.0.1:8080")
        try:
            self._address = (parts.hostname, parts.port or 80)
        except ValueError:
            raise InvalidParameter(f"url is {url!r}; its port is not a number") from None
        self._prefix = parts.path.rstrip("/")
        self._headers = f"Host: {parts.netloc.rpartition('@')[2]}\r\nContent-Type: application/json\r\n"
        if key is not None:
            self._headers += f"Authorization: Bearer {key}\r\n"
        self._slots = asyncio.Semaphore(connections)
        self._free: list[_Connection] = []

    async def request(self, method: str, path: str, body: bytes = b"", seconds: float = 10.0) -> tuple[int, bytes]:
        """Status and body of the response, within `seconds` including the wait for a connection."""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        try:
            async with asyncio.timeout(seconds), self._slots:
                return await self._exchange(head.encode("latin-1") + body)
        except TimeoutError:
            raise RequestFailed("timeout", f"no response within {seconds:g} s") from None

    async def _exchange(self, data: bytes) -> tuple[int, bytes]:
        while True:
            connection = await self._connection()
            try:
                response = await connection.exchange(data)
            except BaseException as error:  # also when canceled: a late response must not answer the next request
                connection.abort()
                closed = isinstance(error, RequestFailed) and error.kind == "closed"
                if closed and connection.answered and connection.silent:
                    continue  # the service had closed an idle connection: not a failure of the request
                raise
            if connection.transport is not None:
                self._free.append(connection)
            return response

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if connection.transport is not None:
                return connection
        try:
            return (await asyncio.get_running_loop().create_connection(_Connection, *self._address))[1]
        except OSError as error:
            raise RequestFailed("connect", str(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._free:
            connection.abort()
        self._free.clear()
        await asyncio.sleep(0)  # transports close on the next turn of the loop


def start(work: Coroutine[Any, Any, T]) -> T:
    """Run `run` or `find_maximum` from synchronous code, with uvloop if it is installed.

    report = start(run(LoadPlan(rate=50, seconds=10)))
    """
    try:
        loop_factory = import_module("uvloop").new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


async def run(plan: LoadPlan, on_progress: OnProgress | None = None) -> LoadReport:
    """Create the ranker, warm up, and send at the plan's rate for its time."""
    async with _Session(plan) as session:
        return await session.measure(plan.rate, plan.seconds, on_progress)


async def find_maximum(
    plan: LoadPlan,
    *,
    limit_ms: float = 15.0,
    factor: float = 1.3,
    step_seconds: float = 8.0,
    on_progress: OnProgress | None = None,
) -> Maximum:
    """Raise the rate by `factor` per step until it is not sustained; if the first is not, lower it until one is."""
    if limit_ms <= 0 or factor <= 1 or plan.rate <= 0:
        raise InvalidParameter(
            f"limit_ms is {limit_ms:g}, factor {factor:g}, rate {plan.rate:g}; give more than 0, 1 and 0"
        )
    best: float | None = None
    steps: list[LoadReport] = []
    failed = False
    async with _Session(plan) as session:
        rate = plan.rate
        while len(steps) < 30 and rate >= 1:
            steps.append(await session.measure(rate, step_seconds, on_progress))
            if steps[-1].not_sustained(limit_ms):
                failed = True
                if best is not None:
                    break
                rate /= factor
            else:
                best = rate
                if failed:
                    break
                rate *= factor
            await session.settle()
    return Maximum(best, limit_ms, steps)


class _Tally:
    """Counts of one measurement."""

    def __init__(self) -> None:
        self.rank: list[float] = []
        self.feedback: list[float] = []
        self.late: list[float] = []
        self.errors: Counter[str] = Counter()
        self.feedback_status: Counter[str] = Counter()
        self.fallbacks = 0
        self.lag: int | None = None
        self.first_clicks: dict[int, int] = {}  # by request number
        self.last_answer = 0.0


class _Session:
    """A service with a new ranker, and connections to it."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.traffic = Traffic(
            candidates=plan.candidates, features=plan.features, k=plan.k, user=plan.user, seed=plan.seed
        )
        self._pool = ConnectionPool(plan.url, plan.connections, plan.key)
        self._control = ConnectionPool(plan.url, 2, plan.key)  # status requests do not wait behind the load
        self._path = f"/v1/rankers/{quote(plan.ranker, safe='')}"
        self._name = uuid4().hex[:12]
        self._n = 0  # requests so far, in all measurements
        self._tasks: set[asyncio.Task[None]] = set()
        self._tally = _Tally()

    async def __aenter__(self) -> Self:
        try:
            await self._create_ranker()
            for _ in range(self.plan.warm_up):
                await self._impression(self._next(), time.perf_counter(), think=False)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self.plan.clean_up:
                await self._ask("DELETE", self._path)
        finally:
            await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        await self._control.close()

    async def _create_ranker(self) -> None:
        """Create the ranker, in place of one that an earlier run left behind."""
        plan = self.plan
        learner, parameters = parse_learner(plan.learner)
        wanted = {
            "learner": learner,
            "parameters": parameters,
            "features": self.traffic.names,
            "k": plan.k,
            "exposure": plan.exposure,
            "seed": plan.seed,
        }
        try:
            spec = msgspec.convert(wanted, Spec)
        except msgspec.ValidationError as error:
            raise InvalidParameter(f"ranker spec of the load plan: {error}") from None
        status, body = await self._ask("GET", self._path, missing_ok=True)
        if status != 404:
            old = msgspec.json.decode(body, type=RankerStatus).spec.features
            if not old or old != [f"f{j}" for j in range(len(old))]:
                raise InvalidParameter(
                    f"ranker {plan.ranker!r} was not created by a load test and would be deleted; give another name"
                )
            await self._ask("DELETE", self._path)
        await self._ask("PUT", self._path, msgspec.json.encode(spec))
        while not msgspec.json.decode((await self._ask("GET", self._path))[1], type=RankerStatus).ready:
            await asyncio.sleep(0.1)  # until its kernels are compiled, every response is the baseline ranking

    async def _ask(self, method: str, path: str, body: bytes = b"", missing_ok: bool = False) -> tuple[int, bytes]:
        where = f"{method} {self.plan.url.rstrip('/')}{path}"
        try:
            status, answer = await self._control.request(method, path, body, self.plan.timeout)
        except RequestFailed as error:
            raise RankloopError(f"{where}: {error}; check that the service is running at this URL") from None
        if status >= 300 and not (missing_ok and status == 404):
            try:
                reason = msgspec.json.decode(answer, type=Problem).message
            except msgspec.DecodeError:
                reason = "no reason given; check that this is a rankloop service"
            raise RankloopError(f"{where}: {status}: {reason}")
        return status, answer

    def _next(self) -> int:
        self._n += 1
        return self._n - 1

    async def measure(self, rate: float, seconds: float, on_progress: OnProgress | None = None) -> LoadReport:
        """Send at a rate for a time, and wait for all responses."""
        tally = self._tally = _Tally()
        first, total = self._n, max(round(rate * seconds), 1)
        begin, cpu = time.perf_counter(), time.process_time()
        sampler = asyncio.create_task(self._sample_lag())
        try:
            if rate:
                reported = begin
                for sent in range(total):
                    if (wait := begin + sent / rate - time.perf_counter()) > EARLY:
                        await asyncio.sleep(wait - EARLY)
                    if on_progress is not None and (now := time.perf_counter()) - reported > 0.2:
                        reported = now
                        on_progress(rate, sent, total)
                    self._spawn(self._impression(self._next(), begin + sent / rate))
            else:
                for _ in range(self.plan.connections):
                    self._spawn(self._one_after_the_other(begin + seconds))
            if self._tasks:  # every request has a time limit
                await asyncio.wait(self._tasks)
        finally:
            sampler.cancel()
            await asyncio.gather(sampler, return_exceptions=True)
        cpu, sent = time.process_time() - cpu, self._n - first
        took = max(tally.last_answer - begin, total / rate if rate else 0.0) or seconds
        await self._lag()
        if on_progress is not None:
            on_progress(rate, sent, sent)
        positions = [tally.first_clicks[n] for n in range(first, self._n) if n in tally.first_clicks]
        fifth = -(-len(positions) // 5)
        return LoadReport(
            plan=replace(self.plan, rate=rate, seconds=seconds),
            seconds=took,
            sent=sent,
            answered=len(tally.rank),
            achieved_rate=len(tally.rank) / took,
            errors=dict(tally.errors),
            fallbacks=tally.fallbacks,
            rank=Latency.of(tally.rank),
            feedback=Latency.of(tally.feedback),
            feedback_status=dict(tally.feedback_status),
            first_fifth=ClickQuality.of(positions[:fifth]),
            last_fifth=ClickQuality.of(positions[len(positions) - fifth :]),
            lag=tally.lag,
            generator_late=Latency.of(tally.late),
            generator_cpu=cpu / took,
        )

    async def settle(self, seconds: float = 5.0) -> None:
        """Wait until the ranker has learned everything, at most `seconds`."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and await self._lag():
            await asyncio.sleep(0.1)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one_after_the_other(self, end: float) -> None:
        while (now := time.perf_counter()) < end:
            await self._impression(self._next(), now, think=False)

    async def _impression(self, n: int, due: float, think: bool = True) -> None:
        """One ranking, and the feedback of the user who sees it."""
        tally = self._tally
        began = time.perf_counter()
        tally.late.append(max(began - due, 0.0))
        due = min(due, began)
        request_id = f"{self._name}-{n:09d}"
        answer = await self._send("rank", f"{self._path}/rank", due, RankAnswer, self.traffic.request(n, request_id))
        if answer is None:
            return
        tally.last_answer = time.perf_counter()
        tally.rank.append(tally.last_answer - due)
        tally.fallbacks += answer.fallback
        shown = [str(item.id) for item in answer.items]
        clicked = self.traffic.clicks(n, shown)
        tally.first_clicks[n] = shown.index(clicked[0]) + 1 if clicked else 0
        pause = self.traffic.pause(n, self.plan.feedback)
        if pause is None or answer.impression_id is None:
            return
        if think:
            await asyncio.sleep(pause)
        began = time.perf_counter()
        event = msgspec.json.encode(FeedbackEvent(request_id, answer.impression_id, [*clicked], final=True))
        results = await self._send("feedback", "/v1/feedback", began, FeedbackAnswer, event)
        if results is not None:
            tally.feedback.append(time.perf_counter() - began)
            tally.feedback_status.update(result.status for result in results.results)

    async def _send(self, what: str, path: str, due: float, kind: type[T], body: bytes) -> T | None:
        """The response, or None after counting the error; the time limit counts from the due time."""
        left = due + self.plan.timeout - time.perf_counter()
        try:
            status, answer = await self._pool.request("POST", path, body, left)
            if 200 <= status < 300:
                return msgspec.json.decode(answer, type=kind)
            self._tally.errors[f"{what}: http {status}"] += 1
        except RequestFailed as error:
            self._tally.errors[f"{what}: {error.kind}"] += 1
        except msgspec.DecodeError:
            self._tally.errors[f"{what}: invalid response"] += 1
        return None

    async def _sample_lag(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            await self._lag()

    async def _lag(self) -> int:
        with suppress(RequestFailed, msgspec.DecodeError):  # an overloaded service may not answer
            _, body = await self._control.request("GET", self._path, seconds=self.plan.timeout)
            lag = msgspec.json.decode(body, type=RankerStatus).unlearned_impressions
            if lag is not None:
                self._tally.lag = max(self._tally.lag or 0, lag)
                return lag
        return 0
