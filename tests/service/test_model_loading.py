"""Loading and publishing models: what cannot be loaded is visible, and what is slow concerns its own ranker only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rankloop.service.doctor import service as checks
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking import model as models
from rankloop.service.settings import Settings
from rankloop.service.storage import postgres as postgres_store
from rankloop.service.storage import snapshots
from rankloop.service.storage.postgres import PostgresConnection
from rankloop.service.training.fold import Publication
from tests.service import misbehaving
from tests.service.app_fixtures import Service, fine, items, model_of, names, shown, teach, until
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE
from tests.service.stores import Store

SPEC: dict[str, Any] = {"learner": "greedy", "features": names(3), "exposure": "full"}
REASONS = ["damaged", "load-error"]


class Held:
    """Holds up the first loads of some states in the thread that loads them, until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, concerns: Callable[[str], bool], times: int = 1) -> None:
        self.held, self.go, self.left = threading.Event(), threading.Event(), times
        real = models.load_model

        def load(*arguments: Any) -> Any:
            loading = threading.current_thread().name.startswith("rankloop-load")
            if loading and self.left and concerns(arguments[4]):
                self.left -= 1
                self.held.set()
                assert self.go.wait(PATIENCE)
            return real(*arguments)

        monkeypatch.setattr(models, "load_model", load)


# -- a state that cannot be loaded ---------------------------------------------------------------------------------


def damage(store: Path) -> None:
    """Keep and promote a version of a ranker, then change a bit of it in the store."""
    with Service(store) as service:
        service.ready().put("shop", **SPEC)
        service.put("other", **SPEC)
        teach(service, "shop", 3)
        service.act("shop", "promote")
        teach(service, "shop", 3)
        assert service.rank("shop", items(4))["version"] == "v1"

        def flip(connection: Any) -> None:
            ((state,),) = connection.rows("SELECT state FROM versions WHERE ranker = 'shop' AND version = 1")
            state = bytes(state)
            connection.run("UPDATE versions SET state = ? WHERE version = 1", state[:-1] + bytes([state[-1] ^ 1]))

        service.engine.writer.do(flip)


def test_a_damaged_promoted_version_gives_the_baseline_ranking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.db"
    damage(store)
    with caplog.at_level(logging.ERROR, "rankloop"), Service(store) as service:
        service.ready()
        answer = service.rank("shop", items(4))
        assert (answer["version"], answer["fallback"], answer["reason"]) == ("v1", True, "damaged")
        assert shown(answer) == ["i0", "i1", "i2", "i3"]
        assert "v1" in service.status("shop")["trouble"]
        assert service.status("other")["trouble"] is None
        assert service.metric("rankloop_model_load_errors_total", ranker="shop") >= 1
        assert service.metric("rankloop_model_load_errors_total", ranker="other") == 0
        assert any("shop" in record.getMessage() and "v1" in record.getMessage() for record in caplog.records)
        ready = fine(service.http.get("/readyz"))
        assert ready["status"] == "degraded"
        assert [(one["code"], one["rankers"]) for one in ready["reasons"]] == [(code, ["shop"]) for code in REASONS]
        findings = [one for one in checks.store(Settings(store=str(store))) if one.state == "error"]
        assert [one.name for one in findings] == ["rankers"]

        teach(service, "shop", 1)  # publications of the live model do not hide it
        assert service.rank("shop", items(4))["reason"] == "damaged"
        service.act("shop", "promote", version="live")
        answer = service.rank("shop", items(4))
        assert (answer["version"], answer["fallback"]) == (
            f"live@{service.status('shop')['learned_impressions']}",
            False,
        )
        assert service.status("shop")["trouble"] is None


def test_a_load_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.serving.live_rankers.FIRST_RETRY", 0.01)
    store, real, left = tmp_path / "store.db", models.load_model, [3]
    with Service(store) as service:
        service.ready().put("shop", **SPEC)
        teach(service, "shop", 2)

    def load(*arguments: Any) -> Any:
        if left[0] and "snapshot" in arguments[4]:
            left[0] -= 1
            raise SystemExit("as the test wants it")
        return real(*arguments)

    monkeypatch.setattr(models, "load_model", load)
    with Service(store, learn=False, refresh_seconds=0.05) as service:
        service.ready()
        until(lambda: not service.rank("shop", items(3))["fallback"], "the model")
        assert service.rank("shop", items(3))["version"] == "live@2"
        assert service.status("shop")["trouble"] is None
        assert left == [0]


# -- a state that is slow to load ----------------------------------------------------------------------------------


def test_a_slow_load_affects_only_its_ranker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.serving.live_rankers.LOAD_SECONDS", 0.05)
    store = tmp_path / "store.db"
    settings: dict[str, Any] = {"refresh_seconds": 0.1, "snapshot_seconds": 0.1}
    with Service(store, **settings) as learns, Service(store, learn=False, **settings) as follows:
        for name in ("shop", "other"):
            learns.ready().put(name, **SPEC)
        follows.ready()
        until(lambda: {"shop", "other"} <= set(follows.engine.rankers), "the rankers")
        held = Held(monkeypatch, lambda what: what.startswith("ranker 'shop', snapshot"))
        teach(learns, "shop", 3)
        assert held.held.wait(PATIENCE)
        for rounds in (3, 6):
            teach(learns, "other", 3)
            teach(learns, "shop", 3)
            until(lambda n=rounds: model_of(follows.engine.rankers["other"]).learned == n, "the other")  # type: ignore[misc]
        loading = [one for one in threading.enumerate() if one.name == "rankloop-load-shop"]
        assert len(loading) == 1
        answer = follows.rank("shop", items(4))
        assert (answer["version"], answer["fallback"]) == ("live@0", False)  # the last good model
        held.go.set()
        until(lambda: model_of(follows.engine.rankers["shop"]).learned == 9, "what was learned meanwhile")


def test_a_slow_load_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.serving.live_rankers.LOAD_SECONDS", 0.05)
    monkeypatch.setattr("rankloop.service.serving.live_ranker.LOAD_SECONDS", 0.05)
    settings: dict[str, Any] = {"refresh_seconds": 0.1, "snapshot_seconds": 0.1}
    store = tmp_path / "store.db"
    with Service(store, **settings) as learns, Service(store, learn=False, **settings) as follows:
        for name in ("shop", "other"):
            learns.ready().put(name, **SPEC)
        follows.ready()
        until(lambda: {"shop", "other"} <= set(follows.engine.rankers), "the rankers")
        held = Held(monkeypatch, lambda what: what.startswith("ranker 'shop', snapshot"))
        teach(learns, "shop", 3)
        until(lambda: follows.status("shop")["model_age_seconds"] > 0, "the age of the model")
        assert follows.metric("rankloop_model_age_seconds", ranker="shop") > 0
        until(lambda: follows.status("shop")["trouble"] is not None, "the status to report it")
        codes = {one["code"]: one["rankers"] for one in fine(follows.http.get("/readyz"))["reasons"]}
        assert codes["loading"] == ["shop"]
        assert follows.status("other")["trouble"] is None
        held.go.set()
        until(lambda: follows.status("shop")["trouble"] is None, "the end of the trouble")
        until(lambda: follows.status("shop")["model_age_seconds"] == 0, "a model that is up to date")
        until(lambda: fine(follows.http.get("/readyz"))["status"] == "ready", "it to be ready")


def test_previous_model_serves_while_a_version_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(tmp_path / "store.db") as service:
        service.ready().put("shop", **SPEC)
        teach(service, "shop", 3)
        service.act("shop", "versions")
        held = Held(monkeypatch, lambda what: what == "ranker 'shop', v1")
        call = threading.Thread(target=lambda: service.act("shop", "promote", version=1))
        call.start()
        assert held.held.wait(PATIENCE)
        answer = service.rank("shop", items(4))
        assert (answer["version"], answer["fallback"]) == ("live@3", False)
        held.go.set()
        call.join(PATIENCE)
        until(lambda: service.rank("shop", items(4))["version"] == "v1", "the version")


# -- a state that cannot be read -----------------------------------------------------------------------------------


def test_an_unreadable_state_does_not_stop_other_rankers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real, readable = tmp_path / "store.db", snapshots.snapshot, threading.Event()
    with Service(store) as service:
        for name in ("large", "small"):
            service.ready().put(name, **SPEC)
            teach(service, name, 2)

    def snapshot(connection: Any, name: str) -> Any:
        if name == "large" and not readable.is_set():
            raise StoreUnavailable("it takes too long")
        return real(connection, name)

    monkeypatch.setattr(snapshots, "snapshot", snapshot)
    with Service(store, refresh_seconds=0.1) as service:
        service.ready()
        teach(service, "small", 2)
        assert service.rank("small", items(3))["version"] == "live@4"
        answer = service.rank("large", items(3))
        assert (answer["fallback"], answer["reason"]) == (True, "damaged")
        assert "it takes too long" in service.status("large")["trouble"]
        readable.set()
        until(lambda: not service.rank("large", items(3))["fallback"], "the large one")
        until(lambda: service.status("large")["trouble"] is None)
        teach(service, "large", 1)


@pytest.fixture
def slow_store(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A PostgreSQL that seems to take 0.4 seconds for each part of a state that it sends; nobody waits for it."""
    now = [0.0]
    monkeypatch.setattr(postgres_store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    store = Store(postgres.database(), time_limits=True)
    real = PostgresConnection.rows

    def rows(self: Any, sql: str, *parameters: Any) -> Any:
        found = real(self, sql, *parameters)
        if "SELECT state FROM snapshot_chunks" in sql:
            now[0] += 0.4 * len(found)
            store.database.maintain()  # cuts what takes longer than a reader may
        return found

    monkeypatch.setattr(PostgresConnection, "rows", rows)
    yield store
    store.close()


def test_large_states_are_read_without_a_total_timeout(slow_store: Store) -> None:
    """100 parts take 40 seconds, four times as long as a statement may."""
    slow_store.ranker()
    row, parts = slow_store.row(), 100
    for number in range(parts):
        slow_store.do(snapshots.save_chunk, "shop", row.generation, 7, number, bytes([number]) * 10)
    assert slow_store.do(snapshots.save_snapshot, "shop", row.generation, 7, b"", slow_store.now, parts)
    found = slow_store.see(snapshots.snapshot, "shop")
    assert found is not None
    assert (found.seq, found.state) == (7, b"".join(bytes([number]) * 10 for number in range(parts)))


# -- publications --------------------------------------------------------------------------------------------------


@contextmanager
def at_line(number: int, act: Callable[[], None]) -> Iterator[list[bool]]:
    """Calls `act` in a thread of its own when a thread that loads is at its line `number`, counted from its start in
    the source of the service; whether that happened."""
    lines, acted = [0], [False]

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        if (
            not threading.current_thread().name.startswith("rankloop-load")
            or "rankloop/service" not in frame.f_code.co_filename
        ):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                acted[0] = True
                other = threading.Thread(target=act, name="acting")
                other.start()
                other.join(0.05)  # if it waits for a lock that the thread holds, it acts when that is free
        return follow

    threading.settrace(follow)
    try:
        yield acted
    finally:
        threading.settrace(None)


def test_no_publication_is_left_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second publication comes at each line that the thread which puts in the first one passes."""
    misbehaving.install(monkeypatch)
    with Service(tmp_path / "store.db", learn=False) as service:
        service.ready().put("shop", learner="reverse", exposure="full")  # not of ours, so a thread puts it in
        rankers, live = service.engine.rankers, service.engine.rankers["shop"]
        service.engine.follower.stop()

        def publish(learned: int) -> None:
            arrays = {"learned_": np.array([float(learned)])}
            assert rankers.take(Publication("shop", live.row.generation, learned, None, arrays))

        acted, number = [True], 0
        while acted[0]:
            number += 1
            first, second = 2 * number, 2 * number + 1
            with at_line(number, lambda n=second: publish(n)) as acted:  # type: ignore[misc]
                publish(first)
                until(lambda n=first: model_of(live).learned >= n, "the first")  # type: ignore[misc]
                ends = [one for one in threading.enumerate() if one.name in ("rankloop-load-shop", "acting")]
                for thread in ends:
                    thread.join(PATIENCE)
            if acted[0]:
                until(lambda n=second: model_of(live).learned == n, "the second")  # type: ignore[misc]
        assert number > 10
