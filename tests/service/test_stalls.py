"""A store that hangs: lists are your order, feedback is refused in time, nothing piles up, all goes on by itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.client import Client
from rankloop.service.errors import StoreUnavailable
from rankloop.service.settings import Settings
from rankloop.service.storage import rankers
from rankloop.service.storage.database import Connection
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE, Answer, Load, Service, wait_for
from tests.service.stores import Store
from tests.service.test_trouble import finish, probes, refusal, shows_the_base_order, works

Start = Callable[..., Service]
CLIENTS = 20
CALLER = 60.0  # seconds after which a caller gives up: a busy machine needs less, a store that hangs never answers


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the write lock of a SQLite file, as a backup or a curious operator may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def resident(service: Service) -> int:
    """Bytes of memory that the service has."""
    lines = Path(f"/proc/{service.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def outlives(service: Service, url: str, stalled: Callable[[], AbstractContextManager[None]]) -> None:
    """A load of many callers, a store that stalls in the middle of it, and what must be true during and after."""
    service.put_ranker("shop", window_seconds=5.0)
    loads = [Load(f"load{i}", service.port, pause=0.2) for i in range(CLIENTS)]
    for load in loads:
        load.start()
    wait_for(lambda: all(load.shown for load in loads), "a first list for everyone")
    wait_for(lambda: sum(len(load.acknowledged) for load in loads) > CLIENTS, "some feedback")
    known = next(iter(loads[0].shown))
    with stalled():
        wait_for(lambda: shows_the_base_order(service), "rankings without the store")
        before = resident(service)
        for _ in range(3):
            refused = refusal(service, known)  # in time: the request itself would fail after CALLER
            assert refused is not None
            assert shows_the_base_order(service)
            assert service.ask("GET", "/healthz", timeout=CALLER).status == 200
        assert resident(service) < before + 64 * 2**20
    wait_for(lambda: works(service), "the service to go on by itself")
    taken = sum(len(load.acknowledged) for load in loads)
    wait_for(lambda: sum(len(load.acknowledged) for load in loads) > taken + CLIENTS, "feedback to be taken again")
    for load in loads:
        load.end()
    loads[0].sent.update(probes(url))
    finish(service, url, loads)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request of these tests is given up as a caller would."""
    ask = Service.ask

    def asked(self: Service, method: str, path: str, body: Any = None, timeout: float = CALLER) -> Answer:
        return ask(self, method, path, body, timeout)

    monkeypatch.setattr(Service, "ask", asked)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_postgresql_that_hangs(postgres: Postgres, start_service: Start) -> None:
    url = postgres.database()
    service = start_service(store=url, store_timeout_ms=500, feedback_timeout_ms=1500)
    outlives(service, url, postgres.hanging)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_sqlite_that_somebody_else_has_locked(tmp_path: Path, start_service: Start) -> None:
    path = tmp_path / "store.db"
    service = start_service(store=path, store_timeout_ms=500, feedback_timeout_ms=1500)
    outlives(service, str(path), lambda: locked(path))


def test_whoever_reports_hears_of_trouble_before_giving_up() -> None:
    """The client's own patience is longer than the service's."""
    with Client() as client:
        assert Settings().feedback_timeout_ms / 1e3 < client._settings["timeout"]


# -- a server that does not come back ------------------------------------------------------------------------------


@pytest.fixture
def hurried(postgres: Postgres, usual_patience: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:  # noqa: ARG001
    """A store as a service has it, with little patience."""
    for name in ("READ_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(f"rankloop.service.storage.postgres.{name}", 3.0)
    store = Store(postgres.database(), time_limits=True)
    store.ranker()
    yield store
    store.close()


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up(postgres: Postgres, hurried: Store) -> None:
    """Neither the server nor TCP says anything: the connection is cut from this side, and another one tried."""
    before = hurried.row().revision
    with postgres.hanging(), pytest.raises(StoreUnavailable):
        hurried.do(rankers.touch, "shop")
    hurried.do(rankers.touch, "shop")
    assert hurried.row().revision == before + 1  # once: what was cut off did not happen


def test_a_process_that_stands_still_gives_back_its_locks(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried = Store(postgres.database(), time_limits=True)
    hurried.ranker()
    monkeypatch.setattr("rankloop.service.storage.postgres.IDLE_SECONDS", 0.5)
    frozen, go, inside = Store(hurried.url), threading.Event(), threading.Event()

    def stand_still(connection: Connection) -> None:
        rankers.touch(connection, "shop")  # and with that the ranker's row is locked
        inside.set()
        go.wait(PATIENCE)

    try:
        write = frozen.writer.run(stand_still)
        assert inside.wait(PATIENCE)
        before = hurried.row().revision
        hurried.do(rankers.touch, "shop")
        assert hurried.row().revision == before + 1
        go.set()
        write.future.result(PATIENCE)  # tried again, on another connection
        assert hurried.row().revision == before + 2
    finally:
        go.set()
        frozen.close()
        hurried.close()


@pytest.mark.slow
def test_readers_give_up_too(postgres: Postgres, hurried: Store) -> None:
    with postgres.hanging():
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                hurried.row()
    wait_for(lambda: hurried.row().name == "shop", "the store to be read again")


def test_after_a_restart_the_first_question_is_answered(postgres: Postgres) -> None:
    """Each connection of the pool is dead then, and only one of them is tried at a time."""
    database = Store(postgres.database()).database
    together = threading.Barrier(6)

    def ask() -> None:
        database.read(lambda connection: (together.wait(PATIENCE), connection.rows("SELECT 1")))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    postgres.restart("immediate")
    assert database.read(lambda connection: connection.rows("SELECT 1")) == [(1,)]
    database.close()
