"""What an operator does with a ranker that knows much: each is a row that is written, and every bit is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.archive.exporting import export_log
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.store import states
from rankloop.service.store.lineage import Came
from rankloop.service.store.migrations import MIGRATIONS
from rankloop.service.store.postgres import PostgresConnection
from rankloop.service.store.sqlite import SQLiteConnection
from tests.service.app_fixtures import Service, fine, names, teach, until
from tests.service.stores import Store, shop, store
from tests.service.truths import read

__all__ = ["shop", "store"]  # fixtures

WIDTH = 30
LARGE, PART = 4096, 1024


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr("rankloop.service.store.states.LARGE", LARGE)
    monkeypatch.setattr("rankloop.service.learning.saving.PART", PART)
    monkeypatch.setattr("rankloop.service.learning.saving.TRIES", 100)


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
        parts = self.service.engine.database.read(lambda c: states.parts_of(c, "shop"))
        assert parts == -(-len(self.states[version]) // PART), "so long a save is waited for"


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
            found = service.engine.database.read(lambda c, v=version: states.version_state(c, "shop", v))  # type: ignore[misc]
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
        assert shop.do(states.save_snapshot, "shop", row.generation, seq, state, shop.now)
        shop.do(states.keep_version, "shop", "by the clock", shop.now, automatic=True)
    shop.do(states.replace_state, "shop", b"", shop.now, reset=False, came=Came("rollback", 1))
    assert shop.do(states.drop_old_versions, "shop", 1) == 1
    assert [one.version for one in shop.see(states.versions, "shop")] == [3, 1]
    found = shop.see(states.snapshot, "shop")
    assert found is not None
    assert found.state == b"one"
    origin = [one for one in shop.see(states.stored, "shop") if one.kind == "origin"][-1]
    assert shop.see(states.state_of, "shop", origin) == b"one"


def test_beside_an_earlier_release_a_state_is_written_whole(store_url: str) -> None:
    """Its processes look for what was rolled back to in the snapshot's own row."""
    path: Any = store_url
    with Service(path, snapshot_seconds=0.2) as service:
        life = Life(service)
        life.learn()
        life.keep()
        before = ("INSERT INTO workers (id, machine, beat, learns, report, knows) VALUES (?, ?, 0, 0, ?, ?)", "old")
        service.engine.writer.do(lambda c: c.run(*before, "there", b"{}", len(MIGRATIONS) - 1))
        life.learn()
        life.act("rollback", version=1)
        until(lambda: service.snapshot("shop") == life.states[1], "v1 to be what is learned")
        rows = read(store_url, "SELECT state FROM origins ORDER BY generation DESC LIMIT 1")
        assert bytes(rows[0][0]) == life.states[1]
