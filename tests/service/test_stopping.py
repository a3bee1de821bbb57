"""SIGTERM with notice: /readyz says no before the listener closes, and what comes meanwhile is still answered."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.errors import StoreUnavailable
from rankloop.service.observability import logs
from rankloop.service.settings import Settings
from rankloop.service.supervisor.run import prepare
from tests.service.running import LOST, PATIENCE, Service, wait_for

Start = Callable[..., Service]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_readyz_says_that_it_stops_while_requests_are_still_taken(
    tmp_path: Path, start_service: Start, workers: int
) -> None:
    """A second signal ends the notice."""
    service = start_service(store=tmp_path / "store.db", notice_seconds=1000, workers=workers)
    service.put_ranker("shop", learner="base", parameters={}, features=[])
    assert service.process is not None
    service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: service.ask("GET", "/readyz").json.get("message") == "stopping", "it to say that it stops")
    ranked = service.ask("POST", "/v1/rankers/shop/rank", {"candidates": [{"id": 1}]})
    assert ranked.status == 200
    assert ranked.json["impression_id"]
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(PATIENCE) == 0, service.log()
    with pytest.raises(LOST):
        service.ask("GET", "/healthz")


@pytest.mark.parametrize(("number", "learn_in"), [(signal.SIGINT, "process"), (signal.SIGINT, "thread")])
def test_whoever_stops_it_reads_that_it_stops_and_that_it_has(
    tmp_path: Path, start_service: Start, number: signal.Signals, learn_in: str
) -> None:
    service = start_service(store=tmp_path / "store.db", learn_in=learn_in)
    assert service.process is not None
    assert logs.STOPPING not in service.log()
    service.process.send_signal(number)
    assert service.process.wait(PATIENCE) == 0, service.log()
    assert [service.log().count(line) for line in (f"{logs.STOPPING}\n", f"{logs.STOPPED}\n")] == [1, 1]


def test_ctrl_c_in_a_terminal_reaches_every_process_and_stops_them_without_an_error(
    tmp_path: Path, start_service: Start
) -> None:
    service = start_service(store=tmp_path / "store.db")
    assert service.process is not None
    os.killpg(service.process.pid, signal.SIGINT)
    assert service.process.wait(PATIENCE) == 0, service.log()
    assert "Traceback" not in service.log()


@pytest.mark.slow
def test_the_notice_ends_by_itself(tmp_path: Path, start_service: Start) -> None:
    service = start_service(store=tmp_path / "store.db", notice_seconds=3)
    began = time.monotonic()
    assert service.stop() == 0, service.log()
    assert time.monotonic() - began >= 2.9


def test_a_store_in_a_folder_that_does_not_exist_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as told:
        prepare(Settings(store=str(tmp_path / "no" / "such" / "x.db")))
    assert str(tmp_path / "no" / "such") in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:secret@db/rankloop",
        "postgresql+driver://me:secret@db:5432/rankloop?password=secret",
        "postgresql://me:secret@[db/rankloop",  # PostgreSQL's own message about it quotes all of it
    ],
)
def test_no_error_tells_the_password_of_a_store(url: str) -> None:
    with pytest.raises(InvalidParameter) as told:
        prepare(Settings(store=url))
    assert "sec" not in str(told.value)
