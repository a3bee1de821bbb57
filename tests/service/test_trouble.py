"""A disk that is full, a database that may not be written, one that restarts."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from rankloop.service.control import rankers
from rankloop.service.errors import StoreUnavailable
from rankloop.service.settings import Settings
from rankloop.service.storage.database import Connection
from rankloop.service.supervisor.run import prepare
from rankloop.wire.rankers import Spec
from tests.service.conftest import Postgres
from tests.service.inside import click, rank, running
from tests.service.running import SPEC, Load, Service, children, rank_request, wait_for
from tests.service.truths import check_log, check_state, read, refolded, sent_id, snapshot_of

Start = Callable[..., Service]
USUAL = {"snapshot_seconds": 0.2, "store_timeout_ms": 1000, "feedback_timeout_ms": 4000}


def shows_the_base_order(service: Service) -> bool:
    """Whether a ranking is the caller's own order with nothing to report on, as it must be while the store is down."""
    request = rank_request(random.Random(0))
    answer = service.ask("POST", "/v1/rankers/shop/rank", request)
    assert answer.status == 200, answer
    found = answer.json
    if found["impression_id"] is not None:
        return False
    assert found["fallback"] is True
    assert found["reason"] == "store"
    assert [item["id"] for item in found["items"]] == [c["id"] for c in request["candidates"]]
    return True


def refusal(service: Service, known: str, event: str = "") -> dict[str, Any] | None:
    """What feedback is refused with, None if it is taken."""
    body = {"event_id": event or f"probe-{time.monotonic_ns()}", "impression_id": known, "clicks": []}
    answer = service.ask("POST", "/v1/feedback", body)
    if answer.status == 200:
        return None
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) >= 1
    found: dict[str, Any] = answer.json
    assert found["error"] == "store-unavailable"
    return found


def works(service: Service) -> bool:
    answer = service.ask("POST", "/v1/rankers/shop/rank", rank_request(random.Random(0)))
    return bool(answer.status == 200 and answer.json["impression_id"] is not None and not answer.json["fallback"])


def settled(service: Service) -> bool:
    status = service.status("shop")
    return bool(status["open_impressions"] == 0 and status["unlearned_impressions"] == 0)


def finish(service: Service, url: str, loads: list[Load]) -> None:
    """End the load, drain the service, and hold the store against what was acknowledged."""
    for load in loads:
        load.end()
        assert load.unranked == []  # a ranking never fails because of the store
        assert {answer.status for answer in load.refused} <= {503}
    wait_for(lambda: settled(service), "the last windows to close and all to be learned")
    assert service.stop() == 0, service.log()
    head = check_log(url, "shop", loads)
    assert check_state(url, "shop") == head
    assert refolded(url, "shop") == (head, snapshot_of(url, "shop").state)


# -- a full disk ---------------------------------------------------------------------------------------------------


@contextmanager
def limited_files(service: Service, store: Path) -> Iterator[None]:
    """No file of the process may grow: the write-ahead log, which must, gets an error from the system. No root needed.

    It is another error than a full disk gives (EFBIG), but the same to SQLite and to us.
    """
    most = max(file.stat().st_size for file in store.parent.glob("store.db*"))
    everyone = [service.pid, *children(service.pid)]
    before = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
    for pid in everyone:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, before[1]))
    yield
    for pid in everyone:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def full_disk(_: Service, store: Path) -> Iterator[None]:
    """A disk on which another file takes what is left."""
    ballast = store.parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield
    ballast.unlink()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 16 MB, where the tests may mount one."""
    folder = Path(tempfile.mkdtemp(prefix="rankloop-disk-"))
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        folder.rmdir()
        pytest.skip("mounting a small disk needs root; the limit on file sizes is tested in its place")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def outlives(start_service: Start, store: Path, filled: Callable[[Service, Path], Any]) -> None:
    service = start_service(store=store, **USUAL)
    service.put_ranker("shop")
    load = Load("load", service.port)
    load.start()
    known = wait_for(lambda: next(iter(load.shown), None), "a first list")
    wait_for(lambda: len(load.acknowledged) > 50, "some feedback")
    with filled(service, store):
        wait_for(lambda: refusal(service, known), "feedback to be refused")
        assert wait_for(lambda: shows_the_base_order(service), "rankings without the store")
        for _ in range(5):
            # Whoever is refused is told why, and what to do; whoever is answered has it on the disk.
            refused = refusal(service, known, "probe-again")
            assert refused is None or "make room on the disk" in refused["message"], refused
            assert service.ask("GET", "/healthz").status == 200
            time.sleep(0.1)
    wait_for(lambda: works(service), "the service to go on by itself")
    before = len(load.acknowledged)
    wait_for(lambda: len(load.acknowledged) > before + 50, "feedback to be taken again")
    assert refusal(service, known, "probe-again") is None
    load.sent.update(probes(str(store)))
    assert "probe-again" in load.sent
    finish(service, str(store), [load])


def probes(url: str) -> dict[str, dict[str, Any]]:
    """Events that this test sent beside the load."""
    rows = read(url, "SELECT event_id, body FROM events WHERE event_id LIKE ?", "%probe-%")
    return {sent_id(name): msgspec.json.decode(body) for name, body in rows}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes another process's limits")
def test_files_that_may_not_grow(tmp_path: Path, start_service: Start) -> None:
    outlives(start_service, tmp_path / "store.db", limited_files)


@pytest.mark.slow
def test_a_full_disk(small_disk: Path, start_service: Start) -> None:
    outlives(start_service, small_disk / "store.db", full_disk)


# -- a database that may not be written ----------------------------------------------------------------------------


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user to whom rights apply: root ignores them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_without_rights_is_refused_at_the_start() -> None:
    folder = Path(tempfile.mkdtemp(prefix="rankloop-rights-"))
    try:
        settings = Settings(store=str(folder / "store.db"))
        prepare(settings)
        (folder / "store.db").chmod(0o444)
        folder.chmod(0o555)
        with without_rights(), pytest.raises(StoreUnavailable, match=r"right to write|may be written"):
            prepare(settings)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_read_only_sqlite_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own error for a file it may not write, on every connection that the writer opens."""
    with running(
        Settings(store=str(tmp_path / "store.db"), snapshot_seconds=0.05, store_timeout_ms=60_000.0)
    ) as engine:
        rankers.put(engine, "shop", Spec(**SPEC))
        connect = engine.database.connect

        def read_only() -> Connection:
            connection = connect()
            connection.run("PRAGMA query_only = 1")
            return connection

        async def story() -> None:
            one = await rank(engine)
            assert one.impression_id is not None
            monkeypatch.setattr(engine.database, "connect", read_only)
            engine.writer.do(lambda connection: connection.run("PRAGMA query_only = 1"))
            assert engine.writer._loop_connection is not None
            engine.writer._loop_connection.run("PRAGMA query_only = 1")
            with pytest.raises(StoreUnavailable):
                await click(engine, "e1", one)
            fallback = await rank(engine)
            assert (fallback.impression_id, fallback.fallback, fallback.reason) == (None, True, "store")
            assert rankers.status(engine, "shop").closed_impressions == 0
            monkeypatch.undo()
            with suppress(StoreUnavailable):  # the last connection that may not write, if it is still there
                await click(engine, "e0", one, final=False)
            assert (await click(engine, "e1", one)) == ["accepted"]
            assert (await rank(engine)).impression_id is not None

        asyncio.run(story())


@pytest.mark.slow
def test_a_read_only_postgresql_and_back(postgres: Postgres, start_service: Start) -> None:
    """As after a failover to a standby: every transaction is read-only until someone promotes it."""
    url = postgres.database()
    service = start_service(store=url, **USUAL)
    service.put_ranker("shop")
    load = Load("load", service.port)
    load.start()
    known = wait_for(lambda: next(iter(load.shown), None), "a first list")

    def read_only(state: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {state}".encode())
            connection.execute("SELECT pg_reload_conf()")

    read_only("on")
    try:
        refused = wait_for(lambda: refusal(service, known), "feedback to be refused")
        assert "read-only" in refused["message"]
        assert wait_for(lambda: shows_the_base_order(service), "rankings without the store")
    finally:
        read_only("off")
    wait_for(lambda: works(service), "the service to go on by itself")
    load.sent.update(probes(url))
    finish(service, url, [load])


# -- a database that restarts --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_postgresql_restarts_under_load(postgres: Postgres, start_service: Start) -> None:
    """With `everything` not even a list is lost by a server that ends without a word."""
    url = postgres.database()
    service = start_service(store=url, **USUAL, durability="everything")
    service.put_ranker("shop")
    loads = [Load(f"load{i}", service.port) for i in range(2)]
    for load in loads:
        load.start()

    def taken() -> int:
        return min(len(load.acknowledged) for load in loads)

    for mode in ("immediate", "fast", "immediate"):
        enough = taken() + 20
        wait_for(partial(lambda number: taken() > number, enough), "feedback")
        postgres.restart(mode)
    wait_for(lambda: works(service), "the service to go on by itself")
    finish(service, url, loads)


@pytest.mark.slow
def test_feedback_outlives_a_crash_of_postgresql(postgres: Postgres, start_service: Start) -> None:
    """Lists of the last moment may be lost with it, but none that acknowledged feedback is about."""
    url = postgres.database()
    service = start_service(store=url, **USUAL)
    service.put_ranker("shop")
    loads = [Load(f"load{i}", service.port) for i in range(2)]
    for load in loads:
        load.start()
    for _ in range(4):
        enough = min(len(load.acknowledged) for load in loads) + 20
        wait_for(lambda n=enough: min(len(load.acknowledged) for load in loads) > n, "feedback")  # type: ignore[misc]
        postgres.restart("immediate")
    wait_for(lambda: works(service), "the service to go on by itself")
    for load in loads:
        load.end()
        assert load.unranked == []
    assert service.stop() == 0, service.log()
    rows = read(url, "SELECT e.event_id, i.id FROM events e JOIN impressions i ON i.id = e.impression_id")
    stored = {sent_id(name): own for name, own in rows}
    for load in loads:
        taken = {event for event, found in load.acknowledged.items() if found[0] in ("accepted", "late", "duplicate")}
        assert len(taken) > 50
        assert {event: load.sent[event]["impression_id"] for event in taken}.items() <= stored.items()


@pytest.mark.slow
def test_postgresql_is_away_for_a_while(postgres: Postgres, start_service: Start) -> None:
    url = postgres.database()
    service = start_service(store=url, **{**USUAL, "store_timeout_ms": 200})
    service.put_ranker("shop")
    load = Load("load", service.port)
    load.start()
    known = wait_for(lambda: next(iter(load.shown), None), "a first list")
    wait_for(lambda: len(load.acknowledged) > 20, "feedback")
    postgres.control("stop", "-m", "fast")
    try:
        assert wait_for(lambda: shows_the_base_order(service), "rankings without the store")
        refused = wait_for(lambda: refusal(service, known), "feedback to be refused")
        assert "cannot be reached" in refused["message"]
        assert service.ask("GET", "/healthz").status == 200
        assert service.ask("GET", "/v1/rankers/shop").status == 503
    finally:
        postgres.start()
    wait_for(lambda: works(service), "the service to go on by itself")
    before = len(load.acknowledged)
    wait_for(lambda: len(load.acknowledged) > before + 20, "feedback")
    load.sent.update(probes(url))
    finish(service, url, [load])


@pytest.mark.slow
def test_a_drain_without_the_database(postgres: Postgres, start_service: Start) -> None:
    """It cannot save, and need not: the log is safe. But it must end."""
    url = postgres.database()
    service = start_service(store=url, **{**USUAL, "snapshot_seconds": 1000})
    service.put_ranker("shop")
    load = Load("load", service.port)
    load.start()
    wait_for(lambda: len(load.acknowledged) > 20, "feedback")
    postgres.control("stop", "-m", "fast")
    try:
        assert service.stop() == 0, service.log()
    finally:
        load.end()
        postgres.start()
    service.start()
    wait_for(lambda: settled(service), "the last windows to close and all to be learned")
    finish(service, url, [load])
