"""What an operator does with a ranker that knows much: each is a row that is written, and every bit is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.storage import leases, rankers, snapshots
from rankloop.service.storage.lineage import Cause
from rankloop.service.storage.postgres import PostgresConnection
from rankloop.service.storage.sqlite import SQLiteConnection
from tests.service.app_fixtures import Service, fine, items, names, refused, teach, until
from tests.service.stores import Store, shop, store
from tests.service.truths import read

__all__ = ["shop", "store"]  # fixtures

WIDTH = 30
LARGE, PART = 4096, 1024


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr("rankloop.service.storage.snapshots.LARGE", LARGE)
    monkeypatch.setattr("rankloop.service.training.snapshots.PART", PART)
    monkeypatch.setattr("rankloop.service.training.snapshots.TRIES", 100)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that statements take to the tables of states."""
    found: list[int] = []

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counts(self: Any, sql: str, *parameters: Any) -> Any:
            if any(table in sql for table in ("snapshot", "versions", "origins")):
                found.extend(len(one) for one in parameters if isinstance(one, bytes))
            return real(self, sql, *parameters)

        return counts

    for kind in (SQLiteConnection, PostgresConnection):
        for name in ("run", "rows"):
            monkeypatch.setattr(kind, name, counting(getattr(kind, name)))
    return found


class Life:
    """A service, and what its ranker knew when each version was kept."""

    def __init__(self, service: Service) -> None:
        self.service, self.states, self._seed = service, dict[int, bytes](), 0
        service.ready().put("shop", learner="pairrank", features=names(WIDTH), exposure="full")

    def learn(self) -> None:
        self._seed += 10
        teach(self.service, "shop", 4, width=WIDTH, seed=self._seed)
        self.service.settle("shop")

    def keep(self) -> int:
        version: int = fine(self.service.http.post("/v1/rankers/shop/versions"))["version"]
        self.states[version] = self.service.state("shop")
        return version

    def act(self, action: str, **body: Any) -> None:
        """Something that keeps what was as a version of its own."""
        self.states[len(self.service.versions("shop")) + 1] = self.service.state("shop")
        self.service.act("shop", action, **body)

    def knows(self, version: int) -> None:
        """Learning goes on from what a version has."""
        until(lambda: self.service.state("shop") == self.states[version], f"v{version} to be what is learned")
        assert self.service.snapshot("shop") == self.states[version]


def test_an_operators_day_is_some_rows(store_url: str, written: list[int], tmp_path: Path) -> None:
    path: Any = store_url
    with Service(path, snapshot_seconds=0.2, refresh_seconds=0.2) as service:
        life = Life(service)
        life.learn()
        written.clear()
        first = life.keep()
        life.learn()
        life.act("promote")  # what is learned now
        until(lambda: service.status("shop")["serving"] == "v2", "v2 to be served")
        life.learn()
        life.act("rollback", version=first)
        life.knows(first)
        again = life.keep()  # of a state that lies nowhere but in another version
        assert life.states[again] == life.states[first]
        life.learn()
        second = life.keep()
        life.act("rollback", version=again)  # a chain of two
        life.knows(first)
        life.act("reset")
        life.learn()
        life.act("rollback", version=second)
        life.knows(second)
        life.learn()
        last = life.keep()
        assert max(written) < LARGE < len(life.states[first])
        kept = {one["version"] for one in service.versions("shop")}
        assert kept == set(life.states) == set(range(1, last + 1))
        for version, state in life.states.items():
            found = service.engine.database.read(lambda c, v=version: snapshots.version_state(c, "shop", v))  # type: ignore[misc]
            assert found is not None
            assert found[1] == state, version
    with open_store(store_url) as opened:
        export_log(opened, tmp_path / "log", ["shop"])
        for source in (opened, tmp_path / "log"):
            for version in sorted(life.states):
                assert rebuild(source, "shop", version=version).equal, (source, version)
            assert rebuild(source, "shop").equal
    with Service(path) as service:  # a process that starts finds the same
        service.ready()
        assert service.snapshot("shop") == life.states[last]
        service.act("shop", "rollback", version=again)
        until(lambda: service.state("shop") == life.states[first], "the chain to be followed after a start")


def test_what_a_generation_has_for_its_own_is_not_dropped(shop: Store) -> None:
    row = shop.row()
    for seq, state in enumerate((b"one", b"two", b"three"), 1):
        assert shop.do(snapshots.save_snapshot, "shop", row.generation, seq, state, shop.now)
        shop.do(snapshots.keep_version, "shop", "by the clock", shop.now, automatic=True)
    shop.do(snapshots.replace_state, "shop", b"", shop.now, reset=False, cause=Cause("rollback", 1))
    assert shop.do(snapshots.delete_old_versions, "shop", 1) == 1
    assert [one.version for one in shop.see(snapshots.versions, "shop")] == [3, 1]
    found = shop.see(snapshots.snapshot, "shop")
    assert found is not None
    assert found.state == b"one"
    origin = [one for one in shop.see(snapshots.stored_states, "shop") if one.kind == "origin"][-1]
    assert shop.see(snapshots.load_state, "shop", origin) == b"one"


def test_where_another_was_killed_in_the_middle_nothing_is_mixed(shop: Store) -> None:
    """Perhaps of a release that cut states otherwise: its parts go before ours come."""
    generation = shop.row().generation
    assert shop.do(leases.take_lease, "shop", "me", None)
    for number in range(7):
        shop.do(snapshots.save_chunk, "shop", generation, 5, number, b"theirs")

    def room(holder: str = "me", seq: int = 5) -> list[int]:
        return [shop.do(snapshots.delete_partial, "shop", generation, seq, holder, 4) for _ in range(3)]

    assert room("another") == [0, 0, 0]
    assert room(seq=0) == [0, 0, 0]  # a snapshot is there
    assert room() == [4, 3, 0]
    for number, part in enumerate((b"ours ", b"are ", b"whole")):
        if number == 2:  # not yet
            assert not shop.do(snapshots.save_snapshot, "shop", generation, 5, b"", shop.now, 3, "me")
        shop.do(snapshots.save_chunk, "shop", generation, 5, number, part)
    assert shop.do(snapshots.save_snapshot, "shop", generation, 5, b"", shop.now, 3, "me")
    found = shop.see(snapshots.snapshot, "shop")
    assert found is not None
    assert found.state == b"ours are whole"
    assert room() == [0, 0, 0]


def test_what_a_large_ranker_leaves_when_it_becomes_small_is_deleted(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with Service(Path(url), snapshot_seconds=0.1) as service:
        life = Life(service)
        life.learn()
        life.act("reset")
        service.put("shop", learner="pairrank", features=names(2), exposure="full")
        left = "SELECT DISTINCT generation, seq FROM snapshot_chunks"
        service.engine.writer.do(lambda c: c.run("UPDATE snapshot_chunks SET seq = 2 WHERE chunk < 3"))  # of before
        assert len(read(url, left)) == 2
        teach(service, "shop", 3, width=2)
        until(lambda: len(read(url, left)) == 1, "what is of no version to go")
    assert not Path(f"{url}-wal").exists()  # whoever looked has closed his connection: one file is all there is


def test_what_is_nobodys_is_found_from_place_to_place(shop: Store) -> None:
    generation = shop.row().generation
    for seq in range(1, 6):
        for number in range(3):
            shop.do(snapshots.save_chunk, "shop", generation, seq, number, b"part")
        if seq < 5:  # the last is under way
            assert shop.do(snapshots.save_snapshot, "shop", generation, seq, b"", shop.now, 3)
        if seq == 2:
            shop.do(snapshots.keep_version, "shop", "", shop.now)
    places = shop.see(snapshots.unused_chunks, "shop")
    assert places == [(generation, 1), (generation, 3)]
    assert [shop.do(snapshots.delete_chunks, "shop", at, 2) for at in (*places, *places, *places)] == [2, 2, 1, 1, 0, 0]
    assert shop.see(snapshots.version_state, "shop", 1) == (2, b"part" * 3)
    assert shop.see(snapshots.unused_chunks, "shop") == []


def test_a_ranker_that_is_being_deleted_has_no_states(shop: Store) -> None:
    shop.do(snapshots.keep_version, "shop", "", shop.now)
    shop.do(snapshots.replace_state, "shop", b"", shop.now, reset=False, cause=Cause("rollback", 1))
    before = shop.see(snapshots.stored_states, "shop")
    shop.do(rankers.delete_ranker, "shop", shop.now)
    assert shop.see(snapshots.load_state, "shop", before[1]) is None


@pytest.mark.slow
def test_a_save_is_waited_for_as_long_as_parts_arrive(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.serving.engine.CURRENT_SECONDS", 4.0)
    path: Any = store_url
    with Service(path, snapshot_seconds=3600) as service:
        life = Life(service)
        life.learn()
        engine, row = service.engine, service.engine.rankers["shop"].row
        saved = threading.Event()
        assert engine.learning is not None
        engine.learning.save(engine.learning.folds["shop"])
        monkeypatch.setattr(engine, "wake_learner", lambda _: None)  # what learns is far away, and slow
        engine.learning.stop()
        service.report(service.rank("shop", items(4, WIDTH)), ["i1"])

        def slowly() -> None:
            for number in range(20):
                time.sleep(0.3)
                engine.writer.do(lambda c, n=number: snapshots.save_chunk(c, "shop", row.generation, 5, n, b"part"))  # type: ignore[misc]
            saved.set()
            engine.writer.do(lambda c: snapshots.save_snapshot(c, "shop", row.generation, 5, b"", 0.0, 10))

        thread = threading.Thread(target=slowly)
        thread.start()
        engine.save_now("shop")
        assert saved.is_set()
        thread.join()
        service.report(service.rank("shop", items(4, WIDTH)), ["i1"])
        engine.save_now("shop")  # nobody saves: what there is has to do


def test_a_version_that_goes_while_a_rollback_waits_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock may drop one that it made."""
    with Service(tmp_path / "a.db") as service:
        life = Life(service)
        life.learn()
        life.keep()
        life.keep()
        gone = "DELETE FROM versions WHERE version = 1"
        monkeypatch.setattr(service.engine, "save_now", lambda _: service.engine.writer.do(lambda c: c.run(gone)))
        answer = service.http.post("/v1/rankers/shop/rollback", json={"version": 1})
        assert refused(answer, 404)


def test_a_version_of_before_the_first_outcome_is_a_start_without_origins_too(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        life = Life(service)
        assert life.keep() == 1
        life.learn()
        service.engine.writer.do(lambda c: c.run("DELETE FROM origins"))
    with open_store(str(tmp_path / "a.db")) as opened:
        found = rebuild(opened, "shop", start=1)
    assert (found.start, found.learned, found.equal) == ("v1", 4, True)
    assert [one.name for one in found.compared] == ["fresh", "snapshot"]
