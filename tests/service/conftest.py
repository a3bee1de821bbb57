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

from tests.service.running import Service


class Postgres:
    """A server of its own in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        # Without it pgserver warns at import, and the default is no place for the sockets of tests anyway.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        pgserver = importlib.import_module("pgserver")
        self._data = folder / "data"
        self._numbers = count()
        self._server = pgserver.get_server(self._data, cleanup_mode=None)
        self._pg_ctl = importlib.import_module("pgserver._commands").pg_ctl

    def database(self) -> str:
        """The URL of an empty store: a schema of its own, which is made in a millisecond, a database is not."""
        name = f"test{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self._server.get_uri()}&options=-csearch_path%3D{name}"

    def control(self, *arguments: str) -> None:
        """`pg_ctl` as whoever runs the server: `restart -m immediate`, `stop -m fast`."""
        self._pg_ctl(
            ["-w", "-l", str(self._data / "log"), *arguments], pgdata=self._data, user=self._server.system_user
        )

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

    def end(self) -> None:
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)
        self.control("stop", "-m", "immediate")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not pytest's folder: run by root, the server is another user, who may not enter that.
    folder = Path(tempfile.mkdtemp(prefix="rankloop-pg-"))
    server = Postgres(folder)
    yield server
    server.end()
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
