"""The README's lines work as printed, but for the port."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rankloop.service.settings import Settings
from rankloop.service.supervisor.example import NAME, SPEC, lines
from rankloop.service.supervisor.run import prepare_ranker
from tests.service.running import Service

ROOT = Path(__file__).parents[2]


def test_the_readme_prints_what_the_command_prints() -> None:
    assert lines("http://127.0.0.1:8080") in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_lines_rank_report_and_look(start_service: Callable[..., Service], tmp_path: Path) -> None:
    store = str(tmp_path / "readme.db")
    prepare_ranker(Settings(store=store), NAME, SPEC)
    service = start_service(store=store)
    if subprocess.run(["curl", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no curl on this machine")
    script = lines(f"http://127.0.0.1:{service.port}").replace("/v1/rankers/example\n", "/v1/rankers/example; echo\n")
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, check=True)
    answer = json.loads(done.stderr)
    assert [item["id"] for item in answer["items"]] == ["sandal", "boot", "sneaker"]  # in the order they came
    assert '"status":"accepted"' in done.stdout
    status = json.loads(done.stdout[done.stdout.index('{"name"') :])
    assert status["name"] == "example"
    assert status["closed_impressions"] == 1
