"""What a load test is asked and what it answers: plan, report, and the arithmetic between."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rankloop.core.errors import InvalidParameter
from rankloop.service.settings import is_loopback

LONGEST = 3600.0  # seconds: a load test ends
ENOUGH = 0.97  # of the asked rate must be achieved for it to count as sustained


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to send, how fast and for how long.

    Parameters
    ----------
    url, key
        The service, plain http, and its key if it wants one.
    ranker
        Made afresh by the test. One of that name that no load test has made is not touched.
    candidates, features, k, by_name
        Size of a request; features as a list, or by name as a dict.
    rate, seconds
        Requests to rank per second, and for how long; at most an hour.
    connections
        Requests under way at once; more wait in line, and their wait counts.
    feedback, think_ms, batch_ms
        Share of impressions that get feedback, how long after the answer, and, if not 0, how long to gather events
        (at most 50 ms) before they are sent together.
    user, learner, exposure
        Who clicks (`rankloop.clicks.users`), what learns (`pairrank?alpha=0.1`), what is shown of it.
    timeout
        Seconds after which a request counts as failed.
    sample_seconds
        How often to ask for lag and memory.
    warm_up
        Requests sent one after the other before the clock runs.
    clean_up
        Delete the ranker at the end.
    """

    url: str = "http://127.0.0.1:8080"
    key: str | None = field(default=None, repr=False)
    ranker: str = "load"
    candidates: int = 100
    features: int = 136
    k: int = 10
    by_name: bool = False
    rate: float = 100.0
    seconds: float = 30.0
    connections: int = 32
    feedback: float = 1.0
    think_ms: tuple[float, float] = (50.0, 200.0)
    batch_ms: float = 0.0
    user: str = "navigational"
    learner: str = "pairrank"
    exposure: str = "full"
    timeout: float = 10.0
    sample_seconds: float = 2.0
    warm_up: int = 20
    clean_up: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        bounds = {
            "candidates": (1, 10_000),
            "features": (1, 10_000),
            "k": (1, 1000),
            "rate": (0.1, 100_000),
            "seconds": (0.1, LONGEST),
            "connections": (1, 10_000),
            "feedback": (0, 1),
            "batch_ms": (0, 50),
            "timeout": (0.01, 60),
            "sample_seconds": (0.1, LONGEST),
            "warm_up": (0, 10_000),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidParameter(f"{name} is {value!r}; it must lie between {low:g} and {high:g}")
        if not 0 <= self.think_ms[0] <= self.think_ms[1]:
            raise InvalidParameter(f"think_ms is {self.think_ms!r}; give the shortest and the longest time to think")


class Latency(NamedTuple):
    """Milliseconds: a share of 0.99 took at most `p99`. All 0 where nothing was measured.

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
        """Of measured seconds, in any order."""
        if not seconds:
            return cls(0, *[0.0] * 6)
        ms = sorted(1000 * value for value in seconds)
        return cls(len(ms), sum(ms) / len(ms), *(percentile(ms, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)))


class Served(NamedTuple):
    """How well users were served: share of lists with a click, and 1 / position of the first click (0 if none)."""

    click_rate: float
    reciprocal_rank: float


class Sample(NamedTuple):
    """What the service said of itself at a moment; None where it does not say."""

    seconds: float
    lag: int | None
    rss_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What was seen. `generator_late` and `generator_cpu` tell whether the tester itself was the bottleneck."""

    plan: LoadPlan
    seconds: float
    sent: int
    answered: int
    achieved_rate: float
    errors: dict[str, int]
    fallbacks: int
    rank: Latency
    feedback: Latency
    receipts: dict[str, int]
    first_fifth: Served
    last_fifth: Served
    samples: list[Sample]
    generator_late: Latency
    generator_cpu: float

    @property
    def lag(self) -> int | None:
        """Outcomes not yet learned, at the worst moment."""
        return max((sample.lag for sample in self.samples if sample.lag is not None), default=None)

    @property
    def rss_growth(self) -> float | None:
        """Bytes that the service's processes grew by."""
        seen = [sample.rss_bytes for sample in self.samples if sample.rss_bytes is not None]
        return seen[-1] - seen[0] if seen else None

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, without the key."""
        plain = asdict(replace(self, plan=replace(self.plan, key=None)))
        for name, value in plain.items():
            if hasattr(value, "_asdict"):
                plain[name] = value._asdict()
        plain["samples"] = [sample._asdict() for sample in self.samples]
        return {**plain, "lag": self.lag, "rss_growth": self.rss_growth}


class Maximum(NamedTuple):
    """The highest rate that was sustained (None: not even the lowest tried), and every step with its verdict."""

    rate: float | None
    limit_ms: float
    steps: list[tuple[LoadReport, str]]


class Progress(NamedTuple):
    """How far a run is."""

    rate: float
    sent: int
    total: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the sorted values that at least this share of them does not exceed (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.51)
    (2.0, 3.0)
    """
    return ordered[max(math.ceil(round(share * len(ordered), 9)) - 1, 0)]


def due_times(rate: float, seconds: float) -> list[float]:
    """When each request is due, in seconds from the start.

    >>> due_times(4, 1)
    [0.0, 0.25, 0.5, 0.75]
    """
    return [n / rate for n in range(max(round(rate * seconds), 1))]


def served(positions: Sequence[int]) -> Served:
    """From the position of each list's first click, 0 where there was none.

    >>> served([1, 0, 2, 0])
    Served(click_rate=0.5, reciprocal_rank=0.375)
    """
    n = max(len(positions), 1)
    return Served(sum(p > 0 for p in positions) / n, sum(1 / p for p in positions if p) / n)


def fifths(values: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The first and the last fifth, at least one value each if there is one.

    >>> fifths([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    ([1, 2], [9, 10])
    """
    size = -(-len(values) // 5)
    return values[:size], values[len(values) - size :]


def verdict(report: LoadReport, limit_ms: float) -> str:
    """Why the rate was not sustained; empty if it was."""
    if report.achieved_rate < ENOUGH * report.plan.rate:
        return f"achieved {report.achieved_rate:.4g} of {report.plan.rate:.4g}/s"
    if report.rank.p99 > limit_ms:
        return f"p99 {report.rank.p99:.1f} ms > {limit_ms:g} ms"
    return ""


def metric_sum(text: str, name: str) -> float | None:
    """The value of a metric in Prometheus' text format, summed over its labels; None if it is not there.

    >>> metric_sum('a{pid="1"} 2\\na{pid="2"} 3.5\\nab 9', "a")
    5.5
    """
    found = re.findall(rf"^{re.escape(name)}(?:{{.*}})?[ \t]+(\S+)", text, re.MULTILINE)
    return sum(map(float, found)) if found else None


def is_local(url: str) -> bool:
    """Whether a url is of this machine.

    >>> is_local("http://127.0.0.1:8080"), is_local("http://[::1]:80"), is_local("http://rank.example.com")
    (True, True, False)
    """
    return is_loopback(urlsplit(url).hostname or "")
