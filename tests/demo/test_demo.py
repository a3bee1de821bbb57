"""`rankloop demo`, as a newcomer starts it: something to see soon, a clean end, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli.demo import RANKERS
from rankloop.client import Client
from rankloop.core import registry
from rankloop.core.errors import InvalidParameter
from rankloop.demo.run import Demo, specs
from tests.waiting import PATIENCE, wait_for


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "log"
    command = [sys.executable, "-c", "from rankloop.cli import main; main()", "demo", "--no-browser", "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stderr=output, env={**os.environ, "TMPDIR": str(temporary)})
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def address(log: Path) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
    return found[0] if found else None


def ndcg(client: Client, name: str) -> float:
    points = [point.ndcg for point in client.series(name).points if point.ndcg is not None]
    return points[-1] if points else 0.0


@pytest.mark.slow
def test_rankings_learn_before_ones_eyes_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, "--rate", "20") as (process, log):
        url = wait_for(lambda: address(log), "the address")
        with Client(url, timeout=PATIENCE) as client:
            names = [status.name for status in client.rankers()]
            assert {"production", "hybrid"} <= set(names)
            wait_for(lambda: ndcg(client, "hybrid") > ndcg(client, "production") + 0.2, "an improvement")
            assert client.impressions("hybrid", 3)[0].items
            assert client.weights("hybrid").weights
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert "nothing is left behind" in log.read_text()
        assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_a_kill_and_a_closed_terminal_leave_nothing_either(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--rate", "2") as (process, log):
        wait_for(lambda: address(log), "the address")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_it_ends_by_itself(tmp_path: Path) -> None:
    with started(tmp_path, "--minutes", "0.05", "--rate", "2") as (process, log):
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert list((tmp_path / "tmp").iterdir()) == []


def test_rankers_stand_side_by_side_and_each_is_told_of() -> None:
    assert list(specs())[:4] == ["production", "hybrid", "hybrid-bounded", "bubblerank"]
    assert set(specs()) <= set(RANKERS)


@pytest.mark.parametrize("installed", [True, False])
def test_the_neural_one_is_there_if_its_library_is(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    """Whatever this machine has: a learner of this name whose making needs a library."""

    @dataclass
    class Network:
        memory: int = 1000

        def __post_init__(self) -> None:
            if not installed:
                raise ImportError("torch")

    real = registry.learner_class
    monkeypatch.setitem(registry.LEARNERS, "olranknet", registry.LEARNERS["pairrank"])
    monkeypatch.setattr("rankloop.demo.run.learner_class", lambda name: Network if name == "olranknet" else real(name))
    assert ("neural" in specs()) == installed
    monkeypatch.delitem(registry.LEARNERS, "olranknet")
    assert "neural" not in specs()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"minutes": 0.0}, "minutes is 0"), ({"rate": 0.0}, "rate is 0"), ({"rate": 500.0}, "at most 50")],
)
def test_what_cannot_be_is_told(settings: dict[str, float], words: str) -> None:
    given: dict[str, Any] = {"port": 0, "minutes": 1.0, "rate": 1.0, **settings}
    with pytest.raises(InvalidParameter, match=words):
        Demo(tell=lambda _: None, **given)


def test_a_taken_port_is_told_and_the_usual_one_gives_way() -> None:
    first = Demo(0, 1.0, 1.0, lambda _: None)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(InvalidParameter, match=f"port {port} is taken"):
        Demo(port, 1.0, 1.0, lambda _: None)
    for _ in range(2):  # the second finds 8080 taken, if it was not before
        demo = Demo(None, 1.0, 1.0, lambda _: None)
        assert demo.url.startswith("http://127.0.0.1:")
        demo.close()
    first.close()
