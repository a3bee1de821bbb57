"""A PostgreSQL for the whole session, stores of either kind, and services as processes of their own."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rankloop.service.serving import engine
from rankloop.service.storage import postgres as postgres_store
from rankloop.service.storage import sqlite, writer
from tests.processes import end_with_run, ended
from tests.service.running import Service
from tests.waiting import PATIENCE


def store_patience(patch: pytest.MonkeyPatch, factor: float) -> None:
    """Multiply how long services in this process wait for a disk, a lock, a server or a save before they give up."""
    for module, names in STORE_PATIENCE.items():
        for name, value in names.items():
            patch.setattr(module, name, value * factor)
    patch.setattr(sqlite.SQLiteReader, "_busy_timeout", int(sqlite.READ_SECONDS * 1000))
    patch.setitem(postgres_store.CONNECTION_DEFAULTS, "connect_timeout", int(CONNECT_SECONDS * factor))


STORE_PATIENCE: dict[Any, dict[str, float]] = {
    module: {name: getattr(module, name) for name in names}
    for module, names in {
        writer: ["PATIENCE"],
        sqlite: ["BUSY_SECONDS", "READ_SECONDS"],
        engine: ["CURRENT_SECONDS"],
        postgres_store: ["POOL_SECONDS", "READ_SECONDS", "IDLE_SECONDS", "WRITE_SECONDS"],
    }.items()
}
CONNECT_SECONDS: int = postgres_store.CONNECTION_DEFAULTS["connect_timeout"]


@pytest.fixture(scope="module", autouse=True)
def patient_store() -> Iterator[None]:
    """On a busy machine a store may answer late: that is not what these tests are about."""
    with pytest.MonkeyPatch.context() as patch:
        store_patience(patch, 30.0)
        yield


@pytest.fixture
def usual_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a store that is away: it is given up as soon as in a service."""
    store_patience(monkeypatch, 1.0)


class Postgres:
    """A server of its own in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        # Without it pgserver warns at import, and the default is no place for the sockets of tests anyway.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        pgserver = importlib.import_module("pgserver")
        pg_ctl = importlib.import_module("pgserver._commands").pg_ctl
        # pgserver gives a server ten seconds to start, which is too short beside other work.
        starting: Any = importlib.import_module("pgserver.postgres_server")
        starting.pg_ctl = lambda arguments, **how: pg_ctl(
            ["-t", f"{PATIENCE:g}", *arguments], **{**how, "timeout": PATIENCE}
        )
        self._pg_ctl = pg_ctl
        self._data = folder / "data"
        self._numbers = count()
        self._server = pgserver.get_server(self._data, cleanup_mode=None)
        self._pid = 0
        self._guard()

    def database(self) -> str:
        """The URL of an empty store: a schema of its own, which is made in a millisecond, a database is not."""
        name = f"test{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self._server.get_uri()}&options=-csearch_path%3D{name}"

    def _guard(self) -> None:
        """The server ends with the test run, even if that is killed."""
        if self._pid:
            ended(self._pid)
        self._pid = int((self._data / "postmaster.pid").read_text().split()[0])
        end_with_run(self._pid, signal.SIGQUIT, group=False)

    def restart(self, mode: str) -> None:
        self.control("restart", "-m", mode)
        self._guard()

    def control(self, *arguments: str) -> None:
        """`pg_ctl` as whoever runs the server: `stop -m fast`."""
        how = ["-w", "-t", f"{PATIENCE:g}", "-l", str(self._data / "log")]
        self._pg_ctl([*how, *arguments], pgdata=self._data, user=self._server.system_user)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The server and all its processes stand still: connections stay open, and nothing is answered."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children")
        stopped: list[int] = []

        def stop(process: int) -> None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
                stopped.append(process)

        stop(first)  # so that it makes no more of them
        for process in map(int, children.read_text().split()):
            stop(process)
        try:
            yield
        finally:
            for process in reversed(stopped):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def start(self) -> None:
        """After `stop`: on the same socket as before."""
        self._server.ensure_postgres_running()
        self._guard()

    def end(self) -> None:
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)
        self.control("stop", "-m", "immediate")
        ended(self._pid)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not pytest's folder: run by root, the server is another user, who may not enter that.
    folder = Path(tempfile.mkdtemp(prefix="rankloop-pg-"))
    try:
        server = Postgres(folder)
        yield server
        server.end()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services with given settings; those that still run at the end are killed."""
    started: list[Service] = []

    def start(**settings: Any) -> Service:
        service = Service(tmp_path / f"service-{len(started)}.log", **settings)
        started.append(service)
        service.start()
        return service

    yield start
    for service in started:
        service.kill()
