"""A bounded, open-loop load test of a running service: how fast, how many, and does it learn meanwhile?

Requests go out at a constant rate, whether or not the service keeps up, and latency counts from the time a request was
due: a service that stalls for a second is charged for everyone who waited (no coordinated omission). Simulated users
click on what they are shown, after a moment of thought. `run` measures one rate; `find_maximum` looks for the highest.

    report = asyncio.run(run(LoadPlan(url="http://127.0.0.1:8080", rate=200, seconds=30)))
    report.rank.p99  # milliseconds
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from importlib import import_module
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.registry import parse_learner
from rankloop.service.load_test.connections import Failed, Pool, Response
from rankloop.service.load_test.report import (
    Latency,
    LoadPlan,
    LoadReport,
    Maximum,
    Progress,
    Sample,
    Served,
    due_times,
    fifths,
    is_local,
    metric_sum,
    percentile,
    served,
    verdict,
)
from rankloop.service.load_test.traffic import Traffic
from rankloop.wire.basics import Problem
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, RankAnswer
from rankloop.wire.rankers import RankerStatus, Spec

__all__ = [
    "Latency",
    "LoadPlan",
    "LoadReport",
    "Maximum",
    "Progress",
    "Sample",
    "Served",
    "due_times",
    "find_maximum",
    "is_local",
    "percentile",
    "run",
    "start",
    "verdict",
]

EARLY = 0.0005  # seconds; timers tick in milliseconds, so a request may go out this much before it is due
RSS = "process_resident_memory_bytes"

T = TypeVar("T")
OnProgress = Callable[[Progress], None]


def start(test: Coroutine[Any, Any, T]) -> T:
    """Carry out `run` or `find_maximum` from code that is not async, with uvloop if it is there.

    report = start(run(LoadPlan(rate=50, seconds=10)))
    """
    try:
        loop_factory = import_module("uvloop").new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(test)


async def run(plan: LoadPlan, on_progress: OnProgress | None = None) -> LoadReport:
    """Make the ranker, warm up, and send at the plan's rate for its time."""
    async with _Session(plan) as session:
        return await session.measure(plan.rate, plan.seconds, on_progress)


async def find_maximum(
    plan: LoadPlan,
    *,
    limit_ms: float = 15.0,
    factor: float = 1.3,
    step_seconds: float = 8.0,
    most_steps: int = 30,
    on_progress: OnProgress | None = None,
) -> Maximum:
    """From the plan's rate up, by `factor` a step, until one is not sustained; if the first is not, down instead."""
    if limit_ms <= 0 or factor <= 1:
        raise InvalidParameter(f"limit_ms is {limit_ms!r} and factor {factor!r}; they must be above 0 and above 1")
    best: float | None = None
    steps: list[tuple[LoadReport, str]] = []
    async with _Session(plan) as session:
        rate = plan.rate
        while len(steps) < most_steps and rate >= 1:
            report = await session.measure(rate, step_seconds, on_progress)
            steps.append((report, verdict(report, limit_ms)))
            fine = not steps[-1][1]
            turned = best is not None if not fine else any(why for _, why in steps)
            best = rate if fine else best
            if turned:  # the first bad one on the way up, the first good one on the way down
                break
            rate = rate * factor if fine else rate / factor
            await session.settle()
    return Maximum(best, limit_ms, steps)


class _Tally:
    """What one measurement counts."""

    def __init__(self) -> None:
        self.rank: list[float] = []
        self.feedback: list[float] = []
        self.late: list[float] = []
        self.errors: Counter[str] = Counter()
        self.receipts: Counter[str] = Counter()
        self.fallbacks = 0
        self.first_clicks: dict[int, int] = {}  # by request, so that fifths are fifths of the time
        self.last_answer = 0.0


class _Session:
    """A service with a fresh ranker on it, and connections to measure it with."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.traffic = Traffic(
            candidates=plan.candidates,
            features=plan.features,
            k=plan.k,
            by_name=plan.by_name,
            user=plan.user,
            seed=plan.seed,
        )
        self._pool = Pool(plan.url, plan.connections, plan.key)
        self._aside = Pool(plan.url, 2, plan.key)  # questions about the service wait for nobody, and nobody for them
        self._path = f"/v1/rankers/{quote(plan.ranker, safe='')}"
        self._name = uuid4().hex[:12]
        self._n = 0  # requests so far, over all measurements
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered: list[FeedbackEvent] = []
        self._tally = _Tally()

    async def __aenter__(self) -> Self:
        try:
            await self._make_ranker()
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
        await self._aside.close()

    async def _make_ranker(self) -> None:
        """A ranker that has learned nothing, in place of what an earlier load test may have left."""
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
            raise InvalidParameter(f"the plan's ranker: {error}; see LoadPlan") from None
        there = await self._ask("GET", self._path, missing=True)
        if there.status != 404:
            old = msgspec.json.decode(there.body, type=RankerStatus).spec.features
            if not old or old != [f"f{j}" for j in range(len(old))]:
                raise InvalidParameter(
                    f"ranker {plan.ranker!r} was not made by a load test, which would delete it; give another name"
                )
            await self._ask("DELETE", self._path)
        await self._ask("PUT", self._path, msgspec.json.encode(spec))
        while not msgspec.json.decode((await self._ask("GET", self._path)).body, type=RankerStatus).ready:
            await asyncio.sleep(0.1)  # its kernels are compiled behind: until then all answers are the base order

    async def _ask(self, method: str, path: str, *body: bytes, missing: bool = False) -> Response:
        """One request that must succeed; `missing`: 404 is an answer too."""
        where = f"{method} {self.plan.url.rstrip('/')}{path}"
        try:
            response = await self._aside.request(method, path, *body, seconds=self.plan.timeout)
        except Failed as error:
            raise RankloopError(f"{where}: {error}; is the service started, and is this its url?") from None
        if response.status >= 300 and not (missing and response.status == 404):
            try:
                said = msgspec.json.decode(response.body, type=Problem).message
            except msgspec.DecodeError:
                said = "no reason given; is this a rankloop service?"
            raise RankloopError(f"{where}: {response.status}: {said}")
        return response

    def _next(self) -> int:
        self._n += 1
        return self._n - 1

    async def measure(self, rate: float, seconds: float, on_progress: OnProgress | None = None) -> LoadReport:
        """Send at a rate for a time, and wait for what is still on its way."""
        tally = self._tally = _Tally()
        first = self._n
        dues = due_times(rate, seconds)
        samples = [await self._sample(0.0)]
        begin, cpu = time.perf_counter(), time.process_time()
        sampler = asyncio.create_task(self._sample_often(samples, begin))
        try:
            told = begin
            for sent, due in enumerate(dues):
                if (wait := begin + due - time.perf_counter()) > EARLY:
                    await asyncio.sleep(wait - EARLY)
                if on_progress is not None and (now := time.perf_counter()) - told > 0.2:
                    told = now
                    on_progress(Progress(rate, sent, len(dues)))
                self._spawn(self._impression(self._next(), begin + due))
            if self._tasks:  # each request has its own time limit
                await asyncio.wait(self._tasks)
        finally:
            sampler.cancel()
            await asyncio.gather(sampler, return_exceptions=True)
        cpu = time.process_time() - cpu
        took = max(tally.last_answer - begin, len(dues) / rate)
        samples.append(await self._sample(time.perf_counter() - begin))
        if on_progress is not None:
            on_progress(Progress(rate, len(dues), len(dues)))
        clicks = fifths([tally.first_clicks[n] for n in range(first, self._n) if n in tally.first_clicks])
        return LoadReport(
            plan=replace(self.plan, rate=rate, seconds=seconds),
            seconds=took,
            sent=len(dues),
            answered=len(tally.rank),
            achieved_rate=len(tally.rank) / took,
            errors=dict(tally.errors),
            fallbacks=tally.fallbacks,
            rank=Latency.of(tally.rank),
            feedback=Latency.of(tally.feedback),
            receipts=dict(tally.receipts),
            first_fifth=served(clicks[0]),
            last_fifth=served(clicks[1]),
            samples=samples,
            generator_late=Latency.of(tally.late),
            generator_cpu=cpu / took,
        )

    async def settle(self, seconds: float = 5.0) -> None:
        """Give the learner a moment to take in what is left of the step before."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and (await self._sample(0.0)).lag:
            await asyncio.sleep(0.1)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _impression(self, n: int, due: float, think: bool = True) -> None:
        """One request, its list, what the user thinks of it and says."""
        tally, plan = self._tally, self.plan
        began = time.perf_counter()
        tally.late.append(max(began - due, 0.0))
        due = min(due, began)
        request_id = f"{self._name}-{n:09d}"
        body = self.traffic.request(n, request_id)
        answer = await self._sent("rank", f"{self._path}/rank", due, RankAnswer, *body)
        if answer is None:
            return
        tally.last_answer = time.perf_counter()
        tally.rank.append(tally.last_answer - due)
        tally.fallbacks += answer.fallback
        shown = [str(item.id) for item in answer.items]
        clicked = self.traffic.clicks(n, shown)
        tally.first_clicks[n] = shown.index(clicked[0]) + 1 if clicked else 0
        pause = self.traffic.pause(n, plan.feedback, plan.think_ms)
        if pause is None or answer.impression_id is None:
            return
        await asyncio.sleep(pause if think else 0.0)
        event = FeedbackEvent(request_id, answer.impression_id, [*clicked], final=True)
        if not (plan.batch_ms and think):
            await self._report([event])
        elif self._gathered:
            self._gathered.append(event)
        else:
            self._gathered.append(event)
            await asyncio.sleep(plan.batch_ms / 1000)
            events, self._gathered = self._gathered, []
            await self._report(events)

    async def _report(self, events: list[FeedbackEvent]) -> None:
        tally, began = self._tally, time.perf_counter()
        body = msgspec.json.encode(events[0] if len(events) == 1 else events)
        answer = await self._sent("feedback", "/v1/feedback", began, FeedbackAnswer, body)
        if answer is not None:
            tally.feedback.append(time.perf_counter() - began)
            tally.receipts.update(receipt.status for receipt in answer.results)

    async def _sent(self, what: str, path: str, due: float, kind: type[T], *body: bytes) -> T | None:
        """The answer, or None after counting why there is none; the time limit counts from when it was due."""
        left = due + self.plan.timeout - time.perf_counter()
        try:
            response = await self._pool.request("POST", path, *body, seconds=left)
            if 200 <= response.status < 300:
                return msgspec.json.decode(response.body, type=kind)
            self._tally.errors[f"{what}: http {response.status}"] += 1
        except Failed as error:
            self._tally.errors[f"{what}: {error.kind}"] += 1
        except msgspec.DecodeError:
            self._tally.errors[f"{what}: strange answer"] += 1
        return None

    async def _sample_often(self, samples: list[Sample], begin: float) -> None:
        while True:
            await asyncio.sleep(self.plan.sample_seconds)
            samples.append(await self._sample(time.perf_counter() - begin))

    async def _sample(self, seconds: float) -> Sample:
        lag, rss = None, None
        try:
            status = await self._aside.request("GET", self._path, seconds=self.plan.timeout)
            lag = msgspec.json.decode(status.body, type=RankerStatus).unlearned_impressions
            metrics = await self._aside.request("GET", "/metrics", seconds=self.plan.timeout)
            rss = metric_sum(metrics.body.decode("utf-8", "replace"), RSS)
        except (Failed, msgspec.DecodeError):
            pass  # a service too busy to tell is part of what is measured
        return Sample(seconds, lag, rss)
