"""The service's metrics, and their text for Prometheus.

A scrape reaches one process, so the processes of a machine exchange their reports by files (`shared_reports`) and
`exposition` writes all of them, with the label `worker`. A metric that `METRICS` does not declare is an error.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from math import inf, isfinite
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

import msgspec

from rankloop.core.errors import InvalidInput, UnknownName

try:  # now: where every file descriptor is taken it could not be loaded later
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Kind = Literal["counter", "gauge", "histogram"]
Number = int | float
LATENCY: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
MAX_POSITION: Final = 50  # deeper ones share a series, so that a list of 1000 does not make 1000 of them


@dataclass(frozen=True, slots=True)
class Metric:
    """What is declared of a metric; `buckets` are a histogram's upper bounds, without the infinite one."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = LATENCY
    prefix: str = "rankloop_"


METRICS: Final[Mapping[str, Metric]] = {
    "rank_requests_total": Metric("counter", "Rankings that were answered.", ("ranker", "exposure")),
    "rank_seconds": Metric("histogram", "Time to answer a ranking.", ("ranker",)),
    "rank_fallbacks_total": Metric("counter", "Rankings answered with the caller's order.", ("ranker", "reason")),
    "shown_positions_total": Metric("counter", "Items shown at a position, 1 is the top.", ("ranker", "position")),
    "clicked_positions_total": Metric("counter", "Items clicked at a position, 1 is the top.", ("ranker", "position")),
    "explored_positions_total": Metric("counter", "Positions that hold an item moved in order to learn.", ("ranker",)),
    "ranked_positions_total": Metric(
        "counter", "Positions that the learner filled, explored or not; none in shadow and in fallbacks.", ("ranker",)
    ),
    "feedback_events_total": Metric("counter", "Feedback events by what became of them.", ("ranker", "status")),
    "feedback_seconds": Metric("histogram", "Time to take a feedback request."),
    "outcomes_total": Metric("counter", "Impressions closed, by what closed them.", ("ranker", "kind")),
    "learned_total": Metric("counter", "Outcomes the learner has taken in.", ("ranker",)),
    "learn_errors_total": Metric("counter", "Outcomes the learner failed on.", ("ranker",)),
    "learn_seconds": Metric("histogram", "Time to learn from one outcome.", ("ranker",)),
    "learner_lag": Metric("gauge", "Outcomes that are not learned yet.", ("ranker",)),
    "model_age_seconds": Metric(
        "gauge", "Age of the oldest outcome that the live model of the process does not include.", ("ranker",)
    ),
    "model_load_errors_total": Metric("counter", "Attempts to load a model that failed.", ("ranker",)),
    "open_impressions": Metric("gauge", "Impressions that wait for feedback.", ("ranker",)),
    "attention_impressions": Metric(
        "gauge", "Impressions with a rejected event that has not been corrected.", ("ranker",)
    ),
    "drift_alarms": Metric("gauge", "Changes of users that the learner is sure of, so far.", ("ranker",)),
    "remembered_queries": Metric("gauge", "Queries that the learner remembers.", ("ranker",)),
    "lease_held": Metric("gauge", "1 in the process that learns, 0 in the others.", ("ranker",)),
    "snapshots_total": Metric("counter", "Snapshots of a learner that were saved.", ("ranker",)),
    "snapshot_seconds": Metric("histogram", "Time to save a snapshot."),
    "interleaved_rankings_total": Metric("counter", "Lists mixed with a rival's, by what for.", ("ranker", "kind")),
    "not_interleaved_total": Metric("counter", "Lists that should have been, and why not.", ("ranker", "reason")),
    "experiment_lists_total": Metric(
        "counter", "Mixed lists with feedback: win, loss, tie.", ("ranker", "kind", "result")
    ),
    "experiment_preference": Metric("gauge", "For the ranker (1) or its rival (-1).", ("ranker", "kind", "end")),
    "demotions_total": Metric("counter", "Rankers put into shadow by their guardrail.", ("ranker",)),
    "webhook_notifications_total": Metric(
        "counter", "Attempts to deliver a notification to the webhook, by result.", ("ranker", "result")
    ),
    "webhook_notifications_waiting": Metric("gauge", "Notifications that are not delivered yet.", ("ranker",)),
    "catalog_unknown_total": Metric("counter", "Ids in requests that are not in the catalog.", ("ranker",)),
    "catalog_missing_total": Metric(
        "counter", "Values that items, the user or the request did not have, a candidate each.", ("ranker", "feature")
    ),
    "catalog_entries": Metric("gauge", "Items and users that the process holds.", ("catalog", "kind")),
    "catalog_bytes": Metric("gauge", "Memory that a catalog takes in the process.", ("catalog",)),
    "counters_behind": Metric("gauge", "Outcomes that the process's counters do not have yet.", ("ranker",)),
    "counters_keys": Metric("gauge", "Items, users, … that the process counts.", ("ranker",)),
    "counters_evicted": Metric("gauge", "Of these, how many had to go since the counters began.", ("ranker",)),
    "counters_bytes": Metric("gauge", "Memory that counters take in the process.", ("ranker",)),
    "store_commit_seconds": Metric("histogram", "Time of a commit to the database."),
    "store_batch_size": Metric("histogram", "Writes that shared a commit.", buckets=SIZES),
    "store_errors_total": Metric("counter", "Failures of the database.", ("kind",)),
    "thread_failures_total": Metric("counter", "Failures of a thread that began again.", ("thread",)),
    "http_requests_total": Metric("counter", "HTTP requests by route and status.", ("route", "status")),
    "store_bytes": Metric("gauge", "Room that the store takes."),
    "store_free_disk_bytes": Metric("gauge", "Room left on its disk (SQLite)."),
    "process_open_fds": Metric("gauge", "Open file descriptors of the process.", prefix=""),
    "process_resident_memory_bytes": Metric("gauge", "Resident memory of the process.", prefix=""),
    "process_start_time_seconds": Metric("gauge", "When the process started, as Unix time.", prefix=""),
}

# With a hash of the table, so that a release that declares other labels or buckets skips the report.
_TABLE = repr([(name, metric.kind, metric.labels, metric.buckets) for name, metric in METRICS.items()])
FORMAT: Final = f"1-{blake2b(_TABLE.encode(), digest_size=8).hexdigest()}"


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    """Per metric, label values and a number; of a histogram the sum, then how many fell in each bucket."""

    format: str
    values: dict[str, list[tuple[tuple[str, ...], Number | list[Number]]]]


_ENCODER = msgspec.json.Encoder(enc_hook=float)  # a numpy number is as good as any
_DECODER = msgspec.json.Decoder(_Report)


class Metrics:
    """The counts, gauges and histograms of one process; any thread may use it.

    >>> metrics = Metrics()
    >>> metrics.count("learned_total", ranker="shop")
    >>> exposition({"a": metrics.report()}).splitlines()[-1]
    'rankloop_learned_total{worker="a",ranker="shop"} 1'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers: dict[str, dict[tuple[str, ...], Number]] = {
            name: {} for name, metric in METRICS.items() if metric.kind != "histogram"
        }
        self._histograms: dict[str, dict[tuple[str, ...], list[Number]]] = {
            name: {} for name, metric in METRICS.items() if metric.kind == "histogram"
        }

    def count(self, name: str, amount: float = 1, **labels: str | int) -> None:
        """Add `amount` to a counter. A `position` beyond 50 is counted as "51+"."""
        key = _key(name, "counter", labels)
        if not 0 <= amount < inf:
            raise InvalidInput(f"{name} was to grow by {amount}; a counter only grows, by a finite amount")
        with self._lock:
            values = self._numbers[name]
            values[key] = values.get(key, 0) + amount

    def gauge(self, name: str, value: float, **labels: str | int) -> None:
        """Set a gauge."""
        key = _key(name, "gauge", labels)
        if not isfinite(value):
            raise InvalidInput(f"{name} was to be {value}; a gauge takes a finite number")
        with self._lock:
            self._numbers[name][key] = value

    def observe(self, name: str, seconds: float, **labels: str | int) -> None:
        """Put a duration (or a size) into its histogram."""
        key = _key(name, "histogram", labels)
        if not 0 <= seconds < inf:
            seconds = 0.0  # a clock that was set back must not fail the request it timed
        buckets = METRICS[name].buckets
        at = bisect_left(buckets, seconds) + 1
        with self._lock:
            values = self._histograms[name].get(key)
            if values is None:
                values = self._histograms[name][key] = [0.0] + [0] * (len(buckets) + 1)
            values[0] += seconds
            values[at] += 1

    def counts(self, name: str, by: str, **labels: str) -> dict[str, int]:
        """A counter with some labels given, by the values of another."""
        order = METRICS[name].labels
        with self._lock:
            found = [(dict(zip(order, key, strict=True)), value) for key, value in self._numbers[name].items()]
        return {own[by]: int(value) for own, value in found if all(own[label] == labels[label] for label in labels)}

    def drop(self, name: str, **labels: str | int) -> None:
        """Say nothing of a gauge any more, because somebody else has to."""
        key = _key(name, "gauge", labels)
        with self._lock:
            self._numbers[name].pop(key, None)

    def keep_rankers(self, names: Collection[str]) -> None:
        """Forget every series of a ranker that is not among `names`: who is gone must not be reported for ever."""
        known = {*names, ""}  # "" is what an event about no impression is counted under
        with self._lock:
            for name, metric in METRICS.items():
                if "ranker" not in metric.labels:
                    continue
                at = metric.labels.index("ranker")
                series: dict[tuple[str, ...], Any] = self._numbers.get(name) or self._histograms.get(name) or {}
                for key in [key for key in series if key[at] not in known]:
                    del series[key]

    def report(self) -> bytes:
        """All values as compact JSON, for `exposition` in whichever process is asked."""
        with self._lock:  # held to copy, not to encode
            series: list[tuple[str, tuple[str, ...], Number | list[Number]]] = [
                (name, key, value) for name, values in self._numbers.items() for key, value in values.items()
            ]
            series += [
                (name, key, counts.copy())
                for name, histograms in self._histograms.items()
                for key, counts in histograms.items()
            ]
        report = _Report(FORMAT, {})
        for name, key, value in series:
            report.values.setdefault(name, []).append((tuple([_utf8(text) for text in key]), value))
        return _ENCODER.encode(report)


def exposition(reports: Mapping[str, bytes]) -> str:
    """The reports, by worker, in Prometheus' text format 0.0.4. One that is damaged or of another release is skipped.

    A scrape must not fail because of a worker that died while it wrote, or that runs the release before.
    """
    readable = {worker: report for worker in sorted(reports) if (report := _read(reports[worker]))}
    lines: list[str] = []
    for name, metric in METRICS.items():
        full = metric.prefix + name
        samples = [
            line
            for worker, report in readable.items()
            for key, value in sorted(dict(report.values.get(name, ())).items())
            for line in _samples(full, metric, [("worker", worker), *zip(metric.labels, key, strict=True)], value)
        ]
        if samples:
            help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {full} {help_text}", f"# TYPE {full} {metric.kind}", *samples]
    return "".join(f"{line}\n" for line in lines)


def process_memory() -> int:
    """Resident memory of this process in bytes; where there is no /proc, its peak, which is all that can be had."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        if resource is None:
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def process_files() -> int | None:
    """Open file descriptors of this process; None where there is no /proc to count them in."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None


def _key(name: str, kind: Kind, labels: dict[str, str | int]) -> tuple[str, ...]:
    """The label values in the declared order, or an error that says what is declared."""
    metric = METRICS.get(name)
    if metric is None:
        raise UnknownName.among("metric", name, METRICS)
    if metric.kind != kind:
        raise InvalidInput(f"{name} is a {metric.kind} and was used as a {kind}")
    if "position" in labels and int(labels["position"]) > MAX_POSITION:
        labels["position"] = f"{MAX_POSITION + 1}+"
    try:
        key = tuple([str(labels[label]) for label in metric.labels])
    except KeyError:
        key = ()
    if len(key) != len(labels) or len(key) != len(metric.labels):
        raise InvalidInput(f"{name} has the labels {list(metric.labels)} and was given {list(labels)}")
    return key


def _read(data: bytes) -> _Report | None:
    """The report in `data`, or None unless it is whole and of this format."""
    try:
        report = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if report.format != FORMAT:
        return None
    for name, series in report.values.items():
        metric = METRICS.get(name)
        if metric is None:
            return None
        counts = len(metric.buckets) + 2 if metric.kind == "histogram" else None
        for key, value in series:
            if len(key) != len(metric.labels) or counts != (len(value) if isinstance(value, list) else None):
                return None
    return report


def _samples(name: str, metric: Metric, labels: list[tuple[str, str]], value: Number | list[Number]) -> Iterator[str]:
    """The lines of one series: one, or a histogram's cumulative buckets, sum and count."""
    text = ",".join(f'{label}="{_escape(given)}"' for label, given in labels)
    if not isinstance(value, list):
        yield f"{name}{{{text}}} {value!r}"
        return
    total, *counts = value
    upto = list(accumulate(counts))
    for bound, n in zip([*map(repr, metric.buckets), "+Inf"], upto, strict=True):
        yield f'{name}_bucket{{{text},le="{bound}"}} {n!r}'
    yield f"{name}_sum{{{text}}} {total!r}"
    yield f"{name}_count{{{text}}} {upto[-1]!r}"


def _escape(value: str) -> str:
    """A label value as it stands between quotes."""
    return _utf8(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _utf8(value: str) -> str:
    """`value` with '?' for every lone surrogate: UTF-8 cannot carry it, and one bad label must not lose all metrics."""
    return value.encode("utf-8", "replace").decode("utf-8")
