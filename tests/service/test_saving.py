"""Saving keeps nobody waiting: bounded bytes a transaction, a copy that only its own ranker waits for, and a store that
refuses what comes from a process that should know better."""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.storage import leases, outcomes, quarantine, snapshots
from rankloop.service.storage.sqlite import SQLiteConnection
from rankloop.service.training.fold import Fold
from rankloop.service.training.snapshots import SnapshotWriter
from tests.service.app_fixtures import Service, items, names, teach, until
from tests.service.conftest import Postgres
from tests.service.running import Load, wait_for
from tests.service.running import Service as Running
from tests.service.stores import Store, shop, store
from tests.service.test_lease import holders, learned, services
from tests.service.truths import check_log, check_state, read
from tests.waiting import PATIENCE

__all__ = ["shop", "store"]

LARGE, PART = 4096, 1024
SAVED = ("snapshots", "snapshot_chunks", "state_deltas", "versions")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr("rankloop.service.storage.snapshots.LARGE", LARGE)
    monkeypatch.setattr("rankloop.service.training.snapshots.PART", PART)
    monkeypatch.setattr("rankloop.service.training.snapshots.TRIES", 100)  # the disk of a busy machine may stall


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """Bytes of snapshots and versions that each transaction writes into SQLite, by thread. (The minute's series of the
    page, which housekeeping writes when a minute ends, are not what saving writes.)"""
    found: dict[int, list[int]] = defaultdict(list)
    transaction = SQLiteConnection.transaction

    @contextmanager
    def counted(self: Any, durable: bool = True, wait: bool = True) -> Iterator[None]:
        found[threading.get_ident()].append(0)
        with transaction(self, durable, wait):
            yield

    def counting(name: str) -> Any:
        real = getattr(SQLiteConnection, name)

        def counts(self: Any, sql: str, *parameters: Any) -> Any:
            if not sql.startswith("SELECT") and any(table in sql for table in SAVED):
                size = sum(len(one) for one in parameters if isinstance(one, bytes))
                found[threading.get_ident()][-1] += size
            return real(self, sql, *parameters)

        return counts

    monkeypatch.setattr(SQLiteConnection, "transaction", counted)
    for name in ("run", "rows"):
        monkeypatch.setattr(SQLiteConnection, name, counting(name))
    return found


def fold_of(service: Service, name: str = "shop") -> Fold:
    assert service.engine.learning is not None
    return service.engine.learning.folds[name]


@pytest.mark.usefixtures("small_parts")
def test_no_transaction_writes_more_than_a_part(tmp_path: Path, written: dict[int, list[int]]) -> None:
    """A snapshot, and a version of it, of 60 times the size of a part: nobody waits for more than one part."""
    with Service(tmp_path / "a.db", version_seconds=0.0, snapshot_seconds=3600) as one:
        one.ready().put("shop", learner="pairrank", features=names(90), exposure="full")
        teach(one, "shop", 5, width=90)
        written.clear()
        assert one.engine.learning is not None
        one.engine.learning.save(fold_of(one))
        state = one.state("shop")
        assert len(state) > 60 * PART
        sizes = [size for some in written.values() for size in some]
        assert sum(size == PART for size in sizes) >= 60
        assert max(sizes) == PART
        # The version is the same bytes, kept by its number of parts: they stay when the snapshot moves on.
        version = one.versions("shop")[0]
        for _ in range(2):
            teach(one, "shop", 3, width=90)
            one.engine.learning.save(fold_of(one))
        kept = one.engine.database.read(lambda c: snapshots.version_state(c, "shop", version["version"]))
        assert kept == (5, state)
        seqs = read(str(tmp_path / "a.db"), "SELECT DISTINCT seq FROM snapshot_chunks ORDER BY seq")
        assert (5,) in seqs
        assert one.act("shop", "rollback", version=version["version"])["origin"]["how"] == "rollback"
        until(lambda: one.snapshot("shop") == state, "the version to be what is learned")


@pytest.mark.usefixtures("small_parts")
def test_no_version_is_kept_of_parts_that_another_has_dropped(tmp_path: Path) -> None:
    """A process that was stopped between the two, for longer than its lease: another has saved since."""
    with Service(tmp_path / "a.db", version_seconds=0.0, snapshot_seconds=3600) as one:
        one.ready().put("shop", learner="pairrank", features=names(90), exposure="full")
        teach(one, "shop", 5, width=90)
        assert one.engine.learning is not None
        one.engine.learning.save(fold_of(one))
        kept = len(one.versions("shop"))
        one.engine.writer.do(lambda c: c.run("UPDATE snapshots SET seq = seq + 1"))
        fold, saving = fold_of(one), one.engine.learning.snapshots
        fold.version_seq = 0
        saving._version(fold, 5)
        assert len(one.versions("shop")) == kept


def test_other_rankers_learn_while_one_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copying, go_on = threading.Event(), threading.Event()
    copy = Fold.copy

    def slow(self: Fold) -> Any:
        if self.row.name == "large":
            copying.set()
            assert go_on.wait(PATIENCE)
        return copy(self)

    with Service(tmp_path / "a.db", snapshot_seconds=3600) as one:
        one.ready()
        for name in ("large", "other"):
            one.put(name, features=names(3), exposure="full")
        teach(one, "large", 3)
        one.settle("large")
        assert one.engine.learning is not None
        one.engine.learning.save(fold_of(one, "large"))
        one.report(one.rank("large", items(3)), ["i1"])
        until(lambda: fold_of(one, "large").learned == 4, "something that is not saved yet")
        monkeypatch.setattr(Fold, "copy", slow)
        one.engine.learning.snapshots.order(fold_of(one, "large"))
        assert copying.wait(PATIENCE)
        try:
            one.report(one.rank("large", items(3)), ["i1"])
            teach(one, "other", 5)
            assert one.settle("other") == 5
            assert fold_of(one, "large").learned == 4  # it, and none other, stands still
        finally:
            go_on.set()
        one.settle("large")


@pytest.mark.usefixtures("small_parts")
def test_small_ones_are_saved_between_the_parts_of_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(tmp_path / "a.db", snapshot_seconds=3600) as one:
        one.ready()
        for name, width in (("large", 60), ("small", 3)):
            one.put(name, learner="pairrank", features=names(width), exposure="full")
            teach(one, name, 1, width=width)
        learning = one.engine.learning
        assert learning is not None
        for name, width in (("large", 60), ("small", 3)):
            learning.save(fold_of(one, name))  # what is learned first is saved at once, by the service's own thread
            teach(one, name, 2, width=width)
        saved: list[str] = []
        done = SnapshotWriter._done

        def noted(self: SnapshotWriter, order: Any, *rest: Any) -> None:
            saved.append(order.fold.row.name)
            done(self, order, *rest)

        monkeypatch.setattr(SnapshotWriter, "_done", noted)
        aside = SnapshotWriter(one.engine, learning.hang_detector, lambda: None)
        aside.order(fold_of(one, "large"), asked=True)
        aside.order(fold_of(one, "small"))
        aside._stopping.set()
        aside._work()
        assert saved == ["small", "large"]
        assert one.status("large")["snapshot_impressions"] == one.status("small")["snapshot_impressions"] == 3


# -- whoever lost the lease ----------------------------------------------------------------------------------------


def test_who_has_lost_the_lease_saves_nothing(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db", version_seconds=0.0, snapshot_seconds=3600) as one:
        one.ready().put("shop", features=names(3), exposure="full")
        teach(one, "shop", 3)
        one.settle("shop")
        learning, engine = one.engine.learning, one.engine
        assert learning is not None
        learning._lease_thread.stop()
        learning._heartbeats.stop()  # it stands still, and then goes on as if nothing had been
        engine.writer.do(lambda c: c.run("UPDATE leases SET holder = 'another', heartbeat = heartbeat + 1"))

        def stored() -> tuple[object, object]:
            return engine.database.read(
                lambda c: (snapshots.snapshot_position(c, "shop"), snapshots.versions(c, "shop"))
            )

        fold, before = fold_of(one), stored()
        one.report(one.rank("shop", items(3)), ["i1"])
        one.settle("shop")
        assert fold.snapshot_seq < fold.learned
        learning.save(fold)
        assert stored() == before
        assert not fold.held  # it has noticed
        learning.keep_leases()
        assert learning.folds == {}


def test_a_fold_of_before_is_loaded_anew_when_the_lease_comes_back(tmp_path: Path) -> None:
    """Another process has learned further meanwhile, and what it learned from is deleted: the log has a gap."""
    with Service(tmp_path / "a.db", snapshot_seconds=3600) as one:
        one.ready().put("shop", features=names(3), exposure="full")
        teach(one, "shop", 3)
        one.settle("shop")
        learning, engine = one.engine.learning, one.engine
        assert learning is not None
        learning._lease_thread.stop()
        old = fold_of(one)
        state = old.state()[1]
        with old.in_use:  # nothing is learned meanwhile
            for _ in range(4):
                one.report(one.rank("shop", items(3)), ["i1"])
            engine.writer.do(lambda c: snapshots.save_snapshot(c, "shop", old.generation, 7, state, 0.0))
            engine.writer.do(lambda c: c.run("DELETE FROM outcomes WHERE ranker = 'shop' AND seq < 7"))
        for _ in range(2):
            one.report(one.rank("shop", items(3)), ["i1"])
        until(lambda: not old.held, "the gap to be noticed")
        assert old.learned == 3
        learning.keep_leases()
        assert fold_of(one) is not old
        until(lambda: fold_of(one).learned == 9, "learning to go on from the snapshot")


def test_an_outcome_that_another_has_learned_is_not_taken_for_one_that_hung(shop: Store) -> None:
    """A process that stood still in the middle of `learn` believes that the learner hung."""
    row = shop.row()
    for number in range(3):
        shop.show(f"l{number}")
    shop.now += 20.0
    shop.close_windows()

    def hung(seq: int, holder: str) -> bool:
        shop.do(quarantine.add_failure, row, "learn", seq, "hung", shop.now, 3, holder)
        return not shop.outcomes()[seq].learn

    assert shop.do(leases.take_lease, "shop", "next", None)
    assert shop.do(snapshots.save_snapshot, "shop", row.generation, 2, b"two", shop.now)
    assert not hung(1, "stood still")  # the one who took over has learned and saved it
    assert shop.see(quarantine.failure_texts) == {}
    assert shop.see(leases.list_leases) == {"shop": ("next", 0)}
    assert hung(2, "stood still")  # it may have been learned, too, but nothing that counts has it
    assert shop.see(leases.list_leases) == {}
    assert not shop.do(snapshots.save_snapshot, "shop", row.generation, 3, b"three", shop.now, 0, "next")
    assert shop.do(leases.take_lease, "shop", "next", None)
    assert shop.do(snapshots.save_snapshot, "shop", row.generation, 3, b"three", shop.now, 0, "next")
    assert shop.see(outcomes.log_offsets) == {"shop": 3}


@pytest.mark.slow
def test_a_paused_process_wakes_up_and_harms_nothing(postgres: Postgres, start_service: Callable[..., Running]) -> None:
    url = postgres.database()
    shared = {"store": url, "lease_seconds": 5, "refresh_seconds": 0.3, "watchdog_seconds": 0}
    first = start_service(**shared)
    first.put_ranker("shop")
    wait_for(lambda: holders(url), "it to be learned")
    second = start_service(**shared)
    load = Load("load", second.port, "shop", pause=0.01)
    load.start()
    wait_for(lambda: any(learned(version) > 10 for version in load.versions), "something to be learned")
    paused = holders(url)["shop"]
    assert services(url)["shop"] == first.pid
    os.kill(paused, signal.SIGSTOP)
    try:
        wait_for(lambda: services(url)["shop"] == second.pid, "the other to take over")
        reached = learned(load.versions[-1])
        wait_for(lambda: learned(load.versions[-1]) > reached + 20, "learning to go on")
    finally:
        os.kill(paused, signal.SIGCONT)
    reached = learned(load.versions[-1])
    wait_for(lambda: learned(load.versions[-1]) > reached + 20, "learning to go on still")
    load.end()
    assert services(url)["shop"] == second.pid
    made = [learned(version) for version in load.versions]
    assert made == sorted(made)
    wait_for(
        lambda: second.status("shop")["unlearned_impressions"] == second.status("shop")["open_impressions"] == 0,
        "all to be learned",
    )
    assert first.stop() == 0
    assert second.stop() == 0
    assert check_state(url, "shop") == check_log(url, "shop", [load])
