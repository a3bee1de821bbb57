"""An upgrade under load: processes of the release before and of this one side by side on one store, one after another.

The release before is the real one, taken from the repository's history and run with its own code. Nobody's request may
fail, whichever process it goes to, and what was acknowledged, learned and saved must be as if nothing had happened.
"""

from __future__ import annotations

import http.client
import logging
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from rankloop.service.storage import open_database, partitions
from rankloop.service.storage.database import Connection
from rankloop.service.storage.migrations import MIGRATIONS, SETTLED
from rankloop.service.storage.sqlite import SQLite
from tests.service.running import PATIENCE, Load, Service, wait_for
from tests.service.stores import T
from tests.service.truths import check_log, check_state

BEFORE = "0e00a28"  # the last commit whose store knows no second steps
ROOT = Path(__file__).parents[2]
EACH = 4.0  # seconds of load on every state of the deployment


class Moving(Load):
    """Sends to each of the ports in turn, which may be others from one request to the next."""

    def __init__(self, name: str, ports: list[int]) -> None:
        super().__init__(name, ports[0], pause=0.01)
        self.ports, self.turns = ports, 0

    def _turn(self) -> None:
        port = self.ports[self.turns % len(self.ports)]
        if port != self._connection.port:
            self._connection.close()
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        super()._turn()
        self.turns += 1


class Deployment:
    """Services behind a balancer: those of the earlier release and those of this one."""

    def __init__(self, folder: Path, store: str) -> None:
        archive = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder / "before", filter="data")
        self._folder, self._store = folder, store
        self.services: dict[str, Service] = {}
        self.loads: list[Moving] = []

    def start(self, name: str, release: str) -> Service:
        """Start one; it gets requests once it is ready, as a balancer sees to."""
        made = self.services[name] = Service(self._folder / f"{name}.log", store=self._store, notice_seconds=0)
        source = self._folder / "before" / "src" if release == "before" else ROOT / "src"
        made._environment["PYTHONPATH"] = os.fspath(source)
        made.start()
        self._balance()
        return made

    def stop(self, name: str) -> None:
        """Stop one, which gets no more requests by then."""
        gone = self.services.pop(name)
        self._balance()
        assert gone.stop() == 0, gone.log()

    def _balance(self) -> None:
        ports = [one.port for one in self.services.values()]
        turns = [(load, load.turns) for load in self.loads]
        for load in self.loads:
            load.ports = ports
        for load, before in turns:
            wait_for(lambda load=load, before=before: load.turns > before + 1, "requests under way")  # type: ignore[misc]

    def end(self) -> None:
        for one in self.services.values():
            one.kill()


@pytest.fixture
def deployment(store_url: str, tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path, store_url)
    yield made
    made.end()


@pytest.mark.slow
def test_nobody_notices_that_the_release_has_changed(deployment: Deployment, store_url: str) -> None:
    deployment.start("old1", "before").put_ranker("shop")
    deployment.start("old2", "before")
    deployment.loads = [Moving(f"load{i}", [one.port for one in deployment.services.values()]) for i in range(4)]
    for load in deployment.loads:
        load.start()
    time.sleep(EACH)

    deployment.start("new1", "this")  # the first step, beside the old ones
    time.sleep(EACH)
    assert steps(store_url) == SETTLED
    deployment.stop("old1")
    deployment.start("old3", "before")  # someone has second thoughts: an old one starts on the store as it is now
    time.sleep(EACH)
    assert steps(store_url) == SETTLED
    deployment.start("new2", "this")
    deployment.stop("old3")
    deployment.stop("old2")
    wait_for(lambda: steps(store_url) == len(MIGRATIONS), "the second step")
    wait_for(lambda: partitioned(store_url), "the log to be partitioned")
    time.sleep(EACH)

    for load in deployment.loads:
        load.end()
    service = deployment.services["new2"]
    # Any learning process closes windows, also one that is about to stop and does not hold the lease.
    wait_for(
        lambda: not any(service.status("shop")[key] for key in ("open_impressions", "unlearned_impressions")),
        "all to be learned",
    )
    for name in list(deployment.services):
        service = deployment.services.pop(name)
        assert service.stop() == 0, service.log()
    assert [answer for load in deployment.loads for answer in load.unranked + load.refused] == []
    assert sum(load.lost for load in deployment.loads) == 0
    outcomes = check_log(store_url, "shop", deployment.loads)
    assert outcomes > 100
    assert check_state(store_url, "shop") == outcomes
    fallbacks = sum(sum(load.reasons.values()) for load in deployment.loads)
    turns = sum(load.turns for load in deployment.loads)
    logging.getLogger(__name__).info("%d requests, %d outcomes, %d fallbacks", turns, outcomes, fallbacks)


def seen(url: str, look: Callable[[Connection], T]) -> T:
    """What a reader sees, who waits for nobody: there are many who write."""
    database = open_database(url)
    try:
        return database.read(look)
    finally:
        database.close()


def steps(url: str) -> int:
    return seen(url, lambda connection: len(connection.rows("SELECT id FROM migrations")))


def partitioned(url: str) -> bool:
    return isinstance(open_database(url), SQLite) or bool(seen(url, partitions.listed))


@pytest.mark.slow
def test_once_the_second_step_is_taken_the_release_before_is_refused(
    deployment: Deployment, store_url: str, start_service: Callable[..., Service]
) -> None:
    start_service(store=store_url).stop()
    with pytest.raises(AssertionError, match="serve it with the release that wrote it"):
        deployment.start("old", "before")
