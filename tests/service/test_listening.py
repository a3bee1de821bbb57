"""A port that cannot be had is told in one line, before anything is said to be served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.settings import Settings
from rankloop.service.supervisor.run import bind, url
from tests.waiting import PATIENCE


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_port_that_is_taken(tmp_path: Path, workers: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKLOOP_")}
        command = [sys.executable, "-c", "from rankloop.cli import main; main()", "serve", "--port", str(port)]
        command += ["--store", str(tmp_path / "s.db"), "--workers", str(workers), "--example"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode not in (0, None)
    said = (ended.stdout + ended.stderr).strip()
    assert f"port {port} of 127.0.0.1 is taken" in " ".join(said.split())
    assert "serves" not in said
    assert "Traceback" not in said
    assert "Errno" not in said


@pytest.mark.parametrize(
    ("host", "word"),
    [("203.0.113.7", "no address of this machine"), ("no-such-host.invalid", "no-such-host.invalid")],
)
def test_a_host_that_is_not_here(host: str, word: str) -> None:
    with pytest.raises(InvalidParameter, match=word):
        bind(Settings(host=host, port=0))


def test_a_free_port_is_told_by_its_number() -> None:
    for host in ("127.0.0.1", "localhost"):
        settings = Settings(host=host, port=0)
        sockets = bind(settings)
        port = sockets[0].getsockname()[1]
        assert port > 0
        assert url(settings, sockets) == f"http://{host}:{port}"
        for one in sockets:
            one.close()
