"""Processes of one machine exchange their metrics by files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankloop.service.observability.shared_reports import STALE, SharedReports
from tests.service.running import Service, wait_for

ME, PARENT = f"m/1/2:{os.getpid()}:abc", f"m/1/2:{os.getppid()}:def"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def reports(worker: str = ME, store: str = "store", machine: str = "m/1/2") -> SharedReports:
    return SharedReports(store, machine, worker)


def test_every_process_reads_the_reports_of_all(folder: Path) -> None:
    reports(ME).write(b"one")
    reports(PARENT).write(b"two")
    reports(ME).write(b"newer")
    assert reports().read() == {ME: b"newer", PARENT: b"two"}
    assert reports(store="another").read() == {}
    assert reports(machine="m").read() == {}
    reports(PARENT).remove()
    assert reports().read() == {ME: b"newer"}
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o700}


def test_processes_that_ended_or_stand_still_are_left_out(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = f"m/1/2:{ended.pid}:abc"
    for worker in (gone, ME, PARENT):
        reports(worker).write(b"report")
    (own,) = folder.iterdir()
    (stale,) = own.glob("*def.report")
    os.utime(stale, (0, time.time() - STALE - 1))
    half = own / "half-written"
    half.write_bytes(b"x")
    assert reports().read() == {ME: b"report"}
    os.utime(half, (0, 0))
    reports().read()
    assert len(list(own.iterdir())) == 1


def test_a_folder_that_others_can_use_is_not_used(folder: Path) -> None:
    reports().write(b"report")
    (own,) = folder.iterdir()
    own.chmod(0o777)
    assert reports().read() == {}
    reports().write(b"other")
    reports().remove()
    own.chmod(0o700)
    assert reports().read() == {ME: b"report"}


@pytest.mark.slow
def test_a_scrape_has_the_metrics_of_all_processes_of_the_service(
    tmp_path: Path, start_service: Callable[..., Service]
) -> None:
    service = start_service(store=str(tmp_path / "store.db"), workers=2)

    def workers() -> set[str]:
        text = service.ask("GET", "/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith("process_start_time_seconds{")]
        return {line.partition('worker="')[2].partition('"')[0] for line in lines}

    wait_for(lambda: len(workers()) == 3, "two processes that rank and one that learns")
