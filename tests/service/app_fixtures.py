"""A service inside the test's own process, and the few words in which the tests of its API speak."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from rankloop.core.registry import learner_class
from rankloop.service.api.app import create_served
from rankloop.service.ranking.model import PublishedModel
from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.settings import Settings
from rankloop.service.storage import snapshots
from rankloop.service.storage.ids import new_id
from tests.waiting import PATIENCE, wait_for

logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every request

Body = dict[str, Any]


class Clock:
    """The time of day, with what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Service:
    """An engine and a client of its application; a context from start to stop."""

    def __init__(self, store: Path, clock: Callable[[], float] = time.time, **settings: Any) -> None:
        # A disk that takes seconds to write is no failure of what is tested here.
        patient = {"store_timeout_ms": 60_000.0, "feedback_timeout_ms": 60_000.0}
        self.engine = Engine(Settings(store=str(store), **{**patient, **settings}), clock)
        app: Any = create_served(engine=self.engine)
        self.http: TestClient[Litestar] = TestClient(app, base_url="http://127.0.0.1")
        self._own, self._events = new_id(), 0

    def __enter__(self) -> Self:
        self.http.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.__exit__(kind, error, trace)

    def ready(self) -> Self:
        """Wait until the kernels are warm."""
        assert self.engine.kernels_ready.wait(PATIENCE)
        return self

    # -- calls that must succeed -----------------------------------------------------------------------------------

    def put(self, name: str, **spec: Any) -> Any:
        """Without a guardrail unless one is given: a tenth of the lists would not be the learner's own.

        With a minute for each list: on a busy machine the usual tenth of a second ends in the base order. Waits for the
        kernels.
        """
        status = self.put_cold(name, **spec)
        until(lambda: self.engine.rankers[name].compiled, f"the kernels of {name}")
        return status

    def put_cold(self, name: str, **spec: Any) -> Any:
        """The same, as quick as the service answers: kernels may still be compiled."""
        return fine(self.http.put(f"/v1/rankers/{name}", json={"guardrail": None, "timeout_ms": 60_000.0, **spec}))

    def rank(self, name: str, candidates: Sequence[Body], explain: bool = False, **more: Any) -> Any:
        path = f"/v1/rankers/{name}/rank" + "?explain=true" * explain
        return fine(self.http.post(path, json={"candidates": list(candidates), **more}))

    def feedback(self, *events: Body) -> list[Any]:
        """The receipts of events sent as one array."""
        results: list[Any] = fine(self.http.post("/v1/feedback", json=list(events)))["results"]
        return results

    def report(self, answer: Body, clicks: Sequence[Any] = (), final: bool = True, **more: Any) -> str:
        """The status of one event about an answer; its event_id is new unless given."""
        self._events += 1
        kind: Body = {} if "grades" in more else {"clicks": list(clicks)}
        event = {"event_id": f"{self._own}-{self._events}", "impression_id": answer["impression_id"], "final": final}
        (receipt,) = self.feedback({**event, **kind, **more})
        status: str = receipt["status"]
        return status

    def act(self, name: str, action: str, **body: Any) -> Any:
        return fine(self.http.post(f"/v1/rankers/{name}/{action}", json=body))

    def status(self, name: str) -> Any:
        return fine(self.http.get(f"/v1/rankers/{name}"))

    def versions(self, name: str) -> list[Any]:
        found: list[Any] = fine(self.http.get(f"/v1/rankers/{name}/versions"))
        return found

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that carry these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total

    # -- a look behind the API -------------------------------------------------------------------------------------

    def settle(self, name: str) -> int:
        """Wait until everything that is logged is learned; how many outcomes that is."""
        until(lambda: self.status(name)["unlearned_impressions"] == 0, f"{name} to learn what is logged")
        learned: int = self.status(name)["learned_impressions"]
        until(lambda: model_of(self.engine.rankers[name]).learned >= learned, "it to be published")
        return learned

    def state(self, name: str) -> bytes:
        """What the ranker has learned, as it would be stored."""
        assert self.engine.learning is not None
        return self.engine.learning.folds[name].state()[1]

    def snapshot(self, name: str) -> bytes:
        """What is stored of it."""
        found = self.engine.database.read(lambda connection: snapshots.snapshot(connection, name))
        self.engine.database.close_thread()
        assert found is not None
        return found.state


def model_of(live: LiveRanker) -> PublishedModel:
    """The model that was published last."""
    assert live.model is not None, live.load_error
    return live.model


def slow_except(values: Iterable[str], *fast: str) -> list[Any]:
    """Parameters of a test that takes long for all of them: only those named run with the fast tests."""
    found = list(values)
    assert set(fast) <= set(found)
    return [value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in found]


def fine(response: httpx.Response) -> Any:
    """The body of an answer that is no error."""
    assert response.is_success, f"{response.status_code}: {response.text}"
    return response.json()


def refused(response: httpx.Response, status: int, *words: str, error: str | None = None) -> str:
    """The message of a Problem with this status, which must have all of these words in it."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/json"
    problem = response.json()
    assert set(problem) == {"error", "message", "request_id"}
    assert problem["request_id"] == response.headers["x-request-id"]
    if error is not None:
        assert problem["error"] == error
    for word in words:
        assert word in problem["message"], problem["message"]
    message: str = problem["message"]
    return message


def until(reached: Callable[[], bool], what: str = "it") -> None:
    """Wait for something that happens behind the API."""
    wait_for(reached, what, every=0.01)


def items(n: int, width: int = 3, seed: int = 0) -> list[Body]:
    """n candidates called i0, i1, … with features as lists."""
    rows = np.random.default_rng(seed).random((n, width)).tolist()
    return [{"id": f"i{i}", "features": row} for i, row in enumerate(rows)]


def shown(answer: Body) -> list[Any]:
    """The ids of an answer, top first."""
    assert [item["position"] for item in answer["items"]] == list(range(1, len(answer["items"]) + 1))
    return [item["id"] for item in answer["items"]]


def names(width: int) -> list[str]:
    """Feature names: f0, f1, …"""
    return [f"f{j}" for j in range(width)]


def teach(service: Service, name: str, rounds: int, width: int = 3, n: int = 6, seed: int = 0) -> None:
    """Let a user who likes feature 0 click the best item of each of some lists, or give it the highest grade."""
    kind = learner_class(service.status(name)["spec"]["learner"]).feedback
    for t in range(rounds):
        candidates = items(n, width, seed=seed + t)
        answer = service.rank(name, candidates, query=f"q{t % 3}")
        liked = {c["id"]: c["features"][0] for c in candidates}
        best = max(shown(answer), key=liked.__getitem__)
        told = {str(item): float(item == best) for item in shown(answer)}
        grades: Body = {"grades": told} if kind == "grades" else {}
        assert service.report(answer, [best], **grades) == "accepted"
    service.settle(name)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of a file; each takes a ranker of its own."""
    with Service(tmp_path_factory.mktemp("service") / "shared.db") as running:
        yield running.ready()


def check_bounded(base: list[Any], found: list[Any], k: int, s: int) -> None:
    """Nothing stands more than s positions from the base order; what could not be shown any lower is shown."""
    assert len(found) == len(set(found)) == min(k, len(base))
    for position, item in enumerate(found):
        assert abs(position - base.index(item)) <= s
    for position, item in enumerate(base):
        if position + s < min(k, len(base)):
            assert item in found
