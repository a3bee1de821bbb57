"""Changing a ranker stops nobody: no learner is asked while a transaction holds up everyone who writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.control import rankers, versions
from rankloop.service.errors import UnknownRanker
from rankloop.service.maintenance.housekeeping import Retention
from rankloop.service.storage import rankers as stored_rankers
from tests.service import misbehaving
from tests.service.app_fixtures import Service, items, names, refused, teach, until
from tests.service.misbehaving import SlowToMake
from tests.service.running import PATIENCE


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    misbehaving.install(monkeypatch)
    SlowToMake.free.set()
    with Service(tmp_path / "store.db") as running:
        running.ready()
        running.put("slow", learner="slowtomake", features=names(3))
        running.put("other", features=names(3), exposure="full")
        yield running
        SlowToMake.free.set()


class Acting(threading.Thread):
    """An operation on the slow ranker that hangs in its learner until that is set free."""

    def __init__(self, service: Service, action: str, **body: Any) -> None:
        super().__init__(daemon=True)
        self._service, self._action, self._body = service, action, body
        self.found: Any = None
        while SlowToMake.waiting.acquire(blocking=False):
            pass
        SlowToMake.free.clear()
        self.start()
        assert SlowToMake.waiting.acquire(timeout=PATIENCE)

    def run(self) -> None:
        self.found = self._service.act("slow", self._action, **self._body)

    def end(self) -> Any:
        SlowToMake.free.set()
        self.join(PATIENCE)
        assert self.found is not None
        return self.found


@pytest.mark.parametrize("action", ["promote", "rollback", "reset"])
def test_a_learner_that_takes_its_time_stops_nobody_else(service: Service, action: str) -> None:
    teach(service, "slow", 2)
    service.http.post("/v1/rankers/slow/versions", json={}).raise_for_status()
    acting = Acting(service, action, **({} if action == "reset" else {"version": 1}))
    answer = service.rank("other", items(4))
    assert answer["fallback"] is False
    assert service.report(answer, ["i1"]) == "accepted"
    status = acting.end()
    assert status["serving"] == ("v1" if action == "promote" else "live")


def test_what_changed_meanwhile_is_looked_at_again(service: Service) -> None:
    teach(service, "slow", 2)
    service.http.post("/v1/rankers/slow/versions", json={}).raise_for_status()
    acting = Acting(service, "promote", version=1)
    rankers.set_learning(service.engine, "slow", False)  # another operator, or another process
    status = acting.end()
    assert (status["serving"], status["learning"]) == ("v1", False)
    assert SlowToMake.waiting.acquire(blocking=False) is False  # held up once; the second look was free to go on


def test_a_ranker_that_was_deleted_meanwhile_is_not_there(service: Service) -> None:
    teach(service, "slow", 2)
    service.http.post("/v1/rankers/slow/versions", json={}).raise_for_status()
    failures: list[BaseException] = []

    def promote() -> None:
        try:
            versions.promote(service.engine, "slow", 1, "")
        except BaseException as error:
            failures.append(error)

    while SlowToMake.waiting.acquire(blocking=False):
        pass
    SlowToMake.free.clear()
    thread = threading.Thread(target=promote, daemon=True)
    thread.start()
    assert SlowToMake.waiting.acquire(timeout=PATIENCE)
    service.http.delete("/v1/rankers/slow").raise_for_status()
    SlowToMake.free.set()
    thread.join(PATIENCE)
    assert [type(error) for error in failures] == [UnknownRanker]


# -- deleting ------------------------------------------------------------------------------------------------------


def left(service: Service) -> int:
    """Rows that deleted rankers have left."""
    sql = "SELECT (SELECT COUNT(*) FROM impressions WHERE ranker = 'other') + (SELECT COUNT(*) FROM tombstones)"
    found = service.engine.database.read(lambda connection: connection.rows(sql))
    return int(found[0][0])


def test_a_deleted_ranker_is_gone_and_can_be_made_anew(service: Service) -> None:
    teach(service, "other", 5)
    service.http.delete("/v1/rankers/other").raise_for_status()
    refused(service.http.get("/v1/rankers/other"), 404)
    refused(service.http.post("/v1/rankers/other/rank", json={"candidates": items(3)}), 404)
    status = service.put("other", features=names(3), exposure="full")
    assert (status["closed_impressions"], status["learned_impressions"]) == (0, 0)
    teach(service, "other", 2)
    assert service.settle("other") == 2


def test_what_it_left_goes_behind_the_answer(service: Service) -> None:
    teach(service, "other", 5)
    service.http.delete("/v1/rankers/other").raise_for_status()
    until(lambda: left(service) == 0, "what it left to be deleted")


def test_the_sweep_deletes_what_a_process_that_died_did_not(service: Service) -> None:
    teach(service, "other", 5)
    engine = service.engine
    assert engine.writer.do(lambda connection: stored_rankers.delete_ranker(connection, "other", time.time()))
    assert left(service) > 0
    Retention(engine).delete()
    assert left(service) == 0


def test_a_name_that_is_not_free_yet_is_refused_in_words(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(service, "other", 5)
    assert service.engine.writer.do(lambda connection: stored_rankers.delete_ranker(connection, "other", time.time()))
    monkeypatch.setattr(rankers, "CLEARING", -1.0)
    answer = service.http.put("/v1/rankers/other", json={"features": names(3)})
    refused(answer, 409)
