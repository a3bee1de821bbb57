"""What is counted comes out as Prometheus reads it, from one worker or several, whatever the label values are."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rankloop.core.errors import InvalidInput, UnknownName
from rankloop.service.observability.metrics import FORMAT, METRICS, Metrics, exposition, process_memory

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """Every sample of a page, as Prometheus' own client reads it."""
    found = [one for family in text_string_to_metric_families(text) for one in family.samples]
    samples = {(one.name, tuple(one.labels.items())): one.value for one in found}
    assert len(samples) == len(found)
    return samples


def test_who_is_gone_is_forgotten() -> None:
    metrics = Metrics()
    for name in ("shop", "gone", ""):
        metrics.count("feedback_events_total", ranker=name, status="accepted")
        metrics.gauge("open_impressions", 7, ranker=name)
        metrics.observe("rank_seconds", 0.1, ranker=name)
    metrics.observe("feedback_seconds", 0.1)
    metrics.keep_rankers(["shop"])
    text = exposition({"w": metrics.report()})
    assert "gone" not in text
    assert text.count('ranker="shop"') == 2 + len(METRICS["rank_seconds"].buckets) + 3
    assert 'ranker=""' in text
    assert "rankloop_feedback_seconds_count" in text
    metrics.drop("open_impressions", ranker="shop")
    metrics.drop("open_impressions", ranker="never was")
    assert 'rankloop_open_impressions{worker="w",ranker="shop"}' not in exposition({"w": metrics.report()})


def test_the_text_is_as_written_by_hand() -> None:
    metrics = Metrics()
    metrics.count("rank_requests_total", ranker="shop", exposure="full")
    metrics.count("rank_requests_total", 2, exposure="full", ranker="shop")  # in any order
    metrics.count("rank_requests_total", ranker="books", exposure="shadow")
    metrics.gauge("learner_lag", 7, ranker="shop")
    metrics.gauge("learner_lag", 3, ranker="shop")
    for size in (1, 2, 3, 300, 9000):
        metrics.observe("store_batch_size", size)
    metrics.gauge("process_start_time_seconds", 1700000000.25)
    assert exposition({"w1": metrics.report()}) == (
        "# HELP rankloop_rank_requests_total Rankings that were answered.\n"
        "# TYPE rankloop_rank_requests_total counter\n"
        'rankloop_rank_requests_total{worker="w1",ranker="books",exposure="shadow"} 1\n'
        'rankloop_rank_requests_total{worker="w1",ranker="shop",exposure="full"} 3\n'
        "# HELP rankloop_learner_lag Outcomes that are not learned yet.\n"
        "# TYPE rankloop_learner_lag gauge\n"
        'rankloop_learner_lag{worker="w1",ranker="shop"} 3\n'
        "# HELP rankloop_store_batch_size Writes that shared a commit.\n"
        "# TYPE rankloop_store_batch_size histogram\n"
        'rankloop_store_batch_size_bucket{worker="w1",le="1.0"} 1\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="2.0"} 2\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="4.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="8.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="16.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="32.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="64.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="128.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="256.0"} 3\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="512.0"} 4\n'
        'rankloop_store_batch_size_bucket{worker="w1",le="+Inf"} 5\n'
        'rankloop_store_batch_size_sum{worker="w1"} 9306.0\n'
        'rankloop_store_batch_size_count{worker="w1"} 5\n'
        "# HELP process_start_time_seconds When the process started, as Unix time.\n"
        "# TYPE process_start_time_seconds gauge\n"
        'process_start_time_seconds{worker="w1"} 1700000000.25\n'
    )
    assert exposition({}) == exposition({"idle": Metrics().report()}) == ""


def test_every_declared_metric_can_be_used_and_parsed() -> None:
    metrics = Metrics()
    for name, metric in METRICS.items():
        labels: dict[str, str | int] = {label: 1 if label == "position" else "x" for label in metric.labels}
        use = {"counter": "count", "gauge": "gauge", "histogram": "observe"}[metric.kind]
        getattr(metrics, use)(name, 1, **labels)
        assert (metric.kind == "counter") == name.endswith("_total")
        assert list(metric.buckets) == sorted(set(metric.buckets))
    found = {name for name, _ in parse(exposition({"w": metrics.report()}))}
    for name, metric in METRICS.items():
        full = name if name.startswith("process_") else f"rankloop_{name}"
        assert {
            full + ending for ending in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
        } <= found


def test_two_workers_share_a_page() -> None:
    one, two = Metrics(), Metrics()
    one.count("learned_total", 5, ranker="shop")
    two.count("learned_total", 2, ranker="shop")
    two.count("learned_total", 1, ranker="books")
    assert parse(exposition({"b:2": two.report(), "a:1": one.report()})) == {
        ("rankloop_learned_total", (("worker", "a:1"), ("ranker", "shop"))): 5,
        ("rankloop_learned_total", (("worker", "b:2"), ("ranker", "books"))): 1,
        ("rankloop_learned_total", (("worker", "b:2"), ("ranker", "shop"))): 2,
    }


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
@example('a\\b"c\nd', "w")
def test_any_label_value_comes_back(ranker: str, worker: str) -> None:
    metrics = Metrics()
    metrics.count("learned_total", ranker=ranker)
    metrics.count("learned_total", ranker="\ud800")  # not UTF-8
    samples = parse(exposition({worker: metrics.report()}))
    assert samples["rankloop_learned_total", (("worker", worker), ("ranker", ranker))] >= 1


class Slow(float):
    """A number that lets other threads run while it is added: without a lock their additions would be lost."""

    def __radd__(self, other: float) -> float:
        time.sleep(0.001)
        return other + float(self)


def test_threads_lose_nothing() -> None:
    metrics = Metrics()

    def work(_: int) -> None:
        for _ in range(5):
            metrics.count("learned_total", Slow(2), ranker="shop")
            metrics.observe("rank_seconds", Slow(0.25), ranker="shop")
            parse(exposition({"w": metrics.report()}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    samples = parse(exposition({"w": metrics.report()}))
    labels = (("worker", "w"), ("ranker", "shop"))
    assert samples["rankloop_learned_total", labels] == 40
    assert samples["rankloop_rank_seconds_count", labels] == 20
    assert samples["rankloop_rank_seconds_sum", labels] == 5


def test_deep_positions_share_a_series() -> None:
    metrics = Metrics()
    for position in (1, 50, 51, np.int64(52), 1000):
        metrics.count("clicked_positions_total", np.array([1])[0], ranker="shop", position=int(position))
    samples = parse(exposition({"w": metrics.report()}))
    assert {labels[-1][1]: value for (_, labels), value in samples.items()} == {"1": 1, "50": 1, "51+": 3}


def test_a_bound_belongs_to_its_bucket_and_a_clock_set_back_counts_as_zero() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.0006, 10.0, 11.0, -3.0, float("nan"), float("inf")):
        metrics.observe("feedback_seconds", seconds)
    samples = parse(exposition({"w": metrics.report()}))
    upto = {labels[-1][1]: value for (name, labels), value in samples.items() if name.endswith("_bucket")}
    assert (upto["0.0005"], upto["0.001"], upto["5.0"], upto["10.0"], upto["+Inf"]) == (4, 5, 5, 6, 7)
    assert samples["rankloop_feedback_seconds_sum", (("worker", "w"),)] == pytest.approx(21.0011)


def test_what_is_not_declared_is_refused() -> None:
    metrics = Metrics()
    with pytest.raises(UnknownName, match=r"'learnd_total'.*'learned_total'"):
        metrics.count("learnd_total", ranker="shop")
    with pytest.raises(InvalidInput, match="learned_total"):
        metrics.gauge("learned_total", 1, ranker="shop")
    for labels in ({}, {"rankers": "shop"}, {"ranker": "shop", "exposure": "full"}):
        with pytest.raises(InvalidInput, match=r"learned_total.*'ranker'"):
            metrics.count("learned_total", 1, **labels)
    with pytest.raises(InvalidInput, match=r"feedback_seconds.*'ranker'"):
        metrics.observe("feedback_seconds", 0.1, ranker="shop")
    for amount in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            metrics.count("learned_total", amount, ranker="shop")
    with pytest.raises(InvalidInput, match="learner_lag"):
        metrics.gauge("learner_lag", float("nan"), ranker="shop")
    assert exposition({"w": metrics.report()}) == ""


def test_reports_of_another_release_or_damaged_are_skipped() -> None:
    metrics = Metrics()
    metrics.count("learned_total", ranker="shop")
    metrics.observe("feedback_seconds", 0.1)
    good = metrics.report()
    text = exposition({"w": good})
    whole = msgspec.json.decode(good)
    bad = {
        "empty": b"",
        "cut": good[:-5],
        "text": b"\xff\xfe",
        "list": b"[]",
        "release": msgspec.json.encode({**whole, "format": "1-0"}),
        "metric": msgspec.json.encode({**whole, "values": {"nonsense": [[[], 1]]}}),
        "labels": msgspec.json.encode({**whole, "values": {"learned_total": [[["a", "b"], 1]]}}),
        "kind": msgspec.json.encode({**whole, "values": {"learned_total": [[["a"], [1, 2]]]}}),
        "buckets": msgspec.json.encode({**whole, "values": {"feedback_seconds": [[[], [1, 2]]]}}),
        "number": msgspec.json.encode({**whole, "values": {"feedback_seconds": [[[], 1]]}}),
        "null": msgspec.json.encode({**whole, "values": {"learned_total": [[["a"], None]]}}),
    }
    assert whole["format"] == FORMAT
    assert exposition({**bad, "w": good}) == text


@given(st.data())
def test_no_damage_breaks_the_page(data: st.DataObject) -> None:
    metrics = Metrics()
    metrics.count("learned_total", ranker="shop")
    metrics.observe("feedback_seconds", 0.1)
    report = bytearray(metrics.report())
    report[data.draw(st.integers(0, len(report) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parse(exposition({"w": bytes(report)}))


def test_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 5e6 < process_memory() < 1e11

    def no_proc(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_proc)
    assert 5e6 < process_memory() < 1e11
