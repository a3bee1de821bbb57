"""A learner that hangs, in a service as it is run: the others rank and learn, and the status says what happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.hanging import PLACE
from tests.service.running import Service, wait_for
from tests.service.truths import check_state, read

pytestmark = pytest.mark.slow

Start = Callable[..., Service]
LONG = 10.0  # seconds that a learner may take here: a busy machine is no hang
ITEMS = [{"id": f"i{i}"} for i in range(4)]


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service may import the learner, and finds it."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))


def begin(start_service: Start, store: str, where: str, **settings: Any) -> Service:
    service = start_service(store=store, allow=PLACE, learn_seconds=LONG, watchdog_seconds=LONG + 1, **settings)
    bad: dict[str, Any] = {"learner": PLACE, "parameters": {"where": where}, "exposure": "full", "guardrail": None}
    bad["timeout_ms"] = 300 if where == "rank" else 60_000
    assert service.ask("PUT", "/v1/rankers/bad", bad).status == 201
    good = {"learner": "bubblerank", "exposure": "full", "guardrail": None, "timeout_ms": 60_000}
    assert service.ask("PUT", "/v1/rankers/good", good).status == 201
    for name in ("bad", "good"):
        wait_for(lambda n=name: not rank(service, n)["fallback"], f"{name} to be warm")  # type: ignore[misc]
    return service


def rank(service: Service, name: str, query: str = "q") -> Any:
    answer = service.ask("POST", f"/v1/rankers/{name}/rank", {"query": query, "candidates": ITEMS})
    assert answer.status == 200, answer
    return answer.json


def round_of(service: Service, name: str, query: str = "q") -> None:
    shown = rank(service, name, query)
    event = {"event_id": shown["impression_id"], "impression_id": shown["impression_id"], "clicks": ["i2"]}
    answer = service.ask("POST", "/v1/feedback", {**event, "final": True})
    assert (answer.status, answer.json["counts"]) == (200, {"accepted": 1})


def learned(service: Service, name: str) -> int:
    status = service.status(name)
    return int(status["learned_impressions"]) if status["unlearned_impressions"] == 0 else -1


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("where", ["learn", "spin"])
def test_in_learn(where: str, tmp_path: Path, start_service: Start) -> None:
    """The process that learns is ended with it and begins anew; what hung is passed over, now and in any replay."""
    store = str(tmp_path / "store.db")
    service = begin(start_service, store, where)
    ((before,),) = read(store, "SELECT MIN(holder) FROM leases")
    for query in ("a", "hang", "b"):
        round_of(service, "bad", query)
        round_of(service, "good", query)
    wait_for(lambda: learned(service, "bad") == 3, "the outcome that hangs to be passed over")
    wait_for(lambda: learned(service, "good") == 3, "the other to be learned")
    assert "the outcome is skipped" in service.status("bad")["trouble"]
    assert service.status("good")["trouble"] is None
    assert rank(service, "bad")["fallback"] is False
    wait_for(lambda: int(rank(service, "bad")["version"].removeprefix("live@")) == 3, "it to be published")
    ((after,),) = read(store, "SELECT MIN(holder) FROM leases")
    assert after != before
    assert service.stop() == 0, service.log()
    assert check_state(store, "good") == 3
    assert read(store, "SELECT seq FROM outcomes WHERE ranker = 'bad' AND learn = 0") == [(1,)]


@pytest.mark.usefixtures("allowed")
def test_in_learn_again_and_again(tmp_path: Path, start_service: Start) -> None:
    """After the third time it is in quarantine, until it is tried again or someone changes it."""
    store = str(tmp_path / "store.db")
    service = begin(start_service, store, "learn")
    for query in ("hang", "hang", "hang", "a"):
        round_of(service, "bad", query)
    wait_for(lambda: "is tried again" in (service.status("bad")["trouble"] or ""), "the quarantine")
    round_of(service, "good")
    wait_for(lambda: learned(service, "good") == 1, "the other to be learned")
    assert not rank(service, "bad")["fallback"]  # it still ranks
    spec = service.status("bad")["spec"]
    assert service.ask("PUT", "/v1/rankers/bad", {**spec, "k": 3}).status == 200
    wait_for(lambda: learned(service, "bad") == 4, "it to be learned again")
    assert service.status("bad")["trouble"] is None


@pytest.mark.usefixtures("allowed")
def test_in_rank(tmp_path: Path, start_service: Start) -> None:
    service = begin(start_service, str(tmp_path / "store.db"), "rank")
    assert rank(service, "bad", "hang")["reason"] == "timeout"
    assert not rank(service, "good", "hang")["fallback"]
    wait_for(lambda: not rank(service, "bad")["fallback"], "another thread to rank")


@pytest.mark.usefixtures("allowed")
def test_in_load(tmp_path: Path, start_service: Start) -> None:
    """It ranks with what it had; started anew it has nothing, gives your order and says why."""
    service = begin(start_service, str(tmp_path / "store.db"), "load")
    round_of(service, "bad")
    round_of(service, "good")
    wait_for(lambda: learned(service, "bad") == 1, "it to be learned")
    wait_for(lambda: learned(service, "good") == 1, "the other to be learned")
    assert (rank(service, "bad")["version"], rank(service, "bad")["fallback"]) == ("live@0", False)
    wait_for(lambda: rank(service, "good")["version"] == "live@1", "the other to be published")
    assert service.stop() == 0, service.log()
    service.start()
    assert rank(service, "bad")["reason"] == "damaged"
    assert "load" in service.status("bad")["trouble"]
    round_of(service, "good")
    wait_for(lambda: learned(service, "good") == 2, "the other to be learned")


def test_a_process_that_stands_still_is_replaced(tmp_path: Path, start_service: Start) -> None:
    store = str(tmp_path / "store.db")
    service = start_service(store=store, watchdog_seconds=15.0)
    assert service.ask("PUT", "/v1/rankers/good", {"learner": "base", "guardrail": None}).status == 201

    def ranking() -> set[int]:
        return {int(row[0].split(":")[1]) for row in read(store, "SELECT id FROM workers WHERE learns = 0")}

    (first,) = wait_for(ranking, "a process that ranks")
    os.kill(first, signal.SIGSTOP)  # nothing of it runs, as in machine code that never ends
    wait_for(lambda: ranking() - {first}, "another in its place")
    wait_for(lambda: not rank(service, "good")["fallback"], "it to rank")
    assert service.stop() == 0, service.log()
