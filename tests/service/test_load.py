"""The load tester: its arithmetic, its HTTP, and short runs against a stub that answers like the service."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
from cyclopts import App, Parameter
from hypothesis import given
from hypothesis import strategies as st

from rankloop.cli import bench as command
from rankloop.core.errors import InvalidParameter, RankloopError, UnknownName
from rankloop.service.load_test import load
from rankloop.service.load_test.connections import Failed, Pool, parse
from rankloop.service.load_test.load import Latency, LoadPlan, LoadReport
from rankloop.service.load_test.report import fifths, metric_sum, served
from rankloop.service.load_test.traffic import Traffic
from tests.service.scripted import DROP, Asked, Said, Server, script
from tests.waiting import PATIENCE

SMALL: dict[str, Any] = {"candidates": 8, "features": 5, "k": 4, "warm_up": 2, "connections": 4, "sample_seconds": 0.3}


class Stub:
    """Answers like the service: the base order, a receipt an event, a little memory more each time."""

    def __init__(self, *, seconds: float = 0.0, slow: frozenset[int] = frozenset(), rank_status: int = 200) -> None:
        self.seconds, self.slow, self.rank_status = seconds, slow, rank_status
        self.spec: dict[str, Any] | None = None
        self.deleted = 0
        self.ranked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.posts = 0
        self.rss = 1e6
        self._one_at_a_time = threading.Lock()

    def __call__(self, asked: Asked) -> Said:
        if asked.path == "/metrics":
            self.rss += 1000
            return Said(200, f"# TYPE x gauge\nprocess_resident_memory_bytes {self.rss}\n".encode())
        if asked.path == "/v1/feedback":
            events = asked.json if isinstance(asked.json, list) else [asked.json]
            self.posts += 1
            self.events += events
            results = [{"event_id": event["event_id"], "status": "accepted"} for event in events]
            return Said(200, {"results": results, "counts": {"accepted": len(events)}})
        if asked.path.endswith("/rank"):
            return self.rank(asked.json)
        if asked.method == "PUT":
            self.spec = asked.json
        elif self.spec is None:
            return Said(404, {"error": "unknown-ranker", "message": "no such ranker"})
        status = {
            "name": "load",
            "spec": self.spec,
            "serving": "live",
            "learning": True,
            "closed_impressions": 9,
            "learned_impressions": 2,
        }
        more: dict[str, Any] = {
            "unlearned_impressions": 7,
            "open_impressions": 0,
            "learner_process": None,
            "snapshot_impressions": None,
            "created": 0.0,
        }
        more |= {"etag": '"1"', "ready": True, "warming": None, "model_impressions": 2}
        more["origin"] = {"generation": 1, "how": "made", "version": None, "kept": None, "since": 0.0}
        more["origin"]["impressions_since"] = 2
        if asked.method == "DELETE":
            self.spec, self.deleted = None, self.deleted + 1
            return Said(204, b"")
        return Said(200, {**status, **more})

    def rank(self, request: dict[str, Any]) -> Said:
        with self._one_at_a_time:
            time.sleep(self.seconds + 0.3 * (len(self.ranked) in self.slow))
            self.ranked.append(request["request_id"])
        if self.rank_status != 200:
            return Said(self.rank_status, {"error": "away", "message": "try later"})
        items = [
            {"id": candidate["id"], "position": i + 1, "score": None}
            for i, candidate in enumerate(request["candidates"][: request["k"]])
        ]
        answer = {"ranker": "load", "version": "live@0", "exposure": "full", "fallback": False, "items": items}
        return Said(200, {**answer, "impression_id": f"i-{request['request_id']}"})


def go(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(test)


# -- arithmetic ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0.01, 0.07, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_percentile_is_the_nearest_rank(values: list[float], share: float) -> None:
    assert load.percentile(sorted(values), share) == np.quantile(values, share, method="inverted_cdf")


def test_latency_counts_in_milliseconds() -> None:
    found = Latency.of([n / 1000 for n in range(1000, 0, -1)])
    assert found == pytest.approx((1000, 500.5, 500, 900, 990, 999, 1000))
    assert Latency.of([]) == (0, 0, 0, 0, 0, 0, 0)


def test_requests_are_due_at_a_constant_rate() -> None:
    dues = load.due_times(50, 2)
    assert len(dues) == 100
    assert np.diff(dues) == pytest.approx(1 / 50)
    assert load.due_times(0.1, 1) == [0.0]  # at least one


def test_fifths_and_how_well_users_were_served() -> None:
    assert fifths([]) == ([], [])
    assert fifths([3]) == ([3], [3])
    assert fifths(list(range(11))) == ([0, 1, 2], [8, 9, 10])
    assert served([]) == (0, 0)
    assert served([1, 4, 0, 0]) == (0.5, 0.3125)


def test_a_metric_is_summed_over_its_labels() -> None:
    text = '# HELP rss of\nrss{pid="1",name="a b"} 1.5e6\nrss{pid="2"} 5 1700000000\nrss_max 9\n'
    assert metric_sum(text, "rss") == 1.5e6 + 5
    assert metric_sum(text, "other") is None


def report(rate: float, achieved: float, p99: float) -> LoadReport:
    none = Latency.of([])
    rest: dict[str, Any] = {
        "seconds": 1.0,
        "sent": 1,
        "answered": 1,
        "errors": {},
        "fallbacks": 0,
        "receipts": {},
        "samples": [],
    }
    return LoadReport(
        plan=LoadPlan(rate=rate),
        achieved_rate=achieved,
        rank=none._replace(p99=p99),
        feedback=none,
        first_fifth=served([]),
        last_fifth=served([]),
        generator_late=none,
        generator_cpu=0.0,
        **rest,
    )


def test_a_rate_is_sustained_if_it_is_achieved_in_time() -> None:
    assert load.verdict(report(100, 97.5, 14.9), 15) == ""
    assert load.verdict(report(100, 96, 1), 15) == "achieved 96 of 100/s"
    assert load.verdict(report(100, 100, 15.5), 15) == "p99 15.5 ms > 15 ms"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:8080", True),
        ("http://127.3.2.1", True),
        ("http://[::1]:8080", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example.com", False),
        ("nonsense", False),
    ],
)
def test_local_is_this_machine(url: str, local: bool) -> None:
    assert load.is_local(url) is local


@pytest.mark.parametrize(
    "wrong", [{"seconds": 3601}, {"rate": 0}, {"feedback": 1.1}, {"batch_ms": 51}, {"rate": float("nan")}, {"k": 0}]
)
def test_plans_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        LoadPlan(**wrong)


def test_traffic_is_a_function_of_the_seed_and_fits_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = (Traffic(candidates=6, features=4, k=3, by_name=True, seed=seed) for seed in (1, 1, 2))
    assert one.request(7, "r") == same.request(7, "r") != other.request(7, "r")
    body = json.loads(b"".join(one.request(7, "r")))
    assert (body["request_id"], body["k"], len(body["candidates"])) == ("r", 3, 6)
    assert list(body["candidates"][0]["features"]) == one.names
    assert [one.clicks(n, ["c0", "c1"]) for n in range(9)] == [same.clicks(n, ["c0", "c1"]) for n in range(9)]
    assert one.queries == 200
    pauses = [one.pause(n, 0.5, (50, 200)) for n in range(200)]
    assert 60 < sum(pause is None for pause in pauses) < 140
    assert all(0.05 <= pause <= 0.2 for pause in pauses if pause is not None)
    with pytest.raises(UnknownName, match=r"'prefect'.*'perfect'"):
        Traffic(candidates=6, features=4, k=3, user="prefect")
    monkeypatch.setattr("rankloop.service.load_test.traffic.MOST_BYTES", 2000)
    assert Traffic(candidates=6, features=4, k=3).queries == 10


# -- HTTP ----------------------------------------------------------------------------------------------------------

HELLO = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO


@pytest.mark.parametrize("data", [HELLO, CHUNKED, EARLY_HINTS])
def test_an_answer_is_read_when_it_is_whole(data: bytes) -> None:
    for size in range(len(data)):
        assert parse(data[:size]) is None
    assert parse(data) == (200, b"hello", True)


def test_how_answers_end() -> None:
    until_closed = b"HTTP/1.0 200 OK\r\n\r\nhel"
    assert parse(until_closed) is None
    assert parse(until_closed, ended=True) == (200, b"hel", False)
    assert parse(b"HTTP/1.1 204 No Content\r\n\r\n") == (204, b"", True)
    assert parse(b"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") == (500, b"", False)
    for broken in (b"SSH-2.0\r\n\r\n", HELLO.replace(b" 5", b" x"), CHUNKED.replace(b"3;", b"z;")):
        with pytest.raises(Failed, match="protocol"):
            parse(broken)


def test_connections_are_reused_and_an_idle_one_that_was_closed_is_replaced() -> None:
    async def ask() -> list[int]:
        async with Pool(server.url, connections=1, key="secret") as pool:
            found = [(await pool.request("POST", "/x", b"a", b"b")).status for _ in range(3)]
            with pytest.raises(Failed, match="timeout"):
                await pool.request("GET", "/slow", seconds=0.05)
            return [*found, (await pool.request("GET", "/y")).status]

    # the third request meets a connection that closes without a word, as servers close idle ones
    fine = Said(200, b"")
    with Server(script(fine, fine, DROP, fine, Said(200, b"", seconds=0.3), fine)) as server:
        assert go(ask()) == [200] * 4
    assert server.connections == 3
    assert server.asked[0].body == b"ab"
    assert server.asked[0].headers["Authorization"] == "Bearer secret"


def test_failures_have_a_kind() -> None:
    async def kind(url: str) -> str:
        async with Pool(url, 1) as pool:
            with pytest.raises(Failed) as got:
                await pool.request("GET", "/", seconds=PATIENCE)
            return got.value.kind

    with Server(script(DROP)) as server:
        assert go(kind(server.url)) == "closed"
    assert go(kind(server.url)) == "connect"  # it is gone
    for url in ("https://127.0.0.1", "http://127.0.0.1:port", "127.0.0.1:80"):
        with pytest.raises(InvalidParameter):
            Pool(url, 1)


# -- runs ----------------------------------------------------------------------------------------------------------


def test_a_short_run() -> None:
    told: list[load.Progress] = []
    stub = Stub()
    with Server(stub) as server:
        plan = LoadPlan(url=server.url, key="secret", rate=50, seconds=1, clean_up=True, **SMALL)
        found: LoadReport = load.start(load.run(plan, told.append))
    assert (found.sent, found.answered, found.errors, found.fallbacks) == (50, 50, {}, 0)
    assert 1 < found.achieved_rate <= 50  # less on a busy machine
    assert found.receipts == {"accepted": 50}
    assert found.rank.n == found.feedback.n == 50
    assert 0 < found.rank.p50 <= found.rank.p99 <= found.rank.p999 <= found.rank.max
    assert len(set(stub.ranked)) == 52  # two to warm up
    assert {event["impression_id"] for event in stub.events} == {f"i-{request}" for request in stub.ranked}
    assert all(event["final"] for event in stub.events)
    assert len({event["event_id"] for event in stub.events}) == 52
    assert found.lag == 7
    assert found.rss_growth == 1000 * (len(found.samples) - 1) > 0
    assert 0 < found.first_fifth.reciprocal_rank <= found.first_fifth.click_rate <= 1
    assert told[-1] == (50, 50, 50)
    assert stub.deleted == 1
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["plan"]["rate"] == 50
    assert plain["rank"]["p99"] == found.rank.p99
    assert "secret" not in str(plain) + repr(found)


def test_who_waits_behind_a_stall_is_counted() -> None:
    """One answer takes 0.3 s on the only connection; those due meanwhile have waited, though each is served quickly."""
    with Server(Stub(slow=frozenset({4}))) as server:
        plan = LoadPlan(url=server.url, rate=100, seconds=0.4, feedback=0, **{**SMALL, "connections": 1})
        found = go(load.run(plan))
    assert found.answered == 40
    assert found.rank.max > 290
    assert found.rank.p50 > 50
    assert found.receipts == {}


def test_events_may_be_gathered() -> None:
    stub = Stub()
    with Server(stub) as server:
        go(load.run(LoadPlan(url=server.url, rate=100, seconds=0.5, batch_ms=50, **SMALL)))
    assert len(stub.events) == 52
    assert stub.posts < 30


def test_errors_are_counted_by_kind() -> None:
    with Server(Stub(rank_status=503)) as server:
        found = go(load.run(LoadPlan(url=server.url, rate=50, seconds=0.2, **SMALL)))
    assert (found.answered, found.achieved_rate, found.errors) == (0, 0, {"rank: http 503": 10})
    with Server(Stub(seconds=0.3)) as server:
        plan = LoadPlan(url=server.url, rate=50, seconds=0.1, timeout=0.1, **{**SMALL, "warm_up": 0})
        assert go(load.run(plan)).errors == {"rank: timeout": 5}


def test_a_ranker_that_is_not_a_load_tests_is_not_touched() -> None:
    stub = Stub()
    for features in (["bm25"], []):
        stub.spec = {"features": features}
        with Server(stub) as server, pytest.raises(InvalidParameter):
            go(load.run(LoadPlan(url=server.url, **SMALL)))
    stub.spec = {"features": ["f0", "f1"]}
    with Server(stub) as server:
        go(load.run(LoadPlan(url=server.url, rate=10, seconds=0.1, learner="pairrank?alpha=0.1", **SMALL)))
    assert stub.deleted == 1
    assert stub.spec is not None
    assert (stub.spec["learner"], stub.spec["parameters"]) == ("pairrank", {"alpha": 0.1})
    assert stub.spec["features"] == ["f0", "f1", "f2", "f3", "f4"]


def test_a_refusal_says_why() -> None:
    refused = Said(401, {"error": "no-key", "message": "give a key"})
    told = r"GET http://127\.0\.0\.1:\d+/v1/rankers/load: 401: give a key"
    with Server(script(refused)) as server, pytest.raises(RankloopError, match=told):
        go(load.run(LoadPlan(url=server.url, **SMALL)))


@pytest.mark.parametrize(("first", "tried"), [(20, [20, 40, 80]), (80, [80, 40]), (320, [320, 160, 80, 40])])
def test_find_maximum_steps_up_or_down(first: int, tried: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that gives 50 answers a second, whatever this machine does meanwhile."""

    async def measured(_: object, rate: float, *__: object) -> LoadReport:
        return report(rate, min(rate, 50.0), 10.0)

    async def no_wait(*_: object) -> None: ...

    monkeypatch.setattr("rankloop.service.load_test.load._Session.measure", measured)
    monkeypatch.setattr("rankloop.service.load_test.load._Session.settle", no_wait)  # the stub never catches up
    with Server(Stub()) as server:
        found = go(load.find_maximum(LoadPlan(url=server.url, rate=first, feedback=0, **SMALL), factor=2))
    assert found.rate == 40
    assert [step.plan.rate for step, _ in found.steps] == tried
    assert [verdict for _, verdict in found.steps] == [
        "" if rate < 50 else f"achieved 50 of {rate}/s" for rate in tried
    ]


# -- the command ---------------------------------------------------------------------------------------------------


def run_command(*arguments: str) -> None:
    app = App(name="rankloop", default_parameter=Parameter(negative=()))
    command.add_to(app)
    app(["load", *arguments], exit_on_error=False, print_error=False, result_action="return_value")


def test_the_command_prints_tables_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rate", "80", "--seconds", "0.25", "--candidates", "8", "--features", "5", "--seed", "3"]
    with Server(Stub()) as server:
        run_command(server.url.removeprefix("http://"), *small)
        text = capsys.readouterr().out
        run_command(server.url, *small, "--json")
        plain = json.loads(capsys.readouterr().out)
    for word in ("rank", "p99.9", "achieved", "accepted 20", "reciprocal rank", "at most 7"):
        assert word in text
    assert (plain["sent"], plain["plan"]["seed"], plain["receipts"]) == (20, 3, {"accepted": 20})


def test_the_command_is_for_this_machine_and_ends() -> None:
    with pytest.raises(InvalidParameter, match="--yes-remote"):
        run_command("http://rank.example.com")
    with pytest.raises(InvalidParameter, match="seconds is 3601"):
        run_command("--seconds", "3601")
