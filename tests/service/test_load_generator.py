"""The load generator: its arithmetic, its HTTP, and short runs against a stub service."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from cyclopts import App, Parameter
from hypothesis import given
from hypothesis import strategies as st

from rankloop.cli import bench as command
from rankloop.core.errors import InvalidParameter, RankloopError, UnknownName
from rankloop.service import load_generator as load
from rankloop.service.load_generator import ConnectionPool, Latency, LoadPlan, LoadReport, RequestFailed, Traffic
from tests.service.scripted import DROP, Asked, Said, Server, script
from tests.waiting import PATIENCE

SMALL: dict[str, Any] = {"candidates": 8, "features": 5, "k": 4, "warm_up": 2, "connections": 4}


class Stub:
    """A service that returns the baseline ranking."""

    def __init__(self, *, seconds: float = 0.0, slow: frozenset[int] = frozenset(), rank_status: int = 200) -> None:
        self.seconds, self.slow, self.rank_status = seconds, slow, rank_status
        self.spec: dict[str, Any] | None = None
        self.deleted = 0
        self.ranked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._one_at_a_time = threading.Lock()

    def __call__(self, asked: Asked) -> Said:
        if asked.path == "/v1/feedback":
            self.events.append(asked.json)
            results = [{"event_id": asked.json["event_id"], "status": "accepted"}]
            return Said(200, {"results": results, "counts": {"accepted": 1}})
        if asked.path.endswith("/rank"):
            return self.rank(asked.json)
        if asked.method == "PUT":
            self.spec = asked.json
        elif self.spec is None:
            return Said(404, {"error": "unknown-ranker", "message": "no such ranker"})
        status: dict[str, Any] = {"name": "load", "spec": self.spec, "serving": "live", "learning": True}
        status |= {"closed_impressions": 9, "learned_impressions": 2, "unlearned_impressions": 7, "open_impressions": 0}
        status |= {"learner_process": None, "snapshot_impressions": None, "created": 0.0, "etag": '"1"', "ready": True}
        status |= {"waiting_for": None, "model_impressions": 2}
        status["origin"] = {"generation": 1, "how": "made", "version": None, "kept": None, "since": 0.0}
        status["origin"]["impressions_since"] = 2
        if asked.method == "DELETE":
            self.spec, self.deleted = None, self.deleted + 1
            return Said(204, b"")
        return Said(200, status)

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


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_quantiles_are_nearest_rank_in_milliseconds(values: list[float]) -> None:
    found = Latency.of(values)
    expected = [np.quantile(values, share, method="inverted_cdf") for share in (0.5, 0.9, 0.99, 0.999, 1.0)]
    assert found[2:] == pytest.approx(1000 * np.array(expected))
    assert found.n == len(values)
    assert found.mean == pytest.approx(1000 * np.mean(values))


def report(rate: float, achieved: float, p99: float) -> LoadReport:
    none = Latency.of([])
    rest: dict[str, Any] = {"seconds": 1.0, "sent": 1, "answered": 1, "errors": {}, "fallbacks": 0, "lag": None}
    return LoadReport(
        plan=LoadPlan(rate=rate),
        achieved_rate=achieved,
        rank=none._replace(p99=p99),
        feedback=none,
        feedback_status={},
        first_fifth=load.ClickQuality.of([]),
        last_fifth=load.ClickQuality.of([]),
        generator_late=none,
        generator_cpu=0.0,
        **rest,
    )


def test_a_rate_is_sustained_if_it_is_achieved_within_the_limit() -> None:
    assert report(100, 97.5, 14.9).not_sustained(15) == ""
    assert report(100, 96, 1).not_sustained(15) == "achieved 96 of 100/s"
    assert report(100, 100, 15.5).not_sustained(15) == "p99 15.5 ms > 15 ms"


@pytest.mark.parametrize(
    "wrong", [{"seconds": 3601}, {"rate": -1}, {"feedback": 1.1}, {"rate": float("nan")}, {"k": 0}]
)
def test_plan_values_out_of_range_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        LoadPlan(**wrong)


def test_traffic_is_a_function_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = (Traffic(candidates=6, features=4, k=3, seed=seed) for seed in (1, 1, 2))
    assert one.request(7, "r") == same.request(7, "r") != other.request(7, "r")
    body = json.loads(one.request(7, "r"))
    assert (body["request_id"], body["k"], len(body["candidates"]), len(body["candidates"][0]["features"])) == (
        *("r", 3),
        *(6, 4),
    )
    assert [one.clicks(n, ["c0", "c1"]) for n in range(9)] == [same.clicks(n, ["c0", "c1"]) for n in range(9)]
    pauses = [one.pause(n, 0.5) for n in range(200)]
    assert 60 < sum(pause is None for pause in pauses) < 140
    assert all(0.05 <= pause <= 0.2 for pause in pauses if pause is not None)
    with pytest.raises(UnknownName, match=r"'prefect'.*'perfect'"):
        LoadPlan(user="prefect")
    monkeypatch.setattr(load, "MAX_BYTES", 2000)
    assert Traffic(candidates=6, features=4, k=3).queries == 10


def test_connections_are_reused_and_an_idle_one_that_was_closed_is_replaced() -> None:
    async def ask() -> list[int]:
        pool = ConnectionPool(server.url, connections=1, key="secret")
        found = [(await pool.request("POST", "/x", b"ab"))[0] for _ in range(3)]
        with pytest.raises(RequestFailed, match="timeout"):
            await pool.request("GET", "/slow", seconds=0.05)
        found.append((await pool.request("GET", "/y"))[0])
        await pool.close()
        return found

    # the third request meets a connection that the server closes without a response, as servers close idle ones
    fine = Said(200, b"")
    with Server(script(fine, fine, DROP, fine, Said(200, b"", seconds=0.3), fine)) as server:
        assert asyncio.run(ask()) == [200] * 4
    assert server.connections == 3
    assert server.asked[0].body == b"ab"
    assert server.asked[0].headers["Authorization"] == "Bearer secret"


def test_failures_have_a_kind() -> None:
    async def kind(url: str) -> str:
        with pytest.raises(RequestFailed) as got:
            await ConnectionPool(url, 1).request("GET", "/", seconds=PATIENCE)
        return got.value.kind

    with Server(script(DROP)) as server:
        assert asyncio.run(kind(server.url)) == "closed"
    assert asyncio.run(kind(server.url)) == "connect"  # it has stopped
    for url in ("https://127.0.0.1", "http://127.0.0.1:port", "127.0.0.1:80"):
        with pytest.raises(InvalidParameter):
            asyncio.run(kind(url))


def test_a_short_run_reports_what_was_sent_and_answered() -> None:
    progress: list[tuple[float, int, int]] = []
    stub = Stub()
    with Server(stub) as server:
        plan = LoadPlan(url=server.url, key="secret", rate=50, seconds=1, clean_up=True, **SMALL)
        found = load.start(load.run(plan, lambda *step: progress.append(step)))
    assert (found.sent, found.answered, found.errors, found.fallbacks) == (50, 50, {}, 0)
    assert 1 < found.achieved_rate <= 50  # less on a busy machine
    assert found.feedback_status == {"accepted": 50}
    assert found.rank.n == found.feedback.n == 50
    assert 0 < found.rank.p50 <= found.rank.p99 <= found.rank.p999 <= found.rank.max
    assert len(set(stub.ranked)) == 52  # two to warm up
    assert {event["impression_id"] for event in stub.events} == {f"i-{request}" for request in stub.ranked}
    assert all(event["final"] for event in stub.events)
    assert len({event["event_id"] for event in stub.events}) == 52
    assert found.lag == 7
    assert 0 < found.first_fifth.reciprocal_rank <= found.first_fifth.click_rate <= 1
    assert progress[-1] == (50, 50, 50)
    assert stub.deleted == 1
    plain = json.loads(json.dumps(found.as_dict()))
    assert (plain["plan"]["rate"], plain["rank"]["p99"]) == (50, found.rank.p99)
    assert "secret" not in str(plain) + repr(found)


def test_rate_zero_keeps_every_connection_busy() -> None:
    with Server(Stub(seconds=0.01)) as server:
        found = load.start(load.run(LoadPlan(url=server.url, rate=0, seconds=0.5, feedback=0, **SMALL)))
    assert found.sent == found.answered == found.rank.n > 4
    assert found.errors == {}


def test_requests_that_wait_behind_a_stall_count_in_full() -> None:
    """One answer takes 0.3 s on the only connection; requests that were due meanwhile have waited."""
    with Server(Stub(slow=frozenset({4}))) as server:
        plan = LoadPlan(url=server.url, rate=100, seconds=0.4, feedback=0, **{**SMALL, "connections": 1})
        found = load.start(load.run(plan))
    assert found.answered == 40
    assert found.rank.max > 290
    assert found.rank.p50 > 50
    assert found.feedback_status == {}


def test_errors_are_counted_by_kind() -> None:
    with Server(Stub(rank_status=503)) as server:
        found = load.start(load.run(LoadPlan(url=server.url, rate=50, seconds=0.2, **SMALL)))
    assert (found.answered, found.achieved_rate, found.errors) == (0, 0, {"rank: http 503": 10})
    with Server(Stub(seconds=0.3)) as server:
        plan = LoadPlan(url=server.url, rate=50, seconds=0.1, timeout=0.1, **{**SMALL, "warm_up": 0})
        assert load.start(load.run(plan)).errors == {"rank: timeout": 5}


def test_a_ranker_that_no_load_test_created_is_not_deleted() -> None:
    stub = Stub()
    for features in (["bm25"], []):
        stub.spec = {"features": features}
        with Server(stub) as server, pytest.raises(InvalidParameter):
            load.start(load.run(LoadPlan(url=server.url, **SMALL)))
    stub.spec = {"features": ["f0", "f1"]}
    with Server(stub) as server:
        load.start(load.run(LoadPlan(url=server.url, rate=10, seconds=0.1, learner="pairrank?alpha=0.1", **SMALL)))
    assert stub.deleted == 1
    assert stub.spec is not None
    assert (stub.spec["learner"], stub.spec["parameters"]) == ("pairrank", {"alpha": 0.1})
    assert stub.spec["features"] == ["f0", "f1", "f2", "f3", "f4"]


def test_the_reason_of_a_refusal_is_raised() -> None:
    refused = Said(401, {"error": "no-key", "message": "give a key"})
    with Server(script(refused)) as server, pytest.raises(RankloopError, match="401: give a key"):
        load.start(load.run(LoadPlan(url=server.url, **SMALL)))


@pytest.mark.parametrize(("first", "tried"), [(20, [20, 40, 80]), (80, [80, 40]), (320, [320, 160, 80, 40])])
def test_find_maximum_steps_up_or_down(first: int, tried: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(_: object, rate: float, *__: object) -> LoadReport:
        return report(rate, min(rate, 50.0), 10.0)  # a service that gives 50 answers per second

    async def no_wait(*_: object) -> None: ...

    monkeypatch.setattr(load._Session, "measure", measured)
    monkeypatch.setattr(load._Session, "settle", no_wait)  # the stub never catches up
    with Server(Stub()) as server:
        found = load.start(load.find_maximum(LoadPlan(url=server.url, rate=first, feedback=0, **SMALL), factor=2))
    assert found.rate == 40
    assert [step.plan.rate for step in found.steps] == tried


def run_command(*arguments: str) -> None:
    app = App(name="rankloop", default_parameter=Parameter(negative=()))
    command.add_to(app)
    app(["bench", *arguments], exit_on_error=False, print_error=False, result_action="return_value")


def test_the_command_prints_tables_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rate", "80", "--seconds", "0.25", "--candidates", "8", "--features", "5", "--seed", "3"]
    with Server(Stub()) as server:
        run_command(server.url.removeprefix("http://"), *small)
        text = capsys.readouterr().out
        run_command(server.url, *small, "--json")
        plain = json.loads(capsys.readouterr().out)
    for part in ("p99.9", "accepted 20", "reciprocal rank", "at most 7"):
        assert part in text
    assert (plain["sent"], plain["plan"]["seed"], plain["feedback_status"]) == (20, 3, {"accepted": 20})


def test_the_command_refuses_other_machines_and_long_runs() -> None:
    with pytest.raises(InvalidParameter, match="--yes-remote"):
        run_command("http://rank.example.com")
    with pytest.raises(InvalidParameter, match="seconds is 3601"):
        run_command("--seconds", "3601")
