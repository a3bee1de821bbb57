"""What the metrics say of a running service is so, also after what they spoke of has gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankloop.service.maintenance import housekeeping
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import open_database, schema
from tests.service.app_fixtures import Service, fine, items, names, until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "COUNT_EVERY", 0.05)


def test_open_lists_go_down_to_none_and_rankers_that_are_deleted_are_not_told_of(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db", refresh_seconds=0.1) as service:
        service.ready().put("shop", features=names(3), exposure="full")
        service.put("other", learner="base")
        answers = [service.rank("shop", items(4)) for _ in range(7)]
        service.rank("other", items(4))

        def opened(name: str) -> float:
            return service.metric("rankloop_open_impressions", ranker=name)

        until(lambda: (opened("shop"), opened("other")) == (7, 1), "the lists to be counted")
        for answer in answers:
            service.report(answer, ["i1"])
        until(lambda: opened("shop") == 0, "none to be open")
        text = service.http.get("/metrics").text
        assert re.search(r'^rankloop_open_impressions\{.*ranker="shop"\} 0$', text, re.MULTILINE)
        assert service.http.delete("/v1/rankers/other").status_code == 204
        until(lambda: 'ranker="other"' not in service.http.get("/metrics").text, "the deleted one to go")
        assert service.metric("rankloop_rank_requests_total", ranker="shop") == 7
        list(text_string_to_metric_families(text))  # Prometheus' own client can read all of it


def test_only_who_learns_a_ranker_tells_how_far_it_is_behind(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with Service(store, refresh_seconds=0.1) as one:
        one.ready().put("shop", learner="base")
        one.report(one.rank("shop", items(3)), ["i1"])
        one.settle("shop")
        until(lambda: "rankloop_learner_lag{" in one.http.get("/metrics").text, "the lag to be told")
        one.engine.writer.do(lambda c: c.run("UPDATE leases SET holder = 'another' WHERE ranker = 'shop'"))
        one.engine.cycle()
        assert one.engine.learning is not None
        assert "shop" not in one.engine.learning.folds
        assert "rankloop_learner_lag{" not in one.http.get("/metrics").text
        assert one.metric("rankloop_lease_held", ranker="shop") == 0


def test_the_store_and_the_process_are_told_of(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready()
        files = sum(path.stat().st_size for path in tmp_path.glob("a.db*"))
        until(lambda: service.metric("rankloop_store_bytes") > 0, "the store to be measured")
        told = fine(service.http.get("/v1/service"))
        assert (told["store"], told["processes"], told["webhook"]) == ("sqlite", 1, False)
        assert told["store_bytes"] == pytest.approx(files, rel=0.9)
        assert told["free_disk_bytes"] > 0
        assert service.metric("rankloop_store_free_disk_bytes") > 0
        assert service.metric("process_open_fds") > 3


def test_the_size_of_either_store(store_url: str) -> None:
    database = open_database(store_url)
    schema.migrate(database)
    found = database.size()
    database.close()
    assert found.used > 50_000
    assert (found.free is None) == store_url.startswith("postgresql")


def test_heartbeats_are_small_however_much_is_counted(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        for i in range(2000):
            service.engine.metrics.count("http_requests_total", route=f"/{i}", status=200)
        service.engine.cycle()
        found = service.engine.database.read(lambda c: c.rows("SELECT * FROM workers"))
        service.engine.database.close_thread()
        assert sum(len(str(row)) for row in found) < 200
        assert service.metric("rankloop_http_requests_total", route="/7") == 1


def test_an_engine_that_has_not_begun_says_what_it_can() -> None:
    engine = Engine(Settings(store="nowhere/at/all.db"))
    assert b"process_open_fds" in engine.report()
