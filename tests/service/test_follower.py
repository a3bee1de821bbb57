"""What one machine learns or changes reaches the others by a notification, however many rankers there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import psycopg
import pytest

from rankloop.service.control import rankers, versions
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import rankers as stored_rankers
from rankloop.service.storage import snapshots
from rankloop.service.storage.postgres import PostgresConnection
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import model_of
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE, SPEC, wait_for
from tests.service.test_lease import use
from tests.service.test_notifications import listeners
from tests.service.truths import check_state

Machines = Callable[..., Engine]


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database()


@pytest.fixture
def machines(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Engines that believe to be machines, and do not look at everything by themselves."""
    monkeypatch.setattr("rankloop.service.serving.follower.NET", 3600.0)
    interval, started = sys.getswitchinterval(), []

    def start(name: str, learn: bool = True) -> Engine:
        settings = Settings(store=url, learn=learn, refresh_seconds=0.2, store_timeout_ms=PATIENCE * 1e3)
        engine = Engine(settings)
        engine.machine, engine.worker = name, f"{name}:1:test"
        engine.start()
        started.append(engine)
        assert engine.kernels_ready.wait(PATIENCE)
        wait_for(lambda: engine.is_notified, "it to listen")
        return engine

    yield start
    for engine in started:
        engine.stop()
    sys.setswitchinterval(interval)


def learned(engine: Engine, name: str = "shop") -> int:
    return model_of(engine.rankers[name]).learned


def seen(one: Engine, other: Engine) -> None:
    """Wait until the one that learns knows that another machine ranks."""
    assert one.learning is not None
    wait_for(lambda: one.learning.snapshots.peers, f"{one.worker} to see {other.worker}")  # type: ignore[union-attr]


def test_published_models_reach_another_machine(url: str, machines: Machines) -> None:
    one = machines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = machines("there/2", learn=False)
    seen(one, two)
    use(one, 10)
    wait_for(lambda: learned(two) == 10, "what was learned there")
    use(two, 10)  # learned elsewhere, and by a notification at once
    wait_for(lambda: learned(two) == 20, "what was learned from its own lists")
    wait_for(lambda: learned(one) == 20, "the learning process to publish it to its own ranker")
    assert model_of(two.rankers["shop"]).state() == model_of(one.rankers["shop"]).state()
    assert check_state(url, "shop") == 20


def test_changes_reach_another_machine(machines: Machines) -> None:
    one = machines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = machines("there/2")
    use(one, 3)

    def row() -> stored_rankers.Ranker:
        return two.rankers["shop"].row

    rankers.set_learning(one, "shop", False)
    wait_for(lambda: not row().learning, "the pause")
    rankers.set_learning(one, "shop", True)
    versions.promote(one, "shop", None, "")
    wait_for(lambda: row().serving == 1 and two.rankers["shop"].pinned is not None, "the promoted version")
    rankers.put(one, "shop", Spec(**{**SPEC, "k": 5}))
    wait_for(lambda: row().spec.k == 5, "the new spec")
    generation = row().generation
    versions.rollback(one, "shop", 1, "")
    wait_for(lambda: row().generation == generation + 1, "the rollback")
    rankers.put(one, "second", Spec(**SPEC))
    wait_for(lambda: "second" in two.rankers, "the new one")
    rankers.delete(two, "second")
    wait_for(lambda: "second" not in one.rankers, "it to be gone")


def test_lost_notifications_are_recovered(url: str, machines: Machines) -> None:
    one = machines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = machines("there/2", learn=False)
    seen(one, two)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        for _ in range(3):
            use(one, 5)
            for process in listeners(url):
                connection.execute("SELECT pg_terminate_backend(%s)", (process,))
    wait_for(lambda: learned(two) == 15, "all that was learned")


def test_idle_rankers_cost_no_reads(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machines("here/1", learn=False)
    for i in range(3):
        rankers.put(one, f"r{i}", Spec(**SPEC))
    one.follower.stop()
    asked: list[str] = []
    rows = PostgresConnection.rows

    def noted(self: Any, sql: str, *parameters: Any) -> Any:
        asked.append(sql)
        return rows(self, sql, *parameters)

    monkeypatch.setattr(PostgresConnection, "rows", noted)
    one.follower.refresh(whole=False)
    assert asked
    assert not [sql for sql in asked if "rankers" in sql.partition("FROM ")[2] or "snapshots" in sql]
    asked.clear()
    one.follower.refresh()  # the net
    assert [sql for sql in asked if "snapshots" in sql]


def test_a_large_state_is_followed_by_deltas(url: str, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader loads no second snapshot in this test, and yet ranks as the one that learns."""
    monkeypatch.setattr("rankloop.service.storage.snapshots.LARGE", 100)
    monkeypatch.setattr("rankloop.service.serving.live_rankers.LARGE", 100)
    monkeypatch.setattr("rankloop.service.serving.live_rankers.SHARE", 1e9)
    one = machines("here/1")
    rankers.put(one, "shop", Spec(**{**SPEC, "learner": "hybrid", "parameters": {"max_queries": 12}}))
    two = machines("there/2", learn=False)
    seen(one, two)
    use(one, 5)
    wait_for(lambda: learned(two) == 5, "the first snapshot")
    assert one.learning is not None
    fold = one.learning.folds["shop"]
    wait_for(lambda: fold.snapshot_seq == 5 and not fold.saving, "it to be saved")
    fold.snapshot_cost = 1e9  # no second one by itself
    for count in (6, 15, 40):
        use(one, count - learned(one))
        wait_for(lambda: learned(one) == learned(two) == count, f"{count} outcomes by parts")  # noqa: B023
        ours, theirs = (model_of(engine.rankers["shop"]).learner for engine in (one, two))
        ours_part, theirs_part = ours.state_delta(12), theirs.state_delta(12)  # type: ignore[attr-defined]
        assert ours_part.keys() == theirs_part.keys()
        for name, array in ours_part.items():
            np.testing.assert_array_equal(array, theirs_part[name])

    def kept() -> list[int]:
        return [part.seq for part in one.database.read(lambda c: snapshots.deltas_from(c, "shop", fold.generation, 0))]

    assert fold.snapshot_seq == 5
    assert kept()[-1] == 40
    one.learning.save(fold)
    assert check_state(url, "shop") == 40
    use(one, 1)
    wait_for(lambda: fold.learned == 41, "one more")
    one.learning.save(fold)
    wait_for(lambda: set(kept()) <= {41}, "parts that two snapshots have to be dropped")


def test_large_states_are_loaded_less_often(machines: Machines) -> None:
    one = machines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = machines("there/2", learn=False)
    seen(one, two)
    use(one, 2)
    wait_for(lambda: learned(two) == 2, "what was learned there")
    live = two.rankers["shop"]
    live.retry_at = float("inf")  # it took for ever
    use(one, 2)
    wait_for(lambda: live.deferred, "it to be put off")
    assert learned(two) == 2
    assert two.rankers.deferred() == []
    live.retry_at = 0.0
    wait_for(lambda: learned(two) == 4, "it to be loaded after all")
    assert not live.deferred
