"""The tutorial is run as it is printed, but for the port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.running import Service

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8080"


def test_every_command_works_and_says_what_the_page_says(start_service: Callable[..., Service], tmp_path: Path) -> None:
    if subprocess.run(["curl", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no curl on this machine")
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    service = start_service(store=tmp_path / "shop.db")
    url = f"http://127.0.0.1:{service.port}"
    ((script,),) = [re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    (tmp_path / "visits.py").write_text(script.replace(URL, url))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}  # the folder is another
    printed = []
    for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL):
        commands = (
            block.replace(URL, url).replace(".venv/bin/python ", f"{sys.executable} ").replace("curl -s", "curl -sSf")
        )
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        printed.append(done.stdout)
    made, shadow, look, proof, _, full, rolled, promoted = printed
    spec = json.loads(made)["spec"]
    assert (spec["exposure"], spec["learner"], spec["parameters"]["init"]) == ("shadow", "hybrid", "base")
    assert quality(shadow) == pytest.approx(0.54, abs=0.03)
    assert '"learned_impressions": 300' in look
    weights = dict(re.findall(r'"feature": "(.+)",\s+"weight": (\S+),', look))
    assert list(weights)[:3] == ["baseline", "discount", "rating"]
    assert float(weights["baseline"]) == pytest.approx(0.89, abs=0.05)
    assert float(weights["delivery_days"]) > 0
    moved = [float(re.search(rf'"{name}": (\d\S*),\n    "', look)[1]) for name in ("agreement", "same_first")]  # type: ignore[index]
    assert moved == pytest.approx([0.73, 0.45], abs=0.05)
    assert '"queries": 6' in look
    assert '"verdict": "better"' in proof
    assert quality(full) == pytest.approx(0.85, abs=0.06)  # learning runs beside the visits: it varies
    assert json.loads(rolled)["serving"] == "live"
    assert re.findall(r'"serving":"(\w+)"', promoted) == ["v1", "live"]


def quality(printed: str) -> float:
    return float(re.findall(r"NDCG of what was shown: (\S+)", printed)[-1])
